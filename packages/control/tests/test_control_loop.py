# SPDX-License-Identifier: Apache-2.0
"""The rate loop: absolute deadlines, honest figures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.control import RateLoop


class _SteppedClock:
    time = 0.0

    def now(self):
        return self.time

    def sleep_until(self, deadline):
        self.time = max(self.time, deadline)


def test_ticks_stay_on_their_deadlines(clock):
    """Work shorter than a period never shifts a tick."""
    loop, starts = RateLoop(60, clock), []
    for _ in range(600):
        loop.tick()
        starts.append(clock.now())
        clock.spend(0.011)
    assert starts == pytest.approx([100 + n / 60 for n in range(600)], abs=1e-9)
    stats = loop.stats()
    assert (stats.ticks, stats.overruns, stats.skipped) == (600, 0, 0)
    assert stats.rate_hz == pytest.approx(60)
    assert stats.jitter_max_ms == pytest.approx(0, abs=1e-6)


def test_short_delay_is_caught_up(clock):
    """A tick late by less than a period is followed by one on its own deadline."""
    loop = RateLoop(10, clock)
    loop.tick()
    clock.spend(0.14)
    loop.tick()
    assert clock.now() == pytest.approx(100.14)
    loop.tick()
    assert clock.now() == pytest.approx(100.2)
    assert (loop.overruns, loop.skipped) == (1, 0)


def test_long_delay_skips_whole_periods_and_never_bursts(clock):
    """A stall is followed by one tick, and by the next on the old grid."""
    loop = RateLoop(10, clock)
    loop.tick()
    clock.spend(0.57)
    loop.tick()
    assert clock.now() == pytest.approx(100.57)
    loop.tick()
    assert clock.now() == pytest.approx(100.6)
    stats = loop.stats()
    assert (stats.ticks, stats.overruns, stats.skipped) == (3, 1, 4)
    assert stats.jitter_max_ms == pytest.approx(470, abs=0.1)


@settings(deadline=None)
@given(st.lists(st.floats(0, 0.5), min_size=1, max_size=60))
def test_every_tick_lies_on_or_after_its_deadline(works):
    """Whatever the work takes: time moves on, ticks and skipped periods account for all of it."""
    clock = _SteppedClock()
    loop = RateLoop(20, clock)
    loop.tick()
    start = last = clock.now()
    for work in works:
        clock.time += work
        loop.tick()
        assert clock.now() >= last
        last = clock.now()
        slots = loop.ticks - 1 + loop.skipped
        assert -1e-9 <= last - (start + slots / 20) < 1 / 20 + 1e-9


def test_quantiles_tell_the_truth(clock):
    """One late tick in a hundred shows in p99 and in the maximum, not in the median."""
    loop = RateLoop(100, clock)
    for n in range(201):
        loop.tick()
        clock.spend(0.012 if n in (50, 150) else 0.001)
    stats = loop.stats()
    assert stats.jitter_p50_ms == pytest.approx(0, abs=1e-6)
    assert stats.jitter_p99_ms == pytest.approx(2, abs=0.01)
    assert stats.overruns == 2
    assert "100.0 Hz of 100 Hz" in str(stats)


def test_elapsed_and_empty_stats(clock):
    """Before the first tick nothing has happened."""
    loop = RateLoop(30, clock)
    assert loop.elapsed_s == 0
    assert loop.stats().rate_hz == 0
    loop.tick()
    clock.spend(0.5)
    assert loop.elapsed_s == pytest.approx(0.5)
    assert loop.tick_time_s == 0


@pytest.mark.parametrize("fps", [0, -1, float("nan")])
def test_impossible_rates_are_refused(fps):
    """A rate must be positive."""
    with pytest.raises(ValueError, match="positive"):
        RateLoop(fps)


def test_real_clock_sleeps():
    """On the machine's clock a tick waits for its deadline."""
    loop = RateLoop(200)
    for _ in range(5):
        loop.tick()
    assert loop.stats().duration_s >= 4 / 200 - 1e-4
