# SPDX-License-Identifier: Apache-2.0
"""Quantiles of a union: within the stated error of numpy, and the same in every order and grouping of its parts."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.data import LeRobotDataset, LeRobotDatasetMetadata, RGBEncoderConfig
from ulna.data.dataset_stats import episode_parts, whole_stats
from ulna.data.layout import FileId
from ulna.data.quantiles import POINTS, FeatureSketch, order_quantiles, rank_error, union_quantiles
from ulna.data.running_stats import RunningStats
from ulna.data.sketch_files import SKETCHES_TEMPLATE, read_sketch_file, read_sketches, write_sketches
from ulna.data.sketches import episode_sketches, episode_summary, fitting_sketches, merged_stats
from ulna.data.stats import QUANTILES, PictureStats, array_stats, array_summary, sample_indices

GOLDEN = Path(__file__).parent / "golden"
CAMERA = "observation.images.cam"
LEVELS = list(QUANTILES.values())
H264 = RGBEncoderConfig(vcodec="h264")


def draw(kind: str, rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    makers: dict[str, Any] = {
        "normal": lambda: rng.normal(rng.normal() * 3, rng.uniform(0.1, 3), (rows, 2)).astype(np.float32),
        "constant": lambda: np.full((rows, 2), rng.integers(-3, 3), np.float32),
        "heavy tails": lambda: rng.standard_cauchy((rows, 2)) * 10.0 ** rng.integers(-3, 4),
        "bool": lambda: rng.random((rows, 2)) < rng.random(),
        "few integers": lambda: rng.integers(0, 5, (rows, 2)),
        "integers": lambda: rng.integers(-(2**40), 2**40, (rows, 2)),
        "huge mean": lambda: 1e9 + rng.normal(size=(rows, 2)),
        "drift": lambda: np.arange(rows)[:, None] + seed * np.array([100.0, 0.0]),
    }
    values: np.ndarray = makers[kind]()
    return values


KINDS = ["normal", "constant", "heavy tails", "bool", "few integers", "integers", "huge mean", "drift"]
lengths = st.lists(st.one_of(st.just(1), st.integers(1, 40), st.integers(100, 700)), min_size=1, max_size=8)


def assert_within_error(quantiles: np.ndarray, rows: np.ndarray, error: int) -> None:
    """Each quantile lies between the values `error` ranks below and above those that numpy interpolates."""
    ordered = np.sort(rows.astype(np.float64), axis=0)
    for level, found in zip(LEVELS, quantiles, strict=True):
        position = level * (len(rows) - 1)
        low = max(int(np.floor(position)) - error, 0)
        high = min(int(np.ceil(position)) + error, len(rows) - 1)
        assert (found >= ordered[low]).all(), (level, error)
        assert (found <= ordered[high]).all(), (level, error)


@settings(deadline=None, max_examples=150)
@given(lengths, st.lists(st.sampled_from(KINDS), min_size=1, max_size=3), st.randoms())
def test_quantiles_of_a_union_are_within_the_stated_error(sizes: list[int], kinds: list[str], random: Any) -> None:
    """Whatever distributions, lengths and order the episodes have: 1 frame, constant, heavy tails, bool, huge means."""
    arrays = [draw(kinds[i % len(kinds)], size, random.randrange(1000)) for i, size in enumerate(sizes)]
    parts = [episode_summary({"x": a}) for a in arrays]
    found = merged_stats(parts)["x"]
    rows = np.concatenate([a.astype(np.float64) for a in arrays])
    error = sum(rank_error(size) for size in sizes)
    assert error <= max(0.006 * len(rows), sum(size > POINTS for size in sizes) * 1.0, 0.00827 * len(rows))
    assert_within_error(np.stack([found[name] for name in QUANTILES]), rows, error)
    for _ in range(3):
        random.shuffle(parts)
        again = merged_stats(parts)["x"]
        assert {name: value.tobytes() for name, value in again.items()} == {n: v.tobytes() for n, v in found.items()}


@settings(deadline=None)
@given(st.lists(st.integers(1, POINTS), min_size=1, max_size=6), st.sampled_from(KINDS), st.integers(0, 99))
def test_short_episodes_are_exact(sizes: list[int], kind: str, seed: int) -> None:
    arrays = [draw(kind, size, seed + i) for i, size in enumerate(sizes)]
    found = union_quantiles([array_summary(a)[1] for a in arrays], LEVELS)
    truth = np.quantile(np.concatenate(arrays).astype(np.float64), LEVELS, axis=0)
    np.testing.assert_allclose(found, truth, rtol=1e-15, atol=0)


@pytest.mark.parametrize("kind", ["constant", "bool", "few integers"])
def test_few_distinct_values_are_exact_at_any_length(kind: str) -> None:
    arrays = [draw(kind, size, size) for size in (5000, 130, 1)]
    found = union_quantiles([array_summary(a)[1] for a in arrays], LEVELS)
    np.testing.assert_array_equal(found, np.quantile(np.concatenate(arrays).astype(np.float64), LEVELS, axis=0))


@pytest.mark.parametrize("distinct", [POINTS - 1, POINTS])
def test_as_many_distinct_values_as_points_are_exact(distinct: int) -> None:
    values = np.append(np.arange(distinct), np.zeros(5 * distinct))[:, None]
    found = array_summary(values)[1].quantiles(LEVELS)
    np.testing.assert_array_equal(found, np.quantile(values, LEVELS, axis=0))


@pytest.mark.parametrize(("rows", "error"), [(120, 0), (121, 1), (300, 1), (301, 2), (1000, 5), (100_000, 533)])
def test_stated_rank_error(rows: int, error: int) -> None:
    assert rank_error(rows) == error
    assert rank_error(rows) / rows <= 1 / 121
    sketch = FeatureSketch.of(np.arange(rows)[None])
    assert sketch.values.shape[1] == min(rows, POINTS)
    assert [float(v[0]) for v in sketch.extremes] == [0, rows - 1]
    assert sketch.count == rows
    assert_within_error(sketch.quantiles(LEVELS), np.arange(rows)[:, None], error)


@pytest.mark.parametrize("rows", [121, 150, 200, 450, 600, 1_000, 1_001, 5_000])
def test_no_side_is_favoured(rows: int) -> None:
    """Of an even group one of the two middle values stands for it; always the upper one would lift every quantile."""
    sketch = FeatureSketch.of(np.arange(rows)[None])
    mean = float((sketch.values * sketch.weights).sum()) / rows
    assert abs(mean - (rows - 1) / 2) < 0.05


def test_tails_are_finer_than_the_middle() -> None:
    """Where the episodes resemble one another, the outer quantiles are ten times more exact than the bound."""
    values = np.random.default_rng(0).normal(size=(10_000, 1))
    _, sketch = array_summary(values)
    ordered = np.sort(values[:, 0])
    for level, share in ((0.01, 0.001), (0.99, 0.001), (0.5, 0.006)):
        rank = np.searchsorted(ordered, sketch.quantiles([level])[0, 0]) / len(values)
        assert abs(rank - level) < share


def test_zeros_and_a_ramp() -> None:
    """900 zeros and a hundred values up to 1: the 99 % quantile is 0.9, where the mean of the quantiles says 0.099."""
    parts = [episode_summary({"x": values}) for values in (np.zeros(900), np.linspace(0, 1, 100))]
    found = merged_stats(parts)["x"]
    truth = np.quantile(np.concatenate([np.zeros(900), np.linspace(0, 1, 100)]), LEVELS)
    np.testing.assert_allclose(np.stack([found[name] for name in QUANTILES]).ravel(), truth, rtol=1e-12)
    assert found["q99"][0] == pytest.approx(0.9, abs=0.01)


def test_every_permutation_and_deletion_gives_the_same_bytes() -> None:
    parts = [episode_summary({"x": draw(kind, 200 + 50 * i, i)}) for i, kind in enumerate(KINDS[:5])]
    for chosen in (range(5), (0, 2, 4), (1, 3)):
        answers = {
            json.dumps({k: v.tolist() for k, v in merged_stats(parts[i] for i in order)["x"].items()})
            for order in itertools.permutations(chosen)
        }
        assert len(answers) == 1


@pytest.mark.parametrize("rows", [1, 500])
def test_negative_zero_does_not_depend_on_the_order(rows: int) -> None:
    parts = [episode_summary({"x": np.full(rows, sign * 0.0)}) for sign in (1, -1)]
    assert np.signbit(merged_stats(parts)["x"]["q50"]) == np.signbit(merged_stats(parts[::-1])["x"]["q50"])


def test_a_single_part_keeps_its_statistics() -> None:
    values = draw("normal", 5000, 0)
    assert merged_stats([episode_summary({"x": values})])["x"]["q50"].tobytes() == array_stats(values)["q50"].tobytes()


def test_quantiles_are_left_out_rather_than_made_up(caplog: pytest.LogCaptureFixture) -> None:
    stats, sketches = episode_summary({"x": np.arange(5.0), "y": np.arange(5.0)})
    with caplog.at_level(logging.WARNING):
        found = merged_stats([(stats, sketches), (stats, {"y": sketches["y"]})])
    assert set(found["x"]) == {"min", "max", "mean", "std", "count"}
    assert found["y"]["q50"][0] == 2.0
    (message,) = caplog.messages
    assert message.startswith("x: 1 of 2 parts have no sketch")


def test_columns_without_numbers_are_passed_over() -> None:
    """Language rows, texts and encoded pictures have no statistics and are no error."""
    columns = {"state": np.zeros((3, 2)), "task": ["a"] * 3, "language": [{"role": "user"}] * 3, "png": pa.array([b""])}
    assert set(episode_summary(columns)[0]) == set(episode_sketches(columns)) == {"state"}


def test_stale_sketches_are_noticed() -> None:
    stats, sketches = episode_summary({"x": np.arange(500.0), "index": np.arange(500) + 7})
    assert set(fitting_sketches(stats, sketches)) == {"x", "index"}
    for other in (np.arange(500.0) + 1, np.arange(501.0), np.zeros((500, 2))):
        assert set(fitting_sketches(episode_summary({"x": other})[0], sketches)) == set()
    assert fitting_sketches(stats, None)["index"].count == 500


def test_values_changed_between_the_extremes_are_noticed() -> None:
    """Count, minimum and maximum stay: the mean or the deviation tells. Earlier sketches did not say them."""
    rows = np.linspace(-1, 1, 500)
    sketches = episode_sketches({"x": rows})
    moved, squeezed, single = rows.copy(), rows.copy(), rows.copy()
    moved[1:-1] = 0.9 * rows[1:-1] + 0.05
    squeezed[1:-1] *= 0.99  # the mean stays, too
    single[250] += 0.05
    of_before = {"x": FeatureSketch(sketches["x"].values, sketches["x"].weights)}
    for other in (moved, squeezed, single):
        stats = episode_summary({"x": other})[0]
        assert [stats["x"][key][0] for key in ("count", "min", "max")] == [500, -1, 1]
        assert fitting_sketches(stats, of_before)
        assert not fitting_sketches(stats, sketches)


def test_side_file_keeps_sketches_exactly(tmp_path: Path) -> None:
    rows = {}
    for episode in range(3):
        pictures = PictureStats(4, 5, 3)
        pictures.add(np.random.default_rng(episode).integers(0, 256, (4, 5, 3), dtype=np.uint8))
        columns = {kind: draw(kind, 200, episode) for kind in KINDS}
        rows[episode] = {**episode_sketches({**columns, "index": np.arange(200)}), CAMERA: pictures.sketch()}
    write_sketches(tmp_path, FileId(1, 2), rows)
    assert (tmp_path / "meta/sketches/chunk-001/file-002.parquet").exists()
    again = read_sketch_file(tmp_path, FileId(1, 2))
    for episode, sketches in rows.items():
        assert set(again[episode]) == {*KINDS, CAMERA}
        for name, sketch in again[episode].items():
            np.testing.assert_array_equal(sketch.values, sketches[name].values)
            np.testing.assert_array_equal(sketch.weights, sketches[name].weights)
            np.testing.assert_array_equal(sketch.moments, sketches[name].moments.astype(np.float32))
    assert set(read_sketch_file(tmp_path, FileId(1, 2), "bool")[2]) == {"bool"}
    assert read_sketches(tmp_path, FileId(1, 2), 3) is None
    assert read_sketches(tmp_path, FileId(0, 0), 0) is None


def test_damaged_side_file_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = FileId(0, 0).path(tmp_path, SKETCHES_TEMPLATE)
    write_sketches(tmp_path, FileId(0, 0), {0: episode_sketches({"x": np.arange(9.0)})})
    path.write_bytes(path.read_bytes()[:-20])
    with caplog.at_level(logging.WARNING):
        assert read_sketch_file(tmp_path, FileId(0, 0)) == {}
    assert str(path) in caplog.text


def test_an_episode_takes_eleven_kilobytes(tmp_path: Path) -> None:
    """State and action of 14 joints each, 300 frames, noise in every bit that a float32 has."""
    rng = np.random.default_rng(0)
    rows = {
        e: episode_sketches({key: rng.normal(size=(300, 14)).astype(np.float32) for key in ("state", "action")})
        for e in range(50)
    }
    write_sketches(tmp_path, FileId(0, 0), rows)
    assert FileId(0, 0).path(tmp_path, SKETCHES_TEMPLATE).stat().st_size / 50 < 11_200


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.sampled_from(KINDS))
def test_running_statistics_of_batches(sizes: list[int], kind: str) -> None:
    running, arrays = RunningStats(), [draw(kind, size, i) for i, size in enumerate(sizes)]
    for batch in arrays:
        running.update(batch)
    found, rows = running.result(), np.concatenate(arrays).astype(np.float64)
    if not len(rows):
        assert found == {}
        return
    assert found["count"].tolist() == [len(rows)]
    np.testing.assert_array_equal(found["min"], rows.min(axis=0))
    np.testing.assert_array_equal(found["max"], rows.max(axis=0))
    np.testing.assert_allclose(found["mean"], rows.mean(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["std"], rows.std(axis=0), rtol=1e-6, atol=1e-6)
    reductions = sum(size // 17 + 1 for size in (len(sizes), len(sizes) // 2, len(sizes) // 4))
    error = sum(rank_error(size) for size in sizes) + reductions * rank_error(len(rows), 4 * POINTS)
    assert_within_error(np.stack([found[name] for name in QUANTILES]), rows, error)


def test_running_total_stays_small_and_near() -> None:
    running, arrays = RunningStats(), [draw("normal", 300, i) for i in range(300)]
    for values in arrays:
        running.add(*array_summary(values))
    sketches = [*running._parts, *(level for level in running._levels if level is not None)]
    assert sum(s.values.shape[1] for s in sketches) <= 17 * POINTS + 5 * 4 * POINTS
    rows = np.concatenate(arrays)
    assert_within_error(np.stack([running.result()[name] for name in QUANTILES]), rows, len(rows) // 100)


@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_running_total_makes_no_quantiles_up(unknown: int) -> None:
    """Once a part came without a sketch, what the others tell are not the quantiles of all rows."""
    running, arrays = RunningStats(), [draw("normal", 50, i) for i in range(3)]
    for part, values in enumerate(arrays):
        stats, sketch = array_summary(values)
        running.add(stats, None if part == unknown else sketch)
    found = running.result()
    assert found.keys() == {"min", "max", "mean", "std", "count"}
    assert found["count"].tolist() == [150]


def test_picture_histograms_merge_exactly() -> None:
    episodes = [np.random.default_rng(i).integers(0, 40 + 90 * i, (7, 6, 8, 3), dtype=np.uint8) for i in range(3)]
    parts = []
    for pictures in episodes:
        stats = PictureStats(6, 8, 3)
        for picture in pictures:
            stats.add(picture)
        parts.append(({CAMERA: stats.result()}, {CAMERA: stats.sketch()}))
    found = merged_stats(parts)[CAMERA]
    pixels = np.concatenate(episodes).reshape(-1, 3) / 255.0
    for name, level in QUANTILES.items():
        assert found[name].shape == (3, 1, 1)
        np.testing.assert_allclose(found[name].ravel(), np.quantile(pixels, level, axis=0), rtol=1e-12)
    np.testing.assert_allclose(found["std"].ravel(), pixels.std(axis=0), rtol=1e-12)


def test_pixel_counts_of_streamed_recordings_do_not_outweigh_frames() -> None:
    """LeRobot counts pixels where it encoded while recording, else frames; a union must weigh both by frames."""
    ones, zeros = ({"mean": np.full((3, 1, 1), v), "std": np.zeros((3, 1, 1))} for v in (1.0, 0.0))
    parts: Any = []
    for stats, count in ((ones, 4), (zeros, 4 * 48 * 64)):
        limits = {"min": stats["mean"], "max": stats["mean"], "count": np.array([count])}
        parts.append(({"index": array_stats(np.arange(4)), CAMERA: {**stats, **limits}}, None))
    found = merged_stats(parts)[CAMERA]
    assert found["count"].tolist() == [8]
    np.testing.assert_allclose(found["mean"], 0.5)


def test_sampling_with_a_seed_repeats() -> None:
    assert sample_indices(500) == sample_indices(500)
    drawn = sample_indices(500, seed=3)
    assert drawn == sample_indices(500, seed=3) != sample_indices(500, seed=4)
    assert len(set(drawn)) == len(sample_indices(500)) == 105
    assert drawn == sorted(drawn)
    assert sample_indices(60, seed=1) == list(range(60))


def assert_equal_stats(found: Any, wanted: Any, **tolerance: float) -> None:
    assert set(found) == set(wanted)
    for feature, values in wanted.items():
        assert set(found[feature]) == set(values), feature
        for stat, value in values.items():
            assert found[feature][stat].shape == value.shape
            if tolerance:
                np.testing.assert_allclose(found[feature][stat], value, err_msg=f"{feature} {stat}", **tolerance)
            else:
                np.testing.assert_array_equal(found[feature][stat], value, err_msg=f"{feature} {stat}")


@pytest.mark.parametrize("camera", [None, "video"])
def test_recording_in_one_go_or_resumed_gives_the_same(scene: Any, tmp_path: Path, camera: str | None) -> None:
    """Finalized statistics are a function of the episodes: same bytes after any interruption or number of sessions."""
    made, sizes = scene(camera), [5, 1, 130, 7]
    made.record(tmp_path / "whole", sizes)
    made.record(tmp_path / "parts", sizes[:1])
    for episode in (1, 2):
        with LeRobotDataset.resume("lab/scene", tmp_path / "parts", rgb_encoder=H264) as more:
            made.add(more, episode, sizes[episode])
    cut = LeRobotDataset.resume("lab/scene", tmp_path / "parts", rgb_encoder=H264)
    made.add(cut, 3, sizes[3])
    cut._recorder.workspace.unlock()  # as a killed process leaves it
    LeRobotDataset.resume("lab/scene", tmp_path / "parts", rgb_encoder=H264).finalize()
    stats = [LeRobotDatasetMetadata("a/b", tmp_path / name).stats for name in ("whole", "parts")]
    assert_equal_stats(stats[1], stats[0])
    truth = np.concatenate([1000 * e + np.arange(n) for e, n in enumerate(sizes)])
    found = np.stack([stats[0]["observation.state"][name] for name in QUANTILES])
    assert_within_error(found, np.repeat(truth[:, None], 6, axis=1), rank_error(130))


def test_statistics_while_recording(scene: Any, tmp_path: Path) -> None:
    """Before finalizing, too, they are those of all episodes, and each episode's sketch lies beside its row."""
    dataset = scene("video").record(tmp_path / "set", [3, 4, 5], finalize=False)
    stats = json.loads((tmp_path / "set/meta/stats.json").read_text())
    values = np.concatenate([1000 * e + np.arange(n) for e, n in enumerate([3, 4, 5])])
    for name, level in QUANTILES.items():
        assert stats["action"][name][0] == pytest.approx(np.quantile(values, level))
    assert [set(read_sketch_file(tmp_path / "set", FileId(0, n))) for n in range(3)] == [{0}, {1}, {2}]
    dataset.finalize()
    assert set(read_sketch_file(tmp_path / "set", FileId(0, 0))) == {0, 1, 2}
    assert len(list((tmp_path / "set/meta/sketches").rglob("*.parquet"))) == 1


def test_sketch_of_an_episode_that_never_counted_is_removed(scene: Any, tmp_path: Path) -> None:
    """A side file is written before the row; a kill between the two leaves one that nobody refers to."""
    scene().record(tmp_path / "set", [3])
    write_sketches(tmp_path / "set", FileId(0, 1), {1: episode_sketches({"action": np.zeros((9, 6))})})
    with LeRobotDataset.resume("lab/scene", tmp_path / "set") as more:
        assert read_sketch_file(tmp_path / "set", FileId(0, 1)) == {}
        scene().add(more, 1, 5)
    assert read_sketch_file(tmp_path / "set", FileId(0, 1))[1]["action"].count == 5


@pytest.mark.parametrize("damage", ["absent", "stale", "cut off"])
def test_sketches_are_computed_from_the_rows_again(scene: Any, tmp_path: Path, damage: str) -> None:
    dataset, root = scene("image").record(tmp_path / "set", [150, 200]), tmp_path / "set"
    wanted, path = dataset.meta.stats, FileId(0, 0).path(root, SKETCHES_TEMPLATE)
    if damage == "absent":
        shutil.rmtree(root / "meta/sketches")
    elif damage == "stale":
        write_sketches(root, FileId(0, 0), {e: episode_sketches({"action": np.zeros((9, 6))}) for e in (0, 1)})
    else:
        path.write_bytes(path.read_bytes()[:50])
    found = whole_stats(LeRobotDatasetMetadata("a/b", root))
    assert set(found.pop(CAMERA)) == {"min", "max", "mean", "std", "count"}
    del wanted[CAMERA]
    assert_equal_stats(found, wanted)


def test_statistics_of_lerobot_stay_until_an_episode_is_added(tmp_path: Path) -> None:
    """Opening, and resuming without recording, change no byte; afterwards quantiles are those of all rows."""
    root = tmp_path / "set"
    shutil.copytree(GOLDEN / "state_only/dataset", root)
    before = (root / "meta/stats.json").read_bytes()
    dataset = LeRobotDataset("a/b", root)
    with LeRobotDataset.resume("a/b", root):
        pass
    assert json.loads((root / "meta/stats.json").read_bytes()) == json.loads(before)
    with LeRobotDataset.resume("a/b", root) as more:
        more.add_frame(dataset[0])
        more.save_episode()
    parts = list(episode_parts(LeRobotDatasetMetadata("a/b", root)))
    stats = LeRobotDatasetMetadata("a/b", root).stats
    assert_equal_stats(stats, merged_stats(parts))
    longer = LeRobotDataset("a/b", root)
    rows = np.stack([longer.numpy_item(i)["action"] for i in range(54)])
    np.testing.assert_allclose(np.stack([stats["action"][n] for n in QUANTILES]), np.quantile(rows, LEVELS, axis=0))
    stored = read_sketch_file(root, FileId(0, 0))
    assert set(stored[0]) >= {"action", "observation.state", "timestamp"}


def test_statistics_computed_afterwards_cover_every_row(tmp_path: Path) -> None:
    """The golden values hold LeRobot's weighted means; moments must agree, but quantiles be those of the rows."""
    from safetensors.numpy import load_file

    tensors = load_file(GOLDEN / "stats/augment/golden.safetensors")
    for case in ("state_only", "v21_images"):
        root = tmp_path / case
        shutil.copytree(GOLDEN / case / "dataset", root)
        dataset = LeRobotDataset("a/b", root, return_uint8=True)
        found = whole_stats(dataset.meta)
        items = [dataset.numpy_item(i) for i in range(len(dataset))]
        for camera in dataset.meta.camera_keys:
            found[camera] = _picture_truth(dataset, items, camera)
        for key, wanted in tensors.items():
            if not key.startswith(f"{case}/"):
                continue
            feature, _, stat = key.removeprefix(f"{case}/").split("/")
            value = found[feature][stat]
            assert value.shape == wanted.shape, key
            if stat in QUANTILES:
                rows = np.stack([np.atleast_1d(item[feature]) for item in items])
                if feature in dataset.meta.camera_keys:
                    rows = rows.transpose(0, 2, 3, 1).reshape(-1, 3) / 255.0
                truth = np.quantile(rows.astype(np.float64), QUANTILES[stat], axis=0)
                np.testing.assert_allclose(value.ravel(), truth, rtol=1e-6, atol=1e-9, err_msg=key)
            elif stat in {"min", "max", "count"}:
                np.testing.assert_allclose(value, wanted, rtol=1e-7, err_msg=key)
            else:
                np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=2e-4 if "images" in feature else 1e-6)


def _picture_truth(dataset: Any, items: list[Any], camera: str) -> Any:
    parts = []
    for episode in range(dataset.num_episodes):
        chosen = [item[camera] for item in items if item["episode_index"] == episode]
        stats = PictureStats(*dataset.meta.parsed_features[camera].hwc)
        for picture in chosen:
            stats.add(picture.transpose(1, 2, 0))
        parts.append(({camera: stats.result()}, {camera: stats.sketch()}))
    return merged_stats(parts)[camera]


@pytest.mark.parametrize(
    "case",
    ["language", "extra_features", "multi_file", "edit_merge_multi_file", "edit_remove_feature", "videos_streaming"],
)
def test_whole_statistics_of_recorded_datasets(case: str) -> None:
    """Language columns, features with several axes, pointers to no file, stale columns, counts of pixels."""
    meta = LeRobotDatasetMetadata("a/b", GOLDEN / case / "dataset")
    found = whole_stats(meta)
    numbers = [name for name, feature in meta.parsed_features.items() if feature.is_numeric]
    paths = dict.fromkeys(meta.get_data_file_path(e) for e in range(meta.total_episodes))
    for name in numbers:
        rows = np.array([value for path in paths for value in pq.read_table(path)[name].to_pylist()], np.float64)
        rows = rows.reshape(-1, rows.shape[-1] if rows.ndim > 1 else 1)
        np.testing.assert_array_equal(found[name]["min"], rows.min(axis=0))
        np.testing.assert_allclose(found[name]["mean"], rows.mean(axis=0), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found[name]["std"], rows.std(axis=0), rtol=1e-5, atol=1e-9)
        assert found[name]["count"].tolist() == [meta.total_frames]
        for stat, level in QUANTILES.items():
            np.testing.assert_allclose(found[name][stat], np.quantile(rows, level, axis=0), rtol=1e-9, atol=1e-12)
    assert set(found) == {*numbers, *(key for key in meta.camera_keys if key in found)}
    assert all(found[key]["count"][0] <= meta.total_frames for key in meta.camera_keys if key in found)


def test_exact_order_statistics_equal_numpy() -> None:
    values = np.sort(np.random.default_rng(0).normal(size=(3, 17)).astype(np.float32), axis=1)
    wanted = np.quantile(values.astype(np.float64), LEVELS, axis=1)
    np.testing.assert_array_equal(order_quantiles(values, LEVELS), wanted)


def test_one_row_of_weights_stands_for_all_channels() -> None:
    """Two episodes of equal values, one summarised alone and one among others, are laid together all the same."""
    values = np.sort(np.random.default_rng(0).normal(size=(3, 40)), axis=1)
    alone = FeatureSketch.of(values)
    among = FeatureSketch(alone.values, np.repeat(alone.weights, 3, axis=0))
    assert alone.weights.shape != among.weights.shape
    for parts in ([alone, among], [among, alone], [alone, among, alone]):
        merged = FeatureSketch.merged(parts)
        assert merged.count == 40 * len(parts)
        wanted = np.quantile(np.concatenate([values] * len(parts), axis=1), [0.1, 0.5], axis=1)
        np.testing.assert_allclose(union_quantiles(parts, [0.1, 0.5]), wanted)
        np.testing.assert_allclose(merged.quantiles([0.1, 0.5]), wanted)
