# SPDX-License-Identifier: Apache-2.0
"""Depth maps and language columns go from us to LeRobot and back, without a code or a word changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from ulna.data import LeRobotDataset, language_feature_info
from ulna.data.depth import DepthUnit
from ulna.testing.peer import Peer, assert_items_equal, needs_peer

READ, APPEND = Path(__file__).parent / "peer_read.py", Path(__file__).parent / "peer_append_depth.py"
GOLDEN = Path(__file__).parent / "golden"
SIZE = (48, 64)
VIDEO, TABLE, CAMERA = "observation.images.depth", "observation.images.depth_mm", "observation.images.cam"
SHAPE = {"shape": (*SIZE, 1), "names": ["height", "width", "channels"]}
DEPTH: dict[str, dict[str, Any]] = {
    VIDEO: {"dtype": "video", "info": {"is_depth_map": True}, **SHAPE},
    TABLE: {"dtype": "image", "info": {"is_depth_map": True}, **SHAPE},
}
LENGTHS = [4, 1, 7]

OWNERS = ("theirs", "ours")

pytestmark = needs_peer


def random_maps(rng: np.random.Generator) -> dict[str, Any]:
    far = rng.uniform(0, 11, (*SIZE, 1)).astype(np.float32)
    return {VIDEO: far, TABLE: rng.integers(0, 60_000, (*SIZE, 1)).astype(np.uint16), "task": "measure"}


def record_depth(dataset: LeRobotDataset, lengths: list[int]) -> None:
    rng = np.random.default_rng(lengths[0])
    for length in lengths:
        for _ in range(length):
            dataset.add_frame(random_maps(rng))
        dataset.save_episode()
    dataset.finalize()


def compare(peer: Peer, root: Path, target: Path, unit: DepthUnit = "mm", **request: Any) -> None:
    theirs = peer.ask(READ, target, root=str(root), depth_output_unit=unit, **request)
    ours = LeRobotDataset("a/b", root, depth_output_unit=unit, delta_timestamps=request.get("delta_timestamps"))
    # One step of float32 at ten metres: LeRobot's exponential is not rounded to the nearest number.
    assert_items_equal(ours, theirs, {VIDEO: 1e-6} if unit == "m" else None)
    assert ours.meta.stats is not None
    for feature, values in ours.meta.stats.items():
        for stat, value in values.items():
            np.testing.assert_allclose(value, np.asarray(theirs["facts"]["stats"][feature][stat]), rtol=1e-12)


@pytest.mark.parametrize("unit", ["mm", "m"])
def test_lerobot_reads_the_depth_that_we_wrote(lerobot_peer: Peer, tmp_path: Path, unit: DepthUnit) -> None:
    record_depth(LeRobotDataset.create("a/b", 15, DEPTH, tmp_path / "set"), LENGTHS)
    window = {VIDEO: [-2 / 15, 0.0, 1 / 15], TABLE: [0.0, 1 / 15]}
    compare(lerobot_peer, tmp_path / "set", tmp_path / "a.npz", unit)
    compare(lerobot_peer, tmp_path / "set", tmp_path / "b.npz", unit, delta_timestamps=window)


@pytest.mark.parametrize("unit", ["mm", "m"])
def test_we_read_the_depth_that_lerobot_wrote(lerobot_peer: Peer, tmp_path: Path, unit: DepthUnit) -> None:
    lerobot_peer.run(APPEND, tmp_path / "set", "5", "fresh")
    compare(lerobot_peer, tmp_path / "set", tmp_path / "a.npz", unit)


def test_both_record_the_same_codes(lerobot_peer: Peer, tmp_path: Path) -> None:
    """The same maps become the same codes, pixel by pixel, whoever records them."""
    lerobot_peer.run(APPEND, tmp_path / "theirs", "6", "fresh")
    record_depth(LeRobotDataset.create("a/b", 15, DEPTH, tmp_path / "ours"), [6])
    videos = [codes(LeRobotDataset("a/b", tmp_path / name).meta.get_video_file_path(0, VIDEO)) for name in OWNERS]
    np.testing.assert_array_equal(*videos)


def codes(path: Path) -> np.ndarray:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray() for frame in container.decode(video=0)])


def test_both_append_depth_in_turn(lerobot_peer: Peer, tmp_path: Path) -> None:
    root = tmp_path / "set"
    record_depth(LeRobotDataset.create("a/b", 15, DEPTH, root), [3])
    lerobot_peer.run(APPEND, root, "4")
    record_depth(LeRobotDataset.resume("a/b", root), [2])
    compare(lerobot_peer, root, tmp_path / "a.npz")
    assert LeRobotDataset("a/b", root).meta.episodes["length"] == [3, 4, 2]


def test_we_append_to_the_depth_of_the_corpus(lerobot_peer: Peer, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "depth/dataset", tmp_path / "set")
    source = LeRobotDataset("a/b", GOLDEN / "depth/dataset", depth_output_unit="m")
    with LeRobotDataset.resume("a/b", tmp_path / "set") as more:
        for i in range(3):
            item = source[i]
            item[TABLE] = np.rint(item[TABLE].numpy() * 1000).astype(np.uint16)
            more.add_frame(item)
        more.save_episode()
    compare(lerobot_peer, tmp_path / "set", tmp_path / "a.npz")


def say(position: int) -> dict[str, Any]:
    event = {"role": "assistant", "content": f"saw {position}", "style": "vqa", "camera": CAMERA, "tool_calls": None}
    call = {"type": "function", "function": {"name": "say", "arguments": {"text": "ok", "n": position}}}
    told = {"role": "assistant", "content": None, "style": None, "camera": None, "tool_calls": [call]}
    step = {"role": "assistant", "content": f"step {position // 3}", "style": "subtask"}
    return {
        "observation.state": np.arange(2, dtype=np.float32) + position,
        CAMERA: np.full((16, 16, 3), position, np.uint8),
        "language_persistent": [step] if position % 3 == 0 else None,
        "language_events": [event, told] if position % 2 else [],
        "task": "tidy up",
    }


def test_lerobot_reads_the_language_that_we_wrote(lerobot_peer: Peer, tmp_path: Path) -> None:
    features = {
        "observation.state": {"dtype": "float32", "shape": (2,), "names": None},
        CAMERA: {"dtype": "image", "shape": (16, 16, 3), "names": ["height", "width", "channels"]},
        **language_feature_info(),
    }
    with LeRobotDataset.create("a/b", 10, features, tmp_path / "set") as dataset:
        for length in (7, 4):
            for position in range(length):
                dataset.add_frame(say(position))
            dataset.save_episode()
    compare(lerobot_peer, tmp_path / "set", tmp_path / "a.npz")


def test_lerobot_reads_an_episode_in_which_nothing_is_said(lerobot_peer: Peer, tmp_path: Path) -> None:
    features = {"x": {"dtype": "float32", "shape": (2,), "names": None}, **language_feature_info()}
    with LeRobotDataset.create("a/b", 10, features, tmp_path / "set") as dataset:
        for _ in range(3):
            dataset.add_frame({"x": [1, 2], "task": "t"})
        dataset.save_episode()
    compare(lerobot_peer, tmp_path / "set", tmp_path / "a.npz")


def test_we_append_to_the_language_of_the_corpus(lerobot_peer: Peer, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "language/dataset", tmp_path / "set")
    source = LeRobotDataset("a/b", GOLDEN / "language/dataset")
    with LeRobotDataset.resume("a/b", tmp_path / "set") as more:
        for i in range(5):
            more.add_frame(source[i])
        more.save_episode()
    compare(lerobot_peer, tmp_path / "set", tmp_path / "a.npz")
