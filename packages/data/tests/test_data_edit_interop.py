# SPDX-License-Identifier: Apache-2.0
"""LeRobot reads what we edited as we do, and can edit it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ulna.data import (
    LeRobotDataset,
    add_features,
    delete_episodes,
    merge_datasets,
    modify_tasks,
    remove_feature,
    split_dataset,
)
from ulna.testing.peer import Peer, assert_items_equal, needs_peer

GOLDEN = Path(__file__).parent / "golden"
READ, DELETE = Path(__file__).parent / "peer_read.py", Path(__file__).parent / "peer_delete.py"

pytestmark = needs_peer


def source(case: str) -> Path:
    return GOLDEN / case / "dataset"


EDITS: dict[str, Callable[[Path], LeRobotDataset]] = {
    "delete state": lambda out: delete_episodes(source("state_only"), [1], out),
    "delete video": lambda out: delete_episodes(source("videos_h264"), [1], out),
    "delete av1": lambda out: delete_episodes(source("videos_av1"), [0], out),
    "delete images": lambda out: delete_episodes(source("images"), [0], out),
    "delete features": lambda out: delete_episodes(source("extra_features"), [0], out),
    "delete between key frames": lambda out: delete_episodes(source("edit_reencode"), [0], out),
    "split": lambda out: split_dataset(source("multi_file"), {"a": [6, 1, 4, 2]}, out)["a"],
    "merge": lambda out: merge_datasets([source("multi_file"), source("edit_merge_multi_file")], "a/b", out),
    "merge, keep files": lambda out: merge_datasets([source("multi_file")] * 2, "a/b", out, False, False),
    "remove": lambda out: remove_feature(source("videos_h264"), "observation.images.wrist", out),
    "add": lambda out: add_features(
        source("state_only"),
        {
            "grid": (np.arange(53 * 6.0).reshape(53, 2, 3), {"dtype": "float32", "shape": (2, 3), "names": None}),
            "said": ([str(i) for i in range(53)], {"dtype": "string", "shape": (1,), "names": None}),
            "good": (np.arange(53) % 2 == 0, {"dtype": "bool", "shape": (1,), "names": None}),
        },
        out,
    ),
    "tasks": lambda out: modify_tasks(source("extra_features"), task_replacements={"wait": "pause"}, output_dir=out),
}


@pytest.mark.parametrize("name", list(EDITS))
def test_lerobot_reads_and_edits_what_we_edited(name: str, lerobot_peer: Peer, tmp_path: Path) -> None:
    edited = EDITS[name](tmp_path / "out")
    ours = LeRobotDataset("a/b", edited.root)
    theirs = lerobot_peer.ask(READ, tmp_path / "peer.npz", root=str(edited.root))
    assert assert_items_equal(ours, theirs) > 0
    assert theirs["facts"]["tasks"] == list(ours.meta.tasks)
    stats = ours.meta.stats
    assert stats is not None
    for feature, values in stats.items():
        for stat, value in values.items():
            np.testing.assert_array_equal(np.asarray(theirs["facts"]["stats"][feature][stat]), value)
    if any(len(feature.shape) > 1 and not feature.is_camera for feature in ours.meta.parsed_features.values()):
        return  # LeRobot cannot edit datasets with such features, its own neither
    lerobot_peer.run(DELETE, edited.root, tmp_path / "again", "0")
    again = LeRobotDataset("a/c", tmp_path / "again")
    kept = LeRobotDataset("a/b", edited.root, list(range(1, ours.num_episodes)))
    assert len(again) == len(kept)
    for i in range(len(kept)):
        assert again.numpy_item(i)["task"] == kept.numpy_item(i)["task"]
        for key in set(kept.features) - {"index", "episode_index", "task_index"}:
            a, b = again.numpy_item(i)[key], kept.numpy_item(i)[key]
            if key in kept.meta.camera_keys:
                assert np.abs(a - b).mean() < 0.04
            else:
                np.testing.assert_array_equal(a, b)
