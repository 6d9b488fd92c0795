# SPDX-License-Identifier: Apache-2.0
"""Turning an environment's raw observation (numpy, channel last) into the keys and layout of policies."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ulna.core.constants import OBS_ENV_STATE, OBS_IMAGE, OBS_IMAGES, OBS_STATE
from ulna.core.errors import ProcessorError
from ulna.core.features import PipelineFeatureType
from ulna.core.pipeline import PipelineFeatures, ProcessorStep
from ulna.core.types import EnvTransition, TransitionKey

__all__ = ["VanillaObservationProcessorStep", "image_to_tensor"]

_STATES = {"environment_state": OBS_ENV_STATE, "agent_pos": OBS_STATE}
_PIXELS = "pixels"


def image_to_tensor(image: Any, key: str = _PIXELS) -> Tensor:
    """Turn a picture into what policies take.

    Args:
        image: uint8 (H, W, C) or (B, H, W, C), array or tensor.
        key: Its key, for messages.

    Returns:
        float32 (B, C, H, W) in [0, 1].

    Raises:
        ProcessorError: Not uint8, or not channel last.
    """
    tensor = torch.as_tensor(np.ascontiguousarray(image) if isinstance(image, np.ndarray) else image)
    if tensor.dim() == 3:
        tensor = tensor.unsqueeze(0)
    _, height, width, channels = tensor.shape if tensor.dim() == 4 else (0, 0, 0, 1)
    if not (channels < height and channels < width):
        raise ProcessorError(f"{key}: expected a channel-last picture (B, H, W, C), got shape {tuple(tensor.shape)}.")
    if tensor.dtype != torch.uint8:
        raise ProcessorError(f"{key}: expected uint8, got {tensor.dtype}.")
    return tensor.permute(0, 3, 1, 2).contiguous().to(torch.float32) / 255


class VanillaObservationProcessorStep(ProcessorStep):
    """Renames `pixels`, `agent_pos` and `environment_state`, and makes them batched float tensors."""

    registry_name: ClassVar[str] = "observation_processor"

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Convert the observation; keys it does not know are kept.

        Raises:
            ProcessorError: A picture is not uint8 or not channel last.
        """
        observation = transition.get(TransitionKey.OBSERVATION)
        if not observation:
            return transition
        return {**transition, TransitionKey.OBSERVATION: self._converted(observation)}

    def _converted(self, observation: dict[str, Any]) -> dict[str, Any]:
        converted: dict[str, Any] = {}
        for key, value in observation.items():
            if key == _PIXELS and isinstance(value, dict):
                converted.update({f"{OBS_IMAGES}.{n}": image_to_tensor(v, f"{key}.{n}") for n, v in value.items()})
            elif key == _PIXELS:
                converted[OBS_IMAGE] = image_to_tensor(value, key)
            elif key in _STATES:
                state = torch.as_tensor(np.asarray(value)).to(torch.float32)
                converted[_STATES[key]] = state.unsqueeze(0) if state.dim() == 1 else state
            else:
                converted[key] = value
        return converted

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Rename the observation features as `__call__` renames the keys."""
        observation = {}
        for key, feature in features.get(PipelineFeatureType.OBSERVATION, {}).items():
            bare = key.removeprefix("observation.")
            if bare == _PIXELS:
                key = OBS_IMAGE
            elif bare.startswith(f"{_PIXELS}."):
                key = f"{OBS_IMAGES}.{bare.removeprefix(f'{_PIXELS}.')}"
            else:
                key = _STATES.get(bare, key)
            observation[key] = feature
        return {**features, PipelineFeatureType.OBSERVATION: observation}
