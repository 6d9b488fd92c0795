# SPDX-License-Identifier: Apache-2.0
"""What a third-party author writes: one subclass and one fixture for each suite, here for the fakes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ulna.core.motors import Motor, MotorsBus
from ulna.testing import CameraSuite, MotorsBusSuite, RobotSuite, TeleoperatorSuite
from ulna.testing.fakes import (
    FakeCamera,
    FakeCameraConfig,
    FakeMotorsBus,
    FakeRobot,
    FakeRobotConfig,
    FakeTeleoperator,
    FakeTeleoperatorConfig,
    fake_plugins,
)


class TestFakeRobot(RobotSuite):
    @pytest.fixture
    def robot(self) -> Iterator[FakeRobot]:
        with fake_plugins():
            yield FakeRobot(
                FakeRobotConfig(id="arm", cameras={"front": FakeCameraConfig()}, max_relative_target=5.0)
            )


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
        modes = {"a": "degrees", "b": "range_0_100", "c": "range_m100_100"}
        return FakeMotorsBus("fake://bus", {n: Motor(i, "fake", m) for i, (n, m) in enumerate(modes.items(), start=1)})
