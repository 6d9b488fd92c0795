# SPDX-License-Identifier: Apache-2.0
"""Actions between robots (key to number) and policies (a tensor in a fixed order of names)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ulna.core.constants import ACTION
from ulna.core.errors import ProcessorError
from ulna.core.features import FeatureType, PipelineFeatureType, PolicyFeature
from ulna.core.pipeline import PipelineFeatures, ProcessorStep
from ulna.core.types import EnvTransition, TransitionKey

__all__ = ["PolicyActionToRobotActionProcessorStep", "RobotActionToPolicyActionProcessorStep"]


class _NamedMotors(ProcessorStep):
    """Shared by both directions.

    Args:
        motor_names: Motors in the order of the tensor.
    """

    def __init__(self, motor_names: Sequence[str]) -> None:
        self.motor_names = list(motor_names)

    def get_config(self) -> dict[str, Any]:
        """Return the names."""
        return {"motor_names": list(self.motor_names)}


class RobotActionToPolicyActionProcessorStep(_NamedMotors):
    """Makes `{"<motor>.pos": number}` into a tensor (A,), by name."""

    registry_name: ClassVar[str] = "robot_action_to_policy_action_processor"

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Convert the action.

        Raises:
            ProcessorError: The action is no mapping, or its names differ.
        """
        action = transition.get(TransitionKey.ACTION)
        keys = [f"{name}.pos" for name in self.motor_names]
        if not isinstance(action, Mapping) or set(action) != set(keys):
            got = sorted(action) if isinstance(action, Mapping) else type(action).__name__
            raise ProcessorError(f"Expected an action with exactly {keys}, got {got}.")
        values = torch.tensor([float(action[key]) for key in keys], dtype=torch.float32)
        return {**transition, TransitionKey.ACTION: values}

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Declare one action vector."""
        action = {ACTION: PolicyFeature(FeatureType.ACTION, (len(self.motor_names),))}
        return {**features, PipelineFeatureType.ACTION: {**features.get(PipelineFeatureType.ACTION, {}), **action}}


class PolicyActionToRobotActionProcessorStep(_NamedMotors):
    """Makes a tensor (A,) or (1, A) into `{"<motor>.pos": number}`."""

    registry_name: ClassVar[str] = "policy_action_to_robot_action_processor"

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Convert the action.

        Raises:
            ProcessorError: The action is no tensor, or has another length.
        """
        action = transition.get(TransitionKey.ACTION)
        if not isinstance(action, Tensor):
            raise ProcessorError(f"Expected an action tensor, got {type(action).__name__}.")
        values = action[0] if action.dim() == 2 and action.shape[0] == 1 else action
        if values.shape != (len(self.motor_names),):
            raise ProcessorError(
                f"Expected {len(self.motor_names)} values, got a tensor of shape {tuple(action.shape)}."
            )
        named = {f"{name}.pos": values[i] for i, name in enumerate(self.motor_names)}
        return {**transition, TransitionKey.ACTION: named}

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Declare one action for each motor."""
        action = {f"{name}.pos": PolicyFeature(FeatureType.ACTION, (1,)) for name in self.motor_names}
        return {**features, PipelineFeatureType.ACTION: {**features.get(PipelineFeatureType.ACTION, {}), **action}}
