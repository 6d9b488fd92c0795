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


class MonotonicClock:
    """The machine's own monotonic clock; waits by sleeping."""

    def now(self) -> float:
        """Return `time.perf_counter()` in seconds."""
        return time.perf_counter()

    def sleep_until(self, deadline: float) -> None:
        """Sleep until `deadline` seconds; returns at once when it has passed.

        Args:
            deadline: A time on this clock.
        """
        left = deadline - time.perf_counter()
        if left > 0:
            time.sleep(left)
