# SPDX-License-Identifier: Apache-2.0
"""Recording: exact counts, the same phases always, nothing lost."""

from __future__ import annotations

import os
import signal

import pytest

from ulna.control import (
    EpisodePlan,
    JumpGuardConfig,
    RecordingInterruptedError,
    Runtime,
    read_reports,
    run_recording,
)
from ulna.control.recording import DatasetTarget, check_upload
from ulna.core.cameras import CameraState
from ulna.core.errors import ConfigError, DatasetError, DeviceConnectError, MotorCommunicationError
from ulna.core.teleoperators import TeleopEvents


@pytest.fixture
def rig(fakes, clock, tmp_path):
    """Robot, leader, dataset and a function that records with them."""

    class Rig:
        def __init__(self):
            self.robot, self.leader, self.phases = fakes.Robot(), fakes.Leader(), []
            self.dataset = None

        def record(self, keys=None, *, before=0, fps=30, on_tick=None, stop=None, **plan):
            self.dataset = self.dataset or fakes.Dataset(tmp_path, self.robot, fps, before)
            plan = {"single_task": "lift", "num_episodes": 2, "episode_time_s": 1, "reset_time_s": 0.5, **plan}
            runtime = Runtime(
                clock=clock,
                keys=fakes.Keys(keys or {}),
                on_phase=lambda p: self.phases.append((p.name, p.episode)),
                on_tick=on_tick,
                stop=stop,
            )
            return run_recording(self.robot, self.leader, self.dataset, EpisodePlan(**plan), runtime)

        @property
        def story(self):
            return [p for p in self.phases if p[0] in ("record", "reset", "save")]

    return Rig()


def test_records_the_asked_episodes(rig):
    """Two episodes of a second at 30 Hz, a reset between them and none after the last."""
    result = rig.record()
    assert [len(e) for e in rig.dataset.saved] == [30, 30]
    assert rig.story == [("record", 0), ("save", 0), ("reset", 1), ("record", 1), ("save", 1)]
    assert (result.written, result.total, result.asked, result.stop_reason) == (2, 2, 2, "complete")
    assert result.complete
    assert rig.dataset.finalized == 1
    assert not rig.robot.torque


def test_frames_hold_what_was_really_sent(rig, fakes):
    """A robot that moves at most 2 units a command: the clipped action is recorded, beside the state before it."""
    rig.robot, rig.leader = fakes.Robot(reach=2.0), fakes.Leader(lambda n: 100.0)
    rig.record(num_episodes=1, guard=JumpGuardConfig(mode="off"))
    frames = rig.dataset.saved[0]
    assert [float(f["action"][0]) for f in frames[:4]] == [2, 4, 6, 8]
    assert [float(f["observation.state"][0]) for f in frames[:4]] == [0, 2, 4, 6]
    assert frames[0]["task"] == "lift"


@pytest.mark.parametrize("again", ["left", "r"])
def test_rerecording_still_saves_the_asked_number(rig, again):
    """One asked, one thrown away: one saved, and the reset comes before the second try."""
    result = rig.record({10: again}, num_episodes=1)
    assert [len(e) for e in rig.dataset.saved] == [30]
    assert result.rerecorded == 1
    assert rig.story == [("record", 0), ("reset", 0), ("record", 0), ("save", 0)]


@pytest.mark.parametrize("end", ["right", "n"])
def test_end_key_ends_the_episode_and_the_reset(rig, end):
    """The episode keeps the frames so far; the key also cuts the reset short."""
    result = rig.record({11: end, 14: end})
    assert [len(e) for e in rig.dataset.saved] == [10, 30]
    assert result.episodes[0].ended_by == "end key"


@pytest.mark.parametrize("stop", ["esc", "q"])
def test_stop_key_saves_the_running_episode(rig, stop):
    """Stopping keeps what was recorded, and the summary says asked and written."""
    result = rig.record({11: stop}, num_episodes=5)
    assert [len(e) for e in rig.dataset.saved] == [10]
    assert (result.stop_reason, result.complete) == ("stop key", False)
    assert "1 of 5 asked for" in result.summary()
    assert rig.story == [("record", 0), ("save", 0)]


def test_stop_key_in_the_reset_saves_no_empty_episode(rig):
    """After stopping in the reset there is exactly what was saved."""
    result = rig.record({40: "q"}, num_episodes=5)
    assert [len(e) for e in rig.dataset.saved] == [30]
    assert result.written == 1


def test_ctrl_c_throws_the_running_episode_away(rig):
    """SIGINT in the second episode: the first is safe, the second is dropped and counted, the dataset finalized."""

    def interrupt(tick):
        if tick.phase == "record" and tick.index == 12 and rig.dataset.num_episodes == 1:
            os.kill(os.getpid(), signal.SIGINT)

    result = rig.record(num_episodes=5, on_tick=interrupt)
    assert [len(e) for e in rig.dataset.saved] == [30]
    assert (result.stop_reason, result.discarded_frames) == ("interrupted", 13)
    assert rig.dataset.finalized == 1
    assert not rig.robot.torque


def test_second_ctrl_c_finalizes_too(rig):
    """Even an impatient operator gets a whole dataset, and is told what is in it."""

    def interrupt(tick):
        if tick.phase == "record" and tick.index == 12:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        rig.record(on_tick=interrupt)
    assert rig.dataset.finalized == 1
    assert rig.dataset.buffer == []
    assert not rig.robot.torque
    assert "0 of 2 asked for" in "".join(caught.value.__notes__)


def test_exception_in_the_fourth_episode_keeps_three(rig):
    """The robot dies at frame 40 of episode 3: episodes 0 to 2 are safe, and the message says how to go on."""
    per_episode = 60 + 1
    rig.robot.faults.send[3 * per_episode + 1 + 40] = MotorCommunicationError("lift does not answer", motors=("lift",))
    with pytest.raises(RecordingInterruptedError, match="lift does not answer") as caught:
        rig.record(num_episodes=5, episode_time_s=2, reset_time_s=0)
    assert [len(e) for e in rig.dataset.saved] == [60, 60, 60]
    result = caught.value.result
    assert (result.total, result.written, result.discarded_frames) == (3, 3, 40)
    assert "--resume=true" in caught.value.hint
    assert "3 of 5 asked for" in str(caught.value)
    assert isinstance(caught.value.__cause__, MotorCommunicationError)
    assert rig.dataset.finalized == 1
    assert not rig.robot.torque


@pytest.mark.parametrize("before", [0, 2])
def test_resuming_has_the_phases_of_a_fresh_run(rig, before):
    """num_episodes is the total: with 2 of 4 recorded, 2 more follow, each with the phases it would have had."""
    result = rig.record(before=before, num_episodes=4)
    fresh = [("record", 0), ("save", 0), ("reset", 1), ("record", 1), ("save", 1), ("reset", 2)]
    fresh += [("record", 2), ("save", 2), ("reset", 3), ("record", 3), ("save", 3)]
    assert rig.story == [p for p in fresh if p[1] > before or p == ("record", before) or p == ("save", before)]
    assert (result.before, result.total, result.written) == (before, 4, 4 - before)


def test_guard_is_armed_for_every_episode(rig, fakes, clock):
    """The leader jumps between the episodes: the robot approaches before each, and the approach is not recorded."""
    rig.leader = fakes.Leader(lambda n: 50.0 if rig.dataset.num_episodes else 30.0)
    rig.record(reset_time_s=0, guard=JumpGuardConfig(speed=60))
    assert [p for p in rig.phases if p[0] == "approach"] == [("approach", 0), ("approach", 1)]
    assert float(rig.dataset.saved[0][0]["action"][0]) == pytest.approx(30)
    assert float(rig.dataset.saved[1][0]["action"][0]) == pytest.approx(50)
    assert float(rig.dataset.saved[1][0]["observation.state"][0]) == pytest.approx(50)


def test_slow_loop_is_measured_and_told(rig, clock, tmp_path):
    """80 ms a read at 30 Hz: the episode ends in time with fewer frames; its true rate is stored and told."""
    rig.robot.on_observe = lambda: clock.spend(0.08)
    result = rig.record(num_episodes=1, episode_time_s=5)
    report = result.episodes[0]
    assert report.measured_fps == pytest.approx(12.5, abs=3)
    assert report.frames == pytest.approx(5 * report.measured_fps, abs=2)
    assert report.slow
    assert "slower than 30 Hz: 1" in result.summary()
    assert read_reports(tmp_path) == list(result.episodes)


def test_stale_pictures_are_flagged_by_frame(rig, fakes, tmp_path):
    """A camera that freezes for 300 ms in the middle: the frames concerned are in the logbook."""
    camera = fakes.Camera()
    rig.robot = fakes.Robot({"front": camera})
    rig.robot.on_observe = lambda: setattr(camera, "age_s", 0.3 if 10 <= rig.robot.observed - 2 <= 18 else 0.0)
    rig.record(num_episodes=1)
    assert read_reports(tmp_path)[0].stale_frames == {"front": [(10, 18)]}
    assert len(rig.dataset.saved[0]) == 30


def test_lost_camera_ends_the_episode_saved_and_is_opened_again(rig, fakes):
    """Frozen for good in episode 0: its frames are kept, the camera is reopened, episode 1 is whole."""
    camera = fakes.Camera()
    rig.robot = fakes.Robot({"front": camera})
    rig.robot.on_observe = lambda: setattr(camera, "age_s", 9.0) if rig.robot.observed == 16 else None
    result = rig.record()
    assert [len(e) for e in rig.dataset.saved] == [14, 30]
    assert [e.ended_by for e in result.episodes] == ["camera lost", "time"]
    assert camera.connects == 2


def test_camera_that_stays_away_ends_the_session(rig, fakes):
    """When it cannot be opened again, the session ends with an error and everything so far is safe."""
    camera = fakes.Camera()
    rig.robot = fakes.Robot({"front": camera})

    def unplug():
        if rig.robot.observed == 16:
            camera.set_state(CameraState.LOST)
            camera.connect_error = DeviceConnectError("no such device")

    rig.robot.on_observe = unplug
    with pytest.raises(RecordingInterruptedError, match="front") as caught:
        rig.record()
    assert caught.value.result.total == 1
    assert not rig.robot.torque


def test_camera_lost_during_the_approach_does_not_cost_an_episode(rig, fakes):
    """Nothing is saved of it; the camera is opened again and the episode is recorded."""
    camera = fakes.Camera()
    rig.robot, rig.leader = fakes.Robot({"front": camera}), fakes.Leader(lambda n: 40.0)
    rig.robot.on_observe = lambda: setattr(camera, "age_s", 9.0) if rig.robot.observed == 5 else None
    result = rig.record(num_episodes=1)
    assert [len(e) for e in rig.dataset.saved] == [30]
    assert (result.written, camera.connects) == (1, 2)


def test_teleop_events_end_and_repeat_episodes(rig, fakes):
    """A teleoperator with buttons does what the keys do."""

    class WithButtons(type(fakes.Leader())):
        def get_teleop_events(self):
            return {TeleopEvents.TERMINATE_EPISODE: self.calls == 11, TeleopEvents.IS_INTERVENTION: False}

    rig.leader = WithButtons()
    rig.record()
    assert [len(e) for e in rig.dataset.saved] == [10, 30]


def test_failing_save_is_reported_with_what_is_safe(rig):
    """An episode that cannot be stored ends the session; it does not count."""
    rig.record(num_episodes=1)
    rig.dataset.save_error = DatasetError("disk full")
    with pytest.raises(RecordingInterruptedError, match="disk full") as caught:
        rig.record(num_episodes=2)
    assert (caught.value.result.before, caught.value.result.total) == (1, 1)


def test_failing_connection_is_raised_as_it_is(rig):
    """Nothing was recorded, so there is nothing to say about it; the dataset is closed."""
    rig.robot.faults.connect = DeviceConnectError("no such port")
    with pytest.raises(DeviceConnectError, match="no such port"):
        rig.record()
    assert rig.dataset.finalized == 1


def test_dataset_is_opened_after_the_devices(fakes, clock, tmp_path):
    """A dataset given as a function is not made when the robot is not there."""
    robot, made = fakes.Robot(), []
    robot.faults.connect = DeviceConnectError("no such port")
    with pytest.raises(DeviceConnectError):
        run_recording(
            robot, fakes.Leader(), lambda: made.append(1), EpisodePlan(single_task="lift"), Runtime(clock=clock)
        )
    assert made == []


def test_hook_is_called_for_every_durable_episode(rig, tmp_path):
    """Hook plugins hear of each episode, with its length."""
    from ulna.core.plugins import Registry, hookimpl, use_registry

    heard = []

    class Listener:
        @hookimpl
        def episode_saved(self, root, repo_id, episode_index, length):
            heard.append((root, repo_id, episode_index, length))

    registry = Registry(list)
    registry.register("hooks", "listener", Listener())
    with use_registry(registry):
        rig.record()
    assert heard == [(tmp_path, "lab/memory", 0, 30), (tmp_path, "lab/memory", 1, 30)]


def test_episode_that_is_not_durable_does_not_count(rig):
    """With storing in the background, an episode lost at the end is neither reported nor logged."""

    def on_tick(tick):
        if tick.phase == "record" and rig.dataset.num_episodes == 1 and tick.index == 3:
            rig.dataset.saved.pop()
            raise DatasetError("episode 0 could not be stored")

    with pytest.raises(RecordingInterruptedError) as caught:
        rig.record(on_tick=on_tick)
    assert caught.value.result.episodes == ()
    assert caught.value.result.total == 0


def test_advice_of_finalizing_comes_before_going_on(rig, monkeypatch):
    """What was kept for want of room is got back by the command that finalizing names, not by a method of Python."""
    hint = "Free some space, then: ulna dataset repair SET --recover"

    def on_tick(tick):
        if tick.phase == "record" and tick.index == 3:
            raise DatasetError("Episode 0 could not be stored.", hint="Call save_episode() again.")

    def full():
        raise DatasetError("The recording ends without it.", hint=hint)

    rig.record(num_episodes=1)
    monkeypatch.setattr(rig.dataset, "finalize", full)
    with pytest.raises(RecordingInterruptedError) as caught:
        rig.record(num_episodes=2, on_tick=on_tick)
    said = str(caught.value)
    assert "Episode 0 could not be stored." in said
    assert "save_episode()" not in said
    assert said.endswith(f"{hint}\nAfter that: Continue with the same command and --resume=true")


def test_impossible_upload_is_refused_before_anything_is_connected(tmp_path, monkeypatch):
    """Nobody records for an hour to learn at the end that the upload cannot be done."""
    target = DatasetTarget(repo_id="lab/up", root=tmp_path / "up", push_to_hub=True)
    monkeypatch.setattr("ulna.control.recording.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'ulna-data\[hub\]'"):
        check_upload(target)
    monkeypatch.undo()
    assert check_upload(target) is None


@pytest.mark.parametrize("moment", ["save_episode", "finalize"])
def test_hammering_ctrl_c_loses_no_finished_episode(rig, monkeypatch, moment):
    """Signals that come while an episode is saved, or the dataset is finished, end the session only after that."""
    rig.record(num_episodes=1)
    whole = getattr(rig.dataset, moment)

    def hammered(**options):
        for _ in range(4):
            os.kill(os.getpid(), signal.SIGINT)
        whole(**options)

    monkeypatch.setattr(rig.dataset, moment, hammered)
    with pytest.raises(KeyboardInterrupt) as caught:
        rig.record(num_episodes=2)
    assert [len(e) for e in rig.dataset.saved] == [30, 30]
    assert rig.dataset.finalized == 2
    assert not rig.robot.torque
    assert "2 of 2 asked for" in "".join(caught.value.__notes__)
    assert "KeyboardInterrupt" not in "".join(caught.value.__notes__)


@pytest.mark.parametrize(
    "name", ["../cube", "..", "lab/..", "./cube", "lab/.hidden", "lab\\cube/x", "/cube", "lab/", "a/b/c"]
)
def test_name_of_a_dataset_cannot_lead_elsewhere(name):
    """The name becomes a folder below Ulna's home: it may not climb out of it."""
    with pytest.raises(ConfigError, match="repo_id"):
        DatasetTarget(repo_id=name)


def test_times_of_a_plan_are_finite():
    """The number of frames of an episode is computed from its time."""
    with pytest.raises(ConfigError, match="episode_time_s"):
        EpisodePlan(single_task="lift", episode_time_s=float("inf"))
