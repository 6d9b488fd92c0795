# SPDX-License-Identifier: Apache-2.0
"""Work on the robot's machine without torch: in a fresh environment that lacks it, and here with its import refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tooling import environments, tree
from tooling.workshop import Workshop

LEAN = ["ulna[so,data]", "ulna-sim[cli,draw]", "ulna-cameras-sim"]
"""What a machine gets that drives an arm and records."""

ABSENT = ("torch", "torchvision", "transformers")
PICTURES = "type: sim, width: 64, height: 48, fps: 30"
CAMERAS = f"--robot.cameras={{front: {{{PICTURES}, view: front}}, top: {{{PICTURES}, view: top}}}}"
REFUSING = f"""
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {ABSENT} else super().find_spec(name, path, target)

sys.meta_path[:] = [Finder if finder is PathFinder else finder for finder in sys.meta_path]
"""
"""Makes libraries look absent when a folder of PYTHONPATH holds it as `sitecustomize.py`."""


class RefusingWorkshop(Workshop):
    """The environment of this checkout, in which some libraries cannot be imported."""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables; the folder of the refusing module comes first on the path."""
        return {**super().variables, "PYTHONPATH": str(self.folder)}


def work(shop: Workshop) -> None:
    """Look around, scan, teleoperate, record two cameras, look at the recording and replay it."""
    for library in ABSENT:
        assert f"No module named '{library}'" in shop.run_code(f"import {library}").err
    assert "record" in shop.do("--help")
    assert "torch not installed" in shop.do("info")
    assert "so101_follower" in shop.do("plugins", "list")
    shop.do("plugins", "doctor")
    dataset = "--dataset.repo_id=me/reach"
    episodes = ["--dataset.num_episodes=2", "--dataset.episode_time_s=0.5", "--dataset.reset_time_s=0"]
    with shop.simulated_arms() as (follower, leader):
        port = follower[1].removeprefix("--robot.")
        assert shop.do("motors", "scan", f"--{port}").count("sts3215") >= 6
        shop.do("teleoperate", *follower, *leader, "--teleop_time_s=0.5")
        shop.do("record", *follower, CAMERAS, *leader, dataset, "--dataset.single_task=Reach", *episodes)
        shop.do("replay", *follower, dataset, "--dataset.episode=0")
    found = shop.read("dataset", "info", "me/reach", "--json")
    assert (found["episodes"], found["frames"]) == (2, 30)
    assert {"observation.images.front", "observation.images.top"} <= set(found["features"])


@pytest.mark.e2e
@pytest.mark.xdist_group("e2e")
def test_lean_environment(tmp_path: Path) -> None:
    """All that drives and records an arm works where torch was never installed; the rest says what to install."""
    shop = Workshop(environments.create(tmp_path / "env", LEAN, tmp_path / "wheels"), tmp_path)
    work(shop)
    shop.do("calibrate", "--help")
    refused = shop.ask("train", "--policy.type=act", "--dataset.repo_id=me/reach")
    assert refused.status == 2
    assert 'pip install "ulna-training"' in refused.err
    refused = shop.ask("rollout", "--robot.type=so101_follower", "--robot.port=none", "--policy.type=act")
    assert refused.status == 2
    assert "policy.type" in refused.err
    assert "ulna-policies-" in refused.err


@pytest.mark.slow
def test_lean_here(tmp_path: Path) -> None:
    """The same in this environment with the import of torch refused; what needs it says so instead of breaking off."""
    (tmp_path / "sitecustomize.py").write_text(REFUSING, encoding="utf-8")
    shop = RefusingWorkshop(Path(sys.executable), tmp_path)
    work(shop)
    for words in (
        ("train", "--policy.type=act", "--policy.device=cpu", "--dataset.repo_id=me/reach"),
        ("demo", "--fast", "--output_dir=out"),
    ):
        refused = shop.ask(*words)
        assert refused.status == 1
        assert "Traceback" not in refused.err
        assert "'torch'" in refused.err
        assert "ulna plugins doctor" in refused.err
    checkpoint = tree.ROOT / "plugins/policies/act/tests/golden/act_one_camera"
    refused = shop.ask("rollout", "--robot.type=so101_follower", "--robot.port=none", f"--policy.path={checkpoint}")
    assert refused.status == 1
    assert "Traceback" not in refused.err
    assert "pip install -U ulna-policies-act" in refused.err


@pytest.mark.parametrize("requirement", LEAN)
def test_lean_requirements_bring_no_torch(requirement: str) -> None:
    """What pip would install for the robot's machine holds no deep-learning library, directly or through others."""
    assert not environments.closure([requirement]) & {*ABSENT, "diffusers", "safetensors", "accelerate"}
