# SPDX-License-Identifier: Apache-2.0
"""The SO leader: an arm without motor power that an operator moves by hand."""

from __future__ import annotations

from typing import Any, ClassVar

from ulna.core.devices import OpenParts
from ulna.core.features import FeatureSpecs
from ulna.core.teleoperators import Teleoperator
from ulna.core.types import RobotAction
from ulna.motors.feetech.tables import OperatingMode
from ulna.robots.so.arm import SOArm
from ulna.robots.so.config import SOLeaderTeleopConfig
from ulna.robots.so.joints import JOINTS

__all__ = ["SOLeader"]


class SOLeader(SOArm, Teleoperator):
    """A leader arm, limp unless torque is enabled to lead the operator's hand by feedback.

    Args:
        config: Its settings.
    """

    config_class = SOLeaderTeleopConfig
    name: ClassVar[str] = "so_leader"

    def __init__(self, config: SOLeaderTeleopConfig) -> None:
        super().__init__(config)
        self._features = FeatureSpecs(self._joint_specs())

    @property
    def action_features(self) -> FeatureSpecs:
        """Positions of the six joints; works while disconnected."""
        return self._features

    @property
    def feedback_features(self) -> FeatureSpecs:
        """Positions of the six joints, followed when torque is enabled."""
        return self._features

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        self._open_arm(parts, calibrate)
        self.configure()

    def configure(self) -> None:
        """Let the arm go limp and write the servos' defaults where they differ; idempotent.

        Raises:
            MotorCommunicationError: A motor did not answer.
        """
        self.bus.disable_torque()
        self.bus.configure_motors()
        self.bus.write_if_different("Operating_Mode", dict.fromkeys(JOINTS, int(OperatingMode.POSITION)))

    def _get_action(self) -> RobotAction:
        keys = self._keys
        return {keys[name]: value for name, value in self.bus.sync_read("Present_Position").items()}

    def _send_feedback(self, feedback: dict[str, Any]) -> None:
        self.bus.sync_write("Goal_Position", {name: float(feedback[key]) for name, key in self._keys.items()})
