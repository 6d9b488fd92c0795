# SPDX-License-Identifier: Apache-2.0
"""Fakes of every kind of plugin, with scripted faults and call logs. Names resolve on use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.testing.fakes.algorithm import FakeAlgorithm
    from ulna.testing.fakes.camera import FakeCamera
    from ulna.testing.fakes.configs import (
        FakeCameraConfig,
        FakeEnvConfig,
        FakeMotorsBusConfig,
        FakeRobotConfig,
        FakeTeleoperatorConfig,
    )
    from ulna.testing.fakes.env import FakeEnv
    from ulna.testing.fakes.faults import Call, FakeClock, FaultPlan
    from ulna.testing.fakes.learning_configs import FakeAlgorithmConfig, FakeOptimizerConfig, FakePolicyConfig
    from ulna.testing.fakes.motors import FakeMotorsBus
    from ulna.testing.fakes.plugins import fake_plugins, isolated_registry
    from ulna.testing.fakes.policy import FakePolicy
    from ulna.testing.fakes.processing import FakeScaleStep
    from ulna.testing.fakes.robot import FakeRobot
    from ulna.testing.fakes.teleoperator import FakeTeleoperator

_HOMES = {
    "algorithm": ("FakeAlgorithm",),
    "camera": ("FakeCamera",),
    "configs": (
        "FakeCameraConfig",
        "FakeEnvConfig",
        "FakeMotorsBusConfig",
        "FakeRobotConfig",
        "FakeTeleoperatorConfig",
    ),
    "env": ("FakeEnv",),
    "faults": ("Call", "FakeClock", "FaultPlan"),
    "learning_configs": ("FakeAlgorithmConfig", "FakeOptimizerConfig", "FakePolicyConfig"),
    "motors": ("FakeMotorsBus",),
    "plugins": ("fake_plugins", "isolated_registry"),
    "policy": ("FakePolicy",),
    "processing": ("FakeScaleStep",),
    "robot": ("FakeRobot",),
    "teleoperator": ("FakeTeleoperator",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Call",
    "FakeAlgorithm",
    "FakeAlgorithmConfig",
    "FakeCamera",
    "FakeCameraConfig",
    "FakeClock",
    "FakeEnv",
    "FakeEnvConfig",
    "FakeMotorsBus",
    "FakeMotorsBusConfig",
    "FakeOptimizerConfig",
    "FakePolicy",
    "FakePolicyConfig",
    "FakeRobot",
    "FakeRobotConfig",
    "FakeScaleStep",
    "FakeTeleoperator",
    "FakeTeleoperatorConfig",
    "FaultPlan",
    "fake_plugins",
    "isolated_registry",
]

__getattr__, __dir__ = lazy_names(globals(), _HOME_OF)
