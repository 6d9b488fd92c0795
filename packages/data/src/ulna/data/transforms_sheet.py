# SPDX-License-Identifier: Apache-2.0
"""Draws one picture that shows what random changes do to a frame of a dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from ulna.core.errors import DatasetError, nearest
from ulna.core.files import atomic_path
from ulna.data.dataset import LeRobotDataset
from ulna.data.image_transforms import ImageTransforms, Transform
from ulna.data.image_transforms_config import ImageTransformsConfig

__all__ = ["draw_sheet"]

_WIDTH, _GAP, _TITLE = 240, 6, 16


def draw_sheet(
    dataset: str,
    root: Path | None,
    config: ImageTransformsConfig,
    output: Path,
    *,
    camera: str | None = None,
    frame: int = 0,
    examples: int = 5,
    seed: int = 0,
) -> list[str]:
    """Write a PNG: the original in front, one row of examples for each transform and one for all together.

    Args:
        dataset: `user/name`, or the folder of a dataset.
        root: Its folder, if it is not found by name.
        config: The transforms.
        output: The PNG.
        camera: The camera; the first colour camera when not given.
        frame: Position of the frame.
        examples: Examples in a row.
        seed: Seed of the random numbers.

    Returns:
        Names of the rows.

    Raises:
        DatasetError: There is no such camera or frame.
        ConfigError: A transform cannot be made.
    """
    opened = LeRobotDataset(dataset, root, return_uint8=True)
    colour = [key for key in opened.meta.camera_keys if key not in opened.meta.depth_keys]
    key = colour[0] if camera is None and colour else camera
    if key not in colour:
        near = nearest(str(key), colour)
        raise DatasetError(
            f"{key!r} is not a colour camera of the dataset; it has {colour}.",
            hint=f"Did you mean {near!r}?" if near else None,
        )
    if not 0 <= frame < len(opened):
        raise DatasetError(f"There is no frame {frame}; the dataset has {len(opened)}, numbered from 0.")
    every = ImageTransforms(config)
    rows: dict[str, Transform] = {**every.transforms, "all together": every}
    picture = opened[frame][key]
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        strips = {name: [change(picture) for _ in range(examples)] for name, change in rows.items()}
    finally:
        torch.random.set_rng_state(state)
    _write(output, picture, strips)
    return list(rows)


def _write(output: Path, picture: torch.Tensor, strips: dict[str, list[torch.Tensor]]) -> None:
    height = round(picture.shape[-2] * _WIDTH / picture.shape[-1])
    columns = 1 + max(len(strip) for strip in strips.values())
    size = (columns * (_WIDTH + _GAP) + _GAP, len(strips) * (height + _GAP + _TITLE) + _GAP)
    sheet = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(sheet)
    for row, (name, strip) in enumerate(strips.items()):
        top = _GAP + row * (height + _GAP + _TITLE)
        pen.text((_GAP, top), name, fill="black")
        for column, changed in enumerate([picture, *strip]):
            pixels = np.ascontiguousarray(changed.permute(1, 2, 0).numpy())
            small = Image.fromarray(pixels).resize((_WIDTH, height), Image.Resampling.LANCZOS)
            sheet.paste(small, (_GAP + column * (_WIDTH + _GAP), top + _TITLE))
    with atomic_path(output) as temporary:
        sheet.save(temporary, format="png")
