# SPDX-License-Identifier: Apache-2.0
"""Keys from the terminal: works on a console, over SSH and on any pty, needs no display and no permission.

The terminal is switched to character mode (no echo, no line editing; Ctrl-C still works) and put back on every way
out: at the end, after an exception, when the process exits, and while it is suspended with Ctrl-Z.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import signal
import sys
import threading
from collections import deque
from types import FrameType, TracebackType
from typing import Any, Self

from ulna.control.runtime import KeySource, NoKeys

__all__ = ["KeyDecoder", "TerminalKeys", "open_keys"]

logger = logging.getLogger(__name__)

_SEQUENCES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
}
_SINGLE = {"\r": "enter", "\n": "enter", "\t": "tab", " ": "space", "\x7f": "backspace", "\x08": "backspace"}


class KeyDecoder:
    r"""Turns bytes of a terminal into key names, however they are split. Flush it when none came for a while.

    Names are `up`, `down`, `left`, `right`, `esc`, `enter`, `tab`, `space`, `backspace`, or the character itself.
    Sequences it does not know are passed over whole.

    Example:
        >>> decoder = KeyDecoder()
        >>> decoder.feed(b"n" + b"\x1b["), decoder.feed(b"C")
        (['n'], ['right'])
    """

    def __init__(self) -> None:
        self._waiting = b""

    @property
    def waiting(self) -> bool:
        """Whether bytes are held back because they may be the beginning of a sequence."""
        return bool(self._waiting)

    def feed(self, data: bytes) -> list[str]:
        """Take bytes.

        Args:
            data: What was read.

        Returns:
            The keys complete so far.
        """
        self._waiting += data
        keys: list[str] = []
        while self._waiting:
            used, key = self._first(self._waiting)
            if used == 0:
                break
            self._waiting = self._waiting[used:]
            if key:
                keys.append(key)
        return keys

    def flush(self) -> list[str]:
        """Give up waiting: a lone escape byte is the Esc key.

        Returns:
            The keys in the bytes held back.
        """
        held, self._waiting = self._waiting, b""
        if not held.startswith(b"\x1b"):
            return []
        return ["esc"] if held == b"\x1b" else []

    def _first(self, data: bytes) -> tuple[int, str | None]:
        """Return the bytes used by the first key and its name; 0 when more are needed."""
        if data[0] != 0x1B:
            return self._character(data)
        if len(data) == 1:
            return 0, None
        if data[1] == 0x1B:
            return 1, "esc"
        if data[1:2] not in (b"[", b"O"):
            return 2, None
        for end in range(2, len(data)):
            if 0x40 <= data[end] <= 0x7E:
                return end + 1, _SEQUENCES.get(data[: end + 1])
        return 0, None

    def _character(self, data: bytes) -> tuple[int, str | None]:
        lead = data[0]
        size = 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        if len(data) < size:
            return 0, None
        text = data[:size].decode("utf-8", errors="ignore")
        return size, _SINGLE.get(text, text if text.isprintable() else None)


class TerminalKeys:
    """Key presses of a terminal, read by a thread. Made by `open_keys`; a context manager that puts the terminal back.

    Args:
        fd: File descriptor of the terminal.
        name: What it is called in the description.
        escape_timeout_s: How long a lone escape byte may be the beginning of an arrow key, seconds.
        owns_fd: Whether to close the descriptor at the end.
    """

    def __init__(
        self, fd: int, name: str = "terminal", escape_timeout_s: float = 0.1, *, owns_fd: bool = False
    ) -> None:
        self._fd, self._name, self._timeout, self._owns_fd = fd, name, escape_timeout_s, owns_fd
        self._keys: deque[str] = deque()
        self._saved: list[Any] | None = None
        self._thread: threading.Thread | None = None
        self._wake = (-1, -1)
        self._suspend_handler: Any = None
        self._handles_suspend = False

    @property
    def description(self) -> str:
        """Which backend is active."""
        return f"keys are read from the {self._name}"

    def __enter__(self) -> Self:
        import termios

        self._saved = termios.tcgetattr(self._fd)
        atexit.register(self._restore)
        try:
            self._set_character_mode()
            self._handle_suspend()
            self._wake = os.pipe()
            self._thread = threading.Thread(target=self._read, name="terminal keys", daemon=True)
            self._thread.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading and put the terminal back as it was; idempotent."""
        if self._thread is not None:
            os.write(self._wake[1], b"x")
            self._thread.join()
            self._thread = None
        for fd in self._wake:
            if fd >= 0:
                os.close(fd)
        self._wake = (-1, -1)
        if self._handles_suspend:
            signal.signal(signal.SIGTSTP, self._suspend_handler)
            self._handles_suspend = False
        self._restore()
        self._saved = None
        atexit.unregister(self._restore)
        if self._owns_fd:
            os.close(self._fd)
            self._owns_fd = False

    def poll(self) -> str | None:
        """Return the next key, or None at once."""
        return self._keys.popleft() if self._keys else None

    def _set_character_mode(self) -> None:
        import termios
        import tty

        tty.setcbreak(self._fd, termios.TCSANOW)

    def _restore(self) -> None:
        import termios

        if self._saved is None:
            return
        try:
            termios.tcsetattr(self._fd, termios.TCSANOW, self._saved)
        except termios.error as error:  # the terminal is gone, with nothing left to put back
            logger.debug("The terminal could not be restored: %s", error)

    def _handle_suspend(self) -> None:
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGTSTP"):
            self._suspend_handler = signal.signal(signal.SIGTSTP, self._suspend)
            self._handles_suspend = True

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        """Give the shell its terminal back while the process is suspended."""
        self._restore()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspend)
        self._set_character_mode()

    def _read(self) -> None:
        decoder = KeyDecoder()
        while True:
            ready, _, _ = select.select([self._fd, self._wake[0]], [], [], self._timeout if decoder.waiting else None)
            if self._wake[0] in ready:
                return
            if not ready:
                self._keys.extend(decoder.flush())
                continue
            try:
                data = os.read(self._fd, 1024)
            except OSError:
                data = b""
            if not data:
                logger.warning("The terminal is gone: keys are off.")
                return
            self._keys.extend(decoder.feed(data))


def open_keys(fd: int | None = None) -> KeySource:
    """Choose where keys come from; reads nothing yet.

    Args:
        fd: A terminal to use; default: standard input, or the controlling terminal when that is a file or a pipe.

    Returns:
        A `TerminalKeys` to be entered, or a source without keys that says why.
    """
    if os.name == "nt":
        return NoKeys("keys are off: this terminal backend needs a POSIX system")
    if fd is None:
        try:
            fd = sys.stdin.fileno()
        except (AttributeError, OSError, ValueError):
            return NoKeys("keys are off: there is no standard input")
        if not os.isatty(fd):
            return _controlling_terminal()
    if not os.isatty(fd):
        return NoKeys("keys are off: standard input is not a terminal")
    return TerminalKeys(fd) if _in_foreground(fd) else NoKeys("keys are off: the process runs in the background")


def _controlling_terminal() -> KeySource:
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return NoKeys("keys are off: standard input is not a terminal")
    if _in_foreground(fd):
        return TerminalKeys(fd, "controlling terminal", owns_fd=True)
    os.close(fd)
    return NoKeys("keys are off: the process runs in the background")


def _in_foreground(fd: int) -> bool:
    """Return whether reading would work: a background job that reads its terminal is suspended by it."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return True  # a terminal that does not control this process cannot suspend it either
