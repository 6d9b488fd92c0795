# SPDX-License-Identifier: Apache-2.0
"""What every SO arm does, leader or follower: its bus, its calibration and the setup of its motors."""

from __future__ import annotations

import logging
from collections.abc import Generator

from ulna.core.calibration import CalibrationStep
from ulna.core.devices import Device, OpenParts
from ulna.core.errors import CalibrationError, DeviceAlreadyConnectedError, MissingMotorsError
from ulna.core.features import FeatureSpec, scalar_spec
from ulna.core.motors import Motor, MotorNormMode
from ulna.motors.feetech.bus import FeetechMotorsBus
from ulna.motors.feetech.tables import OperatingMode
from ulna.robots.so.config import SOFollowerRobotConfig, SOLeaderTeleopConfig
from ulna.robots.so.joints import FULL_TURN, GRIPPER, JOINTS, MODEL, position_key

__all__ = ["SOArm"]

logger = logging.getLogger(__name__)

_CLOSING = {GRIPPER: "Close the gripper fully, then confirm: this tells which way its motor turns."}


class SOArm(Device):
    """An arm of six servos. Its bus opens and closes with it; closing releases torque, unless settings say no.

    Args:
        config: Its settings.
    """

    config: SOFollowerRobotConfig | SOLeaderTeleopConfig

    def __init__(self, config: SOFollowerRobotConfig | SOLeaderTeleopConfig) -> None:
        super().__init__(config)
        body = MotorNormMode.DEGREES if config.use_degrees else MotorNormMode.RANGE_M100_100
        modes = dict.fromkeys(JOINTS, body) | {GRIPPER: MotorNormMode.RANGE_0_100}
        motors = {name: Motor(number, MODEL, modes[name]) for name, number in JOINTS.items()}
        self.bus = FeetechMotorsBus(config.port, motors, num_retry=config.num_read_retries)
        # An overloaded servo has cut its own torque; ending the session would let go of the whole arm for a firm grip.
        self.bus.tolerated_faults = frozenset({"overload"})
        self._keys = {name: position_key(name) for name in JOINTS}

    def _joint_specs(self) -> dict[str, FeatureSpec]:
        unit = {
            name: "deg" if m.norm_mode is MotorNormMode.DEGREES else "percent" for name, m in self.bus.motors.items()
        }
        return {key: scalar_spec(key, unit=unit[name]) for name, key in self._keys.items()}

    @property
    def is_calibrated(self) -> bool:
        """Whether the motors hold the calibration in use."""
        return self.bus.is_calibrated

    def _open_arm(self, parts: OpenParts, calibrate: bool) -> None:
        parts.open("bus", self.bus.connect, lambda: self.bus.disconnect(disable_torque=False))
        parts.on_close("torque", self._release)
        self.load_calibration()
        self.bus.calibration = dict(self.calibration)
        if self.calibration:
            self._write_calibration()
        elif calibrate:
            raise CalibrationError(f"{self} has no calibration.", motors=tuple(JOINTS), hint=self._calibrate_command())

    def _release(self) -> None:
        self.bus.disable_torque()

    def _write_calibration(self) -> None:
        lacking = [name for name in JOINTS if name not in self.calibration]
        if lacking:
            raise CalibrationError(
                f"{self.calibration_file()} says nothing of {', '.join(lacking)}.",
                motors=tuple(lacking),
                hint=self._calibrate_command(),
            )
        if not self.bus.is_calibrated:
            logger.warning(
                "%s: its motors hold another calibration than %s; writing the file's.", self, self.calibration_file()
            )
            self.bus.disable_torque()
        self.bus.write_calibration(self.calibration)

    def _calibrate_command(self) -> str:
        group = "robot" if isinstance(self.config, SOFollowerRobotConfig) else "teleop"
        given = (
            f"--{group}.type={self.config.type} --{group}.port={self.config.port} --{group}.id={self.id or '<a name>'}"
        )
        return f"Calibrate it: ulna calibrate {given}"

    def calibrate(self) -> Generator[CalibrationStep, str, None]:
        """Calibrate as a dialogue: middle pose, ranges, direction of the gripper. Leaves torque off.

        Yields:
            The next step for the operator; with a calibration file, first whether to keep it.

        Raises:
            DeviceNotConnectedError: Not connected.
            CalibrationError: The arm has no id, or a joint was not moved.
            MotorCommunicationError: A motor did not answer.
        """
        self._require_connected()
        if self.id is None:
            raise CalibrationError(
                f"{self} has no id, so its calibration would have no file name.", hint=self._calibrate_command()
            )
        if self.calibration_file() is not None:
            text = f"There is a calibration at {self.calibration_file()}. Keep it, or calibrate again?"
            if (yield CalibrationStep(text, "choose", choices=("keep", "calibrate"))) == "keep":
                self.load_calibration()
                self.bus.calibration = dict(self.calibration)
                self._write_calibration()
                return
        self.bus.disable_torque()
        self.bus.write_if_different("Operating_Mode", dict.fromkeys(JOINTS, int(OperatingMode.POSITION)))
        calibration = yield from self.bus.calibrate(full_turn=(FULL_TURN,), closing=_CLOSING)
        path = self.save_calibration(calibration)
        self._calibration_changed()
        logger.info("%s: calibration saved to %s.", self, path)

    def _calibration_changed(self) -> None:
        """Forget what was derived from the calibration."""

    def setup_motors(self, only: str | None = None) -> Generator[CalibrationStep, str, None]:
        """Give the motors their ids, each plugged in alone, from the gripper to the base.

        Args:
            only: Do this joint alone.

        Yields:
            The next step for the operator; after a failure, whether to retry or skip.

        Raises:
            DeviceAlreadyConnectedError: The arm is connected.
            DeviceConnectError: The port cannot be opened.
            ValueError: There is no such joint.
        """
        if self.is_connected:
            raise DeviceAlreadyConnectedError(
                f"{self} is connected; disconnect it before its motors are set up.", device=str(self)
            )
        if only is not None and only not in JOINTS:
            raise ValueError(f"No joint {only!r}; joints are {', '.join(JOINTS)}.")
        names = list(JOINTS)[::-1] if only is None else [only]
        try:
            for name in names:
                yield CalibrationStep(f"Connect the controller board to the {name} motor alone, then confirm.")
                yield from self._set_up(name)
        finally:
            self.bus.disconnect(disable_torque=False)

    def _set_up(self, name: str) -> Generator[CalibrationStep, str, None]:
        while True:
            try:
                self.bus.setup_motor(name)
            except MissingMotorsError as error:
                if (yield CalibrationStep(str(error), "choose", choices=("retry", "skip"))) == "retry":
                    continue
            return

    def enable_torque(self) -> None:
        """Make the arm hold where it is.

        Raises:
            DeviceNotConnectedError: Not connected.
            MotorCommunicationError: A motor did not answer.
        """
        self._require_connected()
        self.bus.enable_torque()

    def disable_torque(self) -> None:
        """Let the arm go limp.

        Raises:
            DeviceNotConnectedError: Not connected.
            MotorCommunicationError: A motor did not answer; all were tried.
        """
        self._require_connected()
        self.bus.disable_torque()
