# SPDX-License-Identifier: Apache-2.0
"""A fake motor bus with its registers in memory; replies get lost and motors die on request."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from ulna.core.calibration import CalibrationStep, check_calibration
from ulna.core.errors import (
    CalibrationError,
    DeviceAlreadyConnectedError,
    DeviceConnectError,
    DeviceDisconnectError,
    MissingMotorsError,
    MotorCommunicationError,
)
from ulna.core.homing import RangeRecorder, shortest_offset
from ulna.core.motors import Motor, MotorCalibration, MotorsBus, normalize, unnormalize
from ulna.testing.fakes.configs import FakeMotorsBusConfig
from ulna.testing.fakes.faults import FaultPlan

__all__ = ["FakeMotorsBus"]

T = TypeVar("T")
_RESOLUTION = 4096
_LIMIT = 2047


class FakeMotorsBus(MotorsBus):
    """A bus of motors of the model `fake`, 4096 ticks a turn. With torque on a motor is at its goal at once.

    Args:
        port: Any name; nothing is opened.
        motors: Name to motor.
        calibration: Name to calibration, if known.
        num_retry: How often a lost exchange is repeated.

    Attributes:
        faults: What goes wrong, and a log of the calls.
        memory: Motor name to register to value: what a real motor would hold.
    """

    config_class = FakeMotorsBusConfig
    model_resolution: ClassVar[Mapping[str, int]] = {"fake": _RESOLUTION}

    def __init__(
        self,
        port: str,
        motors: Mapping[str, Motor],
        calibration: Mapping[str, MotorCalibration] | None = None,
        *,
        num_retry: int = 2,
    ) -> None:
        super().__init__(port, motors, calibration, num_retry=num_retry)
        self.faults = FaultPlan()
        self.memory: dict[str, dict[str, int]] = {n: self._new_motor(m) for n, m in self.motors.items()}
        for name, values in self.calibration.items():
            self._store(name, values)
        self._open = False

    @staticmethod
    def _new_motor(motor: Motor) -> dict[str, int]:
        return {
            "ID": motor.id,
            "Torque_Enable": 0,
            "Goal_Position": _RESOLUTION // 2,
            "Actual": _RESOLUTION // 2,
            "Homing_Offset": 0,
            "Min_Position_Limit": 0,
            "Max_Position_Limit": _RESOLUTION - 1,
            "Present_Current": 0,
        }

    def hand(self, motor: str, ticks: int) -> None:
        """Move a limp joint by hand; a stiff one does not give.

        Args:
            motor: Motor name.
            ticks: Where to, in the register's own reading without homing offset.
        """
        if not self.memory[motor]["Torque_Enable"]:
            self.memory[motor]["Actual"] = ticks % _RESOLUTION

    # Connection

    @property
    def is_connected(self) -> bool:
        """Whether it is open."""
        return self._open

    def connect(self, handshake: bool = True) -> None:
        """Open it and check that every motor is there; see `MotorsBus.connect`."""
        if self._open:
            raise DeviceAlreadyConnectedError(f"{self!r} is already connected.", device=self.port)
        self.faults.called("connect", handshake)
        if self.faults.unplugged:
            raise DeviceConnectError(
                f"{self.port} is not there.", device=self.port, hint="Plug it in: faults.replug()."
            )
        if handshake:
            missing = [name for name in self.motors if name in self.faults.dead]
            if missing:
                text = f"On {self.port} these motors do not answer: {', '.join(missing)}."
                raise MissingMotorsError(text, missing=missing, device=self.port)
        self._open = True

    def disconnect(self, disable_torque: bool = True) -> None:
        """Release torque, each motor tried, then close; see `MotorsBus.disconnect`."""
        if not self._open:
            return
        failures: dict[str, BaseException] = {}
        try:
            self.faults.called("disconnect", disable_torque)
            if disable_torque:
                self.disable_torque()
        except MotorCommunicationError as error:
            failures = dict.fromkeys(error.motors, error)
        finally:
            self._open = False
        if failures:
            text = f"{self.port} is closed, but torque may still be on: {', '.join(failures)}."
            raise DeviceDisconnectError(text, failures=failures, device=self.port)

    # Registers

    def _exchange(self, motors: Sequence[str], num_retry: int | None, act: Callable[[], T]) -> T:
        tries = 1 + (self.num_retry if num_retry is None else num_retry)
        missing: list[str] = []
        for attempt in range(tries):
            self.counters.exchanges += 1
            self.counters.retries += attempt > 0
            missing = self.faults.silent(motors)
            if not missing:
                return act()
            for name in missing:
                self.counters.lost[name] = self.counters.lost.get(name, 0) + 1
        text = f"No answer from {', '.join(missing)} on {self.port} after {tries} tries."
        raise MotorCommunicationError(text, motors=missing, device=self.port, hint="Check the cable before it.")

    def _get(self, data_name: str, motor: str, scaled: bool) -> float:
        held = self.memory[motor]
        if data_name == "Present_Position":
            raw = (held["Actual"] - held["Homing_Offset"]) % _RESOLUTION
        else:
            raw = held[data_name]
        if not (scaled and data_name in self.normalized_data):
            return raw
        values = self._calibration_of(motor)
        return normalize(raw, values, self.motors[motor].norm_mode, _RESOLUTION, inverted=bool(values.drive_mode))

    def _raw(self, data_name: str, motor: str, value: float, scaled: bool) -> int:
        if not math.isfinite(value):
            raise ValueError(f"{motor}: {data_name} = {value} is not finite; nothing was sent.")
        if data_name not in self.memory[motor]:
            known = ", ".join(self.memory[motor])
            raise ValueError(f"{motor}: there is no register {data_name!r} to write; registers are {known}.")
        if scaled and data_name in self.normalized_data:
            held = self._calibration_of(motor)
            mode = self.motors[motor].norm_mode
            return unnormalize(value, held, mode, _RESOLUTION, inverted=bool(held.drive_mode))
        return int(value)

    def _set(self, data_name: str, motor: str, raw: int) -> None:
        held = self.memory[motor]
        held[data_name] = raw
        if held["Torque_Enable"] and data_name in ("Goal_Position", "Torque_Enable"):
            goal = min(held["Max_Position_Limit"], max(held["Min_Position_Limit"], held["Goal_Position"]))
            held["Actual"] = (goal + held["Homing_Offset"]) % _RESOLUTION

    def read(self, data_name: str, motor: str, *, normalize: bool = True, num_retry: int | None = None) -> float:
        """Read one register of one motor; see `MotorsBus.read`."""
        return self.sync_read(data_name, [motor], normalize=normalize, num_retry=num_retry)[motor]

    def write(
        self, data_name: str, motor: str, value: float, *, normalize: bool = True, num_retry: int | None = None
    ) -> None:
        """Write one register of one motor; see `MotorsBus.write`."""
        self._require_connected()
        self._names(motor)
        self.faults.called("write", data_name, motor, value)
        raw = self._raw(data_name, motor, value, normalize)
        self._exchange([motor], num_retry, lambda: self._set(data_name, motor, raw))

    def sync_read(
        self,
        data_name: str,
        motors: str | Sequence[str] | None = None,
        *,
        normalize: bool = True,
        num_retry: int | None = None,
    ) -> dict[str, float]:
        """Read one register of several motors; see `MotorsBus.sync_read`."""
        self._require_connected()
        names = self._names(motors)
        self.faults.called("sync_read", data_name, tuple(names))
        return self._exchange(names, num_retry, lambda: {n: self._get(data_name, n, normalize) for n in names})

    def sync_write(
        self,
        data_name: str,
        values: float | Mapping[str, float],
        *,
        normalize: bool = True,
        num_retry: int | None = None,
    ) -> None:
        """Write one register of several motors; see `MotorsBus.sync_write`. Dead motors take nothing, silently."""
        self._require_connected()
        wanted = dict(values) if isinstance(values, Mapping) else dict.fromkeys(self.motors, float(values))
        self._names(list(wanted))
        self.faults.called("sync_write", data_name, wanted)
        raw = {name: self._raw(data_name, name, value, normalize) for name, value in wanted.items()}
        for name, ticks in raw.items():
            if name not in self.faults.dead and not self.faults.unplugged:
                self._set(data_name, name, ticks)

    # Torque

    def enable_torque(self, motors: str | Sequence[str] | None = None, num_retry: int | None = None) -> None:
        """Make motors hold where they are; see `MotorsBus.enable_torque`."""
        for name in self._names(motors):
            self.memory[name]["Goal_Position"] = int(self._get("Present_Position", name, scaled=False))
            self.write("Torque_Enable", name, 1, num_retry=num_retry)

    def disable_torque(self, motors: str | Sequence[str] | None = None, num_retry: int | None = None) -> None:
        """Let motors go limp, each tried; see `MotorsBus.disable_torque`."""
        silent = []
        for name in self._names(motors):
            try:
                self.write("Torque_Enable", name, 0, num_retry=num_retry)
            except MotorCommunicationError:
                silent.append(name)
        if silent:
            text = f"Torque may still be on for {', '.join(silent)} on {self.port}."
            raise MotorCommunicationError(text, motors=silent, device=self.port, hint="Switch the motor power off.")

    def torque_state(self) -> dict[str, bool]:
        """Read which motors hold torque; see `MotorsBus.torque_state`."""
        return {n: bool(v) for n, v in self.sync_read("Torque_Enable").items()}

    def configure_motors(self) -> None:
        """Do nothing: fake motors have no vendor defaults."""
        self._require_connected()

    # Calibration

    def _store(self, name: str, values: MotorCalibration) -> None:
        held = self.memory[name]
        held["Homing_Offset"] = values.homing_offset
        held["Min_Position_Limit"], held["Max_Position_Limit"] = values.range_min, values.range_max

    def read_calibration(self) -> dict[str, MotorCalibration]:
        """Read what the motors hold; the direction is not stored in them: reported as 0."""
        offsets, lows, highs = (
            self.sync_read(r) for r in ("Homing_Offset", "Min_Position_Limit", "Max_Position_Limit")
        )
        return {
            n: MotorCalibration(m.id, 0, int(offsets[n]), int(lows[n]), int(highs[n])) for n, m in self.motors.items()
        }

    def _same_calibration(self, found: Mapping[str, MotorCalibration]) -> bool:
        def held(values: MotorCalibration) -> tuple[int, int, int]:
            return values.homing_offset, values.range_min, values.range_max

        mine = self.calibration
        return set(found) == set(mine) and all(held(found[n]) == held(mine[n]) for n in mine)

    def write_calibration(self, calibration: Mapping[str, MotorCalibration], cache: bool = True) -> None:
        """Write a calibration to the motors; see `MotorsBus.write_calibration`."""
        self._require_connected()
        check_calibration(calibration, source=f"Calibration for {self.port}")
        foreign = [n for n in calibration if n not in self.motors or calibration[n].id != self.motors[n].id]
        if foreign:
            raise CalibrationError(f"{', '.join(foreign)} of the calibration is not on {self.port}.", motors=foreign)
        self.faults.called("write_calibration", dict(calibration))
        for name, values in calibration.items():
            self._store(name, values)
        if cache:
            self.calibration = {**self.calibration, **calibration}

    def set_half_turn_homings(self, motors: str | Sequence[str] | None = None) -> dict[str, int]:
        """Make the present pose read half a turn; see `MotorsBus.set_half_turn_homings`."""
        self._require_connected()
        names = self._names(motors)
        half = (_RESOLUTION - 1) // 2
        offsets = {n: shortest_offset(self.memory[n]["Actual"] - half, _RESOLUTION, _LIMIT) for n in names}
        for name, offset in offsets.items():
            self.memory[name]["Homing_Offset"] = offset
        return offsets

    def record_ranges_of_motion(
        self, motors: Sequence[str] | None = None
    ) -> Generator[CalibrationStep, str, dict[str, tuple[int, int]]]:
        """Record ranges while the operator moves the joints; see `MotorsBus.record_ranges_of_motion`."""
        names = self._names(motors)

        def now() -> dict[str, int]:
            return {n: int(v) for n, v in self.sync_read("Present_Position", names, normalize=False).items()}

        recorder = RangeRecorder(now(), dict.fromkeys(names, _RESOLUTION))
        answer: Any = ""
        while answer != "done":
            answer = yield CalibrationStep("Move every joint from stop to stop.", "progress", table=recorder.table)
            recorder.add(now())
        return recorder.ranges()
