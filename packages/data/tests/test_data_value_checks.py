# SPDX-License-Identifier: Apache-2.0
"""`validate` tells statistics that are not those of the rows, and `repair` computes them anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ulna.core.files import write_json
from ulna.data import LeRobotDatasetMetadata
from ulna.data.checks import Report, repair, validate
from ulna.data.editing.recompute import recompute_stats


def data_file(root: Path) -> Path:
    return root / "data/chunk-000/file-000.parquet"


def change_rows(root: Path, feature: str, rows: slice, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change values as a script does that knows nothing of statistics."""
    table = pq.read_table(data_file(root))
    values = np.array(table[feature].to_pylist())
    values[rows] = change(values[rows])
    field = table.schema.field(feature)
    pq.write_table(
        table.set_column(table.column_names.index(feature), field, pa.array(list(values), field.type)), data_file(root)
    )


def change_stats(root: Path, feature: str, **values: Any) -> None:
    path = root / "meta/stats.json"
    stats = json.loads(path.read_text())
    stats[feature] |= values
    write_json(path, stats)


def codes(report: Report) -> set[str]:
    """Return what was found, but for the note that a script writes its rows in other groups."""
    return {problem.code for problem in report.problems} - {"row-groups"}


def told(root: Path, code: str) -> list[Any]:
    return [problem for problem in validate(root).problems if problem.code == code]


@pytest.fixture
def recorded(scene: Any, tmp_path: Path) -> Path:
    scene("image", size=(8, 10)).record(tmp_path / "set", [20, 30, 10])
    assert validate(tmp_path / "set").problems == []
    return tmp_path / "set"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda v: v * 2, "m"),
        (lambda v: np.where(v == v.max(axis=0), v + 1, v), "max "),
        (lambda v: np.where(v == v.min(axis=0), v - 1, v), "min "),
        (lambda v: v.min(axis=0) + (v - v.min(axis=0)) ** 2 / (v.max(axis=0) - v.min(axis=0)), "mean "),
    ],
    ids=["doubled", "one higher", "one lower", "bent between the extremes"],
)
def test_changed_values_are_told_and_mended(recorded: Path, change: Any, word: str) -> None:
    """The episode whose rows were changed is named, and no other; `repair` leaves right statistics everywhere."""
    change_rows(recorded, "action", slice(20, 50), change)
    (problem,) = told(recorded, "stats-differ")
    assert (problem.severity, problem.episode, problem.frame) == ("warning", 1, None)
    assert problem.path == Path("meta/episodes/chunk-000/file-000.parquet")
    assert problem.message.startswith(f"The rows of 'action' and its statistics differ: {word}")
    assert problem.remedy == f"ulna dataset repair {recorded}"
    assert codes(repair(recorded).after) == set()
    rows = np.array(pq.read_table(data_file(recorded))["action"].to_pylist(), np.float64)
    stats = (LeRobotDatasetMetadata("a/b", recorded).recorded_stats or {})["action"]
    np.testing.assert_allclose(stats["mean"], rows.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(stats["q50"], np.quantile(rows, 0.5, axis=0), rtol=1e-6)


def test_an_episode_in_several_row_groups_is_put_together(recorded: Path) -> None:
    """Rows of one episode may lie in several groups, and one group may hold several episodes."""
    table = pq.read_table(data_file(recorded))
    pq.write_table(table, data_file(recorded), row_group_size=7)
    assert codes(validate(recorded)) == set()
    change_rows(recorded, "action", slice(55, 56), lambda v: v + 1000)
    pq.write_table(pq.read_table(data_file(recorded)), data_file(recorded), row_group_size=7)
    assert [problem.episode for problem in told(recorded, "stats-differ")] == [2]


@pytest.mark.parametrize(("feature", "severity"), [("observation.state", "warning"), ("action", "note")])
def test_other_statistics_of_all_together(recorded: Path, feature: str, severity: str) -> None:
    """Those of actions may be other ones on purpose; neither is replaced, the remedy says how to."""
    stats = (LeRobotDatasetMetadata("a/b", recorded).recorded_stats or {})[feature]
    change_stats(recorded, feature, min=(stats["min"] - 5).tolist())
    (problem,) = validate(recorded).problems
    assert (problem.code, problem.severity, problem.episode) == ("stats-other", severity, None)
    assert problem.path == Path("meta/stats.json")
    assert problem.remedy == f"if that is not on purpose: ulna dataset edit recompute-stats {recorded}"
    assert repair(recorded).steps == []


def test_repair_leaves_statistics_of_relative_actions(recorded: Path) -> None:
    """They cannot be computed from the rows without knowing the chunk, and training needs them."""
    recompute_stats(recorded, relative_action=True, chunk_size=4)
    relative = json.loads((recorded / "meta/stats.json").read_text())["action"]
    assert {problem.severity for problem in validate(recorded).problems} <= {"note"}
    change_rows(recorded, "observation.state", slice(0, 20), lambda v: v + 3)
    assert [problem.episode for problem in told(recorded, "stats-differ")] == [0]
    after = repair(recorded).after
    assert after.counts["stats-differ"] == 0
    assert json.loads((recorded / "meta/stats.json").read_text())["action"] == relative


def test_impossible_statistics_of_actions_are_not_kept(recorded: Path) -> None:
    change_stats(recorded, "action", std=[-1.0] * 6)
    assert codes(repair(recorded).after) == set()


def test_values_that_are_no_numbers_are_told_once(recorded: Path) -> None:
    """Statistics of an episode with NaN cannot be compared; the error stands where the value stands."""
    change_rows(recorded, "action", slice(3, 4), lambda v: v * np.nan)
    change_rows(recorded, "action", slice(25, 26), lambda v: v * np.inf)
    assert codes(validate(recorded)) == {"value-not-finite"}


def test_missing_rows_do_not_speak_of_statistics(recorded: Path) -> None:
    pq.write_table(pq.read_table(data_file(recorded)).slice(0, 59), data_file(recorded))
    assert "rows" in validate(recorded).counts
    assert told(recorded, "stats-differ") == []
    assert told(recorded, "stats-other") == []
