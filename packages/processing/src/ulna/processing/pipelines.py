# SPDX-License-Identifier: Apache-2.0
"""The default pipelines: rename, batch, device, normalize before a policy; unnormalize, to the CPU after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ulna.core.constants import POSTPROCESSOR_NAME, PREPROCESSOR_NAME
from ulna.core.features import FeatureType, NormalizationMode
from ulna.core.pipeline import DataProcessorPipeline, PolicyProcessorPipeline
from ulna.core.policy_config import PreTrainedConfig
from ulna.core.transitions import policy_action_to_transition, transition_to_policy_action
from ulna.processing.batch import AddBatchDimensionProcessorStep
from ulna.processing.device import DeviceProcessorStep
from ulna.processing.normalize import NormalizerProcessorStep, UnnormalizerProcessorStep, check_stats
from ulna.processing.rename import RenameObservationsProcessorStep

__all__ = ["make_default_pre_post_processors"]


def make_default_pre_post_processors(
    config: PreTrainedConfig, dataset_stats: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[DataProcessorPipeline[Any, Any], DataProcessorPipeline[Any, Any]]:
    """Make the standard pipelines from a policy's settings.

    Args:
        config: Settings with features filled in.
        dataset_stats: Key to statistic to array; without them nothing is normalized until a state is loaded.

    Returns:
        Preprocessor and postprocessor.

    Raises:
        ProcessorError: A feature to be normalized lacks its statistics.
    """
    inputs, outputs = dict(config.input_features or {}), dict(config.output_features or {})
    norm_map = {FeatureType(k): NormalizationMode(m) for k, m in getattr(config, "normalization_mapping", {}).items()}
    if dataset_stats is not None:
        check_stats({**inputs, **outputs}, norm_map, dataset_stats)
    device = config.device or "cpu"
    before: DataProcessorPipeline[Any, Any] = PolicyProcessorPipeline(
        [
            RenameObservationsProcessorStep(),
            AddBatchDimensionProcessorStep(),
            DeviceProcessorStep(device=device),
            NormalizerProcessorStep({**inputs, **outputs}, norm_map, dataset_stats, device=device),
        ],
        PREPROCESSOR_NAME,
    )
    after: DataProcessorPipeline[Any, Any] = PolicyProcessorPipeline(
        [UnnormalizerProcessorStep(outputs, norm_map, dataset_stats), DeviceProcessorStep(device="cpu")],
        POSTPROCESSOR_NAME,
        to_transition=policy_action_to_transition,
        to_output=transition_to_policy_action,
    )
    return before, after
