# SPDX-License-Identifier: Apache-2.0
"""Datasets on disks that are read-only or full: what is there can be read, and what cannot be done is said."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ulna.core.errors import DatasetError
from ulna.data import (
    LeRobotDataset,
    LeRobotDatasetMetadata,
    finalize_interrupted,
    find_unfinished,
    recover_episodes,
    split_dataset,
)
from ulna.data.checks.mending import repair
from ulna.data.workspace import Workspace


@pytest.fixture
def interrupted(scene: Any, tmp_path: Path) -> Path:
    """A recording that was killed in its third episode."""
    made = scene()
    dataset = made.record(tmp_path / "recording", [2, 3], finalize=False)
    dataset.add_frame(made.frame(2, 0))
    shutil.copytree(dataset.root, tmp_path / "set")
    dataset.finalize()
    return tmp_path / "set"


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch, interrupted: Path) -> Path:
    """The same on a disk that cannot be written; the real call refuses it as this one does, for root too."""
    real = Path.open

    def opened(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if self.is_relative_to(interrupted) and set(mode) & set("wa+x"):
            raise OSError(errno.EROFS, "Read-only file system", str(self))
        return real(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", opened)
    return interrupted


def test_an_interrupted_recording_is_read_from_a_read_only_disk(scene: Any, read_only: Path) -> None:
    """Looking whether somebody records there needs no right to write: neither does an archive, nor another user."""
    scene().check(read_only, [2, 3])
    assert [left.frames for left in find_unfinished(read_only)] == [1]


@pytest.mark.parametrize(
    "change",
    [
        lambda root: LeRobotDataset.resume("lab/scene", root),
        lambda root: recover_episodes(root),
        lambda root: finalize_interrupted(root, discard_unfinished=True),
        lambda root: repair(root, recover=True),
    ],
)
def test_what_needs_writing_says_so(read_only: Path, change: Callable[[Path], Any]) -> None:
    with pytest.raises(DatasetError, match=r"Read-only file system(.|\n)*(written|writable)"):
        change(read_only)


def test_a_swap_that_cannot_be_completed(read_only: Path) -> None:
    """Files may have half moved: the dataset cannot be read before the rest is done."""
    (read_only / ".ulna/journal.json").symlink_to(read_only.parent / "plan.json")
    (read_only.parent / "plan.json").write_text('{"moves": [], "deletions": []}')
    with pytest.raises(DatasetError, match=r"was being finalized(.|\n)*writable"):
        LeRobotDatasetMetadata("lab/scene", read_only)


def test_a_recording_that_cannot_begin(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of it."""

    def full(self: Workspace, first_episode: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Workspace, "set_mark", full)
    with pytest.raises(DatasetError, match=r"cannot be recorded into: .*No space left"):
        scene().create(tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_a_split_that_does_not_fit_leaves_nothing(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene().record(tmp_path / "set", [2, 3])

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ulna.data.editing.builder.flush_tree", full)
    with pytest.raises(DatasetError, match="No space left"):
        split_dataset(tmp_path / "set", {"a": [0], "b": [1]}, tmp_path / "parts")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
