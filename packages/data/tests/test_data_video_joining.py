# SPDX-License-Identifier: Apache-2.0
"""Videos of encoders that reorder frames, and of recordings that went on with other settings, show the right frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ulna.data import LeRobotDataset, RGBEncoderConfig
from ulna.data.video_concat import video_form

CAMERA = "observation.images.cam"
REORDERED = [
    {"vcodec": "h264", "g": 2, "extra_options": {"bf": 2}},
    {"vcodec": "h264", "g": 12, "extra_options": {"x264-params": "bframes=3:b-adapt=0"}},
    {"vcodec": "hevc", "g": 12, "extra_options": {"bf": 2}},
    {"vcodec": "libsvtav1", "g": 12},
]


@pytest.mark.parametrize("settings", REORDERED, ids=str)
def test_encoders_that_reorder_frames(scene: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Fragments have no edit list, and libx265 invents times for very short videos: each frame is where it belongs."""
    made = scene("video")
    made.record(tmp_path / "set", [7, 1, 2, 9], rgb_encoder=RGBEncoderConfig(**settings))
    assert made.check(tmp_path / "set", [7, 1, 2, 9]).meta.findings == []


def test_going_on_with_other_settings(scene: Any, tmp_path: Path) -> None:
    """Videos that need other decoder settings do not share a file, those that need the same ones do."""
    made, root = scene("video"), tmp_path / "set"
    made.record(root, [3], finalize=False).finalize()
    settings: list[dict[str, Any]] = [
        {"preset": "ultrafast"},
        {"preset": "slow", "g": 12},
        {"extra_options": {"profile": "high444"}, "pix_fmt": "yuv444p"},
        {"crf": 5, "extra_options": {"bf": 3}, "g": 10},
        {"crf": 5, "extra_options": {"bf": 3}, "g": 10, "threads": 2},
    ]
    for number, given in enumerate(settings, 1):
        dataset = LeRobotDataset.resume("lab/scene", root, rgb_encoder=RGBEncoderConfig(vcodec="h264", **given))
        made.add(dataset, 2 * number - 1, 4)
        made.add(dataset, 2 * number, 5)
        dataset.finalize()
    opened = made.check(root, [3, *[4, 5] * len(settings)])
    files = {opened.meta.get_video_file_path(e, CAMERA) for e in range(opened.num_episodes)}
    forms = [video_form(path) for path in sorted(files)]
    assert len(files) <= len(settings) + 1
    assert len(set(forms)) >= 4
