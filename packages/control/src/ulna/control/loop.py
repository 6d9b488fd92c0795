# SPDX-License-Identifier: Apache-2.0
"""Keeping a rate: deadlines that never drift, and the measured truth about how well they were met. Knows no robot."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from ulna.core.clock import Clock, MonotonicClock

__all__ = ["LoopStats", "RateLoop"]

_WINDOW = 36_000
"""Gaps kept for the quantiles: ten minutes at 60 Hz, 288 kB."""


@dataclass(frozen=True)
class LoopStats:
    """How well a loop kept its rate.

    Attributes:
        asked_hz: The rate asked for.
        ticks: Ticks begun.
        duration_s: From the first tick to the last.
        rate_hz: Ticks a second really reached; 0 before the second tick.
        jitter_p50_ms: Median of |time between two ticks - period|, over the last ten minutes at 60 Hz.
        jitter_p99_ms: Its 99th percentile.
        jitter_max_ms: Its maximum.
        overruns: Ticks whose work was not done by the next deadline.
        skipped: Whole periods left out because the loop was later than one period.
    """

    asked_hz: float
    ticks: int = 0
    duration_s: float = 0.0
    rate_hz: float = 0.0
    jitter_p50_ms: float = 0.0
    jitter_p99_ms: float = 0.0
    jitter_max_ms: float = 0.0
    overruns: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        jitter = f"p50 {self.jitter_p50_ms:.2f} p99 {self.jitter_p99_ms:.2f} max {self.jitter_max_ms:.2f} ms"
        late = f"late {self.overruns}, periods skipped {self.skipped}"
        return f"{self.rate_hz:.1f} Hz of {self.asked_hz:g} Hz, jitter {jitter}, {late}"


class RateLoop:
    """Ticks on absolute deadlines: tick n is due at start + n / fps, whatever happened before.

    Work that takes too long by less than a period is caught up by the next deadline; later than that, whole periods
    are skipped and counted, so that a loop never runs in a burst. One thread uses it.

    Args:
        fps: Ticks a second.
        clock: Where time comes from; default: the machine's own.

    Raises:
        ValueError: `fps` is not positive.

    Example:
        >>> loop = RateLoop(1000)
        >>> for _ in range(3):
        ...     index = loop.tick()  # returns at the next deadline, the first time at once
        >>> loop.stats().ticks
        3
    """

    def __init__(self, fps: float, clock: Clock | None = None) -> None:
        if not fps > 0:
            raise ValueError(f"fps must be positive, got {fps!r}.")
        self.fps = fps
        self.period_s = 1.0 / fps
        self.clock: Clock = MonotonicClock() if clock is None else clock
        self.overruns = 0
        self.skipped = 0
        self.ticks = 0
        self._slot = 0
        self._start = self._last = 0.0
        self._max_off = 0.0
        self._off = array("d")

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first tick; 0 before it."""
        return self.clock.now() - self._start if self.ticks else 0.0

    @property
    def tick_time_s(self) -> float:
        """When the present tick began, seconds since the first."""
        return self._last - self._start

    def tick(self) -> int:
        """Wait for the next deadline and begin a tick.

        Returns:
            The number of the tick, from 0. Numbers count ticks really begun; skipped periods do not take one.
        """
        clock = self.clock
        if self.ticks == 0:
            self._start = self._last = clock.now()
            self.ticks = 1
            return 0
        self._slot += 1
        deadline = self._start + self._slot * self.period_s
        late = clock.now() - deadline
        if late < 0:
            clock.sleep_until(deadline)
        elif late > 0:
            self._catch_up(late)
        now = clock.now()
        self._note(abs(now - self._last - self.period_s))
        self._last = now
        self.ticks += 1
        return self.ticks - 1

    def _catch_up(self, late: float) -> None:
        self.overruns += 1
        missed = int(late / self.period_s)
        self._slot += missed
        self.skipped += missed

    def _note(self, off: float) -> None:
        self._max_off = max(self._max_off, off)
        if len(self._off) < _WINDOW:
            self._off.append(off)
        else:
            self._off[self.ticks % _WINDOW] = off

    def stats(self) -> LoopStats:
        """Return what was measured so far."""
        duration = self._last - self._start
        ordered = sorted(self._off)
        return LoopStats(
            asked_hz=self.fps,
            ticks=self.ticks,
            duration_s=duration,
            rate_hz=(self.ticks - 1) / duration if duration > 0 else 0.0,
            jitter_p50_ms=1e3 * _quantile(ordered, 0.5),
            jitter_p99_ms=1e3 * _quantile(ordered, 0.99),
            jitter_max_ms=1e3 * self._max_off,
            overruns=self.overruns,
            skipped=self.skipped,
        )


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
