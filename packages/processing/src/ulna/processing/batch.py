# SPDX-License-Identifier: Apache-2.0
"""Adding the batch axis to a single sample. Values that have it already stay as they are."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ulna.core.constants import OBS_ENV_STATE, OBS_IMAGE, OBS_IMAGES, OBS_STATE, TASK
from ulna.core.pipeline import PipelineFeatures, ProcessorStep
from ulna.core.types import EnvTransition, TransitionKey

__all__ = [
    "AddBatchDimensionActionStep",
    "AddBatchDimensionComplementaryDataStep",
    "AddBatchDimensionObservationStep",
    "AddBatchDimensionProcessorStep",
]

_INDEX_KEYS = ("index", "task_index")


def _unsqueezed(value: Any, single_dim: int) -> Any:
    return value.unsqueeze(0) if isinstance(value, Tensor) and value.dim() == single_dim else value


class _Unchanged(ProcessorStep):
    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Return the features unchanged: the batch axis is not part of a feature."""
        return features


class AddBatchDimensionActionStep(_Unchanged):
    """Makes an action (A,) into (1, A)."""

    registry_name: ClassVar[str] = "to_batch_processor_action"

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Add the axis to the action."""
        return {**transition, TransitionKey.ACTION: _unsqueezed(transition.get(TransitionKey.ACTION), 1)}


class AddBatchDimensionObservationStep(_Unchanged):
    """Makes states (S,) into (1, S) and pictures (C, H, W) into (1, C, H, W); other keys are left alone."""

    registry_name: ClassVar[str] = "to_batch_processor_observation"

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Add the axis to states and pictures."""
        observation = transition.get(TransitionKey.OBSERVATION)
        if not observation:
            return transition
        batched = dict(observation)
        for key, value in observation.items():
            if key in (OBS_STATE, OBS_ENV_STATE):
                batched[key] = _unsqueezed(value, 1)
            elif key == OBS_IMAGE or key.startswith(f"{OBS_IMAGES}."):
                batched[key] = _unsqueezed(value, 3)
        return {**transition, TransitionKey.OBSERVATION: batched}


class AddBatchDimensionComplementaryDataStep(_Unchanged):
    """Makes a task text into a list of one, and index numbers () into (1,)."""

    registry_name: ClassVar[str] = "to_batch_processor_complementary_data"

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Add the axis to task and indices."""
        data = transition.get(TransitionKey.COMPLEMENTARY_DATA)
        if not data:
            return transition
        batched = dict(data)
        if isinstance(batched.get(TASK), str):
            batched[TASK] = [batched[TASK]]
        for key in _INDEX_KEYS:
            if key in batched:
                batched[key] = _unsqueezed(batched[key], 0)
        return {**transition, TransitionKey.COMPLEMENTARY_DATA: batched}


class AddBatchDimensionProcessorStep(_Unchanged):
    """Adds the batch axis to action, observation and complementary data."""

    registry_name: ClassVar[str] = "to_batch_processor"

    def __init__(self) -> None:
        self._parts = (
            AddBatchDimensionActionStep(),
            AddBatchDimensionObservationStep(),
            AddBatchDimensionComplementaryDataStep(),
        )

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Add the axis everywhere it belongs."""
        for part in self._parts:
            transition = part(transition)
        return transition
