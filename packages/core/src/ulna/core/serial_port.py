# SPDX-License-Identifier: Apache-2.0
"""An open serial device: whole requests out, whole replies in, with deadlines. Knows no protocol."""

from __future__ import annotations

import errno
import os
import re
import select
import time
from collections.abc import Sequence
from typing import Any

from ulna.core.errors import (
    DeviceAlreadyConnectedError,
    DeviceConnectError,
    MissingDependencyError,
    MotorCommunicationError,
)

__all__ = ["SerialPort", "list_serial_ports"]

_CHUNK = 4096

# What system calls and pyserial raise when a device vanishes; TypeError comes from a port that was closed under it.
_GONE: tuple[type[BaseException], ...] = (OSError, TypeError)
try:
    import termios
except ImportError:  # Windows
    pass
else:
    _GONE = (*_GONE, termios.error)


def list_serial_ports() -> list[tuple[str, str]]:
    """List the serial devices of this computer.

    Returns:
        (device, description), sorted by device.

    Raises:
        MissingDependencyError: pyserial is not installed.
    """
    _pyserial()
    from serial.tools import list_ports

    return sorted((port.device, port.description or "") for port in list_ports.comports())


class SerialPort:
    """A serial device that a motor bus owns: the bus opens and closes it. Blocking, not thread-safe.

    Waiting costs no CPU: the process sleeps in `poll` until bytes come or the deadline passes. Input left over
    from an earlier exchange is thrown away before each request, so that a late answer is not taken for the next one.

    Args:
        device: `/dev/ttyACM0`, `COM3`.
        portable: Read through pyserial instead of the file descriptor; default where there is no `poll`.
    """

    def __init__(self, device: str, *, portable: bool = not hasattr(select, "poll")) -> None:
        self.device = device
        self._portable = portable
        self._serial: Any = None
        self._fd = -1
        self._poll: Any = None

    @property
    def is_open(self) -> bool:
        """Whether the device is open."""
        return self._serial is not None

    @property
    def baudrate(self) -> int:
        """Bits per second; 0 while closed."""
        return 0 if self._serial is None else int(self._serial.baudrate)

    def open(self, baudrate: int) -> None:
        """Open the device for this process alone.

        Args:
            baudrate: Bits per second.

        Raises:
            DeviceAlreadyConnectedError: It is open.
            DeviceConnectError: It cannot be opened; the message lists the devices there are.
            MissingDependencyError: pyserial is not installed.
        """
        if self._serial is not None:
            raise DeviceAlreadyConnectedError(f"{self.device} is already open.", device=self.device)
        serial = _pyserial()
        # Windows has no exclusive flag: its ports always are.
        only = {} if os.name == "nt" else {"exclusive": True}
        try:
            opened = serial.Serial(self.device, baudrate, timeout=0, write_timeout=1.0, **only)
        except (OSError, ValueError) as error:  # SerialException is an OSError
            raise _cannot_open(self.device, error) from error
        self._serial = opened
        if not self._portable:
            self._fd = opened.fileno()
            self._poll = select.poll()
            self._poll.register(self._fd, select.POLLIN)

    def close(self) -> None:
        """Close the device; safe to call at any time."""
        serial, self._serial, self._fd, self._poll = self._serial, None, -1, None
        if serial is not None:
            serial.close()

    def set_baudrate(self, baudrate: int) -> None:
        """Change the speed of the open device.

        Args:
            baudrate: Bits per second.

        Raises:
            DeviceConnectError: The adapter does not offer it.
        """
        if baudrate == self.baudrate:
            return
        try:
            self._serial.baudrate = baudrate
        except (OSError, ValueError) as error:
            raise DeviceConnectError(
                f"{self.device} does not offer {baudrate} baud: {error}", device=self.device
            ) from error

    def exchange(self, request: bytes, size: int, timeout_s: float, gap_s: float) -> bytes:
        """Send a request and collect its reply.

        Args:
            request: The bytes to send.
            size: Bytes expected back; 0 returns at once.
            timeout_s: Longest wait for the first byte, seconds.
            gap_s: Longest wait between bytes after the first, seconds.

        Returns:
            What came: at least `size` bytes, or fewer when a wait ran out.

        Raises:
            MotorCommunicationError: The device is gone.
        """
        try:
            if self._portable:
                return self._exchange_portable(request, size, timeout_s, gap_s)
            self._serial.reset_input_buffer()
            fd, poll = self._fd, self._poll.poll
            try:
                sent = os.write(fd, request)
            except BlockingIOError:  # the adapter is slower than we are
                sent = 0
            if sent < len(request):
                self._serial.write(request[sent:])
            data, wait_ms = b"", timeout_s * 1e3
            while len(data) < size and poll(wait_ms):
                chunk = os.read(fd, _CHUNK)
                if not chunk:
                    raise OSError(errno.EIO, "end of file")
                data = data + chunk if data else chunk
                wait_ms = gap_s * 1e3
            return data
        except _GONE as error:
            raise self._gone(error) from error

    def collect(self, request: bytes, quiet_s: float) -> bytes:
        """Send a request and collect whatever comes for a fixed time.

        Args:
            request: The bytes to send; may be empty.
            quiet_s: How long to listen, seconds.

        Returns:
            Everything that came.

        Raises:
            MotorCommunicationError: The device is gone.
        """
        end = time.monotonic() + quiet_s
        data = self.exchange(request, 0, 0.0, 0.0)
        while (left := end - time.monotonic()) > 0:
            data += self._read_some(left)
        return data

    def drain(self, quiet_s: float, limit_s: float) -> None:
        """Throw away input until the line has been quiet for `quiet_s` seconds, at most for `limit_s` seconds.

        Args:
            quiet_s: Silence that ends it, seconds.
            limit_s: Longest time it takes, seconds.

        Raises:
            MotorCommunicationError: The device is gone.
        """
        end = time.monotonic() + limit_s
        while time.monotonic() < end and self._read_some(quiet_s):
            pass

    def _read_some(self, wait_s: float) -> bytes:
        try:
            if self._portable:
                self._serial.timeout = wait_s
                return bytes(self._serial.read(1) + self._serial.read(self._serial.in_waiting))
            if not self._poll.poll(wait_s * 1e3):
                return b""
            chunk = os.read(self._fd, _CHUNK)
            if not chunk:
                raise OSError(errno.EIO, "end of file")
            return chunk
        except _GONE as error:
            raise self._gone(error) from error

    def _exchange_portable(self, request: bytes, size: int, timeout_s: float, gap_s: float) -> bytes:
        serial = self._serial
        serial.reset_input_buffer()
        serial.write(request)
        serial.timeout = timeout_s
        data = bytes(serial.read(min(1, size)))
        serial.timeout = gap_s
        while data and len(data) < size:
            chunk = serial.read(size - len(data))
            if not chunk:
                break
            data += chunk
        return data

    def _gone(self, error: BaseException) -> MotorCommunicationError:
        return MotorCommunicationError(
            f"The serial device {self.device} is gone: {error}.",
            device=self.device,
            hint="Check the USB cable and the power supply, then connect again.",
        )


def _pyserial() -> Any:
    try:
        import serial
    except ImportError as error:
        raise MissingDependencyError("pyserial", "A serial motor bus", "pip install 'pyserial>=3.5'") from error
    return serial


def _cannot_open(device: str, error: Exception) -> DeviceConnectError:
    there = list_serial_ports()
    number = getattr(error, "errno", None)
    # pyserial wraps the system's error and keeps its number only in some versions; the text always has it.
    text = str(error)
    hint = f"Ports of this computer: {_port_list(there)}. See which one is the arm: ulna detect"
    if number == errno.EACCES or "Permission" in text or "PermissionError" in text:
        hint = f"You may not use it. Join its group, then log in again: sudo usermod -aG dialout $USER\n{hint}"
    elif "lock" in text or number in (errno.EBUSY, errno.EAGAIN):
        hint = f"Another program has it open. Stop that program first (see: fuser {device}).\n{hint}"
    # The system's own words, without pyserial's "could not open port ..." around them once or twice.
    reason = re.sub(r"^(\[Errno \d+\] )?could not open port \S+: ", "", text)
    return DeviceConnectError(f"Cannot open the serial port {device}: {reason}.", device=device, hint=hint)


def _port_list(ports: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({about})" if about else name for name, about in ports) or "none"
