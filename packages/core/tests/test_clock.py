# SPDX-License-Identifier: Apache-2.0
"""A wait never ends before its deadline, and one that has passed does not wait."""

from __future__ import annotations

import time

import pytest

from ulna.core.clock import Clock, MonotonicClock


def test_a_wait_ends_at_its_deadline_or_after() -> None:
    clock = MonotonicClock()
    assert isinstance(clock, Clock)
    for wait in (0.0, 0.0001, 0.002):
        deadline = clock.now() + wait
        clock.sleep_until(deadline)
        assert clock.now() >= deadline


def test_a_passed_deadline_sleeps_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    clock = MonotonicClock()
    clock.sleep_until(clock.now() - 1)
    assert slept == []
    clock.sleep_until(clock.now() + 0.001)
    assert len(slept) == 1
    assert 0 < slept[0] < 0.001
