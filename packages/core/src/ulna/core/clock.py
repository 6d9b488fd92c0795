# SPDX-License-Identifier: Apache-2.0
"""Time as an object, so that control loops run in real time on hardware and as fast as possible in simulation."""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable

__all__ = ["Clock", "MonotonicClock"]


@runtime_checkable
class Clock(Protocol):
    """Something that tells the time and waits."""

    def now(self) -> float:
        """Return the time in seconds, never going backwards."""
        ...

    def sleep_until(self, deadline: float) -> None:
        """Return at `deadline` (seconds on this clock), at once when it has passed."""
        ...


_WAKES_LATE_S = 0.4e-3
"""How late a sleeping thread may wake up; the rest of a wait is spent looking at the clock."""


class MonotonicClock:
    """The machine's own monotonic clock; sleeps, then looks at the clock for the last fraction of a millisecond."""

    def now(self) -> float:
        """Return `time.perf_counter()` in seconds."""
        return time.perf_counter()

    def sleep_until(self, deadline: float) -> None:
        """Wait until `deadline` seconds; returns at once when it has passed.

        Args:
            deadline: A time on this clock.
        """
        left = deadline - time.perf_counter()
        if left > _WAKES_LATE_S:
            time.sleep(left - _WAKES_LATE_S)
        while time.perf_counter() < deadline:
            pass
