# SPDX-License-Identifier: Apache-2.0
"""Registers of servos on a serial bus: planned group access, bounded retries, fault reports. No vendor's packets."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ulna.core.errors import MotorCommunicationError, MotorStatusError, nearest
from ulna.core.motors import Motor, MotorCalibration, MotorNormMode, MotorsBus, unnormalize
from ulna.core.motors import normalize as to_user_unit
from ulna.core.serial_port import SerialPort

__all__ = ["GroupPlan", "Register", "Reply", "SerialAccess"]

logger = logging.getLogger(__name__)


class Register(NamedTuple):
    """Where a value lives in a motor's memory.

    Attributes:
        address: First byte.
        width: Bytes.
        sign_bit: Bit that carries the sign, where the vendor stores one.
    """

    address: int
    width: int
    sign_bit: int | None = None


class Reply(NamedTuple):
    """One motor's answer: its fault bits and the unsigned value of the register asked for."""

    faults: int
    raw: int


@dataclass(frozen=True)
class GroupPlan:
    """Everything about a group access that does not change from call to call; made once for a register and its motors.

    Attributes:
        register: What is accessed.
        names: Motors, in order.
        ids: Their ids.
        read: One exchange, giving the raw values; None when any answer is missing, damaged or carries a fault.
        to_user: For each motor, raw value to what the caller sees.
        to_raw: For each motor, the caller's value to the raw value.
        calibrations: What the conversions were made from; other ones make the plan stale.
    """

    register: Register
    names: tuple[str, ...]
    ids: tuple[int, ...]
    read: Callable[[], Sequence[int] | None]
    to_user: tuple[Callable[[int], float], ...]
    to_raw: tuple[Callable[[float], int], ...]
    calibrations: tuple[MotorCalibration, ...]


class SerialAccess(MotorsBus):
    """The part of a serial bus that reads and writes registers; see `ulna.core.serial_bus.SerialMotorsBus`.

    Every attempt waits at most `reply_timeout_s` (plus the time the bytes need), and is repeated at most
    `num_retry` times, so that a dead motor is named in bounded time.

    Attributes:
        serial: The port.
        tolerated_faults: Names of faults that are logged and counted but raise nothing.
    """

    model_ctrl_table: ClassVar[Mapping[str, Mapping[str, Register]]]
    reply_timeout_s: ClassVar[float] = 0.04

    def __init__(
        self,
        port: str,
        motors: Mapping[str, Motor],
        calibration: Mapping[str, MotorCalibration] | None = None,
        *,
        num_retry: int = 2,
    ) -> None:
        super().__init__(port, motors, calibration, num_retry=num_retry)
        self.serial = SerialPort(port)
        self.tolerated_faults: frozenset[str] = frozenset()
        self._reported: dict[str, tuple[str, ...]] = {}
        self._leftover: dict[int, Reply] = {}
        self._plans: dict[tuple[str, str | tuple[str, ...] | None, bool], GroupPlan] = {}

    @property
    def is_connected(self) -> bool:
        """Whether the port is open."""
        return self.serial.is_open

    # What a vendor supplies: single attempts without retries

    @abstractmethod
    def _reader(self, register: Register, ids: tuple[int, ...]) -> Callable[[], Sequence[int] | None]:
        """Prepare the fastest read of a register; on failure it leaves the good answers in `_leftover`."""

    @abstractmethod
    def _read_once(self, register: Register, ids: Sequence[int]) -> dict[int, Reply]:
        """Read one register of several motors; whoever gave a good answer is in the result."""

    @abstractmethod
    def _write_once(self, register: Register, ident: int, raw: int) -> int | None:
        """Write one register; return the fault bits of the acknowledgement, or None when none came."""

    @abstractmethod
    def _send_group(self, register: Register, raws: Mapping[int, int]) -> None:
        """Write one register of several motors in one unanswered packet."""

    @abstractmethod
    def _decode(self, register: Register, raw: int) -> int:
        """Give an unsigned register value its sign."""

    @abstractmethod
    def _encode(self, register: Register, value: int) -> int:
        """Take the sign of a value apart; ValueError when it does not fit the register."""

    @abstractmethod
    def _fault_names(self, faults: int) -> tuple[str, ...]:
        """Name the fault bits."""

    def _register(self, model: str, data_name: str) -> Register:
        table = self.model_ctrl_table[model]
        if data_name not in table:
            near = nearest(data_name, list(table))
            raise ValueError(f"{model} has no register {data_name!r}" + (f"; did you mean {near!r}?" if near else "."))
        return table[data_name]

    def _plan(self, data_name: str, motors: str | Sequence[str] | None, normalize: bool) -> GroupPlan:
        key = (data_name, motors if motors is None or isinstance(motors, str) else tuple(motors), normalize)
        plan = self._plans.get(key)
        if plan is not None:
            for name, known in zip(plan.names, plan.calibrations, strict=False):
                if self.calibration.get(name) is not known:
                    break
            else:
                return plan
        self._require_connected()
        plan = self._plans[key] = self._make_plan(data_name, self._names(motors), normalize)
        return plan

    def _make_plan(self, data_name: str, names: list[str], normalize: bool) -> GroupPlan:
        if not names:
            return GroupPlan(Register(0, 1), (), (), tuple, (), (), ())
        registers = {self._register(self.motors[name].model, data_name) for name in names}
        if len(registers) != 1:
            raise ValueError(
                f"{data_name} lies at different addresses in {', '.join(names)}; access them one model at a time."
            )
        register = registers.pop()
        ids = tuple(self.motors[name].id for name in names)
        user = normalize and data_name in self.normalized_data
        pairs = [self._conversions(register, name, user) for name in names]
        return GroupPlan(
            register,
            tuple(names),
            ids,
            self._reader(register, ids),
            tuple(to_user for to_user, _ in pairs),
            tuple(to_raw for _, to_raw in pairs),
            tuple(self.calibration[name] for name in names) if user else (),
        )

    def _conversions(
        self, register: Register, name: str, user: bool
    ) -> tuple[Callable[[int], float], Callable[[float], int]]:
        decode, encode = self._decode, self._encode
        if not user:
            return lambda raw: decode(register, raw), lambda value: encode(register, int(value))
        cal, motor = self._calibration_of(name), self.motors[name]
        mode, resolution = motor.norm_mode, self.model_resolution[motor.model]
        inverted = self.apply_drive_mode and bool(cal.drive_mode)
        to_user_unit(0, cal, mode, resolution)  # refuses an empty range now, not in the loop
        low, high, turn = cal.range_min, cal.range_max, resolution - 1
        span, middle = high - low, (low + high) / 2

        def degrees(raw: int) -> float:
            return (decode(register, raw) - middle) * 360 / turn

        def ranged(raw: int) -> float:
            return to_user_unit(decode(register, raw), cal, mode, resolution, inverted=inverted)

        def percent(raw: int) -> float:
            ticks = decode(register, raw)
            return 100 * ((low if ticks < low else high if ticks > high else ticks) - low) / span

        def ticks_of(value: float) -> int:
            return encode(register, unnormalize(value, cal, mode, resolution, inverted=inverted))

        if mode is MotorNormMode.DEGREES:
            return degrees, ticks_of
        return (percent if mode is MotorNormMode.RANGE_0_100 and not inverted else ranged), ticks_of

    def sync_read(
        self,
        data_name: str,
        motors: str | Sequence[str] | None = None,
        *,
        normalize: bool = True,
        num_retry: int | None = None,
    ) -> dict[str, float]:
        """Read one register of several motors in one exchange where the bus can; see `MotorsBus.sync_read`."""
        plan = self._plan(data_name, motors, normalize)
        if not self.serial.is_open:
            self._require_connected()
        raws = plan.read()
        if raws is None:
            raws = self._read_patiently(data_name, plan.register, plan.names, num_retry)
        self.counters.exchanges += 1
        return {name: convert(raw) for name, convert, raw in zip(plan.names, plan.to_user, raws, strict=True)}

    def read(self, data_name: str, motor: str, *, normalize: bool = True, num_retry: int | None = None) -> float:
        """Read one register of one motor; see `MotorsBus.read`."""
        return self.sync_read(data_name, motor, normalize=normalize, num_retry=num_retry)[motor]

    def _read_patiently(
        self, data_name: str, register: Register, names: Sequence[str], num_retry: int | None
    ) -> list[int]:
        """Make the best of a failed fast read, then ask again whoever did not answer, at last one by one."""
        retries = self.num_retry if num_retry is None else num_retry
        found: dict[str, Reply] = {}
        left = list(names)
        for attempt in range(retries + 1):
            self.counters.retries += attempt > 0
            replies = self._leftover if attempt == 0 else self._read_left(register, left, singly=attempt == retries)
            found.update({n: replies[self.motors[n].id] for n in left if self.motors[n].id in replies})
            left = [n for n in left if n not in found]
            if not left:
                break
            self._count(self.counters.lost, left)
        if left:
            raise self._silent_error(f"reading {data_name}", left, retries)
        self._raise_faults(f"reading {data_name}", {n: found[n].faults for n in names})
        return [found[n].raw for n in names]

    def _read_left(self, register: Register, names: Sequence[str], *, singly: bool) -> dict[int, Reply]:
        ids = [self.motors[n].id for n in names]
        found: dict[int, Reply] = {}
        for group in [[i] for i in ids] if singly else [ids]:
            found.update(self._read_once(register, group))
        return found

    @staticmethod
    def _count(counter: dict[str, int], names: Iterable[str]) -> None:
        for name in names:
            counter[name] = counter.get(name, 0) + 1

    def _silent_error(self, doing: str, names: Sequence[str], retries: int) -> MotorCommunicationError:
        told = ", ".join(f"{n} (id {self.motors[n].id})" for n in names)
        return MotorCommunicationError(
            f"No good answer from {told} on {self.port} while {doing}, after {retries + 1} attempts.",
            motors=names,
            device=self.port,
            hint=f"Check the cable before {names[0]} and the power. Who answers? ulna motors scan --port={self.port}",
        )

    def _note_faults(self, faults: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
        """Count faults by motor, log those that are new, and return their names."""
        reported = {name: self._fault_names(bits) for name, bits in faults.items() if bits}
        self._count(self.counters.faults, reported)
        for name, items in reported.items():
            if self._reported.get(name) != items:
                logger.warning("%s on %s reports: %s.", name, self.port, ", ".join(items))
        self._reported.update(reported)
        return reported

    def _raise_faults(self, doing: str, faults: Mapping[str, int]) -> None:
        reported = self._note_faults(faults)
        bad = {name: items for name, items in reported.items() if not self.tolerated_faults.issuperset(items)}
        if not bad:
            return
        told = "; ".join(f"{name}: {', '.join(items)}" for name, items in bad.items())
        raise MotorStatusError(
            f"Motors on {self.port} report faults while {doing}: {told}.",
            faults=bad,
            device=self.port,
            hint="Take the load off and let the motor cool; switching its power off and on clears a latched fault.",
        )

    def write(
        self, data_name: str, motor: str, value: float, *, normalize: bool = True, num_retry: int | None = None
    ) -> None:
        """Write one register of one motor and wait for its acknowledgement; see `MotorsBus.write`."""
        plan = self._plan(data_name, motor, normalize)
        self._require_connected()
        faults = self._write_patiently(
            data_name, plan.register, motor, plan.to_raw[0](_finite(value, data_name, motor)), num_retry
        )
        self._raise_faults(f"writing {data_name}", {motor: faults})

    def _write_patiently(self, data_name: str, register: Register, motor: str, raw: int, num_retry: int | None) -> int:
        retries = self.num_retry if num_retry is None else num_retry
        for attempt in range(retries + 1):
            self.counters.exchanges += 1
            self.counters.retries += attempt > 0
            faults = self._write_once(register, self.motors[motor].id, raw)
            if faults is not None:
                return faults
            self._count(self.counters.lost, [motor])
        raise self._silent_error(f"writing {data_name}", [motor], retries)

    def sync_write(
        self,
        data_name: str,
        values: float | Mapping[str, float],
        *,
        normalize: bool = True,
        num_retry: int | None = None,
    ) -> None:
        """Write one register of several motors in one unanswered packet; see `MotorsBus.sync_write`."""
        if isinstance(values, Mapping):
            if not values:
                return
            plan = self._plan(data_name, tuple(values), normalize)
            given: Sequence[float] = tuple(values.values())
        else:
            plan = self._plan(data_name, None, normalize)
            given = (values,) * len(plan.names)
        self._require_connected()
        isfinite = math.isfinite
        for name, value in zip(plan.names, given, strict=True):
            if not isfinite(value):
                _finite(value, data_name, name)
        raws = {i: convert(value) for i, convert, value in zip(plan.ids, plan.to_raw, given, strict=True)}
        if raws:
            self._send_group(plan.register, raws)


def _finite(value: float, data_name: str, motor: str) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{data_name} of {motor}: expected a finite number, got {value}.")
    return value
