# SPDX-License-Identifier: Apache-2.0
"""Every kind of finding of `validate` is provoked, with severity and place; what is no damage stays silent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ulna.core.files import write_json
from ulna.data.checks import validate
from ulna.data.info import read_tasks, write_tasks

KEY = "observation.images.cam"
DATA = "data/chunk-000/file-000.parquet"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
VIDEO = f"videos/{KEY}/chunk-000/file-000.mp4"

Damage = Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """A damage, and what has to be found then."""

    damage: Damage
    severity: str
    episode: int | None = None
    frame: int | None = None
    path: str | None = None
    says: str = ""


def edit(file: str, change: Callable[[pa.Table], pa.Table]) -> Damage:
    def damage(root: Path) -> None:
        pq.write_table(change(pq.read_table(root / file)), root / file)

    return damage


def put(file: str, name: str, values: Any, kind: pa.DataType | None = None) -> Damage:
    def change(table: pa.Table) -> pa.Table:
        old = table.schema.field(name)
        new = old if kind is None else pa.field(name, kind)
        return table.set_column(table.schema.get_field_index(name), new, pa.array(values, new.type))

    return edit(file, change)


def put_one(file: str, name: str, row: int, value: Any) -> Damage:
    def change(table: pa.Table) -> pa.Table:
        values, field = table[name].to_pylist(), table.schema.field(name)
        values[row] = value
        return table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))

    return edit(file, change)


def drop(file: str, start: str) -> Damage:
    return edit(file, lambda table: table.drop_columns([n for n in table.column_names if n.startswith(start)]))


def garbage(file: str) -> Damage:
    return lambda root: (root / file).write_bytes(b"PAR1 no table PAR1") and None


def info(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def damage(root: Path) -> None:
        declared = json.loads((root / "meta/info.json").read_text())
        change(declared)
        write_json(root / "meta/info.json", declared)

    return damage


def stats(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def damage(root: Path) -> None:
        stated = json.loads((root / "meta/stats.json").read_text())
        change(stated)
        (root / "meta/stats.json").write_text(json.dumps(stated))

    return damage


def more_tasks(*texts: str) -> Damage:
    def damage(root: Path) -> None:
        tasks = read_tasks(root)
        write_tasks(root, {**tasks, **{text: len(tasks) + n for n, text in enumerate(texts)}})

    return damage


def second_table_with_another_column(root: Path) -> None:
    table = pq.read_table(root / EPISODES)
    pq.write_table(table.slice(0, 2), root / EPISODES)
    more = table.slice(2).append_column("more", pa.array([1]))
    pq.write_table(more, (root / EPISODES).with_name("file-001.parquet"))


def leave_picture(root: Path) -> None:
    path = root / "images" / KEY / "episode-000003/frame-000000.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"png")


def leave_journal(root: Path) -> None:
    (root / ".ulna").mkdir()
    (root / ".ulna/journal.json").write_text('{"moves": [], "deletions": []}')


def empty_last_episode(root: Path) -> None:
    put(EPISODES, "length", [3, 4, 0])(root)
    put(EPISODES, "dataset_to_index", [3, 7, 7])(root)


def no_episodes(root: Path) -> None:
    shutil.rmtree(root / "meta/episodes")


CASES: dict[str, list[Case]] = {
    "counter": [Case(info(lambda i: i.update(total_tasks=7)), "error", says="total_tasks is 7, the tables hold 2")],
    "split": [Case(info(lambda i: i.update(splits={"train": "0:4"})), "warning", says="'0:4'; there are 3")],
    "tasks-unusable": [Case(garbage("meta/tasks.parquet"), "error", path="meta/tasks.parquet")],
    "task-unused": [Case(more_tasks("never done"), "note", says="'never done'")],
    "task-empty": [Case(more_tasks(" "), "warning", says="Task 2 is empty")],
    "episode-tasks": [Case(drop(EPISODES, "tasks"), "warning")],
    "episode-twice": [Case(put(EPISODES, "episode_index", [0, 1, 1]), "error", 1)],
    "episode-missing": [
        Case(put(EPISODES, "episode_index", [1, 2, 3]), "error", 0),
        Case(put(EPISODES, "episode_index", [0, 1, 3]), "error", 2),
    ],
    "episode-order": [Case(edit(EPISODES, lambda table: table.take([2, 0, 1])), "warning")],
    "episode-range": [
        Case(put(EPISODES, "dataset_to_index", [3, 8, 9]), "error", 1, path=EPISODES, says="3 to 8 with length 4"),
        Case(empty_last_episode, "error", 2, path=EPISODES, says="length is 0"),
    ],
    "episodes-missing": [Case(no_episodes, "error", says="counts 3 episodes")],
    "episodes-unreadable": [Case(garbage(EPISODES), "error", path=EPISODES)],
    "episodes-columns": [Case(drop(EPISODES, "length"), "error", path=EPISODES, says="['length']")],
    "episodes-schemas": [Case(second_table_with_another_column, "warning", says="['more']")],
    "row-pointer": [Case(drop(EPISODES, "meta/episodes/"), "warning", says="are missing")],
    "video-columns": [Case(drop(EPISODES, "videos/"), "error", says=KEY)],
    "video-span": [Case(put_one(EPISODES, f"videos/{KEY}/to_timestamp", 1, 9 / 30), "warning", 1)],
    "video-size": [Case(info(lambda i: i["features"][KEY].update(shape=[40, 64, 3])), "error", path=VIDEO)],
    "video-rate": [
        Case(info(lambda i: i.update(fps=31)), "warning", path=VIDEO, says="30.000 frames/s, the dataset 31")
    ],
    "video-codec": [
        Case(info(lambda i: i["features"][KEY]["info"].update({"video.codec": "av1"})), "warning", path=VIDEO)
    ],
    "rows": [Case(edit(DATA, lambda table: table.take([0, 1, 2, 2, 3, 4, 5, 6, 7, 8])), "error", 0, path=DATA)],
    "rows-of-others": [Case(put_one(DATA, "episode_index", 8, 7), "error", 7, path=DATA)],
    "task-index": [
        Case(put_one(DATA, "task_index", 4, -1), "error", 1, 1, path=DATA, says="task_index -1 in 1 rows"),
        Case(put_one(DATA, "task_index", 4, 2), "error", 1, 1, path=DATA, says="there are 2 tasks"),
    ],
    "timestamp": [Case(put_one(DATA, "timestamp", 4, float("nan")), "error", 1, 1, path=DATA)],
    "value-missing": [Case(put_one(DATA, "action", 5, None), "error", 1, 2, path=DATA, says="'action'")],
    "value-shape": [
        Case(put(DATA, "action", [[0.0] * 6] * 8 + [[0.0] * 5], pa.list_(pa.float32())), "error", path=DATA)
    ],
    "row-groups": [Case(edit(DATA, lambda table: table), "note", path=DATA, says="1 row groups for 3 episodes")],
    "schema-metadata": [Case(edit(DATA, lambda table: table.replace_schema_metadata(None)), "note", path=DATA)],
    "stats-unusable": [Case(garbage("meta/stats.json"), "error", path="meta/stats.json")],
    "stats-stale": [Case(stats(lambda s: s.update(gone=s["action"])), "note", says="'gone'")],
    "stats-wrong": [
        Case(stats(lambda s: s["action"].update(std=[-1.0] * 6)), "warning", says="'action': std is negative"),
        Case(stats(lambda s: s["action"].update(mean=[1e9] * 6)), "warning", says="mean is outside min and max"),
        Case(stats(lambda s: s["action"].update(mean=[-1e9] * 6)), "warning", says="mean is outside min and max"),
        Case(stats(lambda s: s["action"].update(min=[1e9] * 6)), "warning", says="min is above max"),
        Case(stats(lambda s: s["action"].update(q99=[float("inf")] * 6)), "warning", says="q99 is not finite"),
        Case(stats(lambda s: s["action"].update(max=[1.0] * 5)), "warning", says="max has the shape (5,)"),
        Case(stats(lambda s: s["observation.state"].update(count=[10])), "warning", says="count is 10"),
        Case(stats(lambda s: s["action"].update(count=[8])), "warning", says="count is 8"),
        Case(stats(lambda s: s["action"].pop("max")), "warning", says="max missing"),
    ],
    "swap": [Case(leave_journal, "warning")],
    "staging": [Case(leave_picture, "note")],
}


@pytest.mark.parametrize(
    ("code", "case"), [pytest.param(c, case, id=f"{c}-{n}") for c in CASES for n, case in enumerate(CASES[c])]
)
def test_every_kind_of_damage_is_found(copy: Path, code: str, case: Case) -> None:
    case.damage(copy)
    report = validate(copy)
    problems = [problem for problem in report.problems if problem.code == code]
    assert problems, report.to_json()
    matching = [problem for problem in problems if case.says in problem.message]
    assert matching, [problem.message for problem in problems]
    first = matching[0]
    assert first.severity == case.severity
    assert (first.episode, first.frame) == (case.episode, case.frame)
    assert case.path is None or first.path == Path(case.path)
    assert case.severity != "error" or not report.is_sound


@pytest.mark.parametrize(
    ("value", "row", "says"),
    [
        (None, 3, "has no picture"),
        ({"bytes": b"no picture", "path": "x.png"}, 3, "does not hold a readable picture"),
        ("of another camera", 3, "(3, 40, 64), declared (3, 48, 64)"),
    ],
)
def test_pictures_in_the_table(tmp_path: Path, scene: Any, value: Any, row: int, says: str) -> None:
    """The first picture of each episode is looked at, with `deep` all of them."""
    root = tmp_path / "set"
    scene("image").record(root, [3, 2])
    if isinstance(value, str):
        scene("image", size=(40, 64)).record(tmp_path / "other", [1])
        value = pq.read_table(tmp_path / "other" / DATA)[KEY][0].as_py()
    put_one(DATA, KEY, row, value)(root)
    found = [p for p in validate(root).problems if p.code == "picture"]
    assert [(p.episode, p.frame, p.path) for p in found] == [(1, 0, Path(DATA))]
    assert says in found[0].message
    put_one(DATA, KEY, row + 1, value)(root)
    assert validate(root).counts["picture"] == 1
    assert validate(root, deep=True).counts["picture"] == 2


def test_row_groups_need_not_be_episodes(copy: Path) -> None:
    """Other writers cut tables anywhere: rows are counted on from group to group."""
    table = pq.read_table(copy / DATA)
    pq.write_table(table, copy / DATA, row_group_size=2)
    assert {problem.code for problem in validate(copy).problems} == {"row-groups"}


def test_videos_may_hold_episodes_in_any_order(copy: Path) -> None:
    start, end = f"videos/{KEY}/from_timestamp", f"videos/{KEY}/to_timestamp"
    put(EPISODES, start, [6 / 30, 2 / 30, 0.0])(copy)
    put(EPISODES, end, [9 / 30, 6 / 30, 2 / 30])(copy)
    assert validate(copy).problems == []


def test_times_of_a_long_episode_are_as_exact_as_float32(tmp_path: Path, scene: Any) -> None:
    root, length = tmp_path / "set", 70_000
    scene(None).record(root, [1])
    row = pq.read_table(root / DATA)
    table = row.take(np.zeros(length, np.int64))
    frames = np.arange(length)
    for name, values in {"frame_index": frames, "index": frames, "timestamp": (frames / 30).astype("float32")}.items():
        table = table.set_column(table.schema.get_field_index(name), row.schema.field(name), pa.array(values))
    pq.write_table(table, root / DATA)
    assert np.abs(np.asarray(table["timestamp"], np.float64) - frames / 30).max() > 1e-4
    put(EPISODES, "length", [length])(root)
    put(EPISODES, "dataset_to_index", [length])(root)
    info(lambda i: i.update(total_frames=length))(root)
    assert {problem.code for problem in validate(root).problems} <= {"stats-wrong"}
