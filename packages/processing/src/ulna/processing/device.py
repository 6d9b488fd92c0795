# SPDX-License-Identifier: Apache-2.0
"""Moving a transition to a device, and to another float type."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ulna.core.errors import ProcessorError
from ulna.core.pipeline import PipelineFeatures, ProcessorStep
from ulna.core.types import EnvTransition, TransitionKey

__all__ = ["DeviceProcessorStep"]

_FLOAT_TYPES = {
    "float16": torch.float16,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float": torch.float32,
    "float64": torch.float64,
    "double": torch.float64,
}
_SINGLE = (TransitionKey.ACTION, TransitionKey.REWARD, TransitionKey.DONE, TransitionKey.TRUNCATED)
_NESTED = (TransitionKey.OBSERVATION, TransitionKey.COMPLEMENTARY_DATA)


class DeviceProcessorStep(ProcessorStep):
    """Moves tensors of a transition to a device; floats may change their type.

    A tensor that is already on a GPU stays on that very GPU when the device asked for is a GPU too.

    Args:
        device: cpu, cuda, cuda:1, mps, xpu.
        float_dtype: Type of float tensors afterwards; default unchanged.

    Raises:
        ProcessorError: Unknown float type.
    """

    registry_name: ClassVar[str] = "device_processor"

    def __init__(self, device: str = "cpu", float_dtype: str | None = None) -> None:
        if float_dtype is not None and float_dtype not in _FLOAT_TYPES:
            raise ProcessorError(f"float_dtype {float_dtype!r} is unknown; known are {', '.join(_FLOAT_TYPES)}.")
        self.device, self.float_dtype = str(device), float_dtype
        self._target = torch.device(device)
        self._dtype = None if float_dtype is None else _FLOAT_TYPES[float_dtype]

    def _moved(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        target = value.device if value.is_cuda and self._target.type == "cuda" else self._target
        dtype = value.dtype
        if value.is_floating_point():
            dtype = self._dtype or dtype
            if target.type == "mps" and dtype == torch.float64:
                dtype = torch.float32
        return value.to(target, dtype, non_blocking=target.type == "cuda")

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Move action, reward, flags, observation and complementary data."""
        action = transition.get(TransitionKey.ACTION)
        if action is not None and not isinstance(action, Tensor):
            raise ProcessorError(f"device_processor moves an action tensor, got {type(action).__name__}.")
        moved = dict(transition)
        for key in _SINGLE:
            if key in moved:
                moved[key] = self._moved(moved[key])
        for key in _NESTED:
            if moved.get(key):
                moved[key] = {name: self._moved(value) for name, value in moved[key].items()}
        return moved

    def get_config(self) -> dict[str, Any]:
        """Return device and float type."""
        return {"device": self.device, "float_dtype": self.float_dtype}

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Return the features unchanged."""
        return features
