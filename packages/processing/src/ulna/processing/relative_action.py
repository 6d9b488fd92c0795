# SPDX-License-Identifier: Apache-2.0
"""Actions relative to the present state, and back: a pair of steps; the second asks the first for the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ulna.core.constants import OBS_STATE
from ulna.core.errors import ProcessorError
from ulna.core.pipeline import PipelineFeatures, ProcessorStep
from ulna.core.types import EnvTransition, TransitionKey

__all__ = ["AbsoluteActionsProcessorStep", "RelativeActionsProcessorStep"]


def _shifted(action: Tensor, state: Tensor, mask: Sequence[bool], sign: int) -> Tensor:
    """Add `sign` times the masked state to the first dimensions of an action (B, A) or (B, T, A)."""
    size = min(len(mask), action.shape[-1], state.shape[-1])
    offset = torch.zeros_like(state[..., :size])
    keep = torch.tensor(list(mask[:size]), dtype=torch.bool, device=state.device)
    offset = torch.where(keep, state[..., :size], offset).to(device=action.device, dtype=action.dtype)
    if action.dim() == offset.dim() + 1:
        offset = offset.unsqueeze(-2)
    result = action.clone()
    result[..., :size] += sign * offset
    return result


class RelativeActionsProcessorStep(ProcessorStep):
    """Subtracts the present state from actions, and remembers the state for its partner.

    Args:
        enabled: Whether it does anything to the action.
        exclude_joints: Joints left absolute: those whose action name contains one of these, case aside.
        action_names: Names of the action dimensions; needed for `exclude_joints`.
    """

    registry_name: ClassVar[str] = "relative_actions_processor"

    def __init__(
        self, enabled: bool = False, exclude_joints: Sequence[str] = (), action_names: Sequence[str] | None = None
    ) -> None:
        self.enabled, self.exclude_joints = enabled, list(exclude_joints)
        self.action_names = None if action_names is None else list(action_names)
        self._last_state: Tensor | None = None

    def mask(self, size: int) -> list[bool]:
        """Return which dimensions are relative.

        Args:
            size: Dimensions of the action.
        """
        if not self.exclude_joints or self.action_names is None:
            return [True] * size
        tokens = [token.lower() for token in self.exclude_joints if token]
        mask = [not any(token in name.lower() for token in tokens) for name in self.action_names[:size]]
        return mask + [True] * (size - len(mask))

    @property
    def last_state(self) -> Tensor | None:
        """State of the newest observation seen."""
        return self._last_state

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Make the action relative."""
        observation = transition.get(TransitionKey.OBSERVATION) or {}
        state = observation.get(OBS_STATE)
        if state is not None:
            self._last_state = state
        action = transition.get(TransitionKey.ACTION)
        if not self.enabled or action is None or state is None:
            return transition
        relative = _shifted(action, state, self.mask(action.shape[-1]), -1)
        return {**transition, TransitionKey.ACTION: relative}

    def reset(self) -> None:
        """Forget the state of the past episode."""
        self._last_state = None

    def get_config(self) -> dict[str, Any]:
        """Return all options."""
        return {"enabled": self.enabled, "exclude_joints": self.exclude_joints, "action_names": self.action_names}

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Return the features unchanged."""
        return features


class AbsoluteActionsProcessorStep(ProcessorStep):
    """Adds the state its partner remembers to actions.

    Args:
        enabled: Whether it does anything.
        relative_step: The partner; linked after loading when it is not given.
    """

    registry_name: ClassVar[str] = "absolute_actions_processor"

    def __init__(self, enabled: bool = False, relative_step: RelativeActionsProcessorStep | None = None) -> None:
        self.enabled, self.relative_step = enabled, relative_step

    def link(self, steps: Sequence[ProcessorStep]) -> None:
        """Find the partner among the steps of the other pipeline.

        Args:
            steps: Those steps.
        """
        if self.relative_step is None:
            self.relative_step = next((s for s in steps if isinstance(s, RelativeActionsProcessorStep)), None)

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Make the action absolute.

        Raises:
            ProcessorError: There is no partner, or it has seen no state yet.
        """
        action = transition.get(TransitionKey.ACTION)
        if not self.enabled or action is None:
            return transition
        if self.relative_step is None or self.relative_step.last_state is None:
            raise ProcessorError(
                "absolute_actions_processor does not know the state to add.",
                hint="Load both pipelines with make_pre_post_processors, and run the preprocessor first.",
            )
        state = self.relative_step.last_state
        absolute = _shifted(action, state, self.relative_step.mask(action.shape[-1]), 1)
        return {**transition, TransitionKey.ACTION: absolute}

    def get_config(self) -> dict[str, Any]:
        """Return whether it is enabled; the partner is found again after loading."""
        return {"enabled": self.enabled}

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Return the features unchanged."""
        return features
