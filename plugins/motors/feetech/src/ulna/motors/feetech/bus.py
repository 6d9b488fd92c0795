# SPDX-License-Identifier: Apache-2.0
"""The Feetech bus: Feetech's packets and habits under the contract of a serial motor bus. Registers are in `tables`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar, Literal

from ulna.core.errors import ConfigError, ConfigProblem, DeviceConnectError, MotorCommunicationError
from ulna.core.motors import BusCapabilities, Motor, MotorCalibration
from ulna.core.serial_bus import Register, Reply, SerialMotorsBus
from ulna.motors.feetech import protocol, tables
from ulna.motors.feetech.tables import MULTI_TURN_BIT, OperatingMode, TorqueMode

__all__ = ["FeetechMotorsBus"]

_BITS_A_BYTE = 10
_GAP_S = 0.02
_SETTLE_S = 0.002
_PING_EACH_TIMEOUT_S = 0.02
_MODEL_NUMBER = Register(3, 2)


class FeetechMotorsBus(SerialMotorsBus):
    """A bus of Feetech servos of one protocol: 0 for STS and SMS, 1 for SCS. Buses of both may live in one process.

    Protocol 1 has neither sync read nor broadcast ping on the wire and stores no homing offset: reads go motor by
    motor, a scan asks every id; `capabilities` says so.

    Args:
        port: Serial device.
        motors: Name to motor.
        calibration: Name to calibration, if known.
        protocol_version: 0 or 1; default: that of the motors' models.
        num_retry: How often a lost or damaged exchange is repeated before it is an error.

    Raises:
        ConfigError: Two motors share an id, a model is unknown, or models of both protocols are mixed.

    Example:
        >>> from ulna.core.motors import Motor, MotorNormMode
        >>> from ulna.sim.bus import SimFeetechBus
        >>> from ulna.sim.feetech import SimFeetechServo
        >>> with SimFeetechBus([SimFeetechServo(1)]) as wire:
        ...     with FeetechMotorsBus(wire.port, {"pan": Motor(1, "sts3215", MotorNormMode.DEGREES)}) as bus:
        ...         bus.sync_read("Present_Position", normalize=False)
        {'pan': 2048}
    """

    model_ctrl_table = tables.MODEL_CONTROL_TABLE
    model_number_table = tables.MODEL_NUMBER_TABLE
    model_resolution = tables.MODEL_RESOLUTION
    model_baudrate_table: ClassVar[Mapping[str, Mapping[int, int]]] = dict.fromkeys(
        tables.MODEL_PROTOCOL, tables.BAUDRATE_TABLE
    )
    available_baudrates = tables.SCAN_BAUDRATES
    homing_limit = 2047
    scan_window_s: ClassVar[float] = 0.77

    def __init__(
        self,
        port: str,
        motors: Mapping[str, Motor],
        calibration: Mapping[str, MotorCalibration] | None = None,
        *,
        protocol_version: int | None = None,
        num_retry: int = 2,
    ) -> None:
        super().__init__(port, motors, calibration, num_retry=num_retry)
        self.protocol_version = _one_protocol(self.motors, protocol_version)
        if self.protocol_version == 1:
            self.capabilities = BusCapabilities(sync_read=False, broadcast_ping=False, homing_offset=False)
        self._big_endian = self.protocol_version == 1
        self._order: Literal["big", "little"] = "big" if self._big_endian else "little"

    # Single attempts

    def _timeout_s(self, size: int) -> float:
        return self.reply_timeout_s + size * _BITS_A_BYTE / (self.serial.baudrate or self.default_baudrate)

    def _request(self, register: Register, ids: Sequence[int]) -> bytes:
        if len(ids) == 1:
            return protocol.instruction(ids[0], protocol.READ, bytes((register.address, register.width)))
        return protocol.instruction(
            protocol.BROADCAST_ID, protocol.SYNC_READ, bytes((register.address, register.width, *ids))
        )

    def _reader(self, register: Register, ids: tuple[int, ...]) -> Callable[[], Sequence[int] | None]:
        if len(ids) > 1 and not self.capabilities.sync_read:
            return self._sequential_reader(register, ids)
        request = self._request(register, ids)
        parse = protocol.block_parser(ids, register.width, self._big_endian)
        size = (6 + register.width) * len(ids)
        exchange, timeout_s = self.serial.exchange, self._timeout_s(size + len(request))

        def read() -> list[int] | None:
            data = exchange(request, size, timeout_s, _GAP_S)
            values = parse(data)
            if values is None:
                self._leftover = self._replies(data, register, ids)
            return values

        return read

    def _sequential_reader(self, register: Register, ids: tuple[int, ...]) -> Callable[[], list[int] | None]:
        readers = {ident: self._reader(register, (ident,)) for ident in ids}

        def read() -> list[int] | None:
            values: list[int] = []
            found: dict[int, Reply] = {}
            for ident, reader in readers.items():
                single = reader()
                found.update(self._leftover if single is None else {ident: Reply(0, single[0])})
                values += single or []
            if len(values) == len(ids):
                return values
            self._leftover = found
            return None

        return read

    def _replies(self, data: bytes, register: Register, ids: Sequence[int]) -> dict[int, Reply]:
        found: dict[int, Reply] = {}
        for status in protocol.statuses(data):
            if status is None:
                self.counters.corrupt += 1
            elif status.ident in ids and len(status.data) == register.width:
                found[status.ident] = Reply(status.faults, int.from_bytes(status.data, self._order))
        return found

    def _read_once(self, register: Register, ids: Sequence[int]) -> dict[int, Reply]:
        self.serial.drain(_SETTLE_S, self.reply_timeout_s)
        groups = [ids] if self.capabilities.sync_read else [[ident] for ident in ids]
        found: dict[int, Reply] = {}
        for group in groups:
            request, size = self._request(register, group), (6 + register.width) * len(group)
            data = self.serial.exchange(request, size, self._timeout_s(size + len(request)), _GAP_S)
            found.update(self._replies(data, register, group))
        return found

    def _write_once(self, register: Register, ident: int, raw: int) -> int | None:
        data = bytes((register.address,)) + raw.to_bytes(register.width, self._order)
        return self._acknowledged(ident, protocol.instruction(ident, protocol.WRITE, data))

    def _acknowledged(self, ident: int, request: bytes, timeout_s: float | None = None) -> int | None:
        answer = self.serial.exchange(request, 6, self._timeout_s(6) if timeout_s is None else timeout_s, _GAP_S)
        found = None
        for status in protocol.statuses(answer):
            if status is None:
                self.counters.corrupt += 1
            elif status.ident == ident and not status.data:
                found = status.faults
        return found

    def _send_group(self, register: Register, raws: Mapping[int, int]) -> None:
        width = register.width
        if width == 1:
            body = bytes([byte for pair in raws.items() for byte in pair])
        elif self._big_endian:
            body = bytes([byte for ident, raw in raws.items() for byte in (ident, raw >> 8, raw & 0xFF)])
        else:
            body = bytes([byte for ident, raw in raws.items() for byte in (ident, raw & 0xFF, raw >> 8)])
        parameters = bytes((register.address, width)) + body
        self.serial.exchange(protocol.instruction(protocol.BROADCAST_ID, protocol.SYNC_WRITE, parameters), 0, 0.0, 0.0)

    def _decode(self, register: Register, raw: int) -> int:
        bit = register.sign_bit
        if bit is None:
            return raw
        return -(raw & (1 << bit) - 1) if raw >> bit & 1 else raw & (1 << bit) - 1

    def _encode(self, register: Register, value: int) -> int:
        bit = register.sign_bit
        top = 1 << (8 * register.width if bit is None else bit)
        if not (0 if bit is None else 1 - top) <= value < top:
            low = 0 if bit is None else 1 - top
            raise ValueError(f"{value} does not fit the register at address {register.address}: {low}..{top - 1}.")
        return -value | 1 << bit if value < 0 and bit is not None else value

    def _fault_names(self, faults: int) -> tuple[str, ...]:
        names = [name for bit, name in tables.FAULTS.items() if faults & bit]
        return tuple(names) or (f"unknown ({faults:#04x})",)

    # Finding motors

    def ping(self, motor: str | int, num_retry: int | None = None) -> int | None:
        """Ask one motor for its model number; see `SerialMotorsBus.ping`."""
        self._require_connected()
        ident = motor if isinstance(motor, int) else self.motors[self._names(motor)[0]].id
        for attempt in range((self.num_retry if num_retry is None else num_retry) + 1):
            self.counters.retries += attempt > 0
            if attempt:
                self.serial.drain(_SETTLE_S, self.reply_timeout_s)
            if self._acknowledged(ident, protocol.instruction(ident, protocol.PING)) is not None:
                number = self._model_number(ident)
                if number is not None:
                    return number
        return None

    def _model_number(self, ident: int) -> int | None:
        reply = self._read_once(_MODEL_NUMBER, [ident]).get(ident)
        if reply is None:
            return None
        # A scan does not know the protocol yet: the number of a motor of the other one comes with its bytes swapped.
        swapped = (reply.raw & 0xFF) << 8 | reply.raw >> 8
        known = tables.MODEL_NUMBER_TABLE.values()
        return swapped if reply.raw not in known and swapped in known else reply.raw

    def broadcast_ping(self) -> dict[int, int]:
        """Find every motor at the present baud rate; see `SerialMotorsBus.broadcast_ping`. Protocol 1 takes 5 s."""
        self._require_connected()
        if self.capabilities.broadcast_ping:
            answer = self.serial.collect(protocol.instruction(protocol.BROADCAST_ID, protocol.PING), self.scan_window_s)
            ids = sorted({s.ident for s in protocol.statuses(answer) if s is not None and not s.data})
        else:
            requests = {i: protocol.instruction(i, protocol.PING) for i in range(protocol.MAX_ID + 1)}
            ids = [i for i, r in requests.items() if self._acknowledged(i, r, _PING_EACH_TIMEOUT_S) is not None]
        return {i: number for i in ids if (number := self.ping(i, num_retry=2)) is not None}

    def _check_alike(self) -> None:
        major = self.sync_read("Firmware_Major_Version", normalize=False)
        minor = self.sync_read("Firmware_Minor_Version", normalize=False)
        versions = {name: f"{major[name]}.{minor[name]}" for name in self.motors}
        if len(set(versions.values())) > 1:
            told = ", ".join(f"{name} {version}" for name, version in versions.items())
            raise DeviceConnectError(
                f"The motors on {self.port} run different firmware: {told}.",
                device=self.port,
                hint="Bring all to one version with Feetech's own debug software.",
            )

    # Torque

    def enable_torque(self, motors: str | Sequence[str] | None = None, num_retry: int | None = None) -> None:
        """Make motors hold where they are; see `MotorsBus.enable_torque`. A motor that holds already keeps its goal."""
        names = self._names(motors)
        if not names:
            return
        on = self.sync_read("Torque_Enable", names, normalize=False, num_retry=num_retry)
        self._goal_to_present([name for name in names if not on[name]], num_retry)
        for name in names:
            self.write("Torque_Enable", name, TorqueMode.ENABLED, num_retry=num_retry)
            self.write("Lock", name, 1, num_retry=num_retry)

    def _goal_to_present(self, names: Sequence[str], num_retry: int | None) -> None:
        """Set goals to where the motors are: with an old goal they would jump when torque comes on."""
        if names and self.protocol_version == 0:
            mode = self.sync_read("Operating_Mode", names, normalize=False, num_retry=num_retry)
            names = [name for name in names if mode[name] == OperatingMode.POSITION]
        if names:
            present = self.sync_read("Present_Position", names, normalize=False, num_retry=num_retry)
            for name, ticks in present.items():
                self.write("Goal_Position", name, ticks, normalize=False, num_retry=num_retry)

    def disable_torque(self, motors: str | Sequence[str] | None = None, num_retry: int | None = None) -> None:
        """Let motors go limp, each tried; see `MotorsBus.disable_torque`. A faulty motor obeys too: it is logged."""
        self._require_connected()
        names = self._names(motors)
        if len(names) > 1:
            # At once for all of them, before any silent motor costs time; the writes below make sure of each.
            self.sync_write("Torque_Enable", dict.fromkeys(names, TorqueMode.DISABLED))
        silent = [name for name in names if not self._release(name, num_retry)]
        if silent:
            raise self._silent_error("releasing torque", silent, self.num_retry if num_retry is None else num_retry)

    def _release(self, name: str, num_retry: int | None) -> bool:
        for register in ("Torque_Enable", "Lock"):
            where = self._register(self.motors[name].model, register)
            try:
                faults = self._write_patiently(register, where, name, 0, num_retry)
            except MotorCommunicationError:
                return False
            self._note_faults({name: faults})
        return True

    def torque_state(self) -> dict[str, bool]:
        """Read which motors hold torque; see `MotorsBus.torque_state`."""
        return {name: bool(value) for name, value in self.sync_read("Torque_Enable", normalize=False).items()}

    # Permanent registers

    def _unlock(self, ident: int, model: str) -> None:
        for name in ("Torque_Enable", "Lock"):
            self._write_once(self._register(model, name), ident, 0)

    def _lock(self, ident: int, model: str) -> None:
        self._write_once(self._register(model, "Lock"), ident, 1)

    @contextmanager
    def _eeprom_open(self, names: Sequence[str]) -> Iterator[None]:
        locked = [name for name, value in self.sync_read("Lock", names, normalize=False).items() if value]
        for name in locked:
            self.write("Lock", name, 0)
        try:
            yield
        finally:
            for name in locked:
                self.write("Lock", name, 1)

    def configure_motors(
        self, return_delay_time: int = 0, maximum_acceleration: int = 254, acceleration: int = 254
    ) -> None:
        """Write the defaults that suit teleoperation, where they differ; see `MotorsBus.configure_motors`.

        Args:
            return_delay_time: Wait before an answer, units of 2 us.
            maximum_acceleration: Ceiling of the acceleration, units of 100 ticks/s²; protocol 0 only.
            acceleration: Acceleration, same unit.
        """
        self.write_if_different("Return_Delay_Time", dict.fromkeys(self.motors, return_delay_time))
        if self.protocol_version == 0:
            self.write_if_different("Maximum_Acceleration", dict.fromkeys(self.motors, maximum_acceleration))
        self.write_if_different("Acceleration", dict.fromkeys(self.motors, acceleration))
        self._stay_within_a_turn(list(self.motors))

    def _stay_within_a_turn(self, names: Sequence[str]) -> None:
        counting = [name for name in names if self.motors[name].model == "sts3215"]
        phases = self.sync_read("Phase", counting, normalize=False) if counting else {}
        self.write_if_different("Phase", {name: int(phase) & ~MULTI_TURN_BIT for name, phase in phases.items()})

    def _prepare_homing(self, names: Sequence[str]) -> None:
        self._stay_within_a_turn(names)

    def _same_calibration(self, found: Mapping[str, MotorCalibration]) -> bool:
        # Neither the direction nor, on a bus by itself, the id is stored with the limits.
        plain = {name: replace(values, drive_mode=0, id=0) for name, values in self.calibration.items()}
        if not self.capabilities.homing_offset:
            plain = {name: replace(values, homing_offset=0) for name, values in plain.items()}
        return {name: replace(values, id=0) for name, values in found.items()} == plain


def _one_protocol(motors: Mapping[str, Motor], asked: int | None) -> int:
    needs = {tables.MODEL_PROTOCOL[motor.model] for motor in motors.values()}
    needs |= set() if asked is None else {asked}
    if len(needs) > 1:
        told = {name: tables.MODEL_PROTOCOL[motor.model] for name, motor in motors.items()}
        problem = ConfigProblem("protocol_version", asked, f"one protocol for all motors of a bus; theirs are {told}")
        raise ConfigError([problem], title="Feetech bus")
    return needs.pop() if needs else 0
