# SPDX-License-Identifier: Apache-2.0
"""The whole way in a fresh environment: simulate an arm, teleoperate, record, replay, train a few steps, roll out."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tooling import environments
from tooling.workshop import Workshop

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e")]

CAMERA = "{front: {type: sim, width: 64, height: 64, fps: 30, view: front}}"


@contextmanager
def simulated_arms(shop: Workshop) -> Iterator[dict[str, str]]:
    """Run `ulna sim start` in the background and yield the serial port of each arm."""
    command = [str(shop.program("ulna")), "sim", "start", "--calibration", str(shop.folder / "home/ulna/calibration")]
    with subprocess.Popen(
        command, env=shop.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as sim:
        assert sim.stdout is not None
        assert sim.stderr is not None
        try:
            ports = {}
            while not sim.stderr.readline().startswith("Running"):
                assert sim.poll() is None, "the simulator stopped early"
            while len(ports) < 2:
                words = sim.stdout.readline().split()
                if len(words) == 4 and words[2] == "->":
                    ports[words[0]] = words[1]
            yield ports
        finally:
            sim.send_signal(signal.SIGINT)
            sim.wait(10)


def test_from_nothing_to_a_rollout(tmp_path: Path) -> None:
    """Every stage works on what the one before left behind, and another arm's plugin is not missed when it goes."""
    wheel_folder = tmp_path / "wheels"
    requirements = ["ulna[so,act,data,control,train]", "ulna-sim[cli,draw]", "ulna-cameras-sim"]
    shop = Workshop(environments.create(tmp_path / "env", requirements, wheel_folder), tmp_path)
    with simulated_arms(shop) as ports:
        follower = ["--robot.type=so101_follower", f"--robot.port={ports['follower']}", "--robot.id=sim"]
        leader = ["--teleop.type=so101_leader", f"--teleop.port={ports['leader']}", "--teleop.id=sim"]
        assert shop.do("motors", "scan", f"--port={ports['follower']}").count("sts3215") >= 6
        shop.do("teleoperate", *follower, *leader, "--teleop_time_s=1")
        dataset = ["--dataset.repo_id=me/reach", "--dataset.single_task=Reach"]
        length = ["--dataset.num_episodes=2", "--dataset.episode_time_s=1", "--dataset.reset_time_s=0"]
        shop.do("record", *follower, f"--robot.cameras={CAMERA}", *leader, *dataset, *length)
        shop.do("replay", *follower, "--dataset.repo_id=me/reach", "--dataset.episode=0")
        small = ["--policy.type=act", "--policy.dim_model=32", "--policy.n_heads=2", "--policy.dim_feedforward=32"]
        small += ["--policy.chunk_size=10", "--policy.n_action_steps=10", "--policy.pretrained_backbone_weights=null"]
        run = ["--dataset.repo_id=me/reach", "--steps=4", "--batch_size=2", "--num_workers=0", "--output_dir=run"]
        shop.do("train", *small, "--policy.device=cpu", *run)
        checkpoint = tmp_path / "run" / "checkpoints" / "last" / "pretrained_model"
        assert (checkpoint / "model.safetensors").is_file()
        policy = [f"--policy.path={checkpoint}", "--policy.device=cpu", "--duration=1"]
        shop.do("rollout", *follower, f"--robot.cameras={CAMERA}", *policy)
    environments.uninstall(shop.python, "ulna-policies-act")
    listed = shop.do("plugins", "list")
    assert "so101_follower" in listed
    assert "\npolicies" not in listed
    refused = shop.ask("train", "--policy.type=act", "--dataset.repo_id=me/reach")
    assert refused.status != 0
    assert "policy.type" in refused.err
