# SPDX-License-Identifier: Apache-2.0
"""SO arms and their distribution keep the contracts of Ulna, on the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ulna.robots.so import SOFollower, SOFollowerRobotConfig, SOLeader, SOLeaderTeleopConfig
from ulna.testing import PackagingSuite, RobotSuite, TeleoperatorSuite


class TestSOFollowerConformance(RobotSuite):
    """The follower."""

    vendor_modules = ("serial", "cv2")

    @pytest.fixture
    def robot(self, settings: Callable[..., dict[str, Any]]) -> SOFollower:
        """A follower of the simulated arm."""
        return SOFollower(SOFollowerRobotConfig(**settings("follower", max_relative_target=10.0)))


class TestSOLeaderConformance(TeleoperatorSuite):
    """The leader."""

    vendor_modules = ("serial",)

    @pytest.fixture
    def teleoperator(self, settings: Callable[..., dict[str, Any]]) -> SOLeader:
        """A leader of the simulated arm."""
        return SOLeader(SOLeaderTeleopConfig(**settings("leader")))


class TestSOPackaging(PackagingSuite):
    """Their distribution."""

    vendor_modules = ("serial", "cv2")

    @pytest.fixture
    def distribution(self) -> str:
        """Its name."""
        return "ulna-robots-so"
