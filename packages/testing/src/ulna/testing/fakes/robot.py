# SPDX-License-Identifier: Apache-2.0
"""A fake robot on a fake bus, with cameras of any kind."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from ulna.core.calibration import CalibrationStep, MotorCalibration
from ulna.core.cameras import make_cameras_from_configs
from ulna.core.devices import OpenParts
from ulna.core.motors import Motor, MotorNormMode
from ulna.core.robots import Robot, ensure_safe_goal_position
from ulna.core.types import RobotAction, RobotObservation
from ulna.testing.fakes.configs import FakeRobotConfig
from ulna.testing.fakes.faults import FaultPlan
from ulna.testing.fakes.motors import FakeMotorsBus

__all__ = ["FakeRobot"]

_TICKS = (1024, 3072)


class FakeRobot(Robot):
    """Joints in [-100, 100] that are where they were sent at once, and cameras.

    Args:
        config: Its settings.

    Attributes:
        bus: Its motors.
        cameras: Name to camera.
        faults: What goes wrong on its bus, and a log of the calls; cameras have their own.
    """

    config_class = FakeRobotConfig
    name = "fake_robot"
    config: FakeRobotConfig

    def __init__(self, config: FakeRobotConfig) -> None:
        super().__init__(config)
        motors = {n: Motor(i, "fake", MotorNormMode.RANGE_M100_100) for i, n in enumerate(config.joints, start=1)}
        self.bus = FakeMotorsBus("fake://robot", motors)
        self.cameras = make_cameras_from_configs(config.cameras)

    @property
    def faults(self) -> FaultPlan:
        """The fault plan of its bus."""
        return self.bus.faults

    @property
    def observation_features(self) -> Mapping[str, Any]:
        """Joint positions, then pictures."""
        pictures = {n: (c.height, c.width, 3) for n, c in self.config.cameras.items()}
        return {**self.action_features, **pictures}

    @property
    def action_features(self) -> Mapping[str, Any]:
        """Joint positions in [-100, 100]."""
        return {f"{joint}.pos": float for joint in self.config.joints}

    @property
    def is_calibrated(self) -> bool:
        """Whether the bus holds the calibration in use."""
        return self.bus.is_calibrated

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        def close_bus() -> None:
            self.bus.disconnect(self.config.disable_torque_on_disconnect)

        parts.open("bus", self.bus.connect, close_bus)
        for name, camera in self.cameras.items():
            parts.open(f"camera {name}", camera.connect, camera.disconnect)
        self.bus.write_calibration(self.load_calibration() or self._default_calibration())
        self.configure()

    def _default_calibration(self) -> dict[str, MotorCalibration]:
        return {n: MotorCalibration(m.id, 0, 0, *_TICKS) for n, m in self.bus.motors.items()}

    def configure(self) -> None:
        """Make the joints stiff where they are."""
        self.bus.configure_motors()
        self.bus.enable_torque()

    def _get_observation(self) -> RobotObservation:
        joints = self.bus.sync_read("Present_Position")
        pictures = {n: c.read_latest(self.max_frame_age_ms) for n, c in self.cameras.items()}
        return {**{f"{n}.pos": v for n, v in joints.items()}, **pictures}

    def _send_action(self, action: RobotAction) -> RobotAction:
        goals = {key.removesuffix(".pos"): float(value) for key, value in action.items()}
        if self.config.max_relative_target is not None:
            present = self.bus.sync_read("Present_Position", list(goals))
            goals = ensure_safe_goal_position(
                {n: (goal, present[n]) for n, goal in goals.items()}, self.config.max_relative_target
            )
        self.bus.sync_write("Goal_Position", goals)
        return {f"{n}.pos": v for n, v in goals.items()}

    def calibrate(self) -> Generator[CalibrationStep, str, None]:
        """Calibrate as a dialogue; while ranges are recorded the joints move by themselves.

        Yields:
            The next step for the operator.
        """
        self._require_connected()
        self.bus.disable_torque()
        yield CalibrationStep("Move every joint to the middle of its range, then confirm.")
        self.bus.set_half_turn_homings()
        ranges = yield from self._moving(self.bus.record_ranges_of_motion())
        held = self.bus.read_calibration()
        calibration = {n: MotorCalibration(c.id, 0, c.homing_offset, *ranges[n]) for n, c in held.items()}
        self.bus.write_calibration(calibration)
        if self.id is not None:
            self.save_calibration(calibration)
        self.configure()

    def _moving(
        self, recording: Generator[CalibrationStep, str, dict[str, tuple[int, int]]]
    ) -> Generator[CalibrationStep, str, dict[str, tuple[int, int]]]:
        """Pass on the steps of a recording and move every joint by a quarter of a turn at each."""
        try:
            step = next(recording)
            for ticks in (1100, 2048, 3000, *[2048] * 1000):
                answer = yield step
                for name in self.bus.motors:
                    self.bus.hand(name, ticks)
                step = recording.send(answer)
        except StopIteration as ended:
            ranges: dict[str, tuple[int, int]] = ended.value
            return ranges
        finally:
            recording.close()
        return {}
