# SPDX-License-Identifier: Apache-2.0
"""LeRobot itself opens what we wrote, also while a recording is open, and reads what we read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ulna.data import LeRobotDataset, RGBEncoderConfig
from ulna.testing.peer import Peer, assert_items_equal, needs_peer

READ, APPEND = Path(__file__).parent / "peer_read.py", Path(__file__).parent / "peer_append.py"
CAMERA = "observation.images.cam"
LENGTHS = [1, 6, 1, 9]
REQUESTS: list[dict[str, Any]] = [
    {},
    {"delta_timestamps": {"action": [-1 / 30, 0.0, 2 / 30]}},
    {"episodes": [3, 1]},
]

pytestmark = needs_peer


def compare(peer: Peer, root: Path, target: Path, request: dict[str, Any]) -> None:
    theirs = peer.ask(READ, target, root=str(root), **request)
    facts = theirs["facts"]
    ours = LeRobotDataset("a/b", root, request.get("episodes"), delta_timestamps=request.get("delta_timestamps"))
    assert facts["episodes"] == ours.num_episodes
    assert facts["tasks"] == list(ours.meta.tasks)
    assert_items_equal(ours, theirs)
    assert ours.meta.stats is not None
    for feature, values in ours.meta.stats.items():
        for stat, value in values.items():
            np.testing.assert_array_equal(np.asarray(facts["stats"][feature][stat]), value)


@pytest.mark.parametrize(
    ("camera", "codec"), [(None, "h264"), ("image", "h264"), ("video", "h264"), ("video", "libsvtav1")]
)
@pytest.mark.parametrize("finalize", [False, True])
def test_lerobot_reads_what_we_wrote(
    scene: Any, lerobot_peer: Peer, tmp_path: Path, camera: str | None, codec: str, finalize: bool
) -> None:
    dataset = scene(camera, codec).record(tmp_path / "set", LENGTHS, finalize=finalize)
    for request in REQUESTS if finalize else REQUESTS[:1]:
        compare(lerobot_peer, tmp_path / "set", tmp_path / "peer.npz", request)
    dataset.finalize()


@pytest.mark.parametrize("camera", [None, "image", "video"])
def test_both_append_in_turn(scene: Any, lerobot_peer: Peer, tmp_path: Path, camera: str | None) -> None:
    """We record, LeRobot resumes, we resume: every file stays readable for both."""
    made, root = scene(camera), tmp_path / "set"
    made.record(root, [3, 4])
    lerobot_peer.run(APPEND, root, "2", "5")
    opened = LeRobotDataset("a/b", root)
    assert opened.meta.findings == []
    assert opened.meta.episodes["length"] == [3, 4, 5]
    with LeRobotDataset.resume("a/b", root, rgb_encoder=RGBEncoderConfig(vcodec="h264")) as again:
        made.add(again, 3, 6)
    compare(lerobot_peer, root, tmp_path / "peer.npz", {})
    assert LeRobotDataset("a/b", root).meta.episodes["length"] == [3, 4, 5, 6]


@pytest.mark.parametrize(
    "case", ["state_only", "images", "videos_h264", "videos_av1", "multi_file", "extra_features", "resumed"]
)
def test_we_append_to_what_lerobot_wrote(lerobot_peer: Peer, tmp_path: Path, case: str) -> None:
    source, root = Path(__file__).parent / "golden" / case / "dataset", tmp_path / "set"
    shutil.copytree(source, root)
    original = LeRobotDataset("a/b", source)
    with LeRobotDataset.resume(
        "a/b", root, rgb_encoder=RGBEncoderConfig(vcodec="h264" if "h264" in case else "av1")
    ) as more:
        for i in range(4):
            more.add_frame(original[i])
        more.save_episode()
    compare(lerobot_peer, root, tmp_path / "peer.npz", {})
