# SPDX-License-Identifier: Apache-2.0
"""The SO follower: six position-controlled joints and cameras."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import ClassVar

from ulna.core.cameras import make_cameras_from_configs
from ulna.core.devices import OpenParts
from ulna.core.errors import MotorCommunicationError
from ulna.core.features import FeatureSpecs, image_spec
from ulna.core.motors import MotorNormMode, normalize
from ulna.core.robots import Robot, ensure_safe_goal_position
from ulna.core.types import RobotAction, RobotObservation
from ulna.motors.feetech.tables import OperatingMode
from ulna.robots.so.arm import SOArm
from ulna.robots.so.config import SOFollowerRobotConfig
from ulna.robots.so.joints import GRIPPER, JOINTS

__all__ = ["SOFollower", "move_to_rest"]

logger = logging.getLogger(__name__)

# A gripper that squeezes something rigid would burn its motor at the servo's own limits.
_GRIPPER_LIMITS = {"Max_Torque_Limit": 500, "Protection_Current": 250, "Overload_Torque": 25}
_REST_PERIOD_S = 0.03


class SOFollower(SOArm, Robot):
    """A follower arm with its cameras.

    `send_action` returns the goals after `max_relative_target` and after the joint limits, in user units, before they
    are cut to whole ticks (0.09 degrees): cut once more when replayed, they give the very ticks sent now, also as
    float32.

    Args:
        config: Its settings.
    """

    config_class = SOFollowerRobotConfig
    config: SOFollowerRobotConfig
    name: ClassVar[str] = "so_follower"

    def __init__(self, config: SOFollowerRobotConfig) -> None:
        super().__init__(config)
        self.cameras = make_cameras_from_configs(config.cameras)
        joints = self._joint_specs()
        self._action_features = FeatureSpecs(joints)
        shapes = {name: (camera.height or 0, camera.width or 0) for name, camera in config.cameras.items()}
        self._observation_features = FeatureSpecs(
            joints | {name: image_spec(name, *size) for name, size in shapes.items()}
        )
        self._reach: dict[str, tuple[float, float]] | None = None
        self._rest: dict[str, float] = {}
        self._complete = False

    @property
    def observation_features(self) -> FeatureSpecs:
        """Positions of the six joints and a picture of each camera; works while disconnected."""
        return self._observation_features

    @property
    def action_features(self) -> FeatureSpecs:
        """Positions of the six joints; works while disconnected."""
        return self._action_features

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        self._complete = False
        self._open_arm(parts, calibrate)
        self._calibration_changed()
        for name, camera in self.cameras.items():
            parts.open(f"camera {name}", camera.connect, camera.disconnect)
        self._rest = self.bus.sync_read("Present_Position") if self.bus.calibration else {}
        self.configure()
        self._complete = True

    def _release(self) -> None:
        # A connection that failed half way leaves no torque on, whatever the settings say.
        if self.config.disable_torque_on_disconnect or not self._complete:
            self.bus.disable_torque()

    def _calibration_changed(self) -> None:
        self._reach = None

    def configure(self) -> None:
        """Write modes, gains and the gripper's limits where they differ, then hold the present pose; idempotent.

        Raises:
            MotorCommunicationError: A motor did not answer.
        """
        bus, config = self.bus, self.config
        bus.disable_torque()
        bus.configure_motors()
        everywhere = {
            "Operating_Mode": int(OperatingMode.POSITION),
            "P_Coefficient": config.position_p_coefficient,
            "I_Coefficient": config.position_i_coefficient,
            "D_Coefficient": config.position_d_coefficient,
        }
        for register, value in everywhere.items():
            bus.write_if_different(register, dict.fromkeys(JOINTS, value))
        for register, value in _GRIPPER_LIMITS.items():
            bus.write_if_different(register, {GRIPPER: value})
        bus.enable_torque()

    def _get_observation(self) -> RobotObservation:
        keys = self._keys
        observation: RobotObservation = {keys[n]: v for n, v in self.bus.sync_read("Present_Position").items()}
        for name, camera in self.cameras.items():
            observation[name] = camera.read_latest(self.max_frame_age_ms)
        return observation

    def _send_action(self, action: RobotAction) -> RobotAction:
        goals = {name: float(action[key]) for name, key in self._keys.items()}
        if self.config.max_relative_target is not None:
            present = self.bus.sync_read("Present_Position")
            pairs = {name: (goal, present[name]) for name, goal in goals.items()}
            goals = ensure_safe_goal_position(pairs, self.config.max_relative_target)
        reach = self._reach or self._measure_reach()
        goals = {name: max(reach[name][0], min(reach[name][1], goal)) for name, goal in goals.items()}
        self.bus.sync_write("Goal_Position", goals)
        return {self._keys[name]: goal for name, goal in goals.items()}

    def _measure_reach(self) -> dict[str, tuple[float, float]]:
        """Return the range of each joint in its user unit; the servos go no further, whatever is asked."""
        self._reach = {}
        for name, motor in self.bus.motors.items():
            limits = self.bus.calibration.get(name)
            if limits is None or motor.norm_mode is not MotorNormMode.DEGREES:
                self._reach[name] = (0.0, 100.0) if name == GRIPPER else (-100.0, 100.0)
                continue
            turn = self.bus.model_resolution[motor.model]
            ends = [normalize(ticks, limits, motor.norm_mode, turn) for ticks in (limits.range_min, limits.range_max)]
            self._reach[name] = (ends[0], ends[1])
        return self._reach

    def return_to_rest(self, duration_s: float) -> None:
        """Move to the pose the arm had when it was connected, so that it does not fall when torque is released.

        Args:
            duration_s: How long it takes, seconds; it ends early when the arm does not answer.

        Raises:
            DeviceNotConnectedError: Not connected.
        """
        self._require_connected()
        move_to_rest([self], duration_s)


def move_to_rest(arms: Sequence[SOFollower], duration_s: float) -> None:
    """Move connected arms to their rest poses together, in a straight line in joint space.

    Args:
        arms: The arms; one without a known rest pose stays where it is.
        duration_s: How long it takes, seconds; an arm that does not answer is left alone.
    """
    paths: dict[SOFollower, dict[str, float]] = {}
    for arm in arms:
        try:
            paths[arm] = arm.bus.sync_read("Present_Position") if arm._rest else {}
        except MotorCommunicationError as error:
            logger.warning("%s stays where it is: %s", arm, error)
    start = time.monotonic()
    while any(paths.values()):
        part = min(1.0, (time.monotonic() - start) / duration_s) if duration_s > 0 else 1.0
        for arm, begin in list(paths.items()):
            try:
                arm.bus.sync_write("Goal_Position", {n: b + part * (arm._rest[n] - b) for n, b in begin.items()})
            except MotorCommunicationError as error:
                logger.warning("%s stopped on its way to rest: %s", arm, error)
                del paths[arm]
        if part >= 1.0:
            return
        time.sleep(_REST_PERIOD_S)
