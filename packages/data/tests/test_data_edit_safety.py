# SPDX-License-Identifier: Apache-2.0
"""Whatever ends an edit early, there is the old dataset or the new one; and the price of an edit."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ulna.core.errors import DatasetError
from ulna.data import (
    LeRobotDataset,
    delete_episodes,
)
from ulna.data.checks.validation import validate
from ulna.data.editing import DatasetBuilder, replacement
from ulna.data.editing.blocks import EpisodeBlock
from ulna.data.features import parse_features
from ulna.data.info import DatasetInfo
from ulna.data.location import hub_cache

GOLDEN = Path(__file__).parent / "golden"
CAMERA = "observation.images.cam"
LENGTHS = [3, 1, 4, 2]


def tree(root: Path) -> dict[str, str]:
    """Every file with the hash of its content."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def sound(root: Path) -> bool:
    problems = [str(problem) for problem in validate("a/b", root).problems]
    assert problems == []
    return True


def test_a_full_disk_leaves_the_original(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At whatever step the disk is full, the original is as it was and nothing is left beside it."""
    root = tmp_path / "set"
    scene("video").record(root, LENGTHS)
    before = tree(tmp_path)
    real_fsync, calls = os.fsync, [0]

    def count(fd: int) -> None:
        calls[0] += 1
        if calls[0] == fail_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        real_fsync(fd)

    fail_at = 0
    monkeypatch.setattr(os, "fsync", count)
    delete_episodes(root, [1], tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    steps = calls[0]
    assert steps > 8
    for step in range(1, steps + 1, 2):
        calls[0], fail_at = 0, step
        with pytest.raises(DatasetError, match=r"No space left(.|\n)*Free some space"):
            delete_episodes(root, [1], tmp_path / "out")
        assert tree(tmp_path) == before
    calls[0], fail_at = 0, 5
    with pytest.raises(DatasetError, match="is as it was"):
        delete_episodes(root, [1])
    assert tree(tmp_path) == before


def test_folders_that_cannot_be_exchanged(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system cannot exchange two folders, whoever opens the dataset completes an interrupted edit."""
    root = tmp_path / "set"
    scene().record(root, LENGTHS)
    monkeypatch.setattr(replacement, "_exchange", lambda a, b: False)
    assert delete_episodes(root, [1]).num_episodes == 3
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    delete_episodes(root, [0], tmp_path / "next")
    (tmp_path / "next").rename(replacement.prepared_folder(root))
    root.rename(tmp_path / ".set.ulna-old")
    assert LeRobotDataset("a/b", root).num_episodes == 2
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_leftovers_are_named_and_removed(scene: Any, tmp_path: Path) -> None:
    root = tmp_path / "set"
    scene().record(root, LENGTHS)
    left = [tmp_path / name for name in (".set.ulna-building-x", ".set.ulna-new", ".set.ulna-old")]
    for folder in left:
        folder.mkdir()
    named = [p for p in validate("a/b", root).problems if p.code == "edit-leftover"]
    assert {folder for folder in left if any(str(folder) in str(p.remedy) for p in named)} == set(left)
    delete_episodes(root, [0])
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_link_to_a_dataset_stays_a_link(scene: Any, tmp_path: Path) -> None:
    """The folder that it leads to is edited, on its own disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").mkdir()
    scene().record(tmp_path / "disk/set", LENGTHS)
    link = tmp_path / "home/set"
    link.symlink_to(tmp_path / "disk/set")
    assert delete_episodes(link, [1]).num_episodes == 3
    assert link.is_symlink()
    assert LeRobotDataset("a/b", tmp_path / "disk/set").num_episodes == 3
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["set"]


def test_what_was_pulled_is_not_edited_in_place(scene: Any, tmp_path: Path) -> None:
    """Other programs rely on a revision being what it is."""
    root = hub_cache() / "datasets--a--b" / "0123"
    scene().record(root, LENGTHS)
    with pytest.raises(DatasetError, match=r"pulled from the Hub(.|\n)*output_dir"):
        delete_episodes(root, [1])
    assert delete_episodes(root, [1], tmp_path / "out").num_episodes == 3


CHILD = """
import os, signal, sys
from ulna.data import delete_episodes
root, killed_at, calls = sys.argv[1], int(sys.argv[2]), 0
def count(frame, event, called):
    global calls
    if event == "c_call" and called.__module__ == os.name:
        if calls == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
delete_episodes(root, [0], root + "-first")  # whatever is imported and set up once is not counted
sys.setprofile(count)
delete_episodes(root, [0])
sys.setprofile(None)
print(calls)
"""


@pytest.mark.slow
def test_a_kill_leaves_the_old_or_the_new(scene: Any, tmp_path: Path) -> None:
    """Killed at many instants, between two calls of the system, there is always a whole dataset to be edited."""
    made = scene("video")
    made.record(tmp_path / "original", LENGTHS)

    def edit(root: Path, killed_at: int = -1) -> subprocess.CompletedProcess[str]:
        shutil.copytree(tmp_path / "original", root)
        return subprocess.run([sys.executable, "-c", CHILD, str(root), str(killed_at)], capture_output=True, text=True)

    whole = edit(tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    calls = int(whole.stdout)
    found = []
    for attempt in range(12):
        root = tmp_path / f"set{attempt}"
        assert edit(root, calls * attempt // 12).returncode == -signal.SIGKILL
        found.append(LeRobotDataset("a/b", root).num_episodes)
        assert found[-1] in {3, 4}
        assert delete_episodes(root, [0]).num_episodes == found[-1] - 1
        assert sorted(path.name for path in tmp_path.iterdir() if "ulna" in path.name) == []
        assert sound(root)
    assert found == sorted(found, reverse=True)
    assert set(found) == {3, 4}


@pytest.mark.parametrize("camera", [None, "video"])
def test_files_are_opened_as_often_whatever_the_number_of_episodes(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, camera: str | None
) -> None:
    """LeRobot reads the episode table once for each episode, which takes hours for ten thousand."""
    opened: list[str] = []

    def counted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(source: Any, *args: Any, **kwargs: Any) -> Any:
            opened.append(f"{name} {source}")
            return real(source, *args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    made, counts = scene(camera), []
    for episodes in (3, 12):
        made.record(tmp_path / str(episodes), [1] * episodes)
    for name in ("ParquetFile", "read_table", "read_schema", "read_metadata"):
        counted(pq, name)
    counted(av, "open")
    counted(Path, "open")
    counted(Path, "read_text")
    for episodes in (3, 12):
        root, before = tmp_path / str(episodes), len(opened)
        delete_episodes(root, [1], tmp_path / f"out{episodes}")
        counts.append(sorted(Path(entry).name for entry in opened[before:] if str(root) in entry))
    assert counts[0] == counts[1]
    assert len(counts[0]) < 30


def test_ten_thousand_episodes_take_seconds(tmp_path: Path) -> None:
    """Processor time grows with the number of episodes, not with its square."""
    features = parse_features({"action": {"dtype": "float32", "shape": (1,), "names": None}}, add_defaults=True)

    def edit(episodes: int) -> float:
        root = tmp_path / str(episodes)
        rows = pa.table({"action": pa.array(np.arange(2 * episodes, dtype=np.float32))})
        lengths, tasks = np.full(episodes, 2), np.zeros(2 * episodes, np.int64)
        empty = pa.table({"": pa.nulls(episodes)}).select([])
        with DatasetBuilder(root, DatasetInfo(10, dict(features))) as builder:
            builder.add_block(EpisodeBlock(rows, lengths, tasks, ["t"], {}, empty))
            builder.finish()
        start = time.process_time()
        assert delete_episodes(root, [episodes // 2]).num_episodes == episodes - 1
        return time.process_time() - start

    edit(10)
    small, large = edit(100), edit(800)
    assert large < 16 * max(small, 0.02)
