# SPDX-License-Identifier: Apache-2.0
"""`repair` mends what can be mended without losing anything, and more only when it is asked to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ulna.core.errors import DatasetError
from ulna.core.files import write_json
from ulna.data import LeRobotDataset
from ulna.data.checks import repair, validate
from ulna.data.commands import app

KEY = "observation.images.cam"


def edit(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def put(table: pa.Table, name: str, values: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))


def data_file(root: Path) -> Path:
    return root / "data/chunk-000/file-000.parquet"


def episode_file(root: Path) -> Path:
    return root / "meta/episodes/chunk-000/file-000.parquet"


def change_info(root: Path, **values: Any) -> None:
    path = root / "meta/info.json"
    write_json(path, {**json.loads(path.read_text()), **values})


def everything(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


DAMAGES: dict[str, Callable[[Path], None]] = {
    "counters": lambda root: change_info(root, total_episodes=9, total_frames=1, splits={"train": "0:99"}),
    "pointers": lambda root: edit(episode_file(root), lambda t: put(t, "meta/episodes/file_index", [4, 5, 6])),
    "ranges": lambda root: edit(episode_file(root), lambda t: put(t, "dataset_from_index", [0, 2, 6])),
    "order": lambda root: edit(episode_file(root), lambda t: t.take([2, 0, 1])),
    "tasks": lambda root: edit(episode_file(root), lambda t: t.drop_columns(["tasks"])),
    "video ends": lambda root: edit(episode_file(root), lambda t: put(t, f"videos/{KEY}/to_timestamp", [0.0] * 3)),
    "times": lambda root: edit(data_file(root), lambda t: put(t, "timestamp", np.arange(9) * 0.05)),
    "indices": lambda root: edit(data_file(root), lambda t: put(t, "index", np.arange(9) + 100)),
    "frames": lambda root: edit(data_file(root), lambda t: put(t, "frame_index", [0] * 9)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_mended(copy: Path, damage: str, scene: Any) -> None:
    DAMAGES[damage](copy)
    assert validate(copy).problems
    result = repair(copy)
    assert result.steps
    assert [p.message for p in result.after.problems if p.code != "row-groups"] == []
    scene("video").check(copy, [3, 4, 2])


@pytest.mark.parametrize("damage", DAMAGES)
def test_dry_run_says_the_same_and_changes_nothing(copy: Path, damage: str) -> None:
    DAMAGES[damage](copy)
    before = everything(copy)
    planned = repair(copy, dry_run=True).steps
    assert everything(copy) == before
    assert repair(copy).steps == planned


def test_nothing_to_do(copy: Path) -> None:
    before = everything(copy)
    assert repair(copy).steps == []
    assert everything(copy) == before


def test_columns_that_are_not_touched_stay_byte_for_byte(copy: Path) -> None:
    whole = pq.read_table(data_file(copy))
    DAMAGES["times"](copy)
    repair(copy)
    mended = pq.read_table(data_file(copy))
    assert mended.schema.metadata[b"huggingface"] == whole.schema.metadata[b"huggingface"]
    assert mended.equals(whole)
    assert pq.ParquetFile(data_file(copy)).num_row_groups == 3


def test_gap_is_closed_only_when_asked(copy: Path, scene: Any) -> None:
    edit(episode_file(copy), lambda t: put(t, "episode_index", [0, 2, 3]))
    edit(data_file(copy), lambda t: put(t, "episode_index", [0] * 3 + [2] * 4 + [3] * 2))
    assert not repair(copy).after.is_sound
    result = repair(copy, renumber=True)
    assert "close the gaps in the episode numbers" in result.steps
    assert result.after.is_sound
    scene("video").check(copy, [3, 4, 2])


def test_statistics_are_computed_anew(copy: Path) -> None:
    path = copy / "meta/stats.json"
    right = json.loads(path.read_text())
    path.unlink()
    assert repair(copy).after.problems == []
    mended = json.loads(path.read_text())
    assert set(mended) == set(right)
    np.testing.assert_allclose(mended["action"]["mean"], right["action"]["mean"], rtol=1e-6)


def test_broken_episodes_go_only_when_asked(copy: Path, scene: Any) -> None:
    scene("video").record(copy.parent / "more", [2, 3], video_files_size_in_mb=0.0001)
    root = copy.parent / "more"
    lost = sorted((root / "videos").rglob("*.mp4"))[0]
    lost.unlink()
    kept = everything(root)
    assert not repair(root).after.is_sound
    assert everything(root) == kept
    result = repair(root, drop_broken=True)
    assert "delete the episodes [0], which cannot be read" in result.steps
    assert result.after.is_sound
    assert LeRobotDataset("lab/scene", root).num_frames == 3


def test_interrupted_recording_is_finished(copy: Path, scene: Any, tmp_path: Path) -> None:
    made = scene("video")
    dataset = LeRobotDataset.create("lab/scene", 30, made.features(), tmp_path / "new")
    for episode, length in enumerate([3, 4]):
        for frame in range(length):
            dataset.add_frame(made.frame(episode, frame))
        dataset.save_episode()
    with pytest.raises(DatasetError, match="is being recorded"):
        repair(tmp_path / "new")
    dataset._recorder.workspace.unlock()  # as when the process dies
    result = repair(tmp_path / "new")
    assert "finish the interrupted recording" in result.steps
    assert result.after.problems == []
    assert not (tmp_path / "new/.ulna").exists()


def test_command_says_what_it_did(copy: Path) -> None:
    change_info(copy, total_frames=1)
    planned = CliRunner().invoke(app, ["repair", str(copy), "--dry-run"])
    assert planned.exit_code == 0
    assert "would correct the counters of info.json" in planned.stdout
    done = CliRunner().invoke(app, ["repair", str(copy)])
    assert done.exit_code == 0
    assert "  correct the counters of info.json" in done.stdout
    assert "sound" in done.stdout
    again = CliRunner().invoke(app, ["repair", str(copy)])
    assert "nothing to do" in again.stdout


def test_command_exits_with_1_when_errors_are_left(copy: Path) -> None:
    data_file(copy).unlink()
    done = CliRunner().invoke(app, ["repair", str(copy)])
    assert done.exit_code == 1
    assert "does not exist" in done.stdout
