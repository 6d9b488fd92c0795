# SPDX-License-Identifier: Apache-2.0
"""A Feetech bus on a pseudo terminal: a thread carries bytes between clients and servos. Packets are in `feetech`."""

from __future__ import annotations

import itertools
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal
from weakref import WeakSet

from ulna.core.clock import Clock, MonotonicClock
from ulna.core.errors import DeviceConnectError, DeviceError, DeviceNotConnectedError
from ulna.sim.faults import BusCounters, FaultPlan
from ulna.sim.feetech import FeetechLine, SimFeetechServo, instruction_packet
from ulna.sim.terminal import PseudoTerminal

from .feetech.line import Reply

__all__ = ["SimFeetechBus", "WireRecord", "bus_at"]

_BITS_PER_BYTE: Final = 10
_GAP_S: Final = 0.05
_SETTLE_TIMEOUT_S: Final = 5.0
_serial_numbers = itertools.count(1)


@dataclass(frozen=True)
class WireRecord:
    """One packet as it passed on the wire.

    Attributes:
        time_s: Time on the bus's clock.
        direction: `to_servos` or `from_servos`.
        data: The bytes.
    """

    time_s: float
    direction: Literal["to_servos", "from_servos"]
    data: bytes


class SimFeetechBus:
    """Simulated servos behind a serial port for any serial library. Closed by `close` or at the end of a `with` block.

    A daemon thread sleeps until bytes arrive. Time comes from `clock`: before each packet the servos are brought to the
    present. `lock` guards the servos; take it to look at or change them while a client is connected.

    Args:
        servos: What hangs on the wire.
        clock: Source of time; real time when None.
        advance: Brings the servos to a time of the clock; by default each servo is moved by itself. A simulated arm
            passes its own, because there the joints pull at each other.
        lock: Guards the servos; pass one to share it among several buses of one world.
        paced: Hold replies back as long as the bytes and the servos' return delay take on a real wire (in real time).
        latency_s: What a USB adapter adds to the first reply of an exchange.
        echo: Let clients hear their own bytes, as on adapters with one wire.
        baud_sensitive: Whether servos set to another speed than the port stay silent.
        faults: Fault plan; an empty one when None.
        log_wire: Keep every packet in `wire`.

    Attributes:
        faults: The fault plan.
        counters: What happened.
        wire: Packets in order, when `log_wire` is set.
        lock: See above.

    Raises:
        DeviceConnectError: No pseudo terminal could be opened.

    Example:
        >>> with SimFeetechBus([SimFeetechServo(1)]) as bus:
        ...     bus.port.startswith("/dev/")
        True
    """

    def __init__(
        self,
        servos: Sequence[SimFeetechServo],
        *,
        clock: Clock | None = None,
        advance: Callable[[float], None] | None = None,
        lock: threading.RLock | None = None,
        paced: bool = False,
        latency_s: float = 0.0,
        echo: bool = False,
        baud_sensitive: bool = True,
        faults: FaultPlan | None = None,
        log_wire: bool = False,
    ) -> None:
        self.clock: Clock = MonotonicClock() if clock is None else clock
        self.faults = FaultPlan() if faults is None else faults
        self.counters = BusCounters()
        self.wire: list[WireRecord] = []
        self.lock = threading.RLock() if lock is None else lock
        self._line = FeetechLine(servos, self.faults, self.counters)
        self._advance = self._advance_each if advance is None else advance
        self._time = self.clock.now()
        self._paced, self._latency_s, self._echo = paced, latency_s, echo
        self._baud_sensitive, self._log_wire = baud_sensitive, log_wire
        self._last_byte = time.perf_counter()
        self._marker: bytes | None = None
        self._tail = b""
        self._io = threading.RLock()
        self._stop = threading.Event()
        self._terminal: PseudoTerminal | None = _open_terminal()
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._serve, name=f"ulna-sim-bus-{next(_serial_numbers)}", daemon=True)
        self._thread.start()
        _made.add(self)

    def __enter__(self) -> SimFeetechBus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> str:
        """Path to open, `/dev/pts/3`. It changes when the bus is unplugged and plugged in again.

        Raises:
            DeviceNotConnectedError: The bus is unplugged or closed.
        """
        terminal = self._terminal
        if terminal is None:
            raise DeviceNotConnectedError("The simulated bus is unplugged or closed.", hint="Call replug() first.")
        return terminal.path

    @property
    def plugged(self) -> bool:
        """Whether the port exists."""
        return self._terminal is not None

    @property
    def servos(self) -> list[SimFeetechServo]:
        """The servos on the wire; add to or remove from the list while holding `lock`."""
        return self._line.servos

    def unplug(self) -> None:
        """Pull the cable: the port vanishes, clients get errors. Nothing happens when it is out already."""
        with self._io:
            terminal, self._terminal = self._terminal, None
            self._line.forget()
            if terminal is not None:
                terminal.close()
        self._wake()

    def replug(self) -> str:
        """Plug the cable in again.

        Returns:
            The new path.

        Raises:
            DeviceNotConnectedError: The bus has been closed for good.
            DeviceConnectError: No pseudo terminal could be opened.
        """
        if self._stop.is_set():
            raise DeviceNotConnectedError("The simulated bus has been closed.", hint="Create a new one.")
        with self._io:
            if self._terminal is None:
                self._terminal = _open_terminal()
        self._wake()
        return self.port

    def settle(self) -> None:
        """Return when everything that clients have written so far has been acted upon.

        Control loops on a virtual clock need this before time moves, or commands would arrive late by chance.

        Raises:
            DeviceError: The bytes did not arrive within five seconds.
        """
        with self._io:
            terminal = self._terminal
            if terminal is None:
                return
            # Bytes written to the client's end come out in order, so a mark behind them says that they have arrived.
            mark = b"\x00ulna-mark-%d\x00" % next(_serial_numbers)
            deadline = time.perf_counter() + _SETTLE_TIMEOUT_S
            poll = select.poll()
            poll.register(terminal.master, select.POLLIN)
            while not terminal.mark(mark):  # the line is full: act upon what is in it
                self._receive(terminal)
            self._marker = mark
            while self._waiting_for_mark and self._terminal is terminal:
                if time.perf_counter() > deadline:
                    self._marker = None
                    raise DeviceError("The simulated line did not settle within 5 s.", device=terminal.path)
                poll.poll(100)
                self._receive(terminal)

    @property
    def _waiting_for_mark(self) -> bool:
        return self._marker is not None

    def close(self) -> None:
        """Stop the thread and remove the port. Safe to call again."""
        if self._stop.is_set():
            return
        self._stop.set()
        self.unplug()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def advance(self) -> None:
        """Bring the servos to the clock's present time."""
        with self.lock:
            self._advance(self.clock.now())

    def _advance_each(self, now: float) -> None:
        seconds, self._time = now - self._time, max(now, self._time)
        for servo in self._line.servos:
            servo.advance(seconds)

    def _wake(self) -> None:
        if threading.current_thread() is not self._thread:
            os.write(self._wake_write, b"\0")

    def _serve(self) -> None:
        while not self._stop.is_set():
            with self._io:
                terminal = self._terminal
                poll = select.poll()
                poll.register(self._wake_read, select.POLLIN)
                if terminal is not None:
                    poll.register(terminal.master, select.POLLIN)
            while not self._stop.is_set() and self._terminal is terminal:
                ready = poll.poll()
                if any(fd == self._wake_read for fd, _ in ready):
                    os.read(self._wake_read, 64)
                    break
                with self._io:
                    if terminal is not None and self._terminal is terminal:
                        self._receive(terminal)

    def _receive(self, terminal: PseudoTerminal) -> None:
        data = terminal.read()
        if not data:
            return
        now = time.perf_counter()
        if self._line.unfinished and now - self._last_byte > _GAP_S:
            self._line.forget()
        self._last_byte = now
        if self._marker is not None:
            data, self._tail = self._tail + data, b""
            before, found, after = data.partition(self._marker)
            if found:
                self._marker, data = None, before + after
            elif (start := data.rfind(b"\x00")) >= 0 and self._marker.startswith(data[start:]):
                data, self._tail = data[:start], data[start:]
        if self._echo:
            terminal.write(data)
        self._handle(terminal, data, now)

    def _handle(self, terminal: PseudoTerminal, data: bytes, started: float) -> None:
        baud = terminal.baud() if self._baud_sensitive else None
        byte_s = _BITS_PER_BYTE / baud if self._paced and baud else 0.0
        for packet in self._line.packets(data):
            with self.lock:
                now = self.clock.now()
                self._advance(now)
                replies = self._line.answer(packet, baud)
            if self._log_wire:
                self._log(now, packet.id, packet.instruction, packet.parameters)
            if replies:
                started += packet.size * byte_s + self._latency_s
                self._send(terminal, replies, started, byte_s, now)
            if self._terminal is not terminal:
                return

    def _log(self, now: float, id: int, instruction: int, parameters: bytes) -> None:
        self.wire.append(WireRecord(now, "to_servos", instruction_packet(id, instruction, parameters)))

    def _send(self, terminal: PseudoTerminal, replies: Sequence[Reply], due: float, byte_s: float, now: float) -> None:
        held = bytearray()
        for reply in replies:
            verdict = self.faults.judge(reply.id, reply.data, self.counters)
            if verdict.unplug:
                terminal.write(bytes(held))
                self.unplug()
                return
            due += len(reply.data) * byte_s + (reply.delay_s if self._paced else 0.0) + verdict.delay_s
            if verdict.data is None:
                continue
            self.counters.replies += 1
            self.counters.bytes_out += len(verdict.data)
            if self._log_wire:
                self.wire.append(WireRecord(now, "from_servos", verdict.data))
            wait = due - time.perf_counter()
            if (self._paced or self._latency_s or verdict.delay_s) and wait > 0:
                terminal.write(bytes(held))
                held.clear()
                if self._stop.wait(wait):
                    return
            held += verdict.data
        terminal.write(bytes(held))


_made: WeakSet[SimFeetechBus] = WeakSet()


def bus_at(port: str) -> SimFeetechBus | None:
    """Return the bus of this process that is reached through a port.

    Args:
        port: Path of a device, or of a link to one.

    Returns:
        The bus, or None when the port belongs to nobody here.
    """
    path = os.path.realpath(port)
    return next((bus for bus in list(_made) if bus.plugged and bus.port == path), None)


def _open_terminal() -> PseudoTerminal:
    try:
        return PseudoTerminal()
    except OSError as error:
        raise DeviceConnectError(
            f"No pseudo terminal could be opened for the simulated bus: {error}.",
            hint="A simulated bus needs Linux or macOS with /dev/ptmx; on Linux check /proc/sys/kernel/pty/nr.",
        ) from error
