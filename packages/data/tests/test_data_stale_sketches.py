# SPDX-License-Identifier: Apache-2.0
"""A sketch whose episode was changed by software that knows none is not used; one that fits is never refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ulna.data import LeRobotDataset, LeRobotDatasetMetadata, MultiLeRobotDataset, merge_datasets
from ulna.data.checks import repair, validate
from ulna.data.checks.contents import read_contents
from ulna.data.checks.report import Report
from ulna.data.checks.sketch_checks import stale_sketches
from ulna.data.commands import app
from ulna.data.dataset_stats import settle_stats, whole_sketches, whole_stats
from ulna.data.editing.stats_columns import stats_of, stats_table
from ulna.data.layout import FileId
from ulna.data.picture_stats import PictureStats
from ulna.data.quantiles import FeatureSketch
from ulna.data.sketch_files import SKETCHES_TEMPLATE, read_sketch_file, write_sketches
from ulna.data.sketches import fitting_sketches
from ulna.data.stats import array_stats, array_summary
from ulna.data.stats_columns import file_column

GOLDEN = Path(__file__).parent / "golden"
CAMERA = "observation.images.cam"
FIRST = FileId(0, 0)


def data_file(root: Path) -> Path:
    return root / "data/chunk-000/file-000.parquet"


def episode_file(root: Path) -> Path:
    return root / "meta/episodes/chunk-000/file-000.parquet"


def side_file(root: Path) -> Path:
    return FIRST.path(root, SKETCHES_TEMPLATE)


def stale(root: Path) -> list[Any]:
    return [problem for problem in validate(root).problems if problem.code == "sketch-stale"]


def change_rows(root: Path, feature: str, stats: dict[int, Any]) -> None:
    """Put other statistics of one feature into some rows of the episode table."""
    meta = LeRobotDatasetMetadata("a/b", root)
    table = pq.read_table(episode_file(root))
    known = stats_of(table, len(table))
    for episode, values in stats.items():
        known[episode][feature] = {**known[episode][feature], **values}
    fresh = stats_table(known, meta.parsed_features)
    for name in (name for name in table.column_names if name.startswith(f"stats/{feature}/")):
        table = table.set_column(table.column_names.index(name), name, fresh[name])
    pq.write_table(table, episode_file(root))


def change_values(root: Path, episode: int) -> None:
    """Square the actions between their extremes, as a tool does that writes right statistics and knows no sketches."""
    table = pq.read_table(data_file(root))
    values = np.array(table["action"].to_pylist(), np.float32)
    rows = table["episode_index"].to_numpy() == episode
    low, high = values[rows].min(axis=0), values[rows].max(axis=0)
    values[rows] = low + (values[rows] - low) ** 2 / (high - low)
    field = table.schema.field("action")
    changed = table.set_column(table.column_names.index("action"), field, pa.array(list(values), field.type))
    pq.write_table(changed, data_file(root))
    before = read_row(root, episode)
    stats = array_stats(values[rows])
    assert all(np.array_equal(stats[key], before[key]) for key in ("count", "min", "max"))
    change_rows(root, "action", {episode: stats})


def read_row(root: Path, episode: int) -> Any:
    table = pq.read_table(episode_file(root))
    return stats_of(table, len(table))[episode]["action"]


def forget_moments(root: Path) -> None:
    """Write the side file as it was written before sketches had moments."""
    table = pq.read_table(side_file(root))
    pq.write_table(table.drop_columns(["moments"]), side_file(root))


def true_quantiles(root: Path) -> np.ndarray:
    rows = np.array(pq.read_table(root / "data")["action"].to_pylist(), np.float64)
    return np.quantile(rows, [0.1, 0.5, 0.9], axis=0)


def told_quantiles(root: Path) -> np.ndarray:
    stats = whole_stats(LeRobotDatasetMetadata("a/b", root))["action"]
    return np.stack([stats[key] for key in ("q10", "q50", "q90")])


@pytest.fixture
def recorded(scene: Any, tmp_path: Path) -> Path:
    scene("image", size=(8, 10)).record(tmp_path / "set", [100, 60, 90])
    return tmp_path / "set"


def test_changed_values_were_unnoticed_before_and_are_now(recorded: Path, tmp_path: Path) -> None:
    change_values(recorded, 1)
    old = tmp_path / "old"
    shutil.copytree(recorded, old)
    forget_moments(old)
    assert np.abs(told_quantiles(old) - true_quantiles(old)).max() > 5
    assert stale(old) == []
    np.testing.assert_allclose(told_quantiles(recorded), true_quantiles(recorded), rtol=1e-6)


def test_validate_names_the_sketch_and_repair_mends_it(recorded: Path) -> None:
    change_values(recorded, 1)
    (problem,) = stale(recorded)
    assert (problem.severity, problem.episode, problem.frame) == ("warning", 1, None)
    assert problem.path == side_file(recorded).relative_to(recorded)
    assert problem.message.startswith("The sketch of 'action' was made of other values than its statistics: mean ")
    assert problem.remedy == f"ulna dataset repair {recorded}"
    pictures = read_sketch_file(recorded, FIRST)[0][CAMERA]
    planned = repair(recorded, dry_run=True).steps
    assert len(stale(recorded)) == 1
    answer = CliRunner().invoke(app, ["repair", str(recorded)])
    assert answer.exit_code == 0, answer.output
    assert planned == ["compute the statistics anew"]
    assert stale(recorded) == []
    stats = json.loads((recorded / "meta/stats.json").read_text())["action"]
    found = np.array([stats[key] for key in ("q10", "q50", "q90")])
    np.testing.assert_allclose(found, true_quantiles(recorded), rtol=1e-6)
    np.testing.assert_array_equal(read_sketch_file(recorded, FIRST)[0][CAMERA].weights, pictures.weights)


def test_recording_on_mends_the_sketch(recorded: Path, scene: Any) -> None:
    change_values(recorded, 1)
    with LeRobotDataset.resume("lab/scene", recorded) as more:
        more.add_frame(scene("image", size=(8, 10)).frame(3, 0))
        more.save_episode()
    assert stale(recorded) == []
    np.testing.assert_allclose(told_quantiles(recorded), true_quantiles(recorded), rtol=1e-6)


def test_sketch_of_pictures_is_compared_and_mended_by_decoding(recorded: Path) -> None:
    right = LeRobotDatasetMetadata("a/b", recorded).stats
    table = pq.read_table(episode_file(recorded))
    stated = stats_of(table, len(table))[2][CAMERA]
    change_rows(recorded, CAMERA, {2: {"mean": stated["mean"] * 0.99}})
    (problem,) = stale(recorded)
    assert problem.episode == 2
    assert CAMERA in problem.message
    assert "q50" not in whole_stats(LeRobotDatasetMetadata("a/b", recorded))[CAMERA]
    assert repair(recorded).after.problems == []
    mended = LeRobotDatasetMetadata("a/b", recorded).stats
    assert right is not None
    assert mended is not None
    for key in right[CAMERA]:
        np.testing.assert_allclose(mended[CAMERA][key], right[CAMERA][key], rtol=1e-12)


def test_other_numbers_of_channels_and_rows_are_told(recorded: Path) -> None:
    sketches = read_sketch_file(recorded, FIRST)
    sketches[0]["action"] = array_summary(np.zeros((100, 2)))[1]
    longer = np.repeat(np.array(pq.read_table(data_file(recorded))["action"].to_pylist())[100:160], 2, axis=0)[:-1]
    sketches[1]["action"] = array_summary(longer)[1]
    write_sketches(recorded, FIRST, sketches)
    texts = [problem.message for problem in stale(recorded)]
    assert "it has 2 channels, they have 6" in texts[0]
    assert "mean" in texts[1]
    sketches[1]["action"] = FeatureSketch(sketches[1]["action"].values, sketches[1]["action"].weights)
    write_sketches(recorded, FIRST, sketches)
    assert "119 values and a count of 60" in stale(recorded)[1].message


def test_several_datasets_leave_quantiles_of_stale_sketches_out(
    recorded: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(recorded, tmp_path / "other")
    change_values(tmp_path / "other", 0)
    parts = [LeRobotDataset("a/b", tmp_path / name) for name in ("set", "other")]
    assert set(whole_sketches(parts[0].meta)) - set(whole_sketches(parts[1].meta)) == {"action"}
    stats = MultiLeRobotDataset(["set", "other"], tmp_path).meta.stats
    assert "q50" in stats["observation.state"]
    assert "q50" not in stats["action"]
    assert any(message.startswith("action: 1 of 2 parts") for message in caplog.messages)


def test_side_files_of_before_and_of_both_kinds_are_read(recorded: Path) -> None:
    """Episodes whose sketches say no mean are compared as before; those beside them by the mean."""
    meta = LeRobotDatasetMetadata("a/b", recorded)
    wanted = whole_stats(meta)["action"]
    sketches = read_sketch_file(recorded, FIRST)
    sketches[1] = {name: FeatureSketch(s.values, s.weights) for name, s in sketches[1].items()}
    write_sketches(recorded, FIRST, sketches)
    again = read_sketch_file(recorded, FIRST)
    assert again[1]["action"].moments is None
    assert again[2]["action"].moments is not None
    column = file_column(recorded, FIRST, episode_file(recorded), "action", meta.episodes.starts, meta.episodes.lengths)
    assert column is not None
    np.testing.assert_array_equal(column.total()["q50"], wanted["q50"])
    change_values(recorded, 2)
    changed = LeRobotDatasetMetadata("a/b", recorded).episodes
    assert file_column(recorded, FIRST, episode_file(recorded), "action", changed.starts, changed.lengths) is None
    assert [problem.episode for problem in stale(recorded)] == [2]


def test_moments_of_another_form_are_passed_over(recorded: Path) -> None:
    table = pq.read_table(side_file(recorded))
    short = pa.array([[1.0]] * len(table), table.schema.field("moments").type)
    pq.write_table(table.set_column(table.column_names.index("moments"), "moments", short), side_file(recorded))
    np.testing.assert_allclose(told_quantiles(recorded), true_quantiles(recorded), rtol=1e-6)


def test_closing_gaps_takes_the_sketches_along(recorded: Path) -> None:
    """Other numbers for episodes: the side files follow, so that pictures keep their histograms."""
    before = read_sketch_file(recorded, FIRST)
    new = {0: 0, 1: 2, 2: 3}
    for path in (episode_file(recorded), data_file(recorded)):
        table = pq.read_table(path)
        numbers = pa.array([new[e] for e in table["episode_index"].to_pylist()], pa.int64())
        place = table.column_names.index("episode_index")
        pq.write_table(table.set_column(place, table.schema.field("episode_index"), numbers), path)
    write_sketches(recorded, FIRST, {new[e]: sketches for e, sketches in before.items()})
    assert "compute the statistics anew" not in repair(recorded, renumber=True).steps
    after = read_sketch_file(recorded, FIRST)
    assert after.keys() == before.keys()
    assert stale(recorded) == []
    for episode, sketches in before.items():
        np.testing.assert_array_equal(after[episode][CAMERA].weights, sketches[CAMERA].weights)


def test_gap_that_is_left_does_not_stop_the_repair(recorded: Path) -> None:
    table = pq.read_table(episode_file(recorded))
    place = table.column_names.index("episode_index")
    moved = table.set_column(place, table.schema.field("episode_index"), pa.array([0, 2, 3], pa.int64()))
    pq.write_table(moved, episode_file(recorded))
    (recorded / "meta/stats.json").unlink()
    assert "compute the statistics anew" not in repair(recorded).steps


@pytest.mark.parametrize("case", sorted(path.name for path in GOLDEN.iterdir() if (path / "dataset").is_dir()))
def test_sketches_made_for_a_dataset_of_lerobot_fit(case: str, tmp_path: Path) -> None:
    """Its rows hold sums of float32; sketches of the exact values must fit them, or they would be made every time."""
    root = tmp_path / "set"
    shutil.copytree(GOLDEN / case / "dataset", root)
    if json.loads((root / "meta/info.json").read_text())["codebase_version"] != "v3.0":
        pytest.skip("an older version, which has no table of episodes")
    meta = LeRobotDatasetMetadata("a/b", root)
    settle_stats(meta)
    contents = read_contents(root, Report(root))
    assert contents is not None
    assert list(stale_sketches(contents)) == []
    stated = set.intersection(*(set(pq.read_schema(p).names) for p in (root / "meta/episodes").rglob("*.parquet")))
    numbers = {name for name, f in meta.parsed_features.items() if f.is_numeric and f"stats/{name}/mean" in stated}
    assert set(whole_sketches(meta)) >= numbers - {"task_index"}


def test_recorded_merged_and_edited_datasets_fit(recorded: Path, scene: Any, tmp_path: Path) -> None:
    with LeRobotDataset.resume("lab/scene", recorded) as more:
        for frame in range(130):
            more.add_frame(scene("image", size=(8, 10)).frame(3, frame))
        more.save_episode()
    merged = merge_datasets([recorded, recorded], "a/c", tmp_path / "merged")
    for root in (recorded, merged.root):
        assert validate(root).counts["sketch-stale"] == 0
        assert len(whole_sketches(LeRobotDatasetMetadata("a/b", root))) == 8


def float32_moments(values: np.ndarray) -> dict[str, np.ndarray]:
    """Mean and deviation summed one after the other in float32, the least exact way there is."""
    short = values.astype(np.float32)
    with np.errstate(all="ignore"):
        mean = np.cumsum(short, axis=0, dtype=np.float32)[-1] / np.float32(len(values))
        squares = np.cumsum(np.square(short), axis=0, dtype=np.float32)[-1] / np.float32(len(values))
        std = np.sqrt(np.maximum(squares - np.square(mean), 0))
    return {"mean": mean.astype(np.float64), "std": std.astype(np.float64)}


arrays = st.builds(
    lambda rows, seed, scale, offset: (
        np.random.default_rng(seed).standard_t(2, (rows, 3)) * np.array([scale, 1.0, 0.0]) + offset
    ).astype(np.float32),
    st.one_of(st.integers(1, 9), st.integers(100, 3000)),
    st.integers(0, 999),
    st.sampled_from([1e-30, 1e-6, 1.0, 180.0, 1e10, 1e25]),
    st.sampled_from([0.0, -0.1, 0.5, 1e4, -1e7]),
)


@settings(deadline=None, max_examples=150)
@given(arrays)
def test_no_false_alarm_for_sums_of_float32(values: np.ndarray) -> None:
    stats, sketch = array_summary(values)
    for stated in (
        {},
        float32_moments(values),
        {"mean": stats["mean"].astype(np.float32)},
        {"std": np.full(3, np.nan)},
    ):
        assert fitting_sketches({"x": {**stats, **stated}}, {"x": sketch}), stated


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 999), st.integers(1, 5), st.sampled_from([1, 3]), st.integers(0, 2))
def test_no_false_alarm_for_pictures(seed: int, frames: int, channels: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    counted = PictureStats(6, 7, channels)
    for _ in range(frames):
        counted.add(rng.integers(0, 256 >> depth, (6, 7, channels), dtype=np.uint8))
    stats, sketch = counted.result(), counted.sketch()
    short = {key: stats[key].astype(np.float32) for key in ("mean", "std")}
    assert fitting_sketches({"x": stats}, {"x": sketch})
    assert fitting_sketches({"x": {**stats, **short}}, {"x": sketch})


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 99), st.integers(3, 3000), st.floats(1.5, 100), st.sampled_from(["mean", "std"]))
def test_alarm_beyond_what_float32_explains(seed: int, rows: int, factor: float, key: str) -> None:
    """A mean that is off by more than n * 2**-24 of the largest value, or a deviation by as much, is no rounding."""
    values = np.random.default_rng(seed).uniform(-1, 1, (rows, 1))
    stats, sketch = array_summary(values)
    slack = factor * (rows + 8) * 2.0**-24 * np.abs(values).max()
    moved = stats["mean"] + slack if key == "mean" else np.sqrt(stats["std"] ** 2 + 3 * slack * np.abs(values).max())
    assert not fitting_sketches({"x": {**stats, key: moved}}, {"x": sketch})


def test_scaled_sketch_fits_scaled_statistics() -> None:
    values = np.random.default_rng(0).uniform(0, 2, (300, 1))
    stats, sketch = array_summary(values)
    scaled = {name: value if name == "count" else value * 1000 for name, value in stats.items()}
    assert fitting_sketches({"x": scaled}, {"x": sketch.scaled(1000)})
    assert not fitting_sketches({"x": scaled}, {"x": sketch})


def test_statistics_that_say_less_are_compared_by_what_they_say() -> None:
    stats, sketch = array_summary(np.arange(500.0))
    less = {key: stats[key] for key in ("min", "max", "count")}
    assert fitting_sketches({"x": less}, {"x": sketch})
    assert not fitting_sketches({"x": {**less, "mean": np.zeros(2)}}, {"x": sketch})
