# SPDX-License-Identifier: Apache-2.0
"""Edits give what LeRobot 0.6.1 gives, item by item; where it is wrong (see each test), they are right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ulna.data import (
    LeRobotDataset,
    add_features,
    delete_episodes,
    merge_datasets,
    modify_tasks,
    remove_feature,
    split_dataset,
)
from ulna.data.checks.validation import validate
from ulna.data.stats import QUANTILES

GOLDEN = Path(__file__).parent / "golden"
CASES = [
    "edit_add_features",
    "edit_delete_multi_file",
    "edit_delete_state",
    "edit_delete_videos",
    "edit_merge_keep_files",
    "edit_merge_multi_file",
    "edit_merge_state",
    "edit_merge_videos",
    "edit_modify_tasks",
    "edit_remove_feature",
    "edit_split_fractions",
    "edit_split_train",
    "edit_split_val",
]
RENUMBERED = {"index", "episode_index", "task_index"}

Result = tuple[dict[str, Any], LeRobotDataset]


def source(case: str) -> Path:
    return GOLDEN / case / "dataset"


def facts(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / case / "golden.json").read_text())
    return found


def carried_out(case: str, target: Path) -> LeRobotDataset:
    """Carry out the operation that made a golden dataset, with ours."""
    info = facts(case)
    operation, sources = info["operation"], [source(name) for name in info["sources"]]
    kind = operation["type"]
    if kind == "delete_episodes":
        return delete_episodes(sources[0], operation["episode_indices"], target)
    if kind == "split":
        return split_dataset(sources[0], operation["splits"], target)[operation["part"]]
    if kind == "merge":
        options = {k: operation[k] for k in ("concatenate_videos", "concatenate_data") if k in operation}
        return merge_datasets([source(name) for name in operation["order"]], "a/b", target, **options)
    if kind == "remove_feature":
        return remove_feature(sources[0], operation["feature_names"], target)
    if kind == "modify_tasks":
        episodes = {int(e): text for e, text in operation["episode_tasks"].items()}
        return modify_tasks(sources[0], operation["new_task"], episodes, output_dir=target)
    values = {name: np.array(v, np.float32) for name, v in operation["values"].items()}
    declared = {name: {k: info["features"][name][k] for k in ("dtype", "shape", "names")} for name in values}
    return add_features(sources[0], {name: (values[name], declared[name]) for name in values}, target)


@pytest.fixture(scope="module", params=CASES)
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """One golden case and our result."""
    return facts(request.param), carried_out(request.param, tmp_path_factory.mktemp("edit") / "out")


def expected(info: dict[str, Any], tensors: dict[str, np.ndarray], query: str, index: int) -> dict[str, Any]:
    prefix = f"{query}/{index}/"
    item: dict[str, Any] = {}
    for key, value in tensors.items():
        if key.startswith(prefix):
            name = key.removeprefix(prefix)
            if name.endswith("#u8"):
                name, value = name[:-3], value.astype(np.float32) / np.float32(255)
            item[name] = value
    item.update({k.removeprefix(prefix): v for k, v in info["texts"].items() if k.startswith(prefix)})
    return item


def test_items_equal(request: pytest.FixtureRequest, result: Result) -> None:
    """Values, masks, texts exactly; LeRobot encodes pictures again that we copy, so those nearly."""
    info, edited = result
    case = request.node.callspec.params["result"]
    tensors = load_file(GOLDEN / case / "golden.safetensors")
    for query in info["queries"]:
        ours = LeRobotDataset("a/b", edited.root, query.get("episodes"), delta_timestamps=query.get("delta_timestamps"))
        assert len(ours) == query["length"]
        for index in query["indices"]:
            item, wanted = ours.numpy_item(index), expected(info, tensors, query["name"], index)
            assert set(item) == set(wanted)
            for name, value in wanted.items():
                if name == "task_index":
                    assert list(ours.meta.tasks)[int(item[name])] == info["tasks"][int(value)]
                elif isinstance(value, str):
                    assert item[name] == value
                elif name in ours.meta.camera_keys:
                    assert np.abs(item[name] - value).mean() < 0.04
                else:
                    np.testing.assert_array_equal(item[name].reshape(value.shape), value, err_msg=f"{index}/{name}")


def test_every_frame_is_the_right_one(result: Result) -> None:
    """Also with several video files a camera, and sources that were merged before."""
    info, edited = result
    ours = LeRobotDataset("a/b", edited.root, return_uint8=True)
    for camera, numbers in info.get("frame_numbers", {}).items():
        if camera in ours.meta.camera_keys:
            assert [frame_number(ours.numpy_item(i)[camera]) for i in range(len(ours))] == numbers


def test_metadata_equal(result: Result) -> None:
    """Counters, features and the episode table; every file that the table names exists."""
    info, edited = result
    meta = LeRobotDataset("a/b", edited.root).meta
    assert meta.findings == []
    for key in ("fps", "robot_type", "total_episodes", "total_frames", "total_tasks", "camera_keys"):
        assert getattr(meta, key) == info[key], key
    assert set(meta.tasks) == set(info["tasks"])
    raw = json.loads((edited.root / "meta/info.json").read_text())
    assert raw["splits"] == info["splits"]
    assert set(raw["features"]) == set(info["features"])
    for name, feature in raw["features"].items():
        assert feature == {**info["features"][name], "shape": list(info["features"][name]["shape"])}, name
    for ours, theirs in zip(meta.episodes, info["episodes"], strict=True):
        for key in ("episode_index", "length", "dataset_from_index", "dataset_to_index"):
            assert ours[key] == theirs[key]
        assert set(ours["tasks"]) == set(theirs["tasks"])
        names = {n for n in theirs if n.rpartition("/")[0] != "videos/observation.images.wrist" or n in ours}
        assert set(ours) == names
    report = validate("a/b", edited.root)
    assert report.problems == []


def test_stats_are_those_of_the_rows(result: Result) -> None:
    """Moments equal LeRobot's; columns that are numbered anew have the statistics of their new numbers, which LeRobot
    forgets; quantiles are those of all rows, of which LeRobot takes the mean over episodes; added features have
    statistics."""
    info, edited = result
    ours = LeRobotDataset("a/b", edited.root)
    stats = ours.meta.stats
    assert stats is not None
    assert set(stats) == set(ours.meta.features)
    for name, feature in ours.meta.parsed_features.items():
        theirs = info["stats"].get(name)
        if feature.is_numeric:
            rows = np.stack([np.asarray(ours.get_raw_item(i)[name]) for i in range(len(ours))]).astype(np.float64)
            rows = rows.reshape(len(ours), -1)
            # LeRobot sums up in float32. The statistics of a single episode stay as it left them.
            atol = 1e-12 if name in RENUMBERED else 1e-5 * (1 + float(np.ptp(rows)))
            for stat, value in {
                "min": rows.min(0),
                "max": rows.max(0),
                "mean": rows.mean(0),
                "std": rows.std(0),
            }.items():
                np.testing.assert_allclose(stats[name][stat], value, rtol=1e-9, atol=atol, err_msg=f"{name}/{stat}")
            for stat, q in QUANTILES.items() if ours.num_episodes > 1 or name in RENUMBERED else ():
                np.testing.assert_allclose(stats[name][stat], np.quantile(rows, q, axis=0), rtol=1e-9, atol=atol)
            assert stats[name]["count"] == [len(ours)]
        if theirs is not None and name not in RENUMBERED:
            tolerance = {"atol": 2e-4} if feature.is_camera else {"rtol": 1e-5, "atol": 1e-9}
            for stat in ("min", "max", "mean", "std", "count"):
                np.testing.assert_allclose(
                    stats[name][stat], np.array(theirs[stat]), **tolerance, err_msg=f"{name}/{stat}"
                )


def test_rows_of_the_table_have_their_own_statistics(result: Result) -> None:
    """The statistics of each episode are those of its rows, the columns that were numbered anew included."""
    import pyarrow.parquet as pq

    _, edited = result
    ours = LeRobotDataset("a/b", edited.root)
    table = pq.read_table(next((edited.root / "meta/episodes").rglob("*.parquet")))
    raw = [ours.get_raw_item(i) for i in range(len(ours))]
    for row in table.to_pylist():
        rows = raw[row["dataset_from_index"] : row["dataset_to_index"]]
        for name, feature in ours.meta.parsed_features.items():
            if feature.is_numeric:
                values = np.stack([np.asarray(r[name]) for r in rows]).astype(np.float64)
                stats = {"min": values.min(0), "max": values.max(0), "mean": values.mean(0)}
                atol = 0 if name in RENUMBERED else 1e-5 * (1 + float(np.ptp(values)))
                for stat, value in stats.items():
                    np.testing.assert_allclose(row[f"stats/{name}/{stat}"], np.atleast_1d(value), atol=atol)
    stale = {n.split("/")[1] for n in table.column_names if n.startswith(("stats/", "videos/"))}
    assert stale <= set(ours.meta.features)


def test_pictures_are_copied_not_encoded_again(tmp_path: Path) -> None:
    """A deletion inside a shared video leaves every other frame as it was, bit by bit."""
    before = LeRobotDataset("a/b", source("videos_h264"), [0, 2], return_uint8=True)
    after = delete_episodes(source("videos_h264"), [1], tmp_path / "out")
    edited = LeRobotDataset("a/b", after.root, return_uint8=True)
    for i in range(len(before)):
        for camera in before.meta.camera_keys:
            np.testing.assert_array_equal(before.numpy_item(i)[camera], edited.numpy_item(i)[camera])


@pytest.mark.parametrize(
    ("case", "edit"),
    [
        ("edit_merge_multi_file", lambda root, out: delete_episodes(root, [0], out)),
        ("edit_merge_keep_files", lambda root, out: split_dataset(root, {"a": [3], "b": [0, 13]}, out)["b"]),
        ("edit_remove_feature", lambda root, out: delete_episodes(root, [0], out)),
    ],
)
def test_what_lerobot_cannot_edit_any_more(
    case: str, edit: Callable[[Path, Path], LeRobotDataset], tmp_path: Path
) -> None:
    """Datasets with columns that name files which do not exist, or statistics of a camera that is gone."""
    edited = edit(source(case), tmp_path / "out")
    assert validate("a/b", edited.root).problems == []


def test_only_files_that_changed_are_new(tmp_path: Path) -> None:
    """Video files that are kept whole are not copied but linked."""
    edited = merge_datasets([source("multi_file"), source("multi_file")], "a/b", tmp_path / "out", False, False)
    videos = sorted((source("multi_file") / "videos").rglob("*.mp4"))
    inodes = [path.stat().st_ino for path in sorted((edited.root / "videos").rglob("*.mp4"))]
    assert sorted(inodes) == sorted([path.stat().st_ino for path in videos] * 2)


def frame_number(picture: np.ndarray) -> int:
    _, height, width = picture.shape
    bar, number = width // 10, 0
    for bit in range(10):
        stripe = picture[:, height - height // 3 + 2 : height - 1, bit * bar + 1 : (bit + 1) * bar - 1]
        number = number * 2 + int(stripe.mean() > 127)
    return number
