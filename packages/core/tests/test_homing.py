# SPDX-License-Identifier: Apache-2.0
"""Offsets and ranges on an encoder that wraps, for every position of the seam."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.core.errors import CalibrationError
from ulna.core.homing import RangeRecorder, outside_register, shortest_offset

TURN, LIMIT = 4096, 2047


@settings(deadline=None)
@given(st.integers(-20_000, 20_000))
def test_an_offset_is_the_shortest_that_fits(ticks: int) -> None:
    """It fits the register and moves the reading by `ticks`, give or take the one tick that half a turn lacks."""
    offset = shortest_offset(ticks, TURN, LIMIT)
    assert -LIMIT <= offset <= LIMIT
    assert (offset - ticks) % TURN in (0, 1)


@settings(deadline=None)
@given(
    st.integers(0, TURN - 1),
    st.lists(st.integers(-900, 900), min_size=1, max_size=50),
)
def test_a_range_does_not_depend_on_where_the_seam_lies(start: int, steps: list[int]) -> None:
    """The span of a sweep is that of the real motion, wherever on the encoder it happens."""
    track = [0]
    for step in steps:
        track.append(track[-1] + step)
    recorder = RangeRecorder({"j": start}, {"j": TURN})
    for position in track[1:]:
        recorder.add({"j": (start + position) % TURN})
    low, now, high = recorder.table["j"]
    assert (low - start, now - start, high - start) == (min(track), track[-1], max(track))


def test_a_sweep_over_the_seam() -> None:
    """3900 -> 4095 -> 0 -> 300 is 496 ticks."""
    recorder = RangeRecorder({"j": 3900}, {"j": TURN})
    for reading in (4000, 4095, 0, 150, 300):
        recorder.add({"j": reading})
    assert recorder.ranges() == {"j": (3900, 4396)}
    assert list(outside_register(recorder.ranges(), {"j": TURN})) == ["j"]
    assert recorder.near_full_turn == []


def test_more_than_a_turn_is_the_whole_register() -> None:
    """Such a joint has no stops; it is reported."""
    recorder = RangeRecorder({"j": 0}, {"j": TURN})
    for reading in range(0, 3 * TURN, 1000):
        recorder.add({"j": reading % TURN})
    assert recorder.near_full_turn == ["j"]
    assert recorder.ranges() == {"j": (0, TURN - 1)}


def test_joints_that_hardly_moved_are_named() -> None:
    """A few ticks of noise are no range."""
    recorder = RangeRecorder({"a": 100, "b": 100}, {"a": TURN, "b": TURN})
    recorder.add({"a": 105, "b": 900})
    with pytest.raises(CalibrationError, match=r"a \(5 ticks\)") as caught:
        recorder.ranges()
    assert caught.value.motors == ("a",)
