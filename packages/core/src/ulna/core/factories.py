# SPDX-License-Identifier: Apache-2.0
"""Make things from settings, through the registry. torch is imported only by the functions that need it."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ulna.core.cameras import make_cameras_from_configs
from ulna.core.constants import ACTION, OBS_PREFIX, POSTPROCESSOR_NAME, PREPROCESSOR_NAME
from ulna.core.envs import make_env, make_env_config
from ulna.core.errors import ConfigError, ConfigProblem, FeatureError, PluginError, nearest
from ulna.core.features import FeatureType, PolicyFeature
from ulna.core.policy_config import PreTrainedConfig

if TYPE_CHECKING:
    from ulna.core.algorithm_config import RLAlgorithmConfig
    from ulna.core.algorithms import RLAlgorithm
    from ulna.core.pipeline import DataProcessorPipeline
    from ulna.core.policies import PreTrainedPolicy
    from ulna.core.robots import Robot, RobotConfig
    from ulna.core.teleoperators import Teleoperator, TeleoperatorConfig

__all__ = [
    "DatasetMetadata",
    "dataset_to_policy_features",
    "fill_features",
    "get_algorithm_class",
    "get_policy_class",
    "make_algorithm",
    "make_algorithm_config",
    "make_cameras_from_configs",
    "make_env",
    "make_env_config",
    "make_policy",
    "make_policy_config",
    "make_pre_post_processors",
    "make_robot_from_config",
    "make_teleoperator_from_config",
]


class DatasetMetadata(Protocol):
    """What factories need to know about a dataset."""

    @property
    def features(self) -> Mapping[str, Mapping[str, Any]]:
        """Key to `dtype`, `shape` and `names`."""
        ...

    @property
    def stats(self) -> Mapping[str, Mapping[str, Any]] | None:
        """Key to statistic to array; None when there are none."""
        ...


def make_robot_from_config(config: RobotConfig) -> Robot:
    """Make a robot; opens nothing.

    Args:
        config: Settings of a concrete robot.

    Returns:
        The robot.

    Raises:
        PluginLoadError: Its implementation cannot be imported.
    """
    robot: Robot = config.load_implementation()(config)
    return robot


def make_teleoperator_from_config(config: TeleoperatorConfig) -> Teleoperator:
    """Make a teleoperator; opens nothing.

    Args:
        config: Settings of a concrete teleoperator.

    Returns:
        The teleoperator.

    Raises:
        PluginLoadError: Its implementation cannot be imported.
    """
    teleoperator: Teleoperator = config.load_implementation()(config)
    return teleoperator


def get_policy_class(type: str) -> builtins.type[PreTrainedPolicy]:
    """Return the policy class of a type.

    Args:
        type: Type string, `act`.

    Returns:
        The class.

    Raises:
        PluginError: It is not installed or cannot be used.
    """
    from ulna.core.plugins import registry

    cls: builtins.type[PreTrainedPolicy] = registry().config_class("policies", type).load_implementation()
    return cls


def make_policy_config(type: str, **settings: Any) -> PreTrainedConfig:
    """Make policy settings by type.

    Args:
        type: Type string, `act`.
        **settings: Its fields.

    Returns:
        The settings.

    Raises:
        ConfigError: Unknown type or wrong settings.
    """
    return PreTrainedConfig.choose({"type": type, **settings})


def dataset_to_policy_features(features: Mapping[str, Mapping[str, Any]]) -> dict[str, PolicyFeature]:
    """Turn features of a dataset into features of a policy.

    Args:
        features: Key to `dtype`, `shape` and `names`, as in `meta/info.json`.

    Returns:
        Key to policy feature; pictures channel first; keys that are neither observation nor action are left out.

    Raises:
        FeatureError: A picture has not three axes.
    """
    found = {}
    for key, feature in features.items():
        shape: tuple[int, ...] = tuple(feature["shape"])
        if feature["dtype"] in ("image", "video"):
            if len(shape) != 3:
                raise FeatureError(f"{key}: a picture has three axes, the dataset declares {shape}.")
            names = list(feature.get("names") or ())
            if len(names) == 3 and names[2] in ("channel", "channels"):
                shape = (*shape[2:], *shape[:2])
            found[key] = PolicyFeature(FeatureType.VISUAL, shape)
        elif key == "observation.environment_state":
            found[key] = PolicyFeature(FeatureType.ENV, shape)
        elif key.startswith(OBS_PREFIX) and feature["dtype"] not in ("string", "language"):
            found[key] = PolicyFeature(FeatureType.STATE, shape)
        elif key.startswith(ACTION):
            found[key] = PolicyFeature(FeatureType.ACTION, shape)
    return found


def fill_features(
    config: PreTrainedConfig, features: Mapping[str, PolicyFeature], rename_map: Mapping[str, str] | None = None
) -> None:
    """Set a policy's features from those of its data, and check that its cameras are there.

    Outputs are always replaced; inputs only when the settings name none.

    Args:
        config: Changed in place.
        features: Key to feature of the dataset or environment.
        rename_map: Key of the data to key of the policy.

    Raises:
        FeatureError: A key the policy was made for is not in the data; the nearest keys are named.
    """
    renamed = {(rename_map or {}).get(key, key): feature for key, feature in features.items()}
    config.output_features = {k: f for k, f in renamed.items() if f.type is FeatureType.ACTION}
    inputs = {k: f for k, f in renamed.items() if f.type is not FeatureType.ACTION}
    if not config.input_features:
        config.input_features = inputs
        return
    missing = [k for k in config.input_features if k not in inputs]
    if missing:
        lines = "; ".join(f"{k} (nearest: {nearest(k, list(inputs))})" for k in missing)
        extra = [k for k in inputs if k not in config.input_features]
        raise FeatureError(
            f"The policy needs inputs that the data does not have: {lines}. "
            f"The data also has: {', '.join(extra) or 'nothing else'}.",
            hint='Map the names: --rename_map=\'{"observation.images.front": "observation.images.cam1"}\'',
        )


def make_policy(
    config: PreTrainedConfig,
    ds_meta: DatasetMetadata | None = None,
    env_cfg: Any = None,
    rename_map: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> PreTrainedPolicy:
    """Make a policy for a dataset or an environment, loading its checkpoint when `config.pretrained_path` is set.

    Args:
        config: Settings; its features are filled in.
        ds_meta: Metadata of the dataset.
        env_cfg: Settings of the environment; one of the two is given, or neither when the settings have features.
        rename_map: Key of the data to key of the policy.
        **kwargs: Passed to the policy's constructor.

    Returns:
        The policy on its device; in evaluation mode when loaded from a checkpoint.

    Raises:
        ValueError: Both sources are given, or none and the settings have no features.
        FeatureError: The data does not have the policy's inputs.
        CheckpointError: The checkpoint does not fit.
    """
    if ds_meta is not None and env_cfg is not None:
        raise ValueError("Give ds_meta or env_cfg, not both.")
    if ds_meta is not None:
        fill_features(config, dataset_to_policy_features(ds_meta.features), rename_map)
    elif env_cfg is not None:
        mapped = {env_cfg.features_map.get(k, k): f for k, f in env_cfg.features.items()}
        fill_features(config, mapped, rename_map)
    elif not config.output_features:
        raise ValueError("The policy settings have no features: give ds_meta or env_cfg.")
    config.validate_features()
    cls: type[PreTrainedPolicy] = config.load_implementation()
    if config.pretrained_path is not None:
        return cls.from_pretrained(config.pretrained_path, config=config, revision=config.pretrained_revision, **kwargs)
    return cls(config, **kwargs).to(config.device)


def make_pre_post_processors(
    config: PreTrainedConfig,
    pretrained_path: Path | str | None = None,
    *,
    dataset_stats: Mapping[str, Mapping[str, Any]] | None = None,
    preprocessor_overrides: Mapping[str, Mapping[str, Any]] | None = None,
    postprocessor_overrides: Mapping[str, Mapping[str, Any]] | None = None,
    revision: str | None = None,
) -> tuple[DataProcessorPipeline[Any, Any], DataProcessorPipeline[Any, Any]]:
    """Make the pipelines around a policy.

    Args:
        config: The policy's settings.
        pretrained_path: A checkpoint whose pipelines are loaded; without it they are made from the settings.
        dataset_stats: Key to statistic to array; needed when they are made from the settings.
        preprocessor_overrides: Registered name to settings that replace the saved ones.
        postprocessor_overrides: The same for the postprocessor.
        revision: Hub revision.

    Returns:
        Preprocessor (batch to batch) and postprocessor (action tensor to action tensor).

    Raises:
        ProcessorError: A file is missing or a step is unknown.
        PluginError: What makes or holds the steps is not installed.
    """
    from ulna.core.pipeline import DataProcessorPipeline
    from ulna.core.plugins import load_object
    from ulna.core.transitions import policy_action_to_transition, transition_to_policy_action

    if pretrained_path is None:
        if not config.processors:
            raise PluginError(f"{type(config).__name__} names no function that makes its processors.", kind="policies")
        make = load_object(config.processors, kind="policies", owner=type(config))
        pair: tuple[DataProcessorPipeline[Any, Any], DataProcessorPipeline[Any, Any]] = make(
            config, dataset_stats=dataset_stats
        )
        return pair
    before: DataProcessorPipeline[Any, Any] = DataProcessorPipeline.from_pretrained(
        pretrained_path,
        config_filename=f"{PREPROCESSOR_NAME}.json",
        overrides=preprocessor_overrides,
        revision=revision,
    )
    after: DataProcessorPipeline[Any, Any] = DataProcessorPipeline.from_pretrained(
        pretrained_path,
        config_filename=f"{POSTPROCESSOR_NAME}.json",
        overrides=postprocessor_overrides,
        revision=revision,
        to_transition=policy_action_to_transition,
        to_output=transition_to_policy_action,
    )
    _link(before, after)
    return before, after


def _link(before: DataProcessorPipeline[Any, Any], after: DataProcessorPipeline[Any, Any]) -> None:
    """Give steps that work in pairs their partner: `link(steps)` finds it among the other pipeline's steps."""
    for pipeline, other in ((before, after), (after, before)):
        for step in pipeline.steps:
            link = getattr(step, "link", None)
            if callable(link):
                link(other.steps)


def get_algorithm_class(type: str) -> builtins.type[RLAlgorithm]:
    """Return the algorithm class of a type.

    Args:
        type: Type string, `sac`.

    Returns:
        The class.

    Raises:
        PluginError: It is not installed or cannot be used.
    """
    from ulna.core.plugins import registry

    cls: builtins.type[RLAlgorithm] = registry().config_class("algorithms", type).load_implementation()
    return cls


def make_algorithm_config(type: str, **settings: Any) -> RLAlgorithmConfig:
    """Make algorithm settings by type.

    Args:
        type: Type string, `sac`.
        **settings: Its fields.

    Returns:
        The settings.

    Raises:
        ConfigError: Unknown type or wrong settings.
    """
    from ulna.core.algorithm_config import RLAlgorithmConfig

    return RLAlgorithmConfig.choose({"type": type, **settings})


def make_algorithm(config: RLAlgorithmConfig, policy: PreTrainedPolicy) -> RLAlgorithm:
    """Make an algorithm for a policy.

    Args:
        config: Settings; `policy_config` must be set.
        policy: The policy being trained.

    Returns:
        The algorithm.

    Raises:
        ConfigError: `policy_config` is not set.
    """
    if config.policy_config is None:
        problem = ConfigProblem("policy_config", None, "must be set: the settings of the policy being trained")
        raise ConfigError([problem], title=f"{config.type} settings")
    algorithm: RLAlgorithm = config.load_implementation()(policy=policy, config=config)
    return algorithm
