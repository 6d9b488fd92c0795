# SPDX-License-Identifier: Apache-2.0
"""Statistics against LeRobot's golden values where those are right, and against numpy where they are not."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from ulna.data import aggregate_stats
from ulna.data.editing.relative import RelativeActions
from ulna.data.features import parse_features
from ulna.data.running_stats import RunningStats
from ulna.data.stats import QUANTILES, DepthStats, PictureStats, array_stats, picture_step, sample_indices

GOLDEN = Path(__file__).parent / "golden/stats"
ARRAYS = load_file(GOLDEN / "arrays/golden.safetensors")
NAMES = sorted({key.rsplit("/in", 1)[0] for key in ARRAYS if key.endswith("/in")})


@pytest.mark.parametrize("name", NAMES)
def test_arrays_equal_the_golden_values(name: str) -> None:
    values = ARRAYS[f"{name}/in"]
    stats = array_stats(values)
    wanted = {key.rsplit("/", 1)[1]: v for key, v in ARRAYS.items() if key.startswith(f"{name}/out/")}
    assert set(stats) == set(wanted)
    width = float(np.max(wanted["max"] - wanted["min"]))
    exact = (
        values.reshape(len(values), -1).astype(np.float64)
        if values.ndim < 2
        else values.reshape(-1, values.shape[-1]).astype(np.float64)
    )
    for key, value in wanted.items():
        assert stats[key].shape == value.shape
        if key in {"min", "max", "count"}:
            np.testing.assert_array_equal(stats[key], value)
        elif key in QUANTILES:
            # Theirs comes from a histogram, ours is exact: they may differ by the gap between two neighbouring values.
            gap = float(np.max(np.diff(np.sort(exact, axis=0), axis=0), initial=0.0))
            np.testing.assert_allclose(stats[key], value, atol=width / 5000 + gap + 1e-9)
        else:
            truth = exact.mean(axis=0) if key == "mean" else exact.std(axis=0)
            np.testing.assert_allclose(stats[key], truth, rtol=1e-12, atol=1e-12)
            if "large" not in name:
                np.testing.assert_allclose(stats[key], value, rtol=1e-5, atol=1e-6)


def test_variance_around_a_large_mean_is_kept() -> None:
    stats = array_stats(np.array([10000, 10001, 10002], np.float32))
    np.testing.assert_allclose(stats["std"], [np.sqrt(2 / 3)], rtol=1e-12)
    parts = [{"x": array_stats(np.array(part, np.float64))} for part in ([1e9 - 1], [1e9, 1e9 + 1])]
    np.testing.assert_allclose(aggregate_stats(parts)["x"]["std"], [np.sqrt(2 / 3)], rtol=1e-6)


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), min_size=1, max_size=6), st.randoms())
def test_moments_combine_in_any_order(parts: list[list[float]], random: Any) -> None:
    """Every row counts once, whatever the grouping."""
    arrays = [np.array(part) for part in parts]
    everything = np.concatenate(arrays)
    stats = [{"x": array_stats(a)} for a in arrays]
    random.shuffle(stats)
    at_once = aggregate_stats(stats)["x"]
    running = stats[0]
    for part in stats[1:]:
        running = aggregate_stats([running, part])
    for found in (at_once, running["x"]):
        assert found["count"].tolist() == [len(everything)]
        assert found["min"] == everything.min()
        assert found["max"] == everything.max()
        np.testing.assert_allclose(found["mean"], [everything.mean()], rtol=1e-9, atol=1e-6)
        np.testing.assert_allclose(found["std"], [everything.std()], rtol=1e-7, atol=1e-5)


def test_aggregation_equals_the_golden_values() -> None:
    facts = json.loads((GOLDEN / "aggregate/golden.json").read_text())
    tensors = load_file(GOLDEN / "aggregate/golden.safetensors")
    for name, case in facts["cases"].items():
        parts: list[dict[str, dict[str, np.ndarray]]] = [{} for _ in range(case["episodes"])]
        wanted: dict[str, dict[str, np.ndarray]] = {}
        for key, value in tensors.items():
            if key.startswith(f"{name}/in/"):
                episode, feature, stat = key.removeprefix(f"{name}/in/").split("/")
                parts[int(episode)].setdefault(feature, {})[stat] = value
            elif key.startswith(f"{name}/out/"):
                feature, stat = key.removeprefix(f"{name}/out/").split("/")
                wanted.setdefault(feature, {})[stat] = value
        found = aggregate_stats(parts)
        assert set(found) == set(wanted), name
        for feature, values in wanted.items():
            assert set(found[feature]) == set(values), (name, feature)
            for stat, value in values.items():
                np.testing.assert_allclose(found[feature][stat], value, rtol=1e-6, atol=1e-7, err_msg=f"{name} {stat}")


def assert_golden(found: Any, wanted: Any, rows: np.ndarray, ranks: int = 0) -> None:
    """Compare with LeRobot's values as interop/README allows, and quantiles with numpy's of the same rows."""
    assert set(found) == set(wanted)
    for stat, value in wanted.items():
        assert found[stat].shape == value.shape
        if stat in QUANTILES:
            ordered, position = np.sort(rows, axis=0), QUANTILES[stat] * (len(rows) - 1)
            low, high = max(int(np.floor(position)) - ranks, 0), min(int(np.ceil(position)) + ranks, len(rows) - 1)
            between = np.clip(found[stat].ravel(), ordered[low], ordered[high])
            np.testing.assert_allclose(found[stat].ravel(), between, rtol=1e-12, err_msg=stat)
            gap = float(np.max(np.diff(ordered, axis=0)))
            np.testing.assert_allclose(found[stat], value, atol=float(np.ptp(rows)) / 5000 + gap)
        elif stat in {"min", "max", "count"}:
            np.testing.assert_array_equal(found[stat], value, err_msg=stat)
        else:
            np.testing.assert_allclose(found[stat], value, rtol=1e-5, atol=1e-7, err_msg=stat)


def tensors_of(case: str, name: str) -> dict[str, np.ndarray]:
    tensors = load_file(GOLDEN / case / "golden.safetensors")
    return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}


@pytest.mark.parametrize("name", ["same_range", "growing_range", "drifting", "uneven"])
def test_running_statistics_equal_the_golden_values(name: str) -> None:
    tensors = tensors_of("running", name)
    batches = [tensors[f"in/{i}"] for i in range(sum(key.startswith("in/") for key in tensors))]
    running = RunningStats()
    for batch in batches:
        running.update(batch)
    wanted = {key.removeprefix("out/"): value for key, value in tensors.items() if key.startswith("out/")}
    assert_golden(running.result(), wanted, np.concatenate(batches).astype(np.float64))


@pytest.mark.parametrize("name", ["all_joints", "keep_gripper", "keep_wrist_and_elbow", "one_step"])
def test_relative_actions_equal_the_golden_values(name: str) -> None:
    facts = json.loads((GOLDEN / "relative/golden.json").read_text())
    inputs = load_file(GOLDEN / "relative/golden.safetensors")
    case, shape = facts["cases"][name], {"dtype": "float32", "shape": (4,), "names": facts["action_names"]}
    features = parse_features({"observation.state": shape, "action": shape})
    rule = RelativeActions(features, case["chunk_size"], case.get("exclude_joints", ()))
    running, rows = RunningStats(), []
    for episode in np.unique(inputs["episode_index"]):
        chosen = inputs["episode_index"] == episode
        for block in rule.blocks(inputs["action"][chosen], inputs["state"][chosen]):
            running.update(block)
            rows.append(block)
    wanted = tensors_of("relative", name)
    assert_golden(
        running.result(),
        {k.removeprefix("out/"): v for k, v in wanted.items()},
        np.concatenate(rows).astype(np.float64),
    )


@pytest.mark.parametrize(("name", "dtype"), [("depth_mm", np.uint16), ("depth_m", np.float32)])
def test_depth_equals_the_golden_values(name: str, dtype: Any) -> None:
    """Depth keeps the unit in which it was recorded."""
    tensors = tensors_of("images", name)
    maps = tensors["in"].astype(dtype)
    stats = DepthStats(*maps.shape[1:])
    for depth in maps:
        stats.add(depth[..., None])
    wanted = {key.removeprefix("out/"): value for key, value in tensors.items() if key.startswith("out/")}
    rows = maps.reshape(-1, 1).astype(np.float64)
    found = stats.result()
    assert found["mean"].shape == (1, 1, 1)
    assert_golden(found, wanted, rows)
    assert stats.sketch().count == len(rows)
    np.testing.assert_allclose(stats.sketch().quantiles([0.5])[0], np.median(rows), rtol=0.01)


def test_long_depth_episode_is_sampled_and_its_moments_are_exact() -> None:
    maps = np.random.default_rng(0).integers(300, 5000, (150, 12, 16), dtype=np.uint16)
    stats = DepthStats(12, 16)
    for depth in maps:
        stats.add(depth)
    rows = maps[sample_indices(150)].reshape(-1).astype(np.float64)
    found = stats.result()
    assert found["count"].tolist() == [100]
    np.testing.assert_allclose(found["mean"].ravel(), rows.mean(), rtol=1e-12)
    np.testing.assert_allclose(found["std"].ravel(), rows.std(), rtol=1e-12)
    assert (found["min"].item(), found["max"].item()) == (rows.min(), rows.max())
    for stat, level in QUANTILES.items():
        low, high = np.quantile(rows, [max(level - 0.002, 0), min(level + 0.002, 1)])
        assert low <= found[stat].item() <= high


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_std_of_uniform_noise(dtype: Any) -> None:
    """Ten noise pictures have a std of about 0.29, whatever their type; every pixel counts once."""
    from ulna.data.frames import FrameChecker

    levels = np.random.default_rng(0).integers(0, 256, (10, 24, 32, 3))
    pictures = levels.astype(np.uint8) if dtype is np.uint8 else (levels / 255).astype(np.float32)
    checker = FrameChecker(parse_features({"cam": {"dtype": "image", "shape": (24, 32, 3)}}, add_defaults=True))
    stats = PictureStats(24, 32, 3)
    for picture in pictures:
        stats.add(checker.check({"cam": picture, "task": "t"}).pictures["cam"])
    truth = (levels / 255).std(axis=(0, 1, 2))
    np.testing.assert_allclose(stats.result()["std"].ravel(), truth, rtol=1e-9)
    assert 0.28 < truth.min() < 0.3


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(1, 5), st.floats(1e3, 1e9))
def test_variance_around_large_means_in_uneven_batches(seed: int, batches: int, mean: float) -> None:
    rng = np.random.default_rng(seed)
    parts = [mean + rng.normal(size=rng.integers(1, 50)) for _ in range(batches)]
    running = RunningStats()
    for part in parts:
        running.update(part)
    rows = np.concatenate(parts)
    combined = aggregate_stats([{"x": array_stats(part)} for part in parts])["x"]
    for found in (running.result(), combined):
        np.testing.assert_allclose(found["std"], [rows.std()], rtol=1e-5, atol=1e-9 * mean**0.5)
        assert found["count"].tolist() == [len(rows)]


def test_combining_does_not_depend_on_the_order() -> None:
    rng = np.random.default_rng(0)
    parts = [{"x": array_stats(1e6 * rng.normal() + rng.normal(size=(n, 3)))} for n in (1, 7, 30, 2, 90)]
    moments = ("min", "max", "mean", "std", "count")
    answers = {
        tuple(aggregate_stats([parts[i] for i in order])["x"][key].tobytes() for key in moments)
        for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3])
    }
    assert len(answers) == 1


def picture_rule(name: str, n: int, h: int, w: int) -> np.ndarray:
    count = n * h * w * 3
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(zlib.crc32(name.encode()))
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
        x ^= x >> np.uint32(16)
    noise = (x >> np.uint32(24)).astype(np.int64).reshape(n, h, w, 3)
    return (noise * (1 + np.arange(w))[None, None, :, None] // w // (1 + np.arange(3))).astype(np.uint8)


def test_pictures_equal_the_golden_values() -> None:
    facts = json.loads((GOLDEN / "images/golden.json").read_text())
    tensors = load_file(GOLDEN / "images/golden.safetensors")
    for name, case in facts["cases"].items():
        if "picture_rule" not in case:
            continue
        pictures = picture_rule(*case["picture_rule"])
        stats = PictureStats(*pictures.shape[1:])
        for picture in pictures:
            stats.add(picture)
        found = stats.result()
        step = picture_step(*pictures.shape[1:3])
        assert pictures[0, ::step, ::step].transpose(2, 0, 1).shape == tuple(case["shape_used"])
        assert sample_indices(len(pictures)) == case["sampled_frames"]
        sampled = pictures[case["sampled_frames"]][:, ::step, ::step].reshape(-1, 3) / 255.0
        for stat, value in found.items():
            wanted = tensors[f"{name}/out/{stat}"]
            assert value.shape == wanted.shape
            if stat in {"min", "max", "count"}:
                np.testing.assert_allclose(value, wanted, rtol=1e-7)
            elif stat in QUANTILES:
                exact = np.quantile(sampled, QUANTILES[stat], axis=0)
                np.testing.assert_allclose(value.reshape(-1), exact, atol=1e-12)
                gap = float(np.max(np.diff(np.sort(sampled, axis=0), axis=0)))
                np.testing.assert_allclose(value, wanted, atol=gap + 1 / 5000)
            else:
                exact = sampled.mean(axis=0) if stat == "mean" else sampled.std(axis=0)
                np.testing.assert_allclose(value.reshape(-1), exact, atol=1e-12)


def test_number_of_samples_equals_the_golden_values() -> None:
    facts = json.loads((GOLDEN / "images/golden.json").read_text())
    for length, count in facts["number_of_samples"].items():
        assert len(sample_indices(int(length))) == count
    for length, indices in facts["sample_indices"].items():
        assert sample_indices(int(length)) == indices


def test_std_of_noise_is_right() -> None:
    noise = np.random.default_rng(0).integers(100, 156, (100, 100, 160, 3), dtype=np.uint8)
    stats = PictureStats(100, 160, 3)
    for picture in noise:
        stats.add(picture)
    np.testing.assert_allclose(stats.result()["std"].reshape(-1), (noise / 255.0).std(axis=(0, 1, 2)), rtol=1e-9)


@pytest.mark.parametrize(("kind", "channels"), [(PictureStats, 3), (DepthStats, 1)])
def test_pictures_behind_the_last_whole_frame_do_not_count(kind: Any, channels: int) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (5, 6, 8, channels), dtype=np.uint8)
    found, wanted = (kind(6, 8, *([channels] if kind is PictureStats else [])) for _ in range(2))
    for number, picture in enumerate(pictures):
        found.add(picture)
        if number < 3:
            wanted.add(picture)
    found.keep(3)
    for name, values in wanted.result().items():
        np.testing.assert_array_equal(found.result()[name], values)
    np.testing.assert_array_equal(found.sketch().weights, wanted.sketch().weights)


@pytest.mark.parametrize("size", [(255, 257), (256, 256), (299, 299)])
def test_pictures_of_one_colour_are_counted_whole(size: tuple[int, int]) -> None:
    """All pixels are of one level, which is more than 16 bits count for the largest pictures that are not thinned."""
    stats = PictureStats(*size, 3)
    for level in (10, 250):
        stats.add(np.full((*size, 3), level, np.uint8))
    found = {name: values.reshape(-1) for name, values in stats.result().items()}
    np.testing.assert_allclose(found["mean"], np.full(3, 130 / 255), rtol=1e-12)
    np.testing.assert_allclose(found["std"], np.full(3, 120 / 255), rtol=1e-12)
    np.testing.assert_allclose((found["min"], found["max"]), ([10 / 255] * 3, [250 / 255] * 3))


def test_recorded_statistics_cover_every_row(scene: Any, tmp_path: Path) -> None:
    dataset = scene("video").record(tmp_path / "set", [4, 9])
    stats = dataset.meta.stats
    assert stats is not None
    values = np.array([1000 * e + f for e, n in enumerate([4, 9]) for f in range(n)], np.float64)
    np.testing.assert_allclose(stats["observation.state"]["mean"], np.full(6, values.mean()))
    np.testing.assert_allclose(stats["observation.state"]["std"], np.full(6, values.std()))
    assert stats["observation.state"]["count"].tolist() == [13]
    assert stats["observation.images.cam"]["mean"].shape == (3, 1, 1)
    assert stats["observation.images.cam"]["count"].tolist() == [13]
