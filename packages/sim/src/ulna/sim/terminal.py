# SPDX-License-Identifier: Apache-2.0
"""A pseudo terminal that looks like a serial port: opening, raw mode, the speed a client has set. No protocol."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import struct
import sys
import termios
import tty
from typing import Final

__all__ = ["PseudoTerminal"]

_TCGETS2: Final = 0x802C542A
_TERMIOS2: Final = struct.Struct("=IIIIB19sII")
_SPEEDS: Final = {
    value: int(name[1:]) for name, value in vars(termios).items() if name.startswith("B") and name[1:].isdigit()
}


class PseudoTerminal:
    """Both ends of a pty. The bus reads and writes `master`; clients open `path`. Whoever creates it calls `close`.

    The client's end is kept open here too, so that the line lives on while no client has it open.

    Args:
        baud: Speed it shows until a client sets another.
    """

    def __init__(self, baud: int = 1_000_000) -> None:
        self.master, self.slave = pty.openpty()
        self.path = os.ttyname(self.slave)
        tty.setraw(self.slave)
        settings = termios.tcgetattr(self.slave)
        speed = next((code for code, rate in _SPEEDS.items() if rate == baud), termios.B38400)
        settings[4] = settings[5] = speed
        termios.tcsetattr(self.slave, termios.TCSANOW, settings)
        os.set_blocking(self.master, False)
        os.set_blocking(self.slave, False)

    def baud(self) -> int:
        """Return the speed that the client's end is set to, in baud; odd speeds (128000) are seen on Linux only."""
        if sys.platform == "linux":
            answer = fcntl.ioctl(self.slave, _TCGETS2, b"\0" * _TERMIOS2.size)
            return int(_TERMIOS2.unpack(answer)[-1])
        return _SPEEDS.get(termios.tcgetattr(self.slave)[5], 0)

    def read(self) -> bytes:
        """Return what clients have written, empty when nothing is there. Does not block."""
        try:
            return os.read(self.master, 65536)
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno == errno.EIO:  # the client's end hung up
                return b""
            raise

    def write(self, data: bytes) -> None:
        """Send bytes to the client; what no longer fits into a full line that nobody reads is lost, as on a wire.

        Args:
            data: The bytes.
        """
        while data:
            try:
                sent = os.write(self.master, data)
            except BlockingIOError:
                return
            data = data[sent:]

    def mark(self, data: bytes) -> bool:
        """Write from the client's end, behind whatever clients have written so far.

        Args:
            data: A few bytes.

        Returns:
            Whether there was room; if not, nothing was written.
        """
        try:
            return os.write(self.slave, data) == len(data)
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close both ends: clients see the device vanish."""
        os.close(self.master)
        os.close(self.slave)
