# SPDX-License-Identifier: Apache-2.0
"""The serial motor bus a vendor derives from: handshake, scan, setup of motors, calibration. No vendor's packets."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from ulna.core.calibration import CalibrationStep, check_calibration
from ulna.core.errors import (
    CalibrationError,
    DeviceAlreadyConnectedError,
    DeviceDisconnectError,
    MissingMotorsError,
    MotorCommunicationError,
)
from ulna.core.homing import RangeRecorder, outside_register, shortest_offset
from ulna.core.motors import MotorCalibration
from ulna.core.serial_access import Register, Reply, SerialAccess

__all__ = ["Register", "Reply", "SerialMotorsBus"]

logger = logging.getLogger(__name__)

_HOMING_TOLERANCE = 100


class SerialMotorsBus(SerialAccess):
    """A half-duplex serial bus of servos. A vendor's class supplies tables and single attempts; the rest is here.

    A robot or teleoperator makes it, connects it and disconnects it. Blocking; not thread-safe.
    """

    model_number_table: ClassVar[Mapping[str, int]]
    model_baudrate_table: ClassVar[Mapping[str, Mapping[int, int]]]
    available_baudrates: ClassVar[tuple[int, ...]]
    default_baudrate: ClassVar[int] = 1_000_000
    homing_limit: ClassVar[int]
    homing_sign: ClassVar[int] = 1  # +1: the motor subtracts Homing_Offset from its position; -1: it adds it

    # What a vendor supplies

    @abstractmethod
    def ping(self, motor: str | int, num_retry: int | None = None) -> int | None:
        """Ask one motor for its model number.

        Args:
            motor: Motor name, or an id.
            num_retry: Repetitions allowed; default: the bus's.

        Returns:
            The model number, or None when nothing answers.

        Raises:
            DeviceNotConnectedError: Not connected.
        """

    @abstractmethod
    def broadcast_ping(self) -> dict[int, int]:
        """Find every motor that listens at the present baud rate.

        Returns:
            Id to model number.

        Raises:
            DeviceNotConnectedError: Not connected.
        """

    @abstractmethod
    def _unlock(self, ident: int, model: str) -> None:
        """Release torque of the motor under `ident` and let permanent registers be written."""

    @abstractmethod
    def _lock(self, ident: int, model: str) -> None:
        """Protect the permanent registers of the motor under `ident`."""

    @contextmanager
    def _eeprom_open(self, names: Sequence[str]) -> Iterator[None]:
        """Make writes to permanent registers last for the block."""
        yield

    def _prepare_homing(self, names: Sequence[str]) -> None:
        """Bring motors into the state in which a homing offset can be measured."""

    def _check_alike(self) -> None:
        """Refuse motors that answer but do not fit together (firmware); DeviceConnectError."""

    # Connection

    def connect(self, handshake: bool = True) -> None:
        """Open the port and check that every motor is there; see `MotorsBus.connect`."""
        if self.is_connected:
            raise DeviceAlreadyConnectedError(f"{self!r} is already connected.", device=self.port)
        self.serial.open(self.default_baudrate)
        try:
            if handshake:
                self._check_present()
                self._check_alike()
        except BaseException:
            self.serial.close()
            raise

    def _check_present(self) -> None:
        found = {name: self.ping(name) for name in self.motors}
        expected = {name: self.model_number_table.get(motor.model) for name, motor in self.motors.items()}
        missing = [name for name, number in found.items() if number is None]
        wrong = {n: k for n, k in found.items() if k is not None and expected[n] is not None and k != expected[n]}
        if not missing and not wrong:
            return
        there = self.broadcast_ping() if missing else {}
        lines = [f"On {self.port} at {self.serial.baudrate} baud:"]
        lines += [f"  {n} (id {self.motors[n].id}, {self.motors[n].model}) does not answer" for n in missing]
        lines += [
            f"  {n} (id {self.motors[n].id}) is a {self._model_of(k)}, not a {self.motors[n].model}"
            for n, k in wrong.items()
        ]
        if missing:
            answering = ", ".join(f"{i} ({self._model_of(k)})" for i, k in sorted(there.items()))
            lines.append(f"  ids that answer: {answering or 'none'}")
        hint = self._missing_hint(missing, there)
        raise MissingMotorsError("\n".join(lines), missing=missing, wrong_model=wrong, device=self.port, hint=hint)

    def _model_of(self, number: int) -> str:
        return next((m for m, k in self.model_number_table.items() if k == number), f"motor of model number {number}")

    def _missing_hint(self, missing: Sequence[str], there: Mapping[int, int]) -> str:
        scan = f"See what is on the bus at every baud rate: ulna motors scan --port={self.port}"
        names = list(self.motors)
        if not missing:
            return f"Is this the right arm and port? {scan}"
        if len(missing) == len(names) and not there:
            return f"Nothing answers at all: check the motor power supply and the first cable. {scan}"
        first = names.index(missing[0])
        if first and names[first:] == list(missing):
            last = names[first - 1]
            cable = f"Everything after {last} is silent: check the cable from {last} to {missing[0]}."
        else:
            cable = f"Check the cable before {missing[0]}; two motors that share an id look like this too."
        setup = f"ulna motors setup --robot.type=... --robot.port=... --only={missing[0]}"
        return f"{cable} {scan}\nGive one motor its id: {setup}"

    def disconnect(self, disable_torque: bool = True) -> None:
        """Release torque, each motor tried, then close the port whatever happened; see `MotorsBus.disconnect`."""
        if not self.is_connected:
            return
        failures: dict[str, BaseException] = {}
        try:
            if disable_torque:
                self.disable_torque(num_retry=max(self.num_retry, 2))
        except MotorCommunicationError as error:
            failures = dict.fromkeys(error.motors or (self.port,), error)
        finally:
            self.serial.close()
        if failures:
            raise DeviceDisconnectError(
                f"{self.port} is closed, but torque may still be on: {next(iter(failures.values()))}",
                failures=failures,
                device=self.port,
                hint="Switch the motor power off.",
            )

    # Scan and setup

    @classmethod
    def scan_port(
        cls, port: str, *, baudrates: Sequence[int] | None = None, **settings: Any
    ) -> dict[int, dict[int, int]]:
        """Look for motors at every baud rate; changes nothing on them.

        Args:
            port: Serial device.
            baudrates: Bits per second to try; default: all this vendor knows.
            **settings: Further arguments of the class.

        Returns:
            Baud rate to id to model number, baud rates without motors left out.

        Raises:
            DeviceConnectError: The port cannot be opened.
        """
        found: dict[int, dict[int, int]] = {}
        bus = cls(port, {}, **settings)
        bus.connect(handshake=False)
        try:
            for baud in baudrates or cls.available_baudrates:
                bus.serial.set_baudrate(baud)
                there = bus.broadcast_ping()
                if there:
                    found[baud] = there
        finally:
            bus.serial.close()
        return found

    def setup_motor(self, motor: str, initial_baudrate: int | None = None, initial_id: int | None = None) -> None:
        """Give the one motor that is plugged in the id of `motor` and the bus's baud rate, and read both back.

        Opens the port when it is closed and leaves it open. A motor that is right already is not written to.

        Args:
            motor: Motor name.
            initial_baudrate: The baud rate it has now, if known.
            initial_id: The id it has now, if known.

        Raises:
            MissingMotorsError: None, several, or another model is plugged in.
            MotorCommunicationError: It does not answer under its new id or baud rate.
        """
        wanted = self.motors[self._names(motor)[0]]
        if not self.is_connected:
            self.connect(handshake=False)
        try:
            baud, ident = self._find_single(motor, initial_baudrate, initial_id)
            self._unlock(ident, wanted.model)
            if ident != wanted.id:
                self._write_once(self._register(wanted.model, "ID"), ident, wanted.id)
                self._confirm(motor, wanted.id, f"after its id was changed from {ident}")
            if baud != self.default_baudrate:
                code = self.model_baudrate_table[wanted.model][self.default_baudrate]
                self._write_once(self._register(wanted.model, "Baud_Rate"), wanted.id, code)
        finally:
            self.serial.set_baudrate(self.default_baudrate)
        self._confirm(motor, wanted.id, f"at {self.default_baudrate} baud, set up from {baud}")
        self._lock(wanted.id, wanted.model)
        logger.info("%s is set up: id %d at %d baud.", motor, wanted.id, self.default_baudrate)

    def _find_single(self, motor: str, baudrate: int | None, ident: int | None) -> tuple[int, int]:
        model = self.motors[motor].model
        others = [b for b in self.model_baudrate_table[model] if b != self.default_baudrate]
        for baud in [self.default_baudrate, *others] if baudrate is None else [baudrate]:
            self.serial.set_baudrate(baud)
            number = None if ident is None else self.ping(ident)
            there = self.broadcast_ping() if ident is None else {} if number is None else {ident: number}
            if len(there) > 1:
                message = (
                    f"{len(there)} motors answer on {self.port} (ids {sorted(there)}); only {motor} may be plugged in."
                )
                raise MissingMotorsError(message, device=self.port, hint="Unplug the others and try again.")
            for found, number in there.items():
                expected = self.model_number_table.get(model)
                if expected is not None and number != expected:
                    message = f"The motor plugged in is a {self._model_of(number)}, but {motor} must be a {model}."
                    raise MissingMotorsError(message, wrong_model={motor: number}, device=self.port)
                return baud, found
        hint = f"Check its cable and the power supply. See what answers: ulna motors scan --port={self.port}"
        raise MissingMotorsError(
            f"No motor answers on {self.port}; {motor} expected.", missing=[motor], device=self.port, hint=hint
        )

    def _confirm(self, motor: str, ident: int, when: str) -> None:
        if self.ping(ident, num_retry=max(2, self.num_retry)) is None:
            message = f"{motor} does not answer as id {ident} {when}."
            raise MotorCommunicationError(
                message, motors=[motor], device=self.port, hint="Switch its power off and on, then set it up again."
            )

    # Permanent registers

    def write_if_different(self, data_name: str, values: Mapping[str, int]) -> list[str]:
        """Write a permanent register where it holds another value; sparing, since such memory wears out.

        Args:
            data_name: Register name; values are raw, signed.
            values: Motor name to value.

        Returns:
            Motors written to.

        Raises:
            MotorCommunicationError: A motor did not answer.
            ValueError: A value does not fit.
        """
        held = self.sync_read(data_name, list(values), normalize=False) if values else {}
        changed = [name for name, value in values.items() if held[name] != value]
        if changed:
            with self._eeprom_open(changed):
                for name in changed:
                    self.write(data_name, name, values[name], normalize=False)
        return changed

    def _calibration_registers(self) -> list[str]:
        offset = ["Homing_Offset"] if self.capabilities.homing_offset else []
        return [*offset, "Min_Position_Limit", "Max_Position_Limit"]

    def read_calibration(self) -> dict[str, MotorCalibration]:
        """Read what the motors hold; see `MotorsBus.read_calibration`. They hold no direction: it is 0."""
        columns = [self.sync_read(name, normalize=False) for name in self._calibration_registers()]
        if not self.capabilities.homing_offset:
            columns.insert(0, dict.fromkeys(self.motors, 0.0))
        offsets, lows, highs = columns
        return {
            n: MotorCalibration(m.id, 0, int(offsets[n]), int(lows[n]), int(highs[n])) for n, m in self.motors.items()
        }

    def write_calibration(self, calibration: Mapping[str, MotorCalibration], cache: bool = True) -> None:
        """Write a calibration to the motors where they hold another; see `MotorsBus.write_calibration`."""
        self._check_calibration(calibration)
        if self.capabilities.homing_offset:
            self.write_if_different("Homing_Offset", {n: c.homing_offset for n, c in calibration.items()})
        self.write_if_different("Min_Position_Limit", {n: c.range_min for n, c in calibration.items()})
        self.write_if_different("Max_Position_Limit", {n: c.range_max for n, c in calibration.items()})
        if cache:
            self.calibration = {**self.calibration, **calibration}

    def _check_calibration(self, calibration: Mapping[str, MotorCalibration]) -> None:
        check_calibration(calibration, source=f"Calibration for {self.port}")
        self._names(list(calibration))
        for name, values in calibration.items():
            motor = self.motors[name]
            top = self.model_resolution[motor.model] - 1
            wrong = {
                f"id {values.id}, but the motor has {motor.id}": values.id != motor.id,
                f"range {values.range_min}..{values.range_max}, but a {motor.model} has 0..{top}": values.range_min < 0
                or values.range_max > top,
                f"homing_offset {values.homing_offset}, at most ±{self.homing_limit}": abs(values.homing_offset)
                > self.homing_limit,
            }
            if any(wrong.values()):
                told = "; ".join(text for text, is_wrong in wrong.items() if is_wrong)
                message = f"The calibration of {name} does not fit its motor: {told}."
                raise CalibrationError(
                    message, motors=(name,), hint="It may belong to another arm. Calibrate this one again."
                )

    # Calibration

    def reset_calibration(self, motors: str | Sequence[str] | None = None) -> None:
        """Clear offsets and limits of motors, and forget their calibration.

        Args:
            motors: Motor names; default all.

        Raises:
            MotorCommunicationError: A motor did not answer.
        """
        names = self._names(motors)
        if self.capabilities.homing_offset:
            self.write_if_different("Homing_Offset", dict.fromkeys(names, 0))
        self.write_if_different("Min_Position_Limit", dict.fromkeys(names, 0))
        self.write_if_different(
            "Max_Position_Limit", {n: self.model_resolution[self.motors[n].model] - 1 for n in names}
        )
        self.calibration = {n: c for n, c in self.calibration.items() if n not in names}

    def set_half_turn_homings(self, motors: str | Sequence[str] | None = None) -> dict[str, int]:
        """Make the present pose read half a turn, right at the seam too; see `MotorsBus.set_half_turn_homings`."""
        names = self._names(motors)
        if not self.capabilities.homing_offset:
            raise CalibrationError(f"The motors on {self.port} store no homing offset.", motors=names)
        self._prepare_homing(names)
        self.reset_calibration(names)
        half = {n: (self.model_resolution[self.motors[n].model] - 1) // 2 for n in names}
        at = self.sync_read("Present_Position", names, normalize=False)
        offsets = {n: self._offset(n, int(at[n]) - half[n]) for n in names}
        self.write_if_different("Homing_Offset", offsets)
        now = self.sync_read("Present_Position", names, normalize=False)
        off = {n: int(now[n]) for n in names if abs(now[n] - half[n]) > _HOMING_TOLERANCE}
        if off:
            told = ", ".join(f"{n} reads {ticks} instead of {half[n]}" for n, ticks in off.items())
            hint = (
                "Hold the arm still. If it happens again, switch the motor power off and on: a motor may count turns."
            )
            raise CalibrationError(f"After homing, {told}.", motors=tuple(off), hint=hint)
        return offsets

    def _offset(self, name: str, ticks: int) -> int:
        """Return the register value that makes `name` read `ticks` less than it does with an offset of zero."""
        return self.homing_sign * shortest_offset(
            ticks, self.model_resolution[self.motors[name].model], self.homing_limit
        )

    def record_ranges_of_motion(
        self, motors: Sequence[str] | None = None
    ) -> Generator[CalibrationStep, str, dict[str, tuple[int, int]]]:
        """Record ranges while the operator moves the joints; see `MotorsBus.record_ranges_of_motion`.

        Every answer is followed by one reading, so whoever drives the dialogue sets its pace: 20 to 100 a second is
        right. A range over the seam is returned as it was travelled, beyond the register: `recentre` shifts it back.
        """
        names = self._names(motors)
        resolution = {n: self.model_resolution[self.motors[n].model] for n in names}
        recorder = RangeRecorder(self._raw_positions(names), resolution)
        answer = ""
        while answer != "done":
            text = f"Move these joints from stop to stop: {', '.join(names)}."
            if recorder.near_full_turn:
                text += f" Nearly a whole turn, which says little: {', '.join(recorder.near_full_turn)}."
            answer = yield CalibrationStep(text, "progress", table=recorder.table)
            recorder.add(self._raw_positions(names))
        if recorder.near_full_turn:
            logger.warning("Joints moved through nearly a whole turn: %s.", ", ".join(recorder.near_full_turn))
        return recorder.ranges()

    def _raw_positions(self, names: Sequence[str]) -> dict[str, int]:
        return {n: int(v) for n, v in self.sync_read("Present_Position", names, normalize=False, num_retry=5).items()}

    def recentre(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Shift the homing of joints whose recorded range runs over the seam, so that its middle reads half a turn.

        Args:
            ranges: Motor name to (lowest, highest) as recorded.

        Returns:
            The ranges in the motors' new readings; those that fitted are unchanged.

        Raises:
            CalibrationError: A motor cannot store an offset.
            MotorCommunicationError: A motor did not answer.
        """
        resolution = {n: self.model_resolution[self.motors[n].model] for n in ranges}
        over = list(outside_register(ranges, resolution))
        if over and not self.capabilities.homing_offset:
            raise CalibrationError(
                f"The range of {', '.join(over)} runs over the seam.",
                motors=over,
                hint="Turn the horn and calibrate again.",
            )
        held = self.sync_read("Homing_Offset", over, normalize=False) if over else {}
        offsets, shifted = {}, dict(ranges)
        for name in over:
            low, high = ranges[name]
            old, turn = self.homing_sign * int(held[name]), resolution[name]
            offsets[name] = self._offset(name, old + (low + high) // 2 - (turn - 1) // 2)
            start = (low + old - self.homing_sign * offsets[name]) % turn
            shifted[name] = (start, min(turn - 1, start + high - low))
        self.write_if_different("Homing_Offset", offsets)
        return shifted

    def calibrate(
        self, *, full_turn: Collection[str] = (), closing: Mapping[str, str] | None = None
    ) -> Generator[CalibrationStep, str, dict[str, MotorCalibration]]:
        """Calibrate all motors as a dialogue and write the result to them. Torque must be off.

        Args:
            full_turn: Motors that may turn freely; their range is the whole register.
            closing: Motor name to what the operator shall do to bring it to its 0 %; this measures its direction.

        Yields:
            The next step for the operator.

        Returns:
            Motor name to calibration.

        Raises:
            CalibrationError: A joint was not moved, or homing failed.
            MotorCommunicationError: A motor did not answer.
        """
        offsets = dict.fromkeys(self.motors, 0)
        yield CalibrationStep("Move every joint to the middle of its range, hold the arm still, then confirm.")
        if self.capabilities.homing_offset:
            self.set_half_turn_homings()
        ranges = yield from self.record_ranges_of_motion([n for n in self.motors if n not in full_turn])
        ranges = self.recentre(ranges)
        ranges |= {n: (0, self.model_resolution[self.motors[n].model] - 1) for n in full_turn}
        mirrored = []
        for name, text in (closing or {}).items():
            yield CalibrationStep(text)
            at, (low, high) = self._raw_positions([name])[name], ranges[name]
            mirrored += [name] if at > (low + high) / 2 else []
        if self.capabilities.homing_offset:
            offsets = {n: int(v) for n, v in self.sync_read("Homing_Offset", normalize=False).items()}
        calibration = {
            n: MotorCalibration(m.id, int(n in mirrored), offsets[n], *ranges[n]) for n, m in self.motors.items()
        }
        self.write_calibration(calibration)
        return calibration
