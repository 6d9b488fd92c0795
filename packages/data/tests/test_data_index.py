# SPDX-License-Identifier: Apache-2.0
"""Index arithmetic against a reference that writes every frame down, for all subsets, orders and windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.core.errors import DatasetError
from ulna.data.index import ConcatIndex, FrameIndex, Window, frame_offsets, share, windows

LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=6)


@st.composite
def selections(draw: st.DrawFn) -> tuple[list[int], list[int] | None]:
    lengths = draw(LENGTHS)
    chosen = st.lists(st.sampled_from(range(len(lengths))), min_size=1, max_size=8)
    return lengths, draw(st.none() | chosen)


def reference(lengths: list[int], episodes: list[int] | None) -> list[tuple[int, int, int, int]]:
    """Every opened frame in order: episode, frame, length, global number."""
    rows, number = [], 0
    for episode, length in enumerate(lengths):
        for frame in range(length):
            if episodes is None or episode in episodes:
                rows.append((episode, frame, length, number))
            number += 1
    return rows


def build(lengths: list[int], episodes: list[int] | None) -> FrameIndex:
    sizes = np.array(lengths)
    return FrameIndex(np.cumsum(sizes) - sizes, sizes, episodes)


@settings(deadline=None)
@given(selections())
def test_every_position_of_every_subset(selection: tuple[list[int], list[int] | None]) -> None:
    lengths, episodes = selection
    index, rows = build(lengths, episodes), reference(lengths, episodes)
    assert len(index) == len(rows)
    assert [tuple(index.locate(i)) for i in range(len(rows))] == rows
    assert [tuple(index.locate(i - len(rows))) for i in range(len(rows))] == rows
    for position in (len(rows), -len(rows) - 1):
        with pytest.raises(IndexError, match="outside a dataset"):
            index.locate(position)
    for episode in index.episodes:
        assert [rows[i][0] for i in index.positions(episode)] == [episode] * lengths[episode]


@settings(deadline=None)
@given(selections(), st.lists(st.integers(-9, 9), min_size=1, max_size=6), st.data())
def test_every_window(selection: tuple[list[int], list[int] | None], offsets: list[int], data: st.DataObject) -> None:
    lengths, episodes = selection
    index = build(lengths, episodes)
    position = data.draw(st.integers(0, len(index) - 1))
    episode, frame, length, _ = reference(lengths, episodes)[position]
    inside = [frame + offset in range(length) for offset in offsets]
    wanted = [min(max(frame + offset, 0), length - 1) for offset in offsets]
    where = index.locate(position)
    assert where.episode == episode
    frames, is_pad = Window(offsets).frames(where.frame, where.length)
    assert frames.tolist() == wanted
    assert is_pad.tolist() == [not yes for yes in inside]


def test_every_window_near_both_ends() -> None:
    """Windows that reach one frame too far, or just not: chance seldom draws them."""
    reaches = [(low, high) for low in range(-3, 4) for high in range(low, 4)]
    for length in range(1, 5):
        for frame in range(length):
            for offsets in reaches:
                wanted = [frame + offset for offset in offsets]
                frames, is_pad = Window(offsets).frames(frame, length)
                assert frames.tolist() == [min(max(n, 0), length - 1) for n in wanted], (length, frame, offsets)
                assert is_pad.tolist() == [n not in range(length) for n in wanted], (length, frame, offsets)


@settings(deadline=None)
@given(st.lists(st.integers(-100, 100), min_size=1), st.sampled_from([1, 7, 10, 29, 30, 50, 60, 90, 1000]))
def test_times_become_offsets(offsets: list[int], fps: int) -> None:
    assert frame_offsets("x", [n / fps for n in offsets], fps, 1e-4) == offsets


def test_time_between_frames_is_refused() -> None:
    with pytest.raises(DatasetError, match=r"(?s)'x': \[0.05\] are not multiples of 1/30 s.*0.0666"):
        frame_offsets("x", [0.0, 0.05], 30, 1e-4)


def test_unknown_window_names_the_nearest_feature() -> None:
    with pytest.raises(DatasetError, match=r"(?s)'acton', which is not a feature.*'action'"):
        windows({"acton": [0.0]}, {"action": None, "observation.state": None}, 30, 1e-4)


@pytest.mark.parametrize("wrong", [[7], [0, 3], [-1], []])
def test_unknown_episode_is_named_with_the_range(wrong: list[int]) -> None:
    with pytest.raises(DatasetError, match=r"has 3 episodes, numbered 0 to 2") as caught:
        build([2, 2, 2], wrong)
    assert all(str(e) in str(caught.value) for e in wrong if e > 2 or e < 0)


def test_episode_that_was_not_opened_has_no_positions() -> None:
    with pytest.raises(DatasetError, match="Episode 1 is not among"):
        build([2, 2, 2], [0, 2]).positions(1)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=8))
def test_every_position_of_datasets_in_a_row(lengths: list[int]) -> None:
    index = ConcatIndex(lengths)
    rows = [(part, inner) for part, length in enumerate(lengths) for inner in range(length)]
    assert len(index) == len(rows)
    assert [index.locate(i) for i in range(len(rows))] == rows
    assert [index.locate(i - len(rows)) for i in range(len(rows))] == rows
    for part in range(len(lengths)):
        assert [rows[i] for i in index.positions(part)] == [row for row in rows if row[0] == part]
    for position in (len(rows), -len(rows) - 1):
        with pytest.raises(IndexError, match="outside"):
            index.locate(position)


@settings(deadline=None)
@given(st.integers(0, 500), st.integers(1, 40))
def test_shares_are_complete_disjoint_and_even(total: int, parts: int) -> None:
    shares = [share(total, part, parts) for part in range(parts)]
    assert [i for s in shares for i in s] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("part", [-1, 3])
def test_a_share_that_is_not_there(part: int) -> None:
    with pytest.raises(DatasetError, match=f"no part {part} of 3"):
        share(10, part, 3)
