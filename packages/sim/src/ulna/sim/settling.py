# SPDX-License-Identifier: Apache-2.0
"""For tests of drivers: serial ports that wait for a simulated bus instead of for time. The bus itself is in `bus`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ulna.core.serial_port import SerialPort
from ulna.sim.bus import SimFeetechBus, bus_at

__all__ = ["settled_ports"]

_ARRIVAL_MS = 2000.0


@contextmanager
def settled_ports() -> Iterator[None]:
    """Let ports that are opened meanwhile on simulated buses of this process wait until these have answered.

    A driver takes a reply that comes late for a lost one, and on a busy machine the thread of a simulated bus is late.
    With this, a reply is lost only when the bus does not send it, however short the driver's patience is.

    Yields:
        Nothing.

    Example:
        >>> from ulna.sim.feetech import SimFeetechServo, instruction_packet
        >>> with settled_ports(), SimFeetechBus([SimFeetechServo(1)]) as bus:
        ...     port = SerialPort(bus.port)
        ...     port.open(1_000_000)
        ...     port.exchange(instruction_packet(1, 1), 6, 0.001, 0.001).hex()
        ...     port.close()
        'ffff010200fc'
    """
    opened = SerialPort.open

    def settled(port: SerialPort, baudrate: int) -> None:
        opened(port, baudrate)
        bus = bus_at(port.device)
        if bus is not None and port._poll is not None:
            port._poll = _SettledPoll(port._poll, bus)

    SerialPort.open = settled  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        SerialPort.open = opened  # type: ignore[method-assign]


class _SettledPoll:
    """Polls a port when the bus has acted on what was written to it."""

    def __init__(self, poll: Any, bus: SimFeetechBus) -> None:
        self._poll, self._bus, self._sent = poll, bus, bus.counters.bytes_out

    def poll(self, wait_ms: float) -> Any:
        self._bus.settle()
        before, self._sent = self._sent, self._bus.counters.bytes_out
        is_silent = self._sent == before and self._bus.plugged
        return self._poll.poll(wait_ms if is_silent else max(wait_ms, _ARRIVAL_MS))
