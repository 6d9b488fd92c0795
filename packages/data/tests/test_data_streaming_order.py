# SPDX-License-Identifier: Apache-2.0
"""The order of streams by itself: how far frames are mixed, which shards are open at once, and where passes begin."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ulna.data import StreamingLeRobotDataset
from ulna.data.streaming_order import Segment, ShuffleBuffer, groups, part_of


def test_what_never_filled_the_buffer_is_mixed_too() -> None:
    """A small dataset comes out of the rest of the buffer alone."""
    buffer = ShuffleBuffer(100, np.random.default_rng(0))
    assert [buffer.push(n) for n in range(50)] == [None] * 50
    rest = buffer.rest()
    assert sorted(rest) == list(range(50))
    assert sum(place != n for place, n in enumerate(rest)) > 40
    assert buffer.rest() == []


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_shards_are_open_than_allowed(most: int) -> None:
    mine = [Segment(n // 2, n, 10 * n, 10 * n + 10) for n in range(12)]
    found = list(groups(mine, most))
    assert [segment for group in found for segment in group] == mine
    assert [len({segment.shard for segment in group}) for group in found] == [most] * (6 // most)


def test_no_more_bytes_are_here_than_allowed() -> None:
    """A file that two segments share counts once; one that is too large by itself comes alone."""
    mine = [Segment(n, n, 10 * n, 10 * n + 10) for n in range(5)]
    files = {0: {"a": 40}, 1: {"a": 40, "b": 60}, 2: {"c": 1}, 3: {"d": 500}, 4: {"e": 100}}
    found = list(groups(mine, 9, lambda segment: files[segment.episode], 100))
    assert [[segment.episode for segment in group] for group in found] == [[0, 1], [2], [3], [4]]


def test_readers_get_other_shards_in_every_pass() -> None:
    whole = [Segment(n, n, 10 * n, 10 * n + 10) for n in range(12)]
    passes = [tuple(s.episode for s in part_of(whole, 0, 3, np.random.default_rng(epoch))) for epoch in range(6)]
    assert len(set(passes)) == 6
    assert all(len(episodes) == 4 for episodes in passes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("order")


def numbers(items: Any) -> list[int]:
    return [int(item["index"]) for item in items]


def stream_of(scene: Any, folder: Path) -> StreamingLeRobotDataset:
    if not (folder / "set").exists():
        scene().record(folder / "set", [3, 4, 5, 2], data_files_size_in_mb=1e-4)
    return StreamingLeRobotDataset("lab/scene", folder / "set", buffer_size=2)


def test_the_epoch_decides_which_shards_a_reader_gets(scene: Any, folder: Path) -> None:
    stream = stream_of(scene, folder)
    mine = [frozenset(numbers(stream.read_part(0, 2, epoch=epoch))) for epoch in range(6)]
    assert len(set(mine)) > 2
    for epoch, found in enumerate(mine):
        assert found.isdisjoint(numbers(stream.read_part(1, 2, epoch=epoch)))


def test_a_worker_that_goes_on_counts_passes_from_there(
    scene: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place was loaded inside of the worker, of a stream whose first pass is not the first."""
    stream = stream_of(scene, folder)
    stream.set_epoch(5)
    monkeypatch.setattr("ulna.data.streaming.get_worker_info", lambda: SimpleNamespace(id=0, num_workers=1))
    stream.load_state_dict({"epoch": 6, "taken": 3})
    assert numbers(stream) == numbers(stream.read_part(0, 1, epoch=6, start=3))
    assert stream.state_dict() == {"epoch": 7, "taken": 0}
    assert numbers(stream) == numbers(stream.read_part(0, 1, epoch=7))
