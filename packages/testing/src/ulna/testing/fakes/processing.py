# SPDX-License-Identifier: Apache-2.0
"""A fake processor step with settings and state, and the fake policy's pipelines made of it. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ulna.core.constants import ACTION, OBS_STATE, POSTPROCESSOR_NAME, PREPROCESSOR_NAME
from ulna.core.pipeline import DataProcessorPipeline, PipelineFeatures, ProcessorStep
from ulna.core.policy_config import PreTrainedConfig
from ulna.core.transitions import policy_action_to_transition, transition_to_policy_action
from ulna.core.types import EnvTransition, TransitionKey

__all__ = ["FakeScaleStep", "make_fake_processors"]


class FakeScaleStep(ProcessorStep):
    """Divides some values by their scale, or multiplies them when `inverse`.

    Args:
        keys: Keys of the observation, and `action` for the action.
        inverse: Whether it multiplies.
        scale: Key to scale; learnt values are its state.
    """

    registry_name: ClassVar[str] = "fake_scale"

    def __init__(
        self, keys: list[str] | None = None, inverse: bool = False, scale: Mapping[str, Any] | None = None
    ) -> None:
        self.keys = list(keys or [])
        self.inverse = inverse
        self.scale: dict[str, Tensor] = {k: torch.as_tensor(v, dtype=torch.float32) for k, v in (scale or {}).items()}

    def _scaled(self, key: str, value: Any) -> Any:
        if key not in self.keys or key not in self.scale or not isinstance(value, Tensor):
            return value
        factor = self.scale[key].to(value.device)
        return value * factor if self.inverse else value / factor

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Scale; see `ProcessorStep.__call__`."""
        done = dict(transition)
        observation = transition.get(TransitionKey.OBSERVATION)
        if observation is not None:
            done[TransitionKey.OBSERVATION] = {k: self._scaled(k, v) for k, v in observation.items()}
        done[TransitionKey.ACTION] = self._scaled(ACTION, transition.get(TransitionKey.ACTION))
        return done

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Return the features as they are: scaling changes no shape."""
        return features

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments that are not state."""
        return {"keys": self.keys, "inverse": self.inverse}

    def state_dict(self) -> dict[str, Any]:
        """Return the scales."""
        return dict(self.scale)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the scales back.

        Args:
            state: Key to scale.
        """
        self.scale = {k: torch.as_tensor(v) for k, v in state.items()}


def make_fake_processors(
    config: PreTrainedConfig, dataset_stats: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[DataProcessorPipeline[Any, Any], DataProcessorPipeline[Any, Any]]:
    """Make the pipelines around a fake policy: divide by the standard deviation, and multiply the action by it.

    Args:
        config: The policy's settings.
        dataset_stats: Key to statistic to array.

    Returns:
        Preprocessor and postprocessor.
    """
    scale = {k: s["std"] for k, s in (dataset_stats or {}).items() if k in (OBS_STATE, ACTION)}
    before = DataProcessorPipeline[Any, Any]([FakeScaleStep([OBS_STATE, ACTION], False, scale)], PREPROCESSOR_NAME)
    after = DataProcessorPipeline[Any, Any](
        [FakeScaleStep([ACTION], True, {k: v for k, v in scale.items() if k == ACTION})],
        POSTPROCESSOR_NAME,
        to_transition=policy_action_to_transition,
        to_output=transition_to_policy_action,
    )
    return before, after
