# SPDX-License-Identifier: Apache-2.0
"""What must be equal to merge, and what becomes of what may differ: limits, tasks, and settings of encoders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ulna.core.errors import DatasetError
from ulna.core.files import write_json
from ulna.data import LeRobotDataset, merge_datasets

CAMERA = "observation.images.cam"


@pytest.fixture
def pair(scene: Any, tmp_path: Path) -> list[Path]:
    """Two datasets that fit together."""
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        scene("video").record(root, [2])
    return roots


def change(root: Path, described: dict[str, Any] | None = None, **values: Any) -> None:
    info = json.loads((root / "meta/info.json").read_text())
    info["features"][CAMERA]["info"].update(described or {})
    write_json(root / "meta/info.json", {**info, **values})


@pytest.mark.parametrize(
    ("key", "value"), [("video.codec", "hevc"), ("video.pix_fmt", "yuv444p"), ("video.height", 50), ("video.fps", 31)]
)
def test_videos_that_cannot_share_a_camera_are_refused(pair: list[Path], tmp_path: Path, key: str, value: Any) -> None:
    change(pair[1], {key: value})
    with pytest.raises(DatasetError, match=rf"video '{CAMERA}', {key}: .* in .*a, {value!r} in .*b"):
        merge_datasets(pair, "lab/both", tmp_path / "both")
    assert not (tmp_path / "both").exists()


@pytest.mark.parametrize(
    ("key", "value"), [("depth_unit", "mm"), ("video.depth_min", 0.5), ("video.shift", 9.0), ("video.use_log", False)]
)
def test_depth_of_other_steps_is_refused(pair: list[Path], tmp_path: Path, key: str, value: Any) -> None:
    mine = {"is_depth_map": True, "depth_unit": "m", "video.depth_min": 0.1, "video.shift": 3.5, "video.use_log": True}
    change(pair[0], mine)
    change(pair[1], {**mine, key: value})
    with pytest.raises(DatasetError, match=rf"video '{CAMERA}', {key}: "):
        merge_datasets(pair, "lab/both", tmp_path / "both")


@pytest.mark.parametrize("first", [0, 1])
def test_limits_are_the_largest_whatever_the_order(pair: list[Path], tmp_path: Path, first: int) -> None:
    change(pair[0], chunks_size=7, data_files_size_in_mb=5.0, video_files_size_in_mb=80.0)
    change(pair[1], chunks_size=9, data_files_size_in_mb=4.0, video_files_size_in_mb=90.0)
    info = merge_datasets([pair[first], pair[1 - first]], "lab/both", tmp_path / "both").meta.info
    assert (info.chunks_size, info.data_files_size_in_mb, info.video_files_size_in_mb) == (9, 5.0, 90.0)


def test_tasks_are_numbered_in_the_order_of_the_datasets(scene: Any, tmp_path: Path) -> None:
    made = scene()
    made.record(tmp_path / "a", [2, 1])
    with made.create(tmp_path / "b") as other:
        for text in ("task 1", "another"):
            other.add_frame({**made.frame(1, 0), "task": text})
        other.save_episode()
    merged = merge_datasets([tmp_path / "b", tmp_path / "a"], "lab/both", tmp_path / "both")
    assert list(merged.meta.tasks) == ["task 1", "another", "task 0"]
    opened = LeRobotDataset("lab/both", merged.root)
    assert [opened.numpy_item(i)["task"] for i in range(5)] == ["task 1", "another", "task 0", "task 0", "task 1"]
