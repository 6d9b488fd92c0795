# SPDX-License-Identifier: Apache-2.0
"""A fake teleoperator: the test holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ulna.core.devices import OpenParts
from ulna.core.errors import DeviceConnectError, DeviceError
from ulna.core.teleoperators import Teleoperator, TeleopEvents
from ulna.core.types import RobotAction
from ulna.testing.fakes.configs import FakeTeleoperatorConfig
from ulna.testing.fakes.faults import FaultPlan

__all__ = ["FakeTeleoperator"]


class FakeTeleoperator(Teleoperator):
    """A teleoperator whose pose and events are set by the test.

    Args:
        config: Its settings.

    Attributes:
        pose: Key to position; change it to move it.
        events: What `get_teleop_events` returns next.
        feedback: What it was sent last.
        faults: What goes wrong, and a log of the calls.
    """

    config_class = FakeTeleoperatorConfig
    name = "fake_teleop"
    config: FakeTeleoperatorConfig

    def __init__(self, config: FakeTeleoperatorConfig) -> None:
        super().__init__(config)
        self.faults = FaultPlan()
        self.pose: dict[str, float] = {f"{joint}.pos": 0.0 for joint in config.joints}
        self.events: dict[TeleopEvents, Any] = {}
        self.feedback: dict[str, Any] = {}

    @property
    def action_features(self) -> Mapping[str, Any]:
        """Joint positions."""
        return {f"{joint}.pos": float for joint in self.config.joints}

    @property
    def feedback_features(self) -> Mapping[str, Any]:
        """Joint positions, if it takes feedback."""
        return self.action_features if self.config.feedback else {}

    @property
    def is_calibrated(self) -> bool:
        """True: there is nothing to calibrate."""
        return True

    def _open(self) -> None:
        self.faults.called("connect")
        if self.faults.unplugged:
            raise DeviceConnectError(f"{self} is not there.", device=str(self), hint="Plug it in: faults.replug().")

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        parts.open("handle", self._open, lambda: self.faults.called("disconnect"))
        self.configure()

    def _check_plug(self) -> None:
        if self.faults.unplugged:
            raise DeviceError(f"{self} does not answer.", device=str(self), hint="Plug it in: faults.replug().")

    def _get_action(self) -> RobotAction:
        self.faults.called("get_action")
        self._check_plug()
        return dict(self.pose)

    def _send_feedback(self, feedback: dict[str, Any]) -> None:
        self.faults.called("send_feedback", feedback)
        self._check_plug()
        self.feedback = feedback

    def get_teleop_events(self) -> dict[TeleopEvents, Any]:
        """Return the events set by the test."""
        self._require_connected()
        return dict(self.events)
