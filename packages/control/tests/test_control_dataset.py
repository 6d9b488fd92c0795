# SPDX-License-Identifier: Apache-2.0
"""Recording into real datasets: durable episodes, resuming, refusal of what does not fit, and kill -9."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from ulna.control import (
    EpisodePlan,
    IncompatibleError,
    RecordConfig,
    RecordingInterruptedError,
    Runtime,
    open_dataset,
    read_reports,
    record,
    run_recording,
)
from ulna.control.frames import read_actions
from ulna.control.recording import DatasetTarget
from ulna.core.errors import ConfigError, DatasetError, MotorCommunicationError
from ulna.core.plugins import Registry, use_registry
from ulna.data import LeRobotDataset
from ulna.data.episode_store import EpisodeStore

TIMES = {"single_task": "lift", "episode_time_s": 0.4, "reset_time_s": 0}


@pytest.fixture
def installed(fakes, monkeypatch):
    """The fakes as if they were installed plugins; the robot made last is `installed.robot`."""
    from types import SimpleNamespace

    made = SimpleNamespace(robot=None, camera="front")

    def make_robot(config):
        made.robot = fakes.Robot({made.camera: fakes.Camera()})
        return made.robot

    registry = Registry(list)
    registry.register("robots", "fake_robot", fakes.Robot.config_class)
    registry.register("teleoperators", "fake_leader", fakes.Leader.config_class)
    monkeypatch.setattr(fakes.Robot.config_class, "load_implementation", classmethod(lambda cls: make_robot))
    monkeypatch.setattr(
        fakes.Leader.config_class, "load_implementation", classmethod(lambda cls: lambda config: fakes.Leader())
    )
    with use_registry(registry):
        yield made


def config(root, *, resume=False, recover=None, **dataset):
    return RecordConfig.build(
        {
            "robot": {"type": "fake_robot"},
            "teleop": {"type": "fake_leader"},
            "dataset": {"repo_id": "lab/test", "root": root, "num_episodes": 2, **TIMES, **dataset},
            "resume": resume,
            "recover": recover,
        }
    )


def test_records_and_resumes_to_the_total(installed, clock, tmp_path):
    """Two episodes, then the same command with three: one more, everything readable, actions as sent."""
    root = tmp_path / "set"
    result = record(config(root), Runtime(clock=clock))
    assert (result.total, result.written) == (2, 2)
    result = record(config(root, resume=True, num_episodes=3), Runtime(clock=clock))
    assert (result.before, result.total, result.written) == (2, 3, 1)
    dataset = LeRobotDataset("lab/test", root)
    assert (dataset.num_episodes, dataset.num_frames, dataset.fps) == (3, 36, 30)
    item = dataset.numpy_item(13)
    assert item["task"] == "lift"
    assert item["observation.images.front"].shape == (3, 8, 12)
    actions, fps = read_actions("lab/test", 2, root)
    assert fps == 30
    assert len(actions) == 12
    assert actions[0] == pytest.approx(installed.robot.sent[1], abs=1e-6)
    assert [r.episode_index for r in read_reports(root)] == [0, 1, 2]


@pytest.mark.parametrize(("recover", "lengths"), [(True, [12, 12, 9, 12]), (False, [12, 12, 12, 12])])
def test_unfinished_episode_is_kept_or_removed_as_asked(installed, clock, tmp_path, recover, lengths):
    """Going on behind an interrupted episode is refused until somebody says what becomes of it."""
    live, root = tmp_path / "live", tmp_path / "set"
    record(config(live, video=False), Runtime(clock=clock))
    frames = LeRobotDataset("lab/test", live)[:9]
    dataset = LeRobotDataset.resume("lab/test", live)
    for frame in frames:
        dataset.add_frame(frame)
    dataset._recorder._current.end()
    dataset._recorder._current.workers["observation.images.front"].finish()
    shutil.copytree(live, root)
    dataset.clear_episode_buffer()
    dataset.finalize()
    with pytest.raises(DatasetError, match="interrupted in episode 2 with 9 frames") as caught:
        record(config(root, resume=True, num_episodes=4, video=False), Runtime(clock=clock))
    assert "--recover=true" in caught.value.hint
    record(config(root, resume=True, recover=recover, num_episodes=4, video=False), Runtime(clock=clock))
    assert LeRobotDataset("lab/test", root).meta.episodes["length"] == lengths


def test_saving_does_not_hold_up_the_session(installed, clock, tmp_path, monkeypatch):
    """Episodes are stored in the background: all are recorded before the first has been stored."""
    go, store, ends = threading.Event(), EpisodeStore.store, []

    def stored(self, episode):
        assert go.wait(30)
        store(self, episode)

    def note(tick):
        if tick.phase == "record" and tick.index == 11:
            ends.append(LeRobotDataset("lab/test", tmp_path / "set").num_episodes)
            if len(ends) == 3:
                go.set()

    monkeypatch.setattr(EpisodeStore, "store", stored)
    result = record(config(tmp_path / "set", num_episodes=3), Runtime(clock=clock, on_tick=note))
    assert ends == [0, 0, 0]
    assert [e.frames for e in result.episodes] == [12, 12, 12]


def test_existing_folder_and_missing_dataset_are_refused_before_connecting(installed, clock, tmp_path):
    """A new dataset needs a new place; a resumed one must be there; both say what to do."""
    root = tmp_path / "set"
    record(config(root), Runtime(clock=clock))
    with pytest.raises(DatasetError, match="exists already") as caught:
        record(config(root), Runtime(clock=clock))
    assert "--resume=true" in caught.value.hint
    assert installed.robot.log == []
    with pytest.raises(DatasetError):
        record(config(tmp_path / "none", resume=True), Runtime(clock=clock))
    with pytest.raises(DatasetError, match="2 episodes") as caught:
        record(config(root, resume=True), Runtime(clock=clock))
    assert "--dataset.num_episodes=12" in caught.value.hint
    with pytest.raises(DatasetError, match="recorded at 30 Hz"):
        record(config(root, resume=True, num_episodes=3, fps=20), Runtime(clock=clock))


def test_dataset_of_another_robot_is_not_continued(installed, clock, tmp_path):
    """Other cameras than the dataset's are refused by name, before anything is connected."""
    record(config(tmp_path / "set"), Runtime(clock=clock))
    installed.camera = "top"
    with pytest.raises(IncompatibleError, match=r"observation\.images\.top"):
        record(config(tmp_path / "set", resume=True, num_episodes=5), Runtime(clock=clock))
    assert installed.robot.log == []


def test_exception_in_the_fourth_episode_leaves_three_that_open(fakes, clock, tmp_path):
    """Robot dies in mid-episode: the dataset opens with three episodes and recording goes on at three."""
    target = DatasetTarget(repo_id="lab/test", root=tmp_path / "set")
    robot = fakes.Robot({"front": fakes.Camera()})
    robot.faults.send[3 * 13 + 1 + 8] = MotorCommunicationError("dead")
    plan = EpisodePlan(**TIMES, num_episodes=5)
    with pytest.raises(RecordingInterruptedError, match="dead") as caught:
        run_recording(robot, fakes.Leader(), lambda: open_dataset(target, robot, 30), plan, Runtime(clock=clock))
    assert caught.value.result.total == 3
    assert LeRobotDataset("lab/test", tmp_path / "set").num_episodes == 3
    robot = fakes.Robot({"front": fakes.Camera()})
    again = run_recording(
        robot, fakes.Leader(), lambda: open_dataset(target, robot, 30, resume=True), plan, Runtime(clock=clock)
    )
    assert (again.before, again.total) == (3, 5)


CHILD = """
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("fakes", sys.argv[1])
fakes = importlib.util.module_from_spec(spec)
sys.modules["fakes"] = fakes
spec.loader.exec_module(fakes)
from ulna.control import EpisodePlan, Runtime, open_dataset, run_recording
from ulna.control.recording import DatasetTarget
robot = fakes.FakeRobot({"front": fakes.FakeCamera()})
target = DatasetTarget(repo_id="lab/test", root=Path(sys.argv[2]))
opened = []
def open_it():
    opened.append(open_dataset(target, robot, 30))
    return opened[0]
def tell(tick):
    if tick.phase == "reset":
        opened[0].flush()
    if tick.phase == "record" and tick.index == 5 and opened[0].num_episodes == 2:
        print("frame", flush=True)
        sys.stdin.read()
plan = EpisodePlan(single_task="lift", num_episodes=50, episode_time_s=0.4, reset_time_s=0.1)
run_recording(robot, fakes.FakeLeader(), open_it, plan, Runtime(clock=fakes.JumpClock(), on_tick=tell))
"""


def test_kill_in_mid_episode_loses_only_that_episode(fakes, clock, tmp_path):
    """SIGKILL in the third episode: two episodes open, and recording resumes at the right index."""
    conftest = Path(__file__).with_name("conftest.py")
    command = [sys.executable, "-c", CHILD, str(conftest), str(tmp_path / "set")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "frame\n"
        finally:
            child.kill()
    dataset = LeRobotDataset("lab/test", tmp_path / "set")
    assert dataset.num_episodes == 2
    assert np.isfinite(dataset.numpy_item(20)["action"]).all()
    robot = fakes.Robot({"front": fakes.Camera()})
    target = DatasetTarget(repo_id="lab/test", root=tmp_path / "set")
    plan = EpisodePlan(**TIMES, num_episodes=3)
    again = run_recording(
        robot, fakes.Leader(), lambda: open_dataset(target, robot, 30, resume=True), plan, Runtime(clock=clock)
    )
    assert (again.before, again.total, again.episodes[0].episode_index) == (2, 3, 2)
    assert [r.episode_index for r in read_reports(tmp_path / "set")] == [0, 1, 2]


def test_names_and_types_are_checked_together(installed, tmp_path):
    """Every wrong setting is reported at once, with its path."""
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, repo_id="no slash", fps=0, nunber=1)
    paths = {p.path for p in caught.value.problems}
    assert {"dataset.repo_id", "dataset.fps", "dataset.nunber"} <= paths
