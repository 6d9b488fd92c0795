# SPDX-License-Identifier: Apache-2.0
"""`validate` is silent about what is right, and names each damage with episode, frame, file and remedy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ulna.core.files import write_json
from ulna.data import LeRobotDataset
from ulna.data.checks import Problem, validate
from ulna.data.commands import app

GOLDEN = Path(__file__).parent / "golden"
KEY = "observation.images.cam"


def edit_table(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    table = pq.read_table(path)
    pq.write_table(change(table), path)


def with_values(table: pa.Table, name: str, values: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))


def change_value(table: pa.Table, name: str, row: int, value: Any) -> pa.Table:
    values = table[name].to_pylist()
    values[row] = value
    return with_values(table, name, values)


def data_file(root: Path) -> Path:
    return root / "data/chunk-000/file-000.parquet"


def episode_file(root: Path) -> Path:
    return root / "meta/episodes/chunk-000/file-000.parquet"


def video_file(root: Path) -> Path:
    return root / f"videos/{KEY}/chunk-000/file-000.mp4"


def change_info(root: Path, **values: Any) -> None:
    path = root / "meta/info.json"
    write_json(path, {**json.loads(path.read_text()), **values})


def found(root: Path, code: str, *, deep: bool = False) -> Problem:
    report = validate(root, deep=deep)
    assert report.counts[code], report.to_json()
    return next(problem for problem in report.problems if problem.code == code)


@pytest.mark.parametrize("deep", [False, True])
def test_nothing_is_found_in_a_sound_dataset(sound: Path, deep: bool) -> None:
    report = validate(sound, deep=deep)
    assert report.problems == []
    assert (report.episodes, report.frames) == (3, 9)


@pytest.mark.parametrize("case", sorted(path.name for path in GOLDEN.iterdir() if (path / "dataset").is_dir()))
def test_datasets_of_lerobot_have_no_errors(case: str) -> None:
    report = validate(GOLDEN / case / "dataset", deep=True)
    assert report.is_sound, [problem.message for problem in report.problems]


def test_counter_ahead_of_the_table(copy: Path) -> None:
    change_info(copy, total_episodes=5)
    problem = found(copy, "counter")
    assert "total_episodes is 5, the tables hold 3" in problem.message
    assert problem.remedy == f"ulna dataset repair {copy}"


def test_gap_in_the_episode_numbers(copy: Path) -> None:
    edit_table(episode_file(copy), lambda table: with_values(table, "episode_index", [0, 2, 3]))
    problem = found(copy, "episode-missing")
    assert problem.episode == 1
    assert problem.remedy is not None
    assert "--renumber" in problem.remedy


def test_frame_ranges_that_do_not_join(copy: Path) -> None:
    edit_table(episode_file(copy), lambda table: change_value(table, "dataset_from_index", 1, 2))
    problem = found(copy, "episode-range")
    assert (problem.episode, problem.path) == (1, Path("meta/episodes/chunk-000/file-000.parquet"))
    assert "should be frames 3 to 7" in problem.message


def test_pointer_to_a_file_of_the_episode_table_that_is_not_there(copy: Path) -> None:
    edit_table(episode_file(copy), lambda table: change_value(table, "meta/episodes/file_index", 2, 7))
    assert found(copy, "row-pointer").episode == 2


def test_time_off_inside_an_episode_names_the_frame_and_how_much(copy: Path) -> None:
    edit_table(data_file(copy), lambda table: change_value(table, "timestamp", 4, 1 / 30 + 0.05))
    problem = found(copy, "timestamp")
    assert (problem.episode, problem.frame) == (1, 1)
    assert "+50.000 ms off" in problem.message


def test_wrong_indices_in_the_rows(copy: Path) -> None:
    edit_table(data_file(copy), lambda table: change_value(table, "index", 8, 3))
    assert (found(copy, "global-index").episode, found(copy, "global-index").frame) == (2, 1)
    edit_table(data_file(copy), lambda table: change_value(table, "frame_index", 0, 9))
    assert found(copy, "frame-index").episode == 0
    edit_table(data_file(copy), lambda table: change_value(table, "task_index", 0, 44))
    assert "task_index 44" in found(copy, "task-index").message


def test_value_that_is_not_finite_names_the_joint(copy: Path) -> None:
    edit_table(data_file(copy), lambda table: change_value(table, "action", 5, [0, 0, float("nan"), 0, 0, 0]))
    problem = found(copy, "value-not-finite")
    assert (problem.episode, problem.frame) == (1, 2)
    assert "joint_2.pos" in problem.message


def test_rows_missing(copy: Path) -> None:
    edit_table(data_file(copy), lambda table: table.slice(0, 8))
    problem = found(copy, "rows")
    assert (problem.episode, problem.message) == (2, "The table holds 1 rows of it, its length is 2.")


@pytest.mark.parametrize("file", [data_file, video_file])
def test_file_missing_or_cut_off(copy: Path, file: Callable[[Path], Path]) -> None:
    code = "data-unreadable" if file is data_file else "video-unreadable"
    whole = file(copy).read_bytes()
    file(copy).write_bytes(whole[:-100] if file is data_file else whole[:50])
    problem = found(copy, code)
    assert problem.path == file(copy).relative_to(copy)
    assert problem.remedy is not None
    assert "--drop-broken" in problem.remedy
    file(copy).unlink()
    assert "does not exist" in found(copy, code).message


def test_video_that_ends_too_early(copy: Path, scene: Any, tmp_path: Path) -> None:
    scene("video").record(tmp_path / "short", [8])
    shutil.copy(video_file(tmp_path / "short"), video_file(copy))
    problem = found(copy, "video-frames")
    assert (problem.episode, problem.frame) == (2, 1)
    assert "the file has 8 frames" in problem.message


def test_damage_inside_a_video_is_found_by_decoding(copy: Path) -> None:
    content = bytearray(video_file(copy).read_bytes())
    begin = content.index(b"mdat") + 4
    content[begin : begin + 400] = bytes(400)
    video_file(copy).write_bytes(content)
    assert validate(copy).counts["video-frames"] == 0
    report = validate(copy, deep=True)
    assert not report.is_sound


def test_spans_that_overlap_or_have_another_length(copy: Path) -> None:
    edit_table(episode_file(copy), lambda t: change_value(t, f"videos/{KEY}/from_timestamp", 1, 0.0333))
    assert found(copy, "video-overlap").episode == 1
    assert found(copy, "video-span").episode == 1


def test_declared_column_missing_or_of_another_type(copy: Path) -> None:
    edit_table(data_file(copy), lambda table: table.drop_columns(["action"]))
    assert "'action'" in found(copy, "column-missing").message
    edit_table(data_file(copy), lambda t: t.append_column("action", pa.array(["x"] * len(t))))
    assert "string" in found(copy, "column-type").message


def test_undeclared_column_is_only_a_warning(copy: Path) -> None:
    edit_table(data_file(copy), lambda t: t.append_column("more", pa.array([1] * len(t))))
    assert found(copy, "column-undeclared").severity == "warning"
    assert validate(copy).is_sound


def test_task_that_the_table_lacks(copy: Path) -> None:
    edit_table(episode_file(copy), lambda table: change_value(table, "tasks", 1, ["fly"]))
    problem = found(copy, "task-unknown")
    assert problem.episode == 1
    assert "'fly'" in problem.message


def test_statistics_that_cannot_be(copy: Path) -> None:
    path = copy / "meta/stats.json"
    stats = json.loads(path.read_text())
    stats["action"]["std"] = [0.0] * 6
    stats["observation.state"]["mean"][0] = 1e9
    del stats[KEY]
    write_json(path, stats)
    messages = " ".join(p.message for p in validate(copy).problems)
    for part in (
        "'action': std is 0 although the values differ",
        "mean is outside min and max",
        f"no statistics of '{KEY}'",
    ):
        assert part in messages
    path.unlink()
    assert found(copy, "stats-missing").severity == "warning"


def test_interrupted_recording_is_reported(copy: Path, scene: Any) -> None:
    dataset = LeRobotDataset.resume("lab/scene", copy)
    dataset.add_frame(scene("video").frame(3, 0))
    try:
        assert found(copy, "unfinished").episode == 3
        assert found(copy, "not-finalized").severity == "warning"
    finally:
        dataset.finalize()
    assert validate(copy).problems == []


def test_file_nobody_points_at(copy: Path) -> None:
    shutil.copy(data_file(copy), data_file(copy).with_name("file-009.parquet"))
    assert found(copy, "stranger").path == Path("data/chunk-000/file-009.parquet")


def test_many_of_a_kind_are_counted_not_listed(tmp_path: Path, scene: Any) -> None:
    scene(None).record(tmp_path / "set", [1] * 30)
    names = episode_file(tmp_path / "set")
    edit_table(names, lambda t: with_values(t, "meta/episodes/file_index", np.full(30, 5)))
    report = validate(tmp_path / "set")
    assert report.counts["row-pointer"] == 30
    assert len(report.problems) == 20
    assert report.left_out == {"row-pointer": 10}


def test_unusable_info_stops_the_check(copy: Path) -> None:
    (copy / "meta/info.json").write_text("{")
    report = validate(copy)
    assert [p.code for p in report.problems] == ["info-unusable"]
    assert not report.is_sound


def test_command_tells_place_and_remedy_and_exits_with_1(copy: Path) -> None:
    good = CliRunner().invoke(app, ["validate", str(copy)])
    assert good.exit_code == 0
    assert "3 episodes, 9 frames" in good.stdout
    assert good.stdout.rstrip().endswith("sound")
    change_info(copy, total_frames=1)
    bad = CliRunner().invoke(app, ["validate", str(copy)])
    assert bad.exit_code == 1
    assert f"-> ulna dataset repair {copy}" in bad.stdout
    assert "not sound (1 error)" in bad.stdout
    facts = json.loads(CliRunner().invoke(app, ["validate", str(copy), "--json"]).stdout)
    assert (facts["sound"], facts["errors"], facts["problems"][0]["code"]) == (False, 1, "counter")


def test_strict_counts_warnings(copy: Path) -> None:
    (copy / "meta/stats.json").unlink()
    assert CliRunner().invoke(app, ["validate", str(copy)]).exit_code == 0
    assert CliRunner().invoke(app, ["validate", str(copy), "--strict"]).exit_code == 1
