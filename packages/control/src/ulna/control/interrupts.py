# SPDX-License-Identifier: Apache-2.0
"""Stopping in good order: the request a loop looks at, and the signals that make it. Knows no device."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupts", "StopRequest"]

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name))


class StopRequest:
    """A wish to stop, made from any thread or signal handler and read by a loop once a tick. True once made."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __bool__(self) -> bool:
        return self.reason is not None

    def request(self, reason: str) -> None:
        """Ask the loop to stop after the present tick; the first reason is kept.

        Args:
            reason: Why, in a few words: `interrupted`, `stop key`.
        """
        if self.reason is None:
            self.reason = reason

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Run a block that must not be cut short: releasing torque, storing an episode.

        Yields:
            Nothing.
        """
        yield


class Interrupts(StopRequest):
    """Turns Ctrl-C and friends into a stop request while its `with` block runs.

    The first signal asks for an orderly stop; the second raises KeyboardInterrupt at once. SIGTERM and a lost
    terminal (SIGHUP) count like Ctrl-C, so that they release torque as well. Outside the main thread, where Python
    allows no handlers, it changes nothing. Handlers found are put back at the end.

    Args:
        orderly: False makes the first signal raise as well, for dialogues that wait for the operator.
    """

    def __init__(self, *, orderly: bool = True) -> None:
        super().__init__()
        self._patience = 1 if orderly else 0
        self.count = 0
        self._shields = 0
        self._pending = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.request("interrupted" if number == signal.SIGINT else f"received {signal.Signals(number).name}")
        if self.count > self._patience:
            if self._shields:
                self._pending = True
            else:
                raise KeyboardInterrupt

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Hold back the exception of a second signal until the block is done.

        Yields:
            Nothing.

        Raises:
            KeyboardInterrupt: A second signal came meanwhile.
        """
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._pending and not self._shields:
            self._pending = False
            raise KeyboardInterrupt
