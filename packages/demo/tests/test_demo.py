# SPDX-License-Identifier: Apache-2.0
"""The demo: its settings, its world, and the fast version from beginning to end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from ulna.core.errors import ConfigError
from ulna.data import LeRobotDataset
from ulna.demo import DemoConfig, run_demo
from ulna.demo.film import write_film
from ulna.demo.stages import EVALUATION_SEED, judge_expert
from ulna.demo.world import demo_world
from ulna.sim.settling import settled_ports


@pytest.fixture(autouse=True)
def no_reply_is_late() -> Iterator[None]:
    """On a busy machine the simulated bus may answer too late for the driver's patience."""
    with settled_ports():
        yield


def test_fast_changes_only_what_was_not_given() -> None:
    fast = DemoConfig.build({"fast": "true", "steps": 40})
    assert fast.steps == 40
    assert fast.episodes < DemoConfig().episodes
    assert fast.rollouts < DemoConfig().rollouts


def test_the_expert_reaches_every_target_through_both_wires(tmp_path: Path) -> None:
    config = DemoConfig(rollouts=8)
    with demo_world(config, tmp_path) as world:
        outcome = judge_expert(world, config)
        assert not world.robot.is_connected
        assert not world.teleop.is_connected
    assert outcome.successes == outcome.judged == 8


def test_judged_scenes_are_repeatable_and_never_recorded_ones(tmp_path: Path) -> None:
    config = DemoConfig()
    with demo_world(config, tmp_path) as world:
        world.begin(EVALUATION_SEED)
        first = world.sim.state.target
        world.begin(EVALUATION_SEED + 1)
        assert world.sim.state.target != first
        world.begin(EVALUATION_SEED)
        assert world.sim.state.target == first
    assert 1_000 * (1 + config.seed) + config.episodes < EVALUATION_SEED


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(ConfigError, match="new or empty"):
        run_demo(DemoConfig(output_dir=tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_film_plays_back(tmp_path: Path) -> None:
    frames = [np.full((32, 48, 3), 20 * i, np.uint8) for i in range(10)]
    path = write_film(tmp_path / "film.mp4", frames, 30)
    with av.open(str(path)) as container:
        shown = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
    assert len(shown) == 10
    assert abs(int(shown[9].mean()) - 180) < 12
    with pytest.raises(ValueError, match="frame"):
        write_film(tmp_path / "none.mp4", [], 30)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Let torch use two threads, for this test alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a minute of training on a free machine, many on a busy one
def test_the_fast_demo_learns(tmp_path: Path, two_threads: None) -> None:
    said: list[str] = []
    result = run_demo(DemoConfig.build({"fast": True, "output_dir": tmp_path / "out"}), said.append)
    trained, untrained = result.outcomes["trained"], result.outcomes["untrained"]
    assert trained.success_rate > untrained.success_rate
    assert result.outcomes["expert"].success_rate == 1.0
    dataset = LeRobotDataset("demo/reach", root=result.dataset)
    assert dataset.num_episodes == 25
    assert {"observation.images.front", "observation.images.top", "observation.state", "action"} <= set(dataset[0])
    assert (result.checkpoint / "model.safetensors").is_file()
    assert result.plot.stat().st_size > 1_000
    assert result.film.stat().st_size > 1_000
    saved = json.loads((result.folder / "results.json").read_text())
    assert saved["outcomes"]["trained"]["successes"] == trained.successes
    assert any("demonstration" in line for line in said)
