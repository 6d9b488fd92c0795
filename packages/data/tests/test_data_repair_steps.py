# SPDX-License-Identifier: Apache-2.0
"""Each step of `repair`: dry runs touch nothing, and none is taken where it would lose or make up something."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ulna.data import LeRobotDataset
from ulna.data.checks import repair

DATA = "data/chunk-000/file-000.parquet"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"


def everything(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def put(path: Path, name: str, values: list[Any]) -> None:
    table = pq.read_table(path)
    place, field = table.schema.get_field_index(name), table.schema.field(name)
    pq.write_table(table.set_column(place, field, pa.array(values, field.type)), path)


def interrupted(made: Any, root: Path, frames: int) -> None:
    """A recording of two stored episodes that was killed in its third."""
    dataset = made.record(root.with_name("recording"), [2, 3], finalize=False)
    for frame in range(max(frames, 1)):
        dataset.add_frame(made.frame(2, frame))
    folder = made.leave_behind(dataset, root)
    dataset.finalize()
    if not frames:
        (folder / "rows.journal").unlink()


def two_files(made: Any, root: Path) -> None:
    """Two episodes in one file, a third one in a file of its own."""
    made.record(root, [2, 3])
    with LeRobotDataset.resume("lab/scene", root) as dataset:
        made.add(dataset, 2, 4)


def no_statistics(made: Any, root: Path) -> None:
    made.record(root, [2, 3])
    (root / "meta/stats.json").unlink()


def gap(made: Any, root: Path) -> None:
    made.record(root, [2, 3])
    put(root / EPISODES, "episode_index", [0, 2])
    put(root / DATA, "episode_index", [0, 0, 2, 2, 2])


def lost_file(made: Any, root: Path) -> None:
    two_files(made, root)
    (root / DATA).unlink()


STEPS: dict[str, tuple[Callable[[Any, Path], None], dict[str, Any], str, list[int]]] = {
    "finish": (lambda made, root: interrupted(made, root, 0), {}, "finish the interrupted recording", [0, 1]),
    "recover": (lambda made, root: interrupted(made, root, 4), {"recover": True}, "recover 4 frames of", [0, 1, 2]),
    "renumber": (gap, {"renumber": True}, "close the gaps in the episode numbers", [0, 1]),
    "drop": (lost_file, {"drop_broken": True}, "delete the episodes [0, 1], which cannot be read", [2]),
    "statistics": (no_statistics, {}, "compute the statistics anew", [0, 1]),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_dry_run_tells_the_step_and_touches_nothing(scene: Any, tmp_path: Path, step: str) -> None:
    damage, options, told, kept = STEPS[step]
    root = tmp_path / "set"
    damage(scene(), root)
    before = everything(root)
    planned = repair(root, dry_run=True, **options)
    assert everything(root) == before
    assert planned.after is planned.before
    assert any(told in said for said in planned.steps)
    done = repair(root, **options)
    assert any(told in said for said in done.steps)
    assert done.after.is_sound
    opened = LeRobotDataset("lab/scene", root)
    firsts = [opened.numpy_item(start) for start in opened.meta.episodes["dataset_from_index"]]
    assert [float(item["observation.state"][0]) for item in firsts] == [1000.0 * episode for episode in kept]


def test_frames_that_could_be_recovered_are_left(scene: Any, tmp_path: Path) -> None:
    root = tmp_path / "set"
    interrupted(scene(), root, 4)
    before = everything(root)
    for dry_run in (True, False):
        assert repair(root, dry_run=dry_run).steps == [
            "leave the unfinished episode where it is: --recover keeps its frames as an episode"
        ]
        assert everything(root) == before


def test_nothing_is_derived_from_rows_that_are_not_all_there(scene: Any, tmp_path: Path) -> None:
    root = tmp_path / "set"
    scene().record(root, [2, 3])
    pq.write_table(pq.read_table(root / DATA).slice(0, 4), root / DATA)
    put(root / DATA, "index", [7, 7, 7, 7])
    put(root / EPISODES, "meta/episodes/file_index", [4, 4])
    before = everything(root)
    assert repair(root).steps == []
    assert everything(root) == before
