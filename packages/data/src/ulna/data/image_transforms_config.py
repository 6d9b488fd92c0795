# SPDX-License-Identifier: Apache-2.0
"""Settings of the random changes that colour pictures get while training. Needs no torch; the changes themselves do."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ulna.core.config import Config

__all__ = ["ImageTransformConfig", "ImageTransformsConfig"]


class ImageTransformConfig(Config):
    """One random change of pictures."""

    weight: float = Field(1.0, ge=0, description="How often it is drawn, relative to the others.")
    type: str = Field("Identity", description="Class of the transform: one of torchvision.transforms.v2, or ours.")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="Its arguments.")


def _default_transforms() -> dict[str, ImageTransformConfig]:
    jitters = {"brightness": (0.8, 1.2), "contrast": (0.8, 1.2), "saturation": (0.5, 1.5), "hue": (-0.05, 0.05)}
    found = {n: ImageTransformConfig(type="ColorJitter", kwargs={n: list(span)}) for n, span in jitters.items()}
    found["sharpness"] = ImageTransformConfig(type="SharpnessJitter", kwargs={"sharpness": [0.5, 1.5]})
    affine = {"degrees": [-5.0, 5.0], "translate": [0.05, 0.05]}
    found["affine"] = ImageTransformConfig(type="RandomAffine", kwargs=affine)
    return found


class ImageTransformsConfig(Config):
    """Random changes of the colour pictures while training."""

    enable: bool = Field(False, description="Whether pictures are changed.")
    max_num_transforms: int = Field(3, ge=0, description="Most transforms applied to one picture.")
    random_order: bool = Field(False, description="Whether they are applied in random order.")
    tfs: dict[str, ImageTransformConfig] = Field(
        default_factory=_default_transforms, description="Name to transform; they are drawn by weight."
    )
