# SPDX-License-Identifier: Apache-2.0
"""A recorder is killed at 200 random instants: while it records, stores, finalizes, resumes and recovers."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from ulna.data import LeRobotDataset, LeRobotDatasetMetadata
from ulna.data.recovery import finalize_interrupted, find_unfinished

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="recorders are forked to be killed quickly")

SERVER = Path(__file__).parent / "kill_server.py"
KILLS = int(os.environ.get("ULNA_KILLS", "200"))
A_DATASET = 20
LONGEST_S = 0.3


class Killer:
    """The server that forks recorders."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, root: Path, delay_s: float | None, *, episodes: int = 3, **how: bool) -> list[tuple[str, int]]:
        order = {"root": str(root), "episodes": episodes, "delay_s": delay_s, "recover": False, "repair": False, **how}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        lines = json.loads(self._process.stdout.readline())
        assert not [line for line in lines if line.startswith("failed")], lines
        return [(word, int(number)) for word, number in (line.split() for line in lines)]


@pytest.fixture(scope="module")
def killers() -> Iterator[list[Killer]]:
    """Two of them, so that one can record while the other waits for the disk."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        command = [sys.executable, str(SERVER)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
        servers = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(2)]
        yield [Killer(server) for server in servers]
        for server in servers:
            assert server.stdin is not None
            server.stdin.close()
            assert server.wait(120) == 0


def check(root: Path, finished: set[int], first: int = 0) -> LeRobotDataset:
    """Open what is there and compare every frame from an episode on."""
    dataset = LeRobotDataset("lab/killed", root, return_uint8=True)
    lengths = dataset.meta.episodes["length"]
    assert finished <= set(range(len(lengths)))
    for episode, length in enumerate(lengths):
        assert length == whole(episode) if episode in finished else 1 <= length <= whole(episode)
    for position in range(sum(lengths[:first]), len(dataset)):
        item = dataset.numpy_item(position)
        episode, frame = int(item["episode_index"]), int(item["frame_index"])
        assert item["index"] == position
        assert (item["state"] == 100 * episode + frame).all()
        assert (item["still"] == episode % 256).all()
        assert abs(int(item["cam"].mean()) - 20 * (episode % 12)) < 6
    return dataset


def whole(episode: int) -> int:
    return 2 + episode % 7


def kill_often(killer: Killer, root: Path, rng: random.Random, kills: int) -> dict[str, int]:
    """Record into one dataset through many kills; return how often what was interrupted."""
    finished: set[int] = set()
    seen = {"ended before": 0, "in an episode": 0, "recovered": 0}
    count = 0
    for _ in range(kills):
        how: dict[str, bool] = rng.choice([{}, {}, {"recover": True}, {"repair": True}])
        if not (root / "meta/tasks.parquet").exists():  # killed while it was being created: there is no dataset yet
            shutil.rmtree(root, ignore_errors=True)
            how = {}
        told = killer.run(root, rng.uniform(0, LONGEST_S), episodes=rng.choice([1, 2, 6]), **how)
        finished |= {number for word, number in told if word == "stored"}
        seen["ended before"] += told[-1:] != [] and told[-1][0] == "finalized"
        if not (root / "meta/tasks.parquet").exists():
            assert not finished
            continue
        dataset = check(root, finished, max(0, count - 1))
        assert dataset.num_episodes >= count
        new = range(count, dataset.num_episodes)
        seen["in an episode"] += bool(dataset.meta.unfinished)
        seen["recovered"] += len(set(new) - finished)
        finished |= {e for e in new if dataset.meta.episodes["length"][e] == whole(e)}
        count = dataset.num_episodes
    return seen


def kill_and_finish(killer: Killer, root: Path, seed: int) -> dict[str, int]:
    """Kill recorders of one dataset, then let one run to its end."""
    seen = kill_often(killer, root, random.Random(seed), min(KILLS, A_DATASET))
    before = LeRobotDatasetMetadata("lab/killed", root).total_episodes
    told = killer.run(root, None, episodes=1)
    assert told == [("ready", before), ("stored", before), ("finalized", before + 1)]
    assert finalize_interrupted(root) is False
    opened = check(root, {before}).meta
    assert (opened.total_episodes, opened.findings) == (before + 1, [])
    assert not [path for path in root.rglob("*") if path.name.startswith(".")]
    assert opened.stats is not None
    assert opened.stats["index"]["count"].tolist() == [opened.total_frames]
    return seen


@pytest.mark.slow
@pytest.mark.timeout(1800)  # one to three minutes on a machine that does nothing else
def test_killed_at_random_instants_nothing_finished_is_lost(
    killers: list[Killer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was reported as stored opens at once, recording goes on behind it, and finalizing leaves nothing behind."""
    caplog.set_level(logging.ERROR)

    def some(number: int) -> list[dict[str, int]]:
        seeds = range(number, max(KILLS // A_DATASET, 1), len(killers))
        return [kill_and_finish(killers[number], tmp_path / str(seed), seed) for seed in seeds]

    with ThreadPoolExecutor(len(killers)) as pool:
        seen = [each for part in pool.map(some, range(len(killers))) for each in part]
    assert sum(each["in an episode"] for each in seen) > 0


def test_unfinished_episode_is_recovered_up_to_its_last_whole_frame(killers: list[Killer], tmp_path: Path) -> None:
    """Nothing that has its row and all of its pictures is lost, though the recorder is killed in between."""
    root, rng, left, killer = tmp_path / "set", random.Random(5), [], killers[0]
    killer.run(root, None, episodes=1)
    for _ in range(40):
        killer.run(root, rng.uniform(0, 0.2), episodes=9)
        left = [e for e in find_unfinished(root) if e.frames]
        if left:
            break
    before = LeRobotDatasetMetadata("lab/killed", root).total_episodes
    killer.run(root, None, repair=True)
    opened = LeRobotDataset("lab/killed", root)
    assert opened.num_episodes == before + len(left)
    assert opened.meta.episodes["length"][before:] == [e.frames for e in left]
    assert opened.meta.findings == []
    check(root, set())
    assert not (root / ".ulna").exists()
