# SPDX-License-Identifier: Apache-2.0
"""Simulated time."""

from __future__ import annotations

from ulna.core.clock import Clock
from ulna.sim.clock import VirtualClock


def test_is_a_clock() -> None:
    assert isinstance(VirtualClock(), Clock)


def test_sleeping_moves_time_and_calls_back_before_it_shows() -> None:
    clock, calls = VirtualClock(), []
    remove = clock.on_advance(lambda old, new: calls.append((old, new, clock.now())))
    clock.sleep_until(1.0)
    clock.sleep(0.5)
    assert clock.now() == 1.5
    assert calls == [(0.0, 1.0, 0.0), (1.0, 1.5, 1.0)]
    remove()
    remove()
    clock.sleep(1.0)
    assert len(calls) == 2


def test_time_never_goes_back() -> None:
    clock = VirtualClock(5.0)
    clock.sleep_until(4.0)
    clock.sleep(-1.0)
    assert clock.now() == 5.0
