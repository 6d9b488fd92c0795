# SPDX-License-Identifier: Apache-2.0
"""What LeRobot 0.6.1 read from its own datasets, we read too: every item of every query, exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ulna.data import LeRobotDataset, LeRobotDatasetMetadata

GOLDEN = Path(__file__).parent / "golden"
CASES = [
    "state_only",
    "images",
    "videos_h264",
    "videos_av1",
    "videos_streaming",
    "multi_file",
    "extra_features",
    "resumed",
    "dataset_env",
    "state_only_b",
    "depth",
    "language",
    "v21_images",
    "v21_videos",
    "v21_many_files",
    "edit_add_features",
    "edit_delete_multi_file",
    "edit_delete_state",
    "edit_delete_videos",
    "edit_image_to_video",
    "edit_merge_keep_files",
    "edit_merge_multi_file",
    "edit_merge_state",
    "edit_merge_videos",
    "edit_modify_tasks",
    "edit_recompute_relative",
    "edit_recompute_stats",
    "edit_reencode",
    "edit_remove_feature",
    "edit_split_fractions",
    "edit_split_train",
    "edit_split_val",
]


def load(case: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return json.loads((GOLDEN / case / "golden.json").read_text()), load_file(GOLDEN / case / "golden.safetensors")


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


def assert_stats_equal(stats: Any, wanted: dict[str, Any]) -> None:
    assert {f: {s: v.tolist() for s, v in values.items()} for f, values in stats.items()} == wanted


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_every_item_equals(case: str, library: str) -> None:
    info, tensors = load(case)
    for query in info["queries"]:
        dataset = LeRobotDataset(
            "a/b",
            GOLDEN / case / "dataset",
            query.get("episodes"),
            delta_timestamps=query.get("delta_timestamps"),
            depth_output_unit=query.get("depth_output_unit", "mm"),
        )
        assert len(dataset) == query.get("length", info["total_frames"])
        assert dataset.num_episodes == query.get("num_episodes", info["total_episodes"])
        if "stats" in query:
            assert_stats_equal(dataset.meta.stats, {**info["stats"], **query["stats"]})
        for index in query["indices"]:
            item = dataset[index] if library == "torch" else dataset.numpy_item(index)
            wanted = expected(info, tensors, query["name"], index)
            assert set(item) == set(wanted)
            for name, value in wanted.items():
                got = item[name]
                if isinstance(value, (str, list)):
                    assert got == value
                    continue
                got = got.numpy() if library == "torch" else got
                assert got.dtype == value.dtype, name
                # LeRobot turns depth codes into metres with float32 arithmetic, whose error is below a micrometre.
                metres = name in info["depth_keys"] and query.get("depth_output_unit") == "m"
                np.testing.assert_allclose(
                    got.reshape(value.shape), value, 0, 1e-6 * metres, err_msg=f"{query['name']}/{index}/{name}"
                )


@pytest.mark.parametrize("case", CASES)
def test_metadata_equals(case: str) -> None:
    info, _ = load(case)
    meta = LeRobotDatasetMetadata("a/b", GOLDEN / case / "dataset", depth_output_unit="mm")
    assert meta.findings == []
    for key in (
        "fps",
        "robot_type",
        "total_episodes",
        "total_frames",
        "total_tasks",
        "camera_keys",
        "video_keys",
        "image_keys",
        "depth_keys",
        "tools",
    ):
        assert getattr(meta, key) == info[key], key
    for key in (
        "chunks_size",
        "data_files_size_in_mb",
        "video_files_size_in_mb",
        "data_path",
        "video_path",
        "splits",
    ):
        assert getattr(meta.info, key) == info[key], key
    assert list(meta.tasks) == info["tasks"]
    assert [*meta.episodes] == info["episodes"]
    assert_stats_equal(meta.stats, info["stats"])
    read_back = json.loads((GOLDEN / case / "dataset/meta/info.json").read_text())
    assert meta.info.to_json() == read_back
    assert list(meta.info.to_json()["features"]) == list(read_back["features"])


@pytest.mark.parametrize("case", [case for case in CASES if "frame_numbers" in load(case)[0]])
def test_every_frame_shows_its_number(case: str) -> None:
    """Reading in random order gives each frame once and the right one."""
    info, _ = load(case)
    dataset = LeRobotDataset("a/b", GOLDEN / case / "dataset", return_uint8=True)
    order = np.random.default_rng(0).permutation(len(dataset))
    for camera, numbers in info["frame_numbers"].items():
        assert [frame_number(dataset.numpy_item(int(i))[camera]) for i in order] == [numbers[i] for i in order]


def frame_number(picture: np.ndarray) -> int:
    _, height, width = picture.shape
    bar, number = width // 10, 0
    for bit in range(10):
        stripe = picture[:, height - height // 3 + 2 : height - 1, bit * bar + 1 : (bit + 1) * bar - 1]
        number = number * 2 + int(stripe.mean() > 127)
    return number
