# SPDX-License-Identifier: Apache-2.0
"""Whole ways through the commands, in fresh environments and with a simulated arm on a real serial line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tooling import environments
from tooling.workshop import Workshop

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e")]

CAMERA = "--robot.cameras={front: {type: sim, width: 64, height: 64, fps: 30, view: front}}"
EPISODES = ["--dataset.num_episodes=2", "--dataset.episode_time_s=1", "--dataset.reset_time_s=0"]
DATASET = "--dataset.repo_id=me/reach"
TINY_ACT = [
    *("--policy.type=act", "--policy.device=cpu", "--policy.pretrained_backbone_weights=null"),
    *("--policy.dim_model=32", "--policy.n_heads=2", "--policy.dim_feedforward=32"),
    *("--policy.chunk_size=10", "--policy.n_action_steps=10"),
]


@pytest.fixture(scope="module")
def wheel_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hold the wheels that the environments of this module share."""
    return tmp_path_factory.mktemp("wheels")


def test_from_nothing_to_a_rollout(tmp_path: Path, wheel_folder: Path) -> None:
    """Every stage works on what the one before left behind; afterwards one plugin goes and the others stay."""
    requirements = ["ulna[so,act,data,control,train]", "ulna-sim[cli,draw]", "ulna-cameras-sim"]
    shop = Workshop(environments.create(tmp_path / "env", requirements, wheel_folder), tmp_path)
    with shop.simulated_arms() as (follower, leader):
        shop.do("record", *follower, CAMERA, *leader, DATASET, "--dataset.single_task=Reach", *EPISODES)
        run = ["--steps=4", "--batch_size=2", "--num_workers=0", "--output_dir=run"]
        shop.do("train", *TINY_ACT, DATASET, *run)
        checkpoint = tmp_path / "run" / "checkpoints" / "last" / "pretrained_model"
        assert (checkpoint / "model.safetensors").is_file()
        policy = [f"--policy.path={checkpoint}", "--policy.device=cpu", "--duration=1"]
        shop.do("rollout", *follower, CAMERA, *policy)
    environments.uninstall(shop.python, "ulna-policies-act")
    listed = shop.do("plugins", "list")
    assert "so101_follower" in listed
    assert "\npolicies" not in listed
    refused = shop.ask("train", "--policy.type=act", DATASET)
    assert refused.status != 0
    assert "policy.type" in refused.err
