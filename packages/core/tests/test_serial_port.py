# SPDX-License-Identifier: Apache-2.0
"""Serial devices: exchanges with deadlines, leftovers, vanished devices, and errors that say what to do."""

from __future__ import annotations

import errno
import os
import pty
import select
import threading
import time
import tty
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ulna.core import serial_port
from ulna.core.errors import DeviceAlreadyConnectedError, DeviceConnectError, MotorCommunicationError
from ulna.core.serial_port import SerialPort

pytest.importorskip("serial")

LONG_S = 30.0
"""Longer than any answer takes on a busy machine: a wait that ends when the answer is there."""


class Echo:
    """The far end of a pty: answers each request with what `reply` says, in pieces."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        tty.setraw(self.slave)
        self.path = os.ttyname(self.slave)
        self.reply: list[bytes] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            try:
                if not os.read(self.master, 100):
                    return
                for piece in self.reply:
                    os.write(self.master, piece)
                    time.sleep(0.002)
            except OSError:
                return

    def wait_until_answered(self) -> None:
        """Return when bytes that nobody has read lie in the line."""
        assert select.select([self.slave], [], [], LONG_S)[0]

    def close(self) -> None:
        for fd in (self.slave, self.master):
            if fd >= 0:
                os.close(fd)
        self.slave = self.master = -1


@pytest.fixture
def far() -> Iterator[Echo]:
    """The far end."""
    end = Echo()
    yield end
    end.close()


@pytest.fixture(params=[False, True], ids=["poll", "portable"])
def port(far: Echo, request: pytest.FixtureRequest) -> Iterator[SerialPort]:
    """An open port, on either way of reading."""
    port = SerialPort(far.path, portable=request.param)
    port.open(115_200)
    yield port
    port.close()


def test_a_reply_in_pieces(port: SerialPort, far: Echo) -> None:
    """Bytes are collected until there are enough; what is short is returned after the gap."""
    far.reply = [b"ab", b"cd", b"e"]
    assert port.exchange(b"?", 5, LONG_S, LONG_S) == b"abcde"
    far.reply = [b"abcde"]
    assert port.exchange(b"?", 9, LONG_S, 0.02) == b"abcde"


def test_silence_ends_at_the_deadline(port: SerialPort) -> None:
    """No answer gives no bytes, after the timeout."""
    start = time.monotonic()
    assert port.exchange(b"?", 5, 0.03, 0.01) == b""
    assert time.monotonic() - start >= 0.02


def test_leftovers_are_thrown_away(port: SerialPort, far: Echo) -> None:
    """What nobody waited for does not become the next answer."""
    far.reply = [b"late"]
    port.exchange(b"?", 0, 0.0, 0.0)
    far.wait_until_answered()
    far.reply = [b"new!"]
    assert port.exchange(b"?", 4, LONG_S, LONG_S) == b"new!"


def test_a_full_line_is_waited_for(port: SerialPort, far: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter that cannot take the bytes at once, or not all of them, is no lost device."""
    far.reply = [b"ok"]
    write, refused = os.write, []

    def slow(fd: int, data: bytes) -> int:
        if data in (b"request", b"another") and data not in refused:
            refused.append(data)
            if data == b"another":
                raise BlockingIOError(errno.EAGAIN, "try again")
            return write(fd, data[:2])
        return write(fd, data)

    monkeypatch.setattr(os, "write", slow)
    assert port.exchange(b"request", 2, LONG_S, LONG_S)[:2] == b"ok"
    assert port.exchange(b"another", 2, LONG_S, LONG_S)[:2] == b"ok"
    assert refused == [b"request", b"another"]


def test_collect_takes_all_that_comes(port: SerialPort, far: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listening for a fixed time does not end at a pause; here the time is over when everything has come."""
    read, came = port._read_some, []

    def noted(wait_s: float) -> bytes:
        came.append(read(wait_s))
        return came[-1]

    monkeypatch.setattr(port, "_read_some", noted)
    monkeypatch.setattr(serial_port, "time", SimpleNamespace(monotonic=lambda: 0.0 if len(b"".join(came)) < 3 else 1.0))
    far.reply = [b"a", b"b", b"c"]
    assert port.collect(b"?", 0.1) == b"abc"


def test_collect_ends_in_time(port: SerialPort, far: Echo) -> None:
    """Also when nothing comes."""
    start = time.monotonic()
    assert port.collect(b"?", 0.03) == b""
    assert time.monotonic() - start >= 0.03


def test_draining_empties_the_line(port: SerialPort, far: Echo) -> None:
    far.reply = [b"abc"]
    port.exchange(b"?", 0, 0.0, 0.0)
    far.wait_until_answered()
    port.drain(0.05, LONG_S)
    far.reply = []
    assert port.exchange(b"?", 1, 0.02, 0.01) == b""


def test_life_cycle(far: Echo) -> None:
    """Opened once, closed any number of times, its speed readable."""
    port = SerialPort(far.path)
    assert (port.is_open, port.baudrate) == (False, 0)
    port.open(115_200)
    with pytest.raises(DeviceAlreadyConnectedError):
        port.open(115_200)
    port.set_baudrate(9600)
    assert (port.is_open, port.baudrate) == (True, 9600)
    port.close()
    port.close()
    assert not port.is_open


def test_a_device_that_vanishes(port: SerialPort, far: Echo) -> None:
    """The far end gone, every call is an error at once."""
    far.close()
    with pytest.raises(MotorCommunicationError, match="is gone"):
        port.exchange(b"?", 4, LONG_S, LONG_S)
    with pytest.raises(MotorCommunicationError, match="is gone"):
        port.collect(b"", LONG_S)


PORTS = [("/dev/ttyACM0", "USB2.0-Serial"), ("COM4", "")]


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "sudo usermod -aG dialout"),
        (OSError(errno.EBUSY, "busy"), "Another program has it open"),
        (OSError("Could not exclusively lock port"), "Another program has it open"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "ulna detect"),
    ],
)
def test_what_to_do_about_a_port(monkeypatch: pytest.MonkeyPatch, error: OSError, hint: str) -> None:
    """The ports there are are listed with their descriptions, and the cause has its remedy."""
    import serial

    def refuse(*args: object, **settings: object) -> None:
        raise error

    monkeypatch.setattr(serial, "Serial", refuse)
    monkeypatch.setattr(serial_port, "list_serial_ports", lambda: PORTS)
    with pytest.raises(DeviceConnectError, match="Cannot open the serial port COM3") as caught:
        SerialPort("COM3").open(1_000_000)
    assert hint in str(caught.value)
    assert "/dev/ttyACM0 (USB2.0-Serial), COM4" in str(caught.value)


def test_no_ports_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty list is said, not hidden."""
    monkeypatch.setattr(serial_port, "list_serial_ports", list)
    with pytest.raises(DeviceConnectError, match="Ports of this computer: none"):
        SerialPort("/nowhere/tty0").open(1_000_000)
