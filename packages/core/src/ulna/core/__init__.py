# SPDX-License-Identifier: Apache-2.0
"""Contracts, feature specs, configuration, plugin registry, errors, processing pipeline. Names resolve on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.__about__ import __version__
from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.core.algorithm_config import RLAlgorithmConfig, SamplerNeeds, TrainingStats
    from ulna.core.algorithms import RLAlgorithm
    from ulna.core.calibration import CalibrationStep, MotorCalibration
    from ulna.core.cameras import (
        Camera,
        CameraConfig,
        CameraState,
        ColorMode,
        Cv2Backends,
        Cv2Rotation,
        Frame,
        make_cameras_from_configs,
    )
    from ulna.core.clock import Clock, MonotonicClock
    from ulna.core.config import Config, PluginConfig
    from ulna.core.devices import Device, DeviceConfig, OpenParts
    from ulna.core.envs import Env, EnvConfig, make_env, make_env_config
    from ulna.core.errors import UlnaError
    from ulna.core.factories import (
        get_algorithm_class,
        get_policy_class,
        make_algorithm,
        make_algorithm_config,
        make_policy,
        make_policy_config,
        make_pre_post_processors,
        make_robot_from_config,
        make_teleoperator_from_config,
    )
    from ulna.core.features import (
        FeatureSpec,
        FeatureSpecs,
        FeatureType,
        NormalizationMode,
        PipelineFeatureType,
        PolicyFeature,
        image_spec,
        scalar_spec,
    )
    from ulna.core.hub import HubMixin
    from ulna.core.motors import BusCapabilities, Motor, MotorNormMode, MotorsBus, MotorsBusConfig
    from ulna.core.optim import LRSchedulerConfig, OptimizerConfig, make_optimizer_config, make_scheduler_config
    from ulna.core.pipeline import (
        DataProcessorPipeline,
        PolicyProcessorPipeline,
        ProcessorStep,
        RobotProcessorPipeline,
    )
    from ulna.core.policies import PreTrainedPolicy
    from ulna.core.policy_config import PreTrainedConfig
    from ulna.core.robots import Robot, RobotConfig, ensure_safe_goal_position
    from ulna.core.teleoperators import Teleoperator, TeleoperatorConfig, TeleopEvents
    from ulna.core.trackers import Tracker, TrackerConfig, make_tracker
    from ulna.core.types import EnvTransition, TransitionKey

_HOMES = {
    "algorithm_config": ("RLAlgorithmConfig", "SamplerNeeds", "TrainingStats"),
    "algorithms": ("RLAlgorithm",),
    "calibration": ("CalibrationStep", "MotorCalibration"),
    "cameras": (
        "Camera",
        "CameraConfig",
        "CameraState",
        "ColorMode",
        "Cv2Backends",
        "Cv2Rotation",
        "Frame",
        "make_cameras_from_configs",
    ),
    "clock": ("Clock", "MonotonicClock"),
    "config": ("Config", "PluginConfig"),
    "devices": ("Device", "DeviceConfig", "OpenParts"),
    "envs": ("Env", "EnvConfig", "make_env", "make_env_config"),
    "errors": ("UlnaError",),
    "factories": (
        "get_algorithm_class",
        "get_policy_class",
        "make_algorithm",
        "make_algorithm_config",
        "make_policy",
        "make_policy_config",
        "make_pre_post_processors",
        "make_robot_from_config",
        "make_teleoperator_from_config",
    ),
    "features": (
        "FeatureSpec",
        "FeatureSpecs",
        "FeatureType",
        "NormalizationMode",
        "PipelineFeatureType",
        "PolicyFeature",
        "image_spec",
        "scalar_spec",
    ),
    "hub": ("HubMixin",),
    "motors": ("BusCapabilities", "Motor", "MotorNormMode", "MotorsBus", "MotorsBusConfig"),
    "optim": ("LRSchedulerConfig", "OptimizerConfig", "make_optimizer_config", "make_scheduler_config"),
    "pipeline": ("DataProcessorPipeline", "PolicyProcessorPipeline", "ProcessorStep", "RobotProcessorPipeline"),
    "policies": ("PreTrainedPolicy",),
    "policy_config": ("PreTrainedConfig",),
    "robots": ("Robot", "RobotConfig", "ensure_safe_goal_position"),
    "teleoperators": ("TeleopEvents", "Teleoperator", "TeleoperatorConfig"),
    "trackers": ("Tracker", "TrackerConfig", "make_tracker"),
    "types": ("EnvTransition", "TransitionKey"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BusCapabilities",
    "CalibrationStep",
    "Camera",
    "CameraConfig",
    "CameraState",
    "Clock",
    "ColorMode",
    "Config",
    "Cv2Backends",
    "Cv2Rotation",
    "DataProcessorPipeline",
    "Device",
    "DeviceConfig",
    "Env",
    "EnvConfig",
    "EnvTransition",
    "FeatureSpec",
    "FeatureSpecs",
    "FeatureType",
    "Frame",
    "HubMixin",
    "LRSchedulerConfig",
    "MonotonicClock",
    "Motor",
    "MotorCalibration",
    "MotorNormMode",
    "MotorsBus",
    "MotorsBusConfig",
    "NormalizationMode",
    "OpenParts",
    "OptimizerConfig",
    "PipelineFeatureType",
    "PluginConfig",
    "PolicyFeature",
    "PolicyProcessorPipeline",
    "PreTrainedConfig",
    "PreTrainedPolicy",
    "ProcessorStep",
    "RLAlgorithm",
    "RLAlgorithmConfig",
    "Robot",
    "RobotConfig",
    "RobotProcessorPipeline",
    "SamplerNeeds",
    "TeleopEvents",
    "Teleoperator",
    "TeleoperatorConfig",
    "Tracker",
    "TrackerConfig",
    "TrainingStats",
    "TransitionKey",
    "UlnaError",
    "__version__",
    "ensure_safe_goal_position",
    "get_algorithm_class",
    "get_policy_class",
    "image_spec",
    "lazy_names",
    "make_algorithm",
    "make_algorithm_config",
    "make_cameras_from_configs",
    "make_env",
    "make_env_config",
    "make_optimizer_config",
    "make_policy",
    "make_policy_config",
    "make_pre_post_processors",
    "make_robot_from_config",
    "make_scheduler_config",
    "make_teleoperator_from_config",
    "make_tracker",
    "scalar_spec",
]

__getattr__, __dir__ = lazy_names(globals(), _HOME_OF)
