# SPDX-License-Identifier: Apache-2.0
"""What a third-party author writes: one subclass and one fixture for each suite, here for the fakes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ulna.core.features import FeatureType, PolicyFeature
from ulna.core.motors import Motor, MotorNormMode, MotorsBus
from ulna.testing import (
    AlgorithmSuite,
    CameraSuite,
    EnvSuite,
    MotorsBusSuite,
    PolicySuite,
    ProcessorSuite,
    RobotSuite,
    TeleoperatorSuite,
)
from ulna.testing.fakes import (
    FakeAlgorithm,
    FakeAlgorithmConfig,
    FakeCamera,
    FakeCameraConfig,
    FakeEnvConfig,
    FakeMotorsBus,
    FakePolicy,
    FakePolicyConfig,
    FakeRobot,
    FakeRobotConfig,
    FakeScaleStep,
    FakeTeleoperator,
    FakeTeleoperatorConfig,
    fake_plugins,
)


class TestFakeRobot(RobotSuite):
    @pytest.fixture
    def robot(self) -> FakeRobot:
        cameras = {"front": FakeCameraConfig()}
        return FakeRobot(FakeRobotConfig(id="arm", cameras=cameras, max_relative_target=5.0))


class TestFakeTeleoperator(TeleoperatorSuite):
    @pytest.fixture
    def teleoperator(self) -> FakeTeleoperator:
        return FakeTeleoperator(FakeTeleoperatorConfig())


class TestFakeCamera(CameraSuite):
    @pytest.fixture
    def camera(self) -> FakeCamera:
        return FakeCamera(FakeCameraConfig())


class TestFakeMotorsBus(MotorsBusSuite):
    @pytest.fixture
    def bus(self) -> MotorsBus:
        modes = dict(zip("abc", MotorNormMode, strict=True))
        return FakeMotorsBus("fake://bus", {n: Motor(i, "fake", m) for i, (n, m) in enumerate(modes.items(), start=1)})


def tiny_policy() -> FakePolicyConfig:
    return FakePolicyConfig(
        input_features={"observation.state": PolicyFeature(FeatureType.STATE, (4,))},
        output_features={"action": PolicyFeature(FeatureType.ACTION, (2,))},
        device="cpu",
    )


@pytest.fixture(autouse=True)
def fakes() -> Iterator[None]:
    """Make the fakes plugins of this process, as installing a distribution would."""
    with fake_plugins():
        yield


class TestFakePolicy(PolicySuite):
    @pytest.fixture
    def policy_config(self) -> FakePolicyConfig:
        return tiny_policy()


class TestFakeAlgorithm(AlgorithmSuite):
    @pytest.fixture
    def algorithm(self) -> FakeAlgorithm:
        policy = FakePolicy(tiny_policy())
        return FakeAlgorithm(policy, FakeAlgorithmConfig.from_policy_config(policy.config))


class TestFakeScaleStep(ProcessorSuite):
    @pytest.fixture
    def step(self) -> FakeScaleStep:
        return FakeScaleStep(["observation.state"], scale={"observation.state": 2.0})


class TestFakeEnv(EnvSuite):
    @pytest.fixture
    def env_config(self) -> FakeEnvConfig:
        return FakeEnvConfig()
