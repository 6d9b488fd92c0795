# SPDX-License-Identifier: Apache-2.0
"""A checkpoint trained here acts the same in LeRobot, and one saved by LeRobot acts the same here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tooling.workshop import Workshop
from ulna.core import PreTrainedConfig, make_policy, make_pre_post_processors
from ulna.data import LeRobotDataset
from ulna.testing.peer import Peer, needs_peer

pytestmark = [*needs_peer, pytest.mark.xdist_group("interop")]

POLICY = Path(__file__).parent / "peer_policy.py"
STEPS = 10
TOLERANCE = 1e-5
SIZES = {
    "dim_model": 32,
    "n_heads": 2,
    "dim_feedforward": 32,
    "n_encoder_layers": 1,
    "pretrained_backbone_weights": None,
}
CHUNKS = {
    "chunks": {"chunk_size": 6, "n_action_steps": 4},  # the queue is filled three times
    "ensemble": {"chunk_size": 6, "n_action_steps": 1, "temporal_ensemble_coeff": 0.01},
}
chunks = pytest.mark.parametrize("kind", CHUNKS)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def actions_here(checkpoint: Path, dataset: LeRobotDataset) -> dict[str, np.ndarray]:
    """Drive a checkpoint with the first items of a dataset, as the peer does."""
    config = PreTrainedConfig.from_pretrained(checkpoint, overrides={"pretrained_path": checkpoint})
    policy = make_policy(config, ds_meta=dataset.meta)
    before, after = make_pre_post_processors(config, checkpoint)
    policy.reset()
    found = {}
    for step in range(STEPS):
        item = dataset[step]
        batch = before({key: value for key, value in item.items() if key.startswith("observation.")})
        with torch.inference_mode():
            action = policy.select_action(batch)
            found[f"{step}|policy_action"] = action.numpy()
            found[f"{step}|action"] = after(action).numpy()
    return found


def assert_same_actions(ours: dict[str, np.ndarray], theirs: dict[str, Any], record: Any) -> None:
    """Compare normalized actions to the tolerance, those of the robot relative to their size; note how far they are."""
    worst = 0.0
    for key, action in ours.items():
        size = max(1.0, float(np.abs(theirs[key]).max()))
        distance = float(np.abs(action - theirs[key]).max()) / size
        assert action.shape == theirs[key].shape
        assert distance < TOLERANCE, f"{key} is off by {distance}"
        worst = max(worst, distance)
    moving = np.ptp(np.concatenate([action for key, action in ours.items() if key.endswith("policy_action")]), axis=0)
    assert moving.max() > 100 * TOLERANCE, "actions that never change prove little"
    record("worst_distance", worst)


@chunks
def test_trained_here_acts_the_same_there(
    kind: str, lerobot_peer: Peer, shop: Workshop, recorded: Path, tmp_path: Path, record_property: Any
) -> None:
    flags = {"type": "act", "device": "cpu", **SIZES, **CHUNKS[kind]}
    words = [f"--policy.{name}={'null' if value is None else value}" for name, value in flags.items()]
    data = ["--dataset.repo_id=me/reach", f"--dataset.root={recorded}"]
    run = ["--steps=3", "--batch_size=2", "--num_workers=0", f"--output_dir={tmp_path / 'run'}"]
    shop.do("train", *words, *data, *run)
    checkpoint = tmp_path / "run/checkpoints/last/pretrained_model"
    theirs = lerobot_peer.ask(
        POLICY, tmp_path / "peer.npz", root=str(recorded), checkpoint=str(checkpoint), steps=STEPS
    )
    assert_same_actions(actions_here(checkpoint, LeRobotDataset("me/reach", recorded)), theirs, record_property)


@chunks
def test_saved_there_acts_the_same_here(
    kind: str, lerobot_peer: Peer, recorded: Path, tmp_path: Path, record_property: Any
) -> None:
    settings = {"device": "cpu", "push_to_hub": False, **SIZES, **CHUNKS[kind]}
    checkpoint = tmp_path / "checkpoint"
    request = {"root": str(recorded), "checkpoint": str(checkpoint), "steps": STEPS, "settings": settings}
    theirs = lerobot_peer.ask(POLICY, tmp_path / "peer.npz", **request)
    assert_same_actions(actions_here(checkpoint, LeRobotDataset("me/reach", recorded)), theirs, record_property)
