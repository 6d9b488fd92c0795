# SPDX-License-Identifier: Apache-2.0
"""What `ulna record` recorded, LeRobot reads as we do; what LeRobot recorded, we read as it does, and train on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tooling import tree
from tooling.workshop import Workshop
from ulna.data import LeRobotDataset
from ulna.testing.peer import Peer, assert_items_equal, needs_peer

pytestmark = [*needs_peer, pytest.mark.xdist_group("interop")]

READ = tree.ROOT / "packages/data/tests/peer_read.py"
RECORD = Path(__file__).parent / "peer_record.py"
LENGTHS = [7, 4, 12]
"""LeRobot 0.6.1 itself fails to append an h264 episode of one frame; ours are tested with such ones in ulna-data."""
REQUESTS: list[dict[str, Any]] = [
    {},
    {"delta_timestamps": {"action": [-1 / 30, 0.0, 2 / 30]}},
    {"episodes": [1]},
]


def compare(peer: Peer, root: Path, target: Path) -> int:
    """Open a dataset in every way on both sides; returns how many values were equal."""
    compared = 0
    for request in REQUESTS:
        theirs = peer.ask(READ, target, root=str(root), **request)
        ours = LeRobotDataset("a/b", root, request.get("episodes"), delta_timestamps=request.get("delta_timestamps"))
        assert theirs["facts"]["tasks"] == list(ours.meta.tasks)
        compared += assert_items_equal(ours, theirs)
    return compared


def test_recorded_by_our_command(lerobot_peer: Peer, recorded: Path, tmp_path: Path, record_property: Any) -> None:
    """Two episodes of the simulated arm with two h264 cameras: every value of every item."""
    ours = LeRobotDataset("a/b", recorded)
    assert ours.meta.info.to_json()["features"]["observation.images.front"]["info"]["video.codec"] == "h264"
    assert ours.num_episodes == 2
    record_property("values", compare(lerobot_peer, recorded, tmp_path / "peer.npz"))


@pytest.mark.parametrize("codec", [None, "png", "h264", "libsvtav1"])
def test_recorded_by_lerobot(
    codec: str | None, lerobot_peer: Peer, shop: Workshop, tmp_path: Path, record_property: Any
) -> None:
    """State alone, PNG, h264 and AV1: we find nothing wrong, read the same, and what was recorded, and train on it."""
    root = tmp_path / "set"
    told = lerobot_peer.ask(RECORD, tmp_path / "told.npz", root=str(root), codec=codec, lengths=LENGTHS)
    ours = LeRobotDataset("a/b", root)
    assert ours.meta.findings == []
    assert ours.meta.episodes["length"] == LENGTHS
    found = np.stack([ours.numpy_item(i)["observation.state"] for i in range(len(ours))])
    np.testing.assert_array_equal(found, told["states"])
    record_property("values", compare(lerobot_peer, root, tmp_path / "peer.npz"))
    if codec is not None:  # ACT wants a picture
        small = {"dim_model": 32, "n_heads": 2, "dim_feedforward": 32, "chunk_size": 4, "n_action_steps": 4}
        policy = {"type": "act", "device": "cpu", "pretrained_backbone_weights": "null", **small}
        words = [f"--policy.{name}={value}" for name, value in policy.items()]
        data = ["--dataset.repo_id=a/b", f"--dataset.root={root}"]
        run = ["--steps=2", "--batch_size=4", "--num_workers=0", f"--output_dir={tmp_path / 'run'}"]
        shop.do("train", *words, *data, *run)
        assert (tmp_path / "run/checkpoints/last/pretrained_model/model.safetensors").is_file()
