# SPDX-License-Identifier: Apache-2.0
"""A simulated SO-101 arm: six servos moved by motors, gravity and a hand. Its geometry is in `kinematics`."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Mapping
from typing import Final

from ulna.core.errors import ConfigError, ConfigProblem
from ulna.sim.feetech import SimFeetechServo
from ulna.sim.kinematics import JOINT_LIMITS, JOINTS, REST_POSE, Skeleton, forward_kinematics, gravity_load, skeleton

__all__ = ["CalibrationEntry", "Hand", "SimArm", "joint_to_ticks", "ticks_to_joint"]

_TICKS: Final = 4096
_MIDDLE: Final = 2047
_GRIPPER_CLOSED_TICKS: Final = 2047
_GRIPPER_OPEN_TICKS: Final = 3412
_FULL_TURN: Final = "wrist_roll"
_GRAVITY_STEP_S: Final = 0.02

CalibrationEntry = dict[str, int]
"""`id`, `drive_mode`, `homing_offset`, `range_min` and `range_max` of one motor, as in LeRobot's calibration files."""


def joint_to_ticks(name: str, value: float) -> float:
    """Return the calibrated position of a joint in ticks.

    Args:
        name: Joint name.
        value: Degrees, or per cent for the gripper.
    """
    if name == "gripper":
        return _GRIPPER_CLOSED_TICKS + value / 100.0 * (_GRIPPER_OPEN_TICKS - _GRIPPER_CLOSED_TICKS)
    return _zero_ticks(name) + value * (_TICKS - 1) / 360.0


def ticks_to_joint(name: str, ticks: float) -> float:
    """Return the joint's degrees (per cent for the gripper) at a calibrated position.

    Args:
        name: Joint name.
        ticks: Calibrated position, as the servo reports it.
    """
    if name == "gripper":
        return (ticks - _GRIPPER_CLOSED_TICKS) * 100.0 / (_GRIPPER_OPEN_TICKS - _GRIPPER_CLOSED_TICKS)
    return (ticks - _zero_ticks(name)) * 360.0 / (_TICKS - 1)


def _zero_ticks(name: str) -> float:
    return (_TICKS - 1) / 2 if name == _FULL_TURN else float(_MIDDLE)


def _range(name: str) -> tuple[int, int]:
    if name == _FULL_TURN:
        return 0, _TICKS - 1
    low, high = JOINT_LIMITS[name]
    return round(joint_to_ticks(name, low)), round(joint_to_ticks(name, high))


class SimArm:
    """Six `sts3215` with ids 1..6, joined by links. Created by a `Simulation` or a test, needs no closing.

    How far the encoders are from the joints' zero is drawn from `seed`, as assembly leaves it to chance; a calibrated
    arm has the homing offsets and limits that undo it in its EEPROM.

    Args:
        seed: Seeds the assembly.
        calibrated: Whether the EEPROM holds the calibration, or factory values.
        supply_v: Supply voltage.
        lock: Guards the servos; shared with their bus.

    Attributes:
        servos: Joint name to servo, in bus order.
        hand: The hand that may move the arm.
        lock: See above.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        calibrated: bool = True,
        supply_v: float | None = None,
        lock: threading.RLock | None = None,
    ) -> None:
        self.lock = threading.RLock() if lock is None else lock
        rng = random.Random(f"assembly-{seed}")
        # Kept within what Homing_Offset can hold; a reading may well cross the encoder's seam.
        self._assembly = {name: rng.randint(-1500, 1500) for name in JOINTS}
        self.servos: dict[str, SimFeetechServo] = {}
        for number, name in enumerate(JOINTS, start=1):
            servo = SimFeetechServo(
                number,
                "sts3215",
                position=self._encoder(name, REST_POSE[name]),
                stops=self._stops(name),
                supply_v=supply_v,
            )
            self.servos[name] = servo
        self.hand = Hand(self)
        self._time: float | None = None
        if calibrated:
            self.calibrate()

    @property
    def joints(self) -> dict[str, float]:
        """Joint name to degrees (gripper to per cent): where the arm really is, whatever its registers say."""
        return {
            name: ticks_to_joint(name, servo.motion.position - self._assembly[name])
            for name, servo in self.servos.items()
        }

    @property
    def tip(self) -> tuple[float, float, float]:
        """The gripper tip in metres."""
        return forward_kinematics(self.joints)

    @property
    def skeleton(self) -> Skeleton:
        """Points of the arm in space."""
        return skeleton(self.joints)

    @property
    def calibration(self) -> dict[str, CalibrationEntry]:
        """Joint name to the calibration that makes readings agree with the joint angles."""
        entries = {}
        for name, servo in self.servos.items():
            low, high = _range(name)
            entries[name] = {
                "id": servo.id,
                "drive_mode": 0,
                "homing_offset": self._assembly[name],
                "range_min": low,
                "range_max": high,
            }
        return entries

    def calibrate(self) -> None:
        """Write the calibration into the servos' EEPROM and let the goals follow."""
        with self.lock:
            for name, entry in self.calibration.items():
                servo = self.servos[name]
                servo.preset("Homing_Offset", entry["homing_offset"])
                servo.preset("Min_Position_Limit", entry["range_min"])
                servo.preset("Max_Position_Limit", entry["range_max"])
                servo.park_goal()

    def place(self, joints: Mapping[str, float]) -> None:
        """Put joints somewhere at rest; their goals follow, so that powered motors stay there.

        Args:
            joints: Joint name to degrees (gripper to per cent); others stay.

        Raises:
            ConfigError: A name is unknown or a value is outside the joint's limits.
        """
        _check(joints)
        with self.lock:
            for name, value in joints.items():
                servo = self.servos[name]
                servo.position = self._encoder(name, value)
                servo.park_goal()

    def advance(self, now: float) -> None:
        """Bring the arm to a time. Earlier times than the last one change nothing.

        Args:
            now: Seconds on the world's clock; the first call only notes it.
        """
        with self.lock:
            if self._time is None:
                self._time = now
            left = now - self._time
            if left <= 0.0:
                return
            self._time = now
            chunks = min(250, max(1, math.ceil(left / _GRAVITY_STEP_S)))
            for _ in range(chunks):
                self._pull()
                for servo in self.servos.values():
                    servo.advance(left / chunks)

    def _pull(self) -> None:
        for name, load in gravity_load(self.joints).items():
            self.servos[name].motion.external = load

    def _encoder(self, name: str, value: float) -> float:
        return joint_to_ticks(name, value) + self._assembly[name]

    def _stops(self, name: str) -> tuple[float, float] | None:
        if name == _FULL_TURN:
            return None
        low, high = _range(name)
        return low + self._assembly[name], high + self._assembly[name]


class Hand:
    """A person's hand on an arm: it holds or moves joints whatever their motors do. Belongs to its arm."""

    def __init__(self, arm: SimArm) -> None:
        self._arm = arm

    @property
    def holds(self) -> bool:
        """Whether it touches any joint."""
        return any(servo.motion.hand is not None for servo in self._arm.servos.values())

    def move_to(self, joints: Mapping[str, float], at_rate: float = 120.0) -> None:
        """Start moving joints; time has to pass for them to arrive, then the hand keeps them there.

        Args:
            joints: Joint name to degrees (gripper to per cent); others are left as they are.
            at_rate: Degrees per second (the gripper: as many per cent per second).

        Raises:
            ConfigError: A name is unknown or a value is outside the joint's limits.
        """
        _check(joints)
        with self._arm.lock:
            for name, value in joints.items():
                rate = abs(joint_to_ticks(name, at_rate) - joint_to_ticks(name, 0.0))
                self._arm.servos[name].hold(self._arm._encoder(name, value), rate=rate)

    def set(self, joints: Mapping[str, float]) -> None:
        """Put joints somewhere at once and hold them there.

        Args:
            joints: Joint name to degrees (gripper to per cent); others are left as they are.

        Raises:
            ConfigError: A name is unknown or a value is outside the joint's limits.
        """
        _check(joints)
        with self._arm.lock:
            for name, value in joints.items():
                servo = self._arm.servos[name]
                servo.hold(self._arm._encoder(name, value))
                servo.position = self._arm._encoder(name, value)

    def release(self) -> None:
        """Let go of every joint."""
        with self._arm.lock:
            for servo in self._arm.servos.values():
                servo.hold(None)


def _check(joints: Mapping[str, float]) -> None:
    problems = []
    for name, value in joints.items():
        if name not in JOINT_LIMITS:
            problems.append(ConfigProblem(name, value, f"a joint: one of {', '.join(JOINTS)}"))
        elif not JOINT_LIMITS[name].low - 1e-6 <= value <= JOINT_LIMITS[name].high + 1e-6:
            low, high = JOINT_LIMITS[name]
            problems.append(ConfigProblem(name, value, f"a value in {low:g}..{high:g}"))
    if problems:
        raise ConfigError(problems, title="joint positions")
