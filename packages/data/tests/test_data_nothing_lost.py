# SPDX-License-Identifier: Apache-2.0
"""What going on and joining files refuse rather than lose: the dataset stays as it was, and whole again when mended."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ulna.core.errors import DatasetError
from ulna.data import LeRobotDataset, delete_episodes
from ulna.data.episode_store import write_row_groups
from ulna.data.layout import FileId
from ulna.data.sketch_files import read_sketch_file
from ulna.data.timing import RECORDING_LOG, append_log, read_log
from ulna.data.workspace import Workspace

CAMERA = "observation.images.cam"
EACH_ITS_OWN = {"data_files_size_in_mb": 1e-4, "video_files_size_in_mb": 1e-4}


@pytest.mark.parametrize(("gone", "first_of_recording"), [([2], None), ([2], 3), ([1, 2], 2)])
def test_last_episodes_of_a_finished_recording_are_not_dropped(
    scene: Any, tmp_path: Path, gone: list[int], first_of_recording: int | None
) -> None:
    """Only what the interrupted recording itself made may go; files that are away for a while are no reason."""
    made, root = scene(), tmp_path / "set"
    made.record(root, [2, 3, 1], **EACH_ITS_OWN)
    if first_of_recording is not None:
        (root / ".ulna").mkdir()
        Workspace(root).set_mark(first_of_recording)
    files = [root / f"data/chunk-000/file-{number:03d}.parquet" for number in gone]
    for path in files:
        path.rename(tmp_path / path.name)
    with pytest.raises(DatasetError, match=rf"(?s)Episodes {gone[0]} to 2 .* would lose them.*Restore"):
        LeRobotDataset.resume("lab/scene", root)
    for path in files:
        (tmp_path / path.name).rename(path)
    made.check(root, [2, 3, 1])


def test_a_joined_table_that_lacks_rows_is_not_swapped_in(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, root = scene(), tmp_path / "set"
    dataset = made.record(root, [2, 3, 1], finalize=False)

    def losing(path: Path, tables: Iterable[Any], features: Any) -> int:
        return write_row_groups(path, list(tables)[:-1], features)

    with monkeypatch.context() as patch:
        patch.setattr("ulna.data.compaction.write_row_groups", losing)
        with pytest.raises(DatasetError, match="gave 5 rows instead of 6; nothing was changed"):
            dataset.finalize()
    made.check(root, [2, 3, 1])
    LeRobotDataset.resume("lab/scene", root).finalize()
    made.check(root, [2, 3, 1])


def test_sketches_of_pictures_outlive_joining(scene: Any, tmp_path: Path) -> None:
    """Those of numbers could be made again from the rows; pictures would have to be decoded."""
    dataset = scene("image").record(tmp_path / "set", [2, 3, 1])
    kept = read_sketch_file(tmp_path / "set", FileId(0, 0))
    assert [(episode, kept[episode][CAMERA].count) for episode in sorted(kept)] == [
        (episode, frames * 48 * 64) for episode, frames in enumerate([2, 3, 1])
    ]
    assert dataset.meta.stats is not None
    assert dataset.meta.stats[CAMERA].keys() >= {"q01", "q50", "q99"}


def test_a_line_that_cannot_be_flushed_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meta").mkdir()
    append_log(tmp_path, {"episode_index": 0, "frames": 3})
    before = (tmp_path / RECORDING_LOG).read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            append_log(tmp_path, {"episode_index": 1, "frames": 4})
    assert (tmp_path / RECORDING_LOG).read_bytes() == before
    append_log(tmp_path, {"episode_index": 1, "frames": 5})
    assert read_log(tmp_path)[1]["frames"] == 5


def test_an_edited_dataset_is_on_disk_before_it_gets_its_name(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file and folder of it, videos that are only linked included; and then the folder that holds it."""
    scene("video").record(tmp_path / "set", [2, 3, 1])
    flushed: set[int] = set()
    fsync, rename, before = os.fsync, Path.rename, set[int]()

    def noted(descriptor: int) -> None:
        flushed.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        if target == tmp_path / "out/edited":
            before.update(flushed)
            flushed.clear()
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "rename", renamed)
    root = delete_episodes(tmp_path / "set", [1], tmp_path / "out/edited").root
    assert [path for path in (root, *root.rglob("*")) if path.stat().st_ino not in before] == []
    assert root.parent.stat().st_ino in flushed
