# SPDX-License-Identifier: Apache-2.0
"""Renaming of observation keys, so that data recorded with one set of camera names fits a policy made for another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ulna.core.features import PipelineFeatureType
from ulna.core.pipeline import PipelineFeatures, ProcessorStep
from ulna.core.types import EnvTransition, TransitionKey

__all__ = ["RenameObservationsProcessorStep", "rename_keys"]

_SUFFIXES = ("", "_is_pad", "_padding_mask")


def rename_keys(values: Mapping[str, Any], rename_map: Mapping[str, str]) -> dict[str, Any]:
    """Rename keys, and the keys of their padding masks.

    Args:
        values: Key to value. Not changed.
        rename_map: Old key to new key.

    Returns:
        The renamed mapping, in the same order.
    """
    full = {old + suffix: new + suffix for old, new in rename_map.items() for suffix in _SUFFIXES}
    return {full.get(key, key): value for key, value in values.items()}


class RenameObservationsProcessorStep(ProcessorStep):
    """Renames observation keys and their padding masks.

    Args:
        rename_map: Old key to new key; keys that are not there are left alone.
    """

    registry_name: ClassVar[str] = "rename_observations_processor"

    def __init__(self, rename_map: Mapping[str, str] | None = None) -> None:
        self.rename_map = dict(rename_map or {})

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Rename the keys of the observation and of its masks among the complementary data."""
        if not self.rename_map:
            return transition
        renamed = dict(transition)
        for key in (TransitionKey.OBSERVATION, TransitionKey.COMPLEMENTARY_DATA):
            if transition.get(key):
                renamed[key] = rename_keys(transition[key], self.rename_map)
        return renamed

    def get_config(self) -> dict[str, Any]:
        """Return the map."""
        return {"rename_map": dict(self.rename_map)}

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Rename the observation features."""
        observation = rename_keys(features.get(PipelineFeatureType.OBSERVATION, {}), self.rename_map)
        return {**features, PipelineFeatureType.OBSERVATION: observation}
