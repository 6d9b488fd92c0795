# SPDX-License-Identifier: Apache-2.0
"""LeRobot itself opens what we converted, encoded again, cropped or measured, and reads what we read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ulna.data import LeRobotDataset, RGBEncoderConfig
from ulna.data.editing.convert_images import convert_image_to_video_dataset
from ulna.data.editing.convert_v21 import convert_v21_dataset
from ulna.data.editing.crop import crop_dataset_roi
from ulna.data.editing.recompute import augment_dataset_with_quantiles, recompute_stats
from ulna.data.editing.reencode import reencode_dataset
from ulna.testing.peer import Peer, assert_items_equal, needs_peer

GOLDEN = Path(__file__).parent / "golden"
READ = Path(__file__).parent / "peer_read.py"
FRONT = "observation.images.front"
H264 = RGBEncoderConfig(vcodec="h264", g=4)
TINY = {"data_files_size_in_mb": 0.007, "video_files_size_in_mb": 0.012}

pytestmark = needs_peer

CHANGES: dict[str, Callable[[Path], Any]] = {
    "v2.1 with videos": lambda new: convert_v21_dataset(GOLDEN / "v21_videos/v21", new),
    "v2.1 with pictures": lambda new: convert_v21_dataset(GOLDEN / "v21_images/v21", new),
    "v2.1 in many files": lambda new: convert_v21_dataset(GOLDEN / "v21_many_files/v21", new, **TINY),
    "new videos": lambda new: convert_image_to_video_dataset(GOLDEN / "images/dataset", new, rgb_encoder=H264),
    "some new videos": lambda new: convert_image_to_video_dataset(
        GOLDEN / "images/dataset", new, rgb_encoder=H264, episode_indices=[1, 2]
    ),
    "videos encoded again": lambda new: reencode_dataset(GOLDEN / "multi_file/dataset", H264, output_dir=new),
    "a region of videos": lambda new: crop_dataset_roi(
        GOLDEN / "videos_h264/dataset", {FRONT: (10, 20, 32, 36)}, output_dir=new
    ),
    "a region of pictures": lambda new: crop_dataset_roi(
        GOLDEN / "images/dataset", {FRONT: (10, 20, 32, 36)}, (16, 16), output_dir=new
    ),
    "other statistics": lambda new: recompute_stats(GOLDEN / "videos_h264/dataset", False, output_dir=new),
    "relative actions": lambda new: recompute_stats(
        GOLDEN / "state_only/dataset", relative_action=True, chunk_size=8, output_dir=new
    ),
    "more statistics": lambda new: augment_dataset_with_quantiles(GOLDEN / "images/dataset", True, output_dir=new),
}


@pytest.mark.parametrize("change", CHANGES)
def test_lerobot_reads_every_item_of_the_result(lerobot_peer: Peer, tmp_path: Path, change: str) -> None:
    CHANGES[change](tmp_path / "new")
    ours = LeRobotDataset("a/b", tmp_path / "new")
    theirs = lerobot_peer.ask(READ, tmp_path / "peer.npz", root=str(tmp_path / "new"))
    facts = theirs["facts"]
    assert facts["episodes"] == ours.num_episodes
    assert facts["tasks"] == list(ours.meta.tasks)
    assert_items_equal(ours, theirs)
    assert ours.meta.stats is not None
    assert set(facts["stats"]) == set(ours.meta.stats)
    for feature, values in ours.meta.stats.items():
        for stat, value in values.items():
            np.testing.assert_array_equal(np.asarray(facts["stats"][feature][stat]), value)


def test_lerobot_deletes_from_what_we_made(lerobot_peer: Peer, tmp_path: Path) -> None:
    """Its own image-to-video result lacks the columns that this needs."""
    convert_image_to_video_dataset(GOLDEN / "images/dataset", tmp_path / "new", rgb_encoder=H264)
    lerobot_peer.run(Path(__file__).parent / "peer_delete.py", tmp_path / "new", tmp_path / "less", "0")
    less = LeRobotDataset("a/b", tmp_path / "less")
    assert less.meta.episodes["length"] == [15, 10]
