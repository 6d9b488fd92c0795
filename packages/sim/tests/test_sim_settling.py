# SPDX-License-Identifier: Apache-2.0
"""Ports that wait for the simulated bus: late replies arrive, lost ones are missed at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ulna.core.errors import MotorCommunicationError
from ulna.core.serial_port import SerialPort
from ulna.sim.bus import SimFeetechBus, bus_at
from ulna.sim.feetech import SimFeetechServo, instruction_packet, status_packet
from ulna.sim.settling import settled_ports
from ulna.sim.terminal import PseudoTerminal

PING = 1
SHORT_S = 0.001


@pytest.fixture
def bus() -> Iterator[SimFeetechBus]:
    with SimFeetechBus([SimFeetechServo(1)]) as bus:
        yield bus


def opened(path: str) -> SerialPort:
    port = SerialPort(path)
    port.open(1_000_000)
    return port


def ask(port: SerialPort, ident: int = 1) -> bytes:
    return port.exchange(instruction_packet(ident, PING), 6, SHORT_S, SHORT_S)


def test_a_late_reply_arrives(bus: SimFeetechBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of the bus is late, as on a busy machine: a port that does not wait for it loses the reply."""
    receive, waits, go_on = bus._receive, [0.05], threading.Event()

    def late(terminal: PseudoTerminal) -> None:
        if threading.current_thread() is bus._thread:
            go_on.wait(waits[0])
        receive(terminal)

    monkeypatch.setattr(bus, "_receive", late)
    with settled_ports():
        port = opened(bus.port)
        for _ in range(3):
            assert ask(port) == status_packet(1, 0)
        port.close()
    waits[0] = 30.0
    port = opened(bus.port)
    assert ask(port) == b""
    go_on.set()
    port.close()


def test_silence_is_not_waited_out(bus: SimFeetechBus) -> None:
    with settled_ports():
        port = opened(bus.port)
        assert ask(port, 2) == b""
        bus.faults.drop(at=[1])
        assert ask(port) == b""
        assert ask(port) == status_packet(1, 0)
        bus.unplug()
        with pytest.raises(MotorCommunicationError, match="gone"):
            ask(port)
        port.close()


def test_other_ports_stay_as_they_are(bus: SimFeetechBus, tmp_path: Path) -> None:
    """A bus is found by its port or a link to it, while it is plugged in."""
    (tmp_path / "link").symlink_to(bus.port)
    assert bus_at(bus.port) is bus_at(str(tmp_path / "link")) is bus
    assert bus_at("/dev/null") is None
    bus.unplug()
    assert bus_at(str(tmp_path / "link")) is None
    before = SerialPort.open
    with settled_ports():
        assert SerialPort.open is not before
    assert SerialPort.open is before
