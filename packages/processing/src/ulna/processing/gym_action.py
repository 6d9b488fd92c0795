# SPDX-License-Identifier: Apache-2.0
"""Actions between Gymnasium (numpy) and policies (torch)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ulna.core.errors import ProcessorError
from ulna.core.pipeline import PipelineFeatures, ProcessorStep
from ulna.core.types import EnvTransition, TransitionKey

__all__ = ["Numpy2TorchActionProcessorStep", "Torch2NumpyActionProcessorStep"]

_TELEOP_ACTION = "teleop_action"


class Torch2NumpyActionProcessorStep(ProcessorStep):
    """Makes an action tensor into an array.

    Args:
        squeeze_batch_dim: Whether (1, A) becomes (A,).
    """

    registry_name: ClassVar[str] = "torch2numpy_action_processor"

    def __init__(self, squeeze_batch_dim: bool = True) -> None:
        self.squeeze_batch_dim = squeeze_batch_dim

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Convert the action.

        Raises:
            ProcessorError: The action is no tensor.
        """
        action = transition.get(TransitionKey.ACTION)
        if action is None:
            return transition
        if not isinstance(action, Tensor):
            raise ProcessorError(f"torch2numpy_action_processor takes a tensor, got {type(action).__name__}.")
        array = action.detach().cpu().to(torch.float32 if action.dtype == torch.bfloat16 else action.dtype).numpy()
        if self.squeeze_batch_dim and array.ndim > 1 and array.shape[0] == 1:
            array = array[0]
        return {**transition, TransitionKey.ACTION: array}

    def get_config(self) -> dict[str, Any]:
        """Return whether the batch axis is removed."""
        return {"squeeze_batch_dim": self.squeeze_batch_dim}

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Return the features unchanged."""
        return features


class Numpy2TorchActionProcessorStep(ProcessorStep):
    """Makes an action array into a float32 tensor, and the teleoperator's action beside it."""

    registry_name: ClassVar[str] = "numpy2torch_action_processor"

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Convert the action.

        Raises:
            ProcessorError: The action is no array.
        """
        converted = dict(transition)
        action = transition.get(TransitionKey.ACTION)
        if action is not None:
            if not isinstance(action, np.ndarray):
                raise ProcessorError(f"numpy2torch_action_processor takes an array, got {type(action).__name__}.")
            converted[TransitionKey.ACTION] = torch.from_numpy(np.ascontiguousarray(action)).to(torch.float32)
        data = transition.get(TransitionKey.COMPLEMENTARY_DATA) or {}
        if isinstance(data.get(_TELEOP_ACTION), np.ndarray):
            teleop = torch.from_numpy(np.ascontiguousarray(data[_TELEOP_ACTION])).to(torch.float32)
            converted[TransitionKey.COMPLEMENTARY_DATA] = {**data, _TELEOP_ACTION: teleop}
        return converted

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Return the features unchanged."""
        return features
