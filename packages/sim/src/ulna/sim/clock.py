# SPDX-License-Identifier: Apache-2.0
"""Simulated time: a clock that a caller moves by sleeping on it, so that a simulation runs as fast as possible."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ulna.core.clock import Clock, MonotonicClock

__all__ = ["Clock", "MonotonicClock", "VirtualClock"]


class VirtualClock:
    """A clock on which sleeping takes no time: `sleep_until` moves it there at once.

    One thread moves it (the control loop); any thread may read it. Everything that evolves with time registers a
    callback and is brought to the new time before `sleep_until` returns.

    Args:
        start: The first time it shows, in seconds.

    Example:
        >>> clock = VirtualClock()
        >>> clock.sleep(0.5)
        >>> clock.now()
        0.5
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = float(start)
        self._lock = threading.RLock()
        self._callbacks: list[Callable[[float, float], None]] = []

    def now(self) -> float:
        """Return the simulated time in seconds."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Move the clock by `seconds`; nothing happens when it is zero or less.

        Args:
            seconds: How far to move.
        """
        self.sleep_until(self._now + seconds)

    def sleep_until(self, deadline: float) -> None:
        """Move the clock to `deadline`, calling every registered callback; returns at once when it has passed.

        Args:
            deadline: A time on this clock, in seconds.
        """
        with self._lock:
            old = self._now
            if deadline <= old:
                return
            for callback in tuple(self._callbacks):
                callback(old, deadline)
            self._now = deadline

    def on_advance(self, callback: Callable[[float, float], None]) -> Callable[[], None]:
        """Call `callback(old, new)` whenever time moves, just before `now()` shows the new time.

        Args:
            callback: Brings something from the old time to the new one.

        Returns:
            A function that takes the callback out again; calling it twice is harmless.
        """
        with self._lock:
            self._callbacks.append(callback)

        def remove() -> None:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return remove
