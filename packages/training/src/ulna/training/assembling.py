# SPDX-License-Identifier: Apache-2.0
"""What a training is made of: policy, processors, optimizer and schedule, new, fine-tuned or resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ulna.core.constants import POSTPROCESSOR_NAME, PREPROCESSOR_NAME
from ulna.core.errors import ConfigError, ConfigProblem, nearest
from ulna.core.factories import dataset_to_policy_features, fill_features, make_policy, make_pre_post_processors
from ulna.core.features import FeatureType, NormalizationMode
from ulna.core.hub import local_folder
from ulna.core.optim import LRSchedulerConfig, OptimizerConfig
from ulna.core.pipeline import DataProcessorPipeline
from ulna.core.policies import PreTrainedPolicy, resolve_device
from ulna.core.policy_config import PreTrainedConfig
from ulna.processing.normalize import check_stats
from ulna.training.checkpoints import Checkpoint
from ulna.training.config import TrainPipelineConfig
from ulna.training.state_files import Optimizers, load_optimizer, load_scheduler

__all__ = ["Parts", "build_parts", "make_optimizer", "make_schedule"]

Pipeline = DataProcessorPipeline[Any, Any]
Overrides = dict[str, dict[str, Any]]


@dataclass
class Parts:
    """Everything that is trained or saved.

    Attributes:
        policy: In training mode, on its device.
        preprocessor: Batch to batch.
        postprocessor: Action to action; only saved here.
        optimizer: One, or several by name.
        scheduler: The schedule, if there is one.
    """

    policy: PreTrainedPolicy
    preprocessor: Pipeline
    postprocessor: Pipeline
    optimizer: Optimizers
    scheduler: LRScheduler | None


def build_parts(
    config: TrainPipelineConfig, meta: Any, stats: Mapping[str, Mapping[str, Any]], checkpoint: Checkpoint | None
) -> Parts:
    """Build everything that is trained or saved.

    Args:
        config: Resolved settings; the policy's get their features and device filled in.
        meta: Metadata of the dataset.
        stats: Statistics under the names of the policy.
        checkpoint: What is resumed; its weights, processors, optimizer and schedule are taken.

    Returns:
        The parts.

    Raises:
        FeatureError: The dataset lacks what the policy needs.
        ProcessorError: A feature to be normalized lacks statistics.
        CheckpointError: The checkpoint does not fit.
    """
    settings = config.policy
    assert settings is not None
    assert config.optimizer is not None
    settings.device = resolve_device(settings.device)
    source = settings.pretrained_path if checkpoint is None else checkpoint.model
    policy = _make_policy(config, settings, meta, source)
    before, after = _make_processors(config, settings, stats, source, resumed=checkpoint is not None)
    optimizer = make_optimizer(config.optimizer, policy, preset=config.use_policy_training_preset)
    scheduler = make_schedule(config.scheduler, optimizer, config.steps)
    if checkpoint is not None:
        load_optimizer(optimizer, checkpoint.state)
        if scheduler is not None:
            load_scheduler(scheduler, checkpoint.state)
    policy.train()
    return Parts(policy, before, after, optimizer, scheduler)


def _make_policy(
    config: TrainPipelineConfig, settings: PreTrainedConfig, meta: Any, source: Path | str | None
) -> PreTrainedPolicy:
    origin = settings.pretrained_path
    settings.pretrained_path = None if source is None else Path(source)
    try:
        policy = make_policy(settings, meta, rename_map=config.rename_map)
    finally:
        settings.pretrained_path = origin
    policy.config.pretrained_path = origin
    return policy


def _make_processors(
    config: TrainPipelineConfig,
    settings: PreTrainedConfig,
    stats: Mapping[str, Mapping[str, Any]],
    source: Path | str | None,
    *,
    resumed: bool,
) -> tuple[Pipeline, Pipeline]:
    if source is None:
        return make_pre_post_processors(settings, dataset_stats=stats)
    folder = local_folder(source, revision=settings.pretrained_revision, needs=f"{PREPROCESSOR_NAME}.json")
    before: Overrides = {"device_processor": {"device": settings.device}}
    after: Overrides = {}
    if not resumed:
        before |= {"rename_observations_processor": {"rename_map": dict(config.rename_map)}}
        before["normalizer_processor"], after["unnormalizer_processor"] = _fresh_statistics(settings, stats)
    names = _step_names(folder / f"{PREPROCESSOR_NAME}.json")
    if config.rename_map and "rename_observations_processor" not in names:
        expected = (
            f"needs a renaming step, which the preprocessor in {folder} does not have (steps: {', '.join(names)})"
        )
        raise ConfigError([ConfigProblem("rename_map", config.rename_map, expected)])
    return make_pre_post_processors(
        settings,
        folder,
        preprocessor_overrides=_present(before, names),
        postprocessor_overrides=_present(after, _step_names(folder / f"{POSTPROCESSOR_NAME}.json")),
    )


def _fresh_statistics(
    settings: PreTrainedConfig, stats: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings that make a saved (un)normalizer use the statistics of the new data."""
    inputs, outputs = dict(settings.input_features or {}), dict(settings.output_features or {})
    mapping = getattr(settings, "normalization_mapping", {})
    norm_map = {FeatureType(kind): NormalizationMode(mode) for kind, mode in mapping.items()}
    check_stats({**inputs, **outputs}, norm_map, stats)
    shared = {"norm_map": norm_map, "stats": stats}
    return {**shared, "features": {**inputs, **outputs}, "device": settings.device}, {**shared, "features": outputs}


def _step_names(path: Path) -> list[str]:
    """Return the registered names of a saved pipeline's steps; none when it is unreadable, which loading reports."""
    try:
        return [step.get("registry_name", "") for step in json.loads(path.read_text(encoding="utf-8"))["steps"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _present(overrides: Overrides, names: list[str]) -> Overrides:
    return {name: settings for name, settings in overrides.items() if name in names}


def make_optimizer(config: OptimizerConfig, policy: PreTrainedPolicy, *, preset: bool) -> Optimizers:
    """Make the optimizer of a policy.

    Args:
        config: Its settings.
        policy: Gives the parameters.
        preset: Whether the policy groups its parameters as it likes; else the optimizer gets all of them alike.

    Returns:
        One, or several by name.
    """
    wanted = "groups" if preset else getattr(config, "parameters_as", "list")
    if wanted == "groups":
        return config.make(policy.get_optim_params())
    return config.make(dict(policy.named_parameters()) if wanted == "names" else policy.parameters())


def make_schedule(config: LRSchedulerConfig | None, optimizer: Optimizers, steps: int) -> LRScheduler | None:
    """Make the schedule of an optimizer.

    Args:
        config: Its settings; None for a constant rate.
        optimizer: What it drives.
        steps: Length of the training.

    Returns:
        The schedule, if there is one.

    Raises:
        ConfigError: A schedule cannot drive several optimizers.
    """
    if config is None:
        return None
    if not isinstance(optimizer, Optimizer):
        expected = f"must be null: the policy has several optimizers ({', '.join(optimizer)})"
        raise ConfigError([ConfigProblem("scheduler", config.type, expected)])
    return config.make(optimizer, steps)


def check_features(config: TrainPipelineConfig, meta: Any) -> None:
    """Check that a dataset has what the policy needs, before anything slow happens.

    Args:
        config: Settings; the policy's get their features filled in.
        meta: Metadata of the dataset.

    Raises:
        FeatureError: A key is missing; the nearest ones are named.
        ConfigError: `rename_map` names a key that the data does not have, or the features do not suit the policy.
    """
    assert config.policy is not None
    unknown = [key for key in config.rename_map if key not in meta.features]
    if unknown:
        near = {key: nearest(key, list(meta.features)) for key in unknown}
        there = ", ".join(meta.features)
        raise ConfigError(
            [
                ConfigProblem(f"rename_map.{k}", None, f"is no key of the data, which has {there}", near[k])
                for k in unknown
            ]
        )
    fill_features(config.policy, dataset_to_policy_features(meta.features), config.rename_map)
    config.policy.validate_features()
