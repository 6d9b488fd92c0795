# SPDX-License-Identifier: Apache-2.0
"""Replay and rollout with fakes: mapping by name, resets, verdicts, and refusal of what does not fit."""

from __future__ import annotations

import math
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest

from ulna.control import (
    IncompatibleError,
    JumpGuardConfig,
    ReplaySettings,
    RolloutResult,
    RolloutSettings,
    Runtime,
    run_engine,
    run_replay,
)
from ulna.control.frames import element_names
from ulna.core.errors import ActionError, ControlError, MotorCommunicationError


def episode(fakes, n=30, start=40.0):
    """Recorded actions, with the keys in another order than the robot's."""
    return [dict.fromkeys(reversed(fakes.JOINTS), start + k) for k in range(n)]


class TestReplay:
    """A recorded episode on a robot."""

    def test_approaches_then_repeats_at_the_rate(self, fakes, clock):
        """The robot comes to the first pose at limited speed, then gets every action at its time."""
        robot, ticks = fakes.Robot(), []
        runtime = Runtime(clock=clock, on_tick=ticks.append)
        result = run_replay(robot, episode(fakes), 20, ReplaySettings(approach_speed=40), runtime)
        assert (result.sent, result.total, result.stop_reason) == (30, 30, "complete")
        assert [s["pan.pos"] for s in robot.sent[:3]] == [2, 4, 6]
        assert [s["pan.pos"] for s in robot.sent[-30:]] == [40 + k for k in range(30)]
        assert result.stats.rate_hz == pytest.approx(20)
        assert ticks[5].time_s == pytest.approx(0.25)
        assert not robot.torque

    def test_other_names_are_refused_before_connecting(self, fakes, clock):
        """An episode of another robot is not sent; the nearest names are given."""
        log = []
        with pytest.raises(IncompatibleError, match=r"'lift.pos' \(nearest: 'lift.position'\)"):
            run_replay(fakes.Robot(log=log), [{"pan.pos": 0.0, "lift.position": 0.0, "gripper.pos": 0.0}], 20)
        assert log == []

    def test_unreachable_first_pose_is_an_error(self, fakes, clock):
        """An approach that takes too long ends with torque off and a way out."""
        robot = fakes.Robot()
        settings = ReplaySettings(approach_speed=1, approach_time_s=2)
        with pytest.raises(ControlError, match="within 2 s at 1 units/s"):
            run_replay(robot, episode(fakes), 20, settings, Runtime(clock=clock))
        assert not robot.torque

    def test_stop_key_and_empty_episode(self, fakes, clock):
        """Esc stops between two actions; nothing to replay is an error."""
        result = run_replay(
            fakes.Robot(), episode(fakes, start=0), 20, None, Runtime(clock=clock, keys=fakes.Keys({7: "esc"}))
        )
        assert (result.sent, result.stop_reason) == (7, "stop key")
        with pytest.raises(ControlError, match="no actions"):
            run_replay(fakes.Robot(), [], 20)


@pytest.mark.parametrize(
    ("names", "found"),
    [(["a", "b"], ["a", "b"]), ({"motors": ["a", "b"]}, ["a", "b"]), (None, []), ({"x": 1}, [])],
)
def test_element_names_in_all_forms(names, found):
    """Lists and the older mapping with one list."""
    assert element_names({"names": names}) == found


class Engine:
    """Answers with a constant velocity from where it was reset; logs resets."""

    def __init__(self, joints, step=0.5):
        self.joints, self.step, self.resets, self.calls = joints, step, 0, 0

    def reset(self):
        self.resets += 1
        self.calls = 0

    def act(self, observation):
        self.calls += 1
        return dict.fromkeys(reversed(self.joints), self.step * self.calls)


def settings(**changes):
    return RolloutSettings(**{"strategy": "episodic", "num_episodes": 3, "episode_time_s": 1, **changes})


class TestRollout:
    """The loop around an engine."""

    def test_base_runs_for_the_duration(self, fakes, clock):
        """One run, then back to the pose at the start."""
        robot, engine = fakes.Robot(at=3.0), Engine(fakes.JOINTS)
        result = run_engine(robot, engine, RolloutSettings(duration=2), runtime=Runtime(clock=clock))
        assert (len(result.episodes), result.episodes[0].frames, result.episodes[0].success) == (1, 60, None)
        assert robot.sent[59]["pan.pos"] == pytest.approx(30)
        assert robot.positions["pan.pos"] == pytest.approx(3)
        assert not robot.torque

    def test_every_episode_starts_fresh_at_home(self, fakes, clock):
        """The engine is reset and the robot is back home before each episode."""
        robot, engine, firsts = fakes.Robot(at=1.0), Engine(fakes.JOINTS), []

        def watch(tick):
            if tick.index == 0:
                firsts.append((tick.observation["pan.pos"], tick.action["pan.pos"]))

        result = run_engine(robot, engine, settings(), runtime=Runtime(clock=clock, on_tick=watch))
        assert engine.resets == 3
        assert firsts == [(1.0, 0.5)] * 3
        assert [e.frames for e in result.episodes] == [30, 30, 30]
        assert result.stop_reason == "complete"

    def test_judge_decides(self, fakes, clock):
        """The first episode reaches the goal, the others run out of time; the interval is Wilson's."""
        robot, engine = fakes.Robot(), Engine(fakes.JOINTS)
        judge = lambda: engine.resets == 1 and robot.positions["pan.pos"] >= 5  # noqa: E731
        result = run_engine(robot, engine, settings(), judge=judge, runtime=Runtime(clock=clock))
        assert [e.success for e in result.episodes] == [True, False, False]
        assert result.episodes[0].frames == 10
        assert result.success_rate == pytest.approx(1 / 3)
        low, high = result.interval()
        assert (round(low, 3), round(high, 3)) == (0.061, 0.792)
        assert "Success: 1 of 3" in result.summary()

    def test_keys_judge_and_repeat(self, fakes, clock):
        """s and f give verdicts, left repeats, Esc stops."""
        keys = fakes.Keys({5: "s", 10: "left", 15: "f", 20: "q"})
        result = run_engine(
            fakes.Robot(), Engine(fakes.JOINTS), settings(num_episodes=9), runtime=Runtime(clock=clock, keys=keys)
        )
        assert [(e.success, e.ended_by) for e in result.episodes] == [
            (True, "success key"),
            (False, "failure key"),
            (None, "stop key"),
        ]
        assert result.stop_reason == "stop key"

    def test_total_duration_ends_it(self, fakes, clock):
        """The whole rollout is bounded too."""
        result = run_engine(
            fakes.Robot(), Engine(fakes.JOINTS), settings(num_episodes=9, duration=2.5), runtime=Runtime(clock=clock)
        )
        assert sum(e.frames for e in result.episodes) <= 76
        assert len(result.episodes) == 3

    def test_recording_keeps_judged_episodes_with_their_verdict(self, fakes, clock, tmp_path):
        """Saved as many as run, verdicts in the logbook, what was thrown away is not there."""
        from ulna.control import read_reports

        robot, engine = fakes.Robot(), Engine(fakes.JOINTS)
        dataset = fakes.Dataset(tmp_path, robot)
        keys = fakes.Keys({5: "s", 10: "left"})
        result = run_engine(
            robot,
            engine,
            settings(num_episodes=2),
            dataset=dataset,
            task="push",
            runtime=Runtime(clock=clock, keys=keys),
        )
        assert [len(e) for e in dataset.saved] == [5, 30]
        assert [r.success for r in read_reports(tmp_path)] == [True, None]
        assert (result.recorded, dataset.finalized) == (2, 1)
        assert float(dataset.saved[1][0]["action"][0]) == 0.5

    def test_dead_robot_keeps_recorded_episodes(self, fakes, clock, tmp_path):
        """An error leaves finished episodes, finalizes and releases torque."""
        robot = fakes.Robot()
        robot.faults.send[50] = MotorCommunicationError("lost")
        dataset = fakes.Dataset(tmp_path, robot)
        with pytest.raises(MotorCommunicationError):
            run_engine(robot, Engine(fakes.JOINTS), settings(), dataset=lambda: dataset, runtime=Runtime(clock=clock))
        assert [len(e) for e in dataset.saved] == [30]
        assert dataset.finalized == 1
        assert not robot.torque

    def test_hammering_ctrl_c_loses_no_recorded_episode(self, fakes, clock, tmp_path, monkeypatch):
        """Signals that come while the dataset is finished end the rollout only after that."""
        robot = fakes.Robot()
        dataset = fakes.Dataset(tmp_path, robot)
        finalize = dataset.finalize

        def hammered():
            for _ in range(4):
                os.kill(os.getpid(), signal.SIGINT)
            finalize()

        monkeypatch.setattr(dataset, "finalize", hammered)
        with pytest.raises(KeyboardInterrupt):
            run_engine(robot, Engine(fakes.JOINTS), settings(), dataset=dataset, runtime=Runtime(clock=clock))
        assert dataset.finalized == 1
        assert not robot.torque

    def test_ctrl_c_in_an_episode_drops_it(self, fakes, clock, tmp_path):
        """An interrupted episode is neither judged nor recorded."""
        robot = fakes.Robot()
        robot.on_observe = lambda: os.kill(os.getpid(), signal.SIGINT) if robot.observed == 20 else None
        dataset = fakes.Dataset(tmp_path, robot)
        result = run_engine(robot, Engine(fakes.JOINTS), settings(), dataset=dataset, runtime=Runtime(clock=clock))
        assert (result.episodes, dataset.saved, result.stop_reason) == ((), [], "interrupted")

    @pytest.mark.parametrize("mode", ["off", "ramp", "abort"])
    def test_action_that_is_not_finite_is_refused(self, fakes, clock, mode):
        """NaN never reaches the robot, however the guard is set; torque is off afterwards."""
        robot = fakes.Robot()
        guard = JumpGuardConfig(mode=mode)
        with pytest.raises(ActionError, match="not finite"):
            run_engine(robot, Engine(fakes.JOINTS, math.nan), settings(guard=guard), runtime=Runtime(clock=clock))
        assert all(value == 0 for sent in robot.sent for value in sent.values())
        assert not robot.torque

    def test_far_first_action_is_approached(self, fakes, clock):
        """A policy that starts elsewhere does not make the arm jump."""
        robot, engine = fakes.Robot(), Engine(fakes.JOINTS, 0.0)
        engine.act = lambda observation: dict.fromkeys(fakes.JOINTS, 90.0)
        run_engine(robot, engine, settings(num_episodes=1), runtime=Runtime(clock=clock))
        assert robot.sent[0]["pan.pos"] == pytest.approx(2)

    def test_lost_camera_ends_the_episode(self, fakes, clock):
        """The episode has no verdict; the next one runs with the camera reopened."""
        camera = fakes.Camera()
        robot = fakes.Robot({"front": camera})
        robot.on_observe = lambda: setattr(camera, "age_s", 9.0) if robot.observed == 12 else None
        result = run_engine(
            robot, Engine(fakes.JOINTS), settings(num_episodes=2), judge=lambda: False, runtime=Runtime(clock=clock)
        )
        assert [(e.ended_by, e.success) for e in result.episodes] == [("camera lost", None), ("time", False)]
        assert result.judged == 1

    def test_nothing_judged(self):
        """Without verdicts there is no rate, and the interval says nothing is known."""
        empty = RolloutResult(())
        assert math.isnan(empty.success_rate)
        assert empty.interval() == (0.0, 1.0)
        assert "Episodes: 0" in empty.summary()


class TestPolicyEngine:
    """A real torch policy, tiny, between a robot and its actions."""

    @pytest.fixture
    def make(self, fakes):
        torch = pytest.importorskip("torch")
        from ulna.control.policy_engine import PolicyEngine
        from ulna.core.features import FeatureType, PolicyFeature

        class Policy(torch.nn.Module):
            """Emits a chunk that names its episode: state echoed plus the episode number, from a queue."""

            def __init__(self, inputs, width=3):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(1))
                outputs = {"action": PolicyFeature(FeatureType.ACTION, (width,))}
                self.config = SimpleNamespace(input_features=inputs, output_features=outputs, use_amp=False)
                self.queue, self.episode, self.seen = [], -1, []

            @property
            def device(self):
                return self.scale.device

            def reset(self):
                self.queue, self.episode = [], self.episode + 1

            def select_action(self, batch):
                self.seen.append(batch)
                if not self.queue:
                    self.queue = [batch["observation.state"][:, :3] + 100 * self.episode] * 5
                return self.queue.pop(0)

        def build(robot, *, cameras=("front",), state=3, width=3, pre=None, post=None, **options):
            inputs = {"observation.state": PolicyFeature(FeatureType.STATE, (state,))}
            for camera in cameras:
                inputs[f"observation.images.{camera}"] = PolicyFeature(FeatureType.VISUAL, (3, 8, 12))
            return PolicyEngine(Policy(inputs, width), pre, post, robot, **options)

        return build

    def test_batch_is_what_policies_expect(self, fakes, make):
        """State in the order asked for, pictures channel first in [0, 1], the task as text."""
        from ulna.control.policy_engine import PolicyNames

        order = ("gripper.pos", "pan.pos", "lift.pos")
        engine = make(fakes.Robot({"front": fakes.Camera()}), names=PolicyNames(order, order), task="push")
        picture = np.zeros((8, 12, 3), np.uint8)
        picture[2, 5] = (255, 51, 0)
        batch = engine.batch({"pan.pos": 1.0, "lift.pos": 2.0, "gripper.pos": 3.0, "front": picture})
        assert batch["observation.state"].tolist() == [[3.0, 1.0, 2.0]]
        pixels = batch["observation.images.front"]
        assert tuple(pixels.shape) == (1, 3, 8, 12)
        assert pixels[0, :, 2, 5].tolist() == pytest.approx([1.0, 0.2, 0.0])
        assert batch["task"] == "push"

    def test_actions_come_back_under_their_names(self, fakes, make):
        """A policy trained in another order of joints moves the right ones."""
        from ulna.control.policy_engine import PolicyNames

        order = ("gripper.pos", "pan.pos", "lift.pos")
        engine = make(fakes.Robot(), cameras=(), names=PolicyNames(order, order))
        engine.reset()
        values = {"pan.pos": 1.0, "lift.pos": 2.0, "gripper.pos": 3.0}
        assert engine.act(values) == values

    def test_reset_drops_queued_actions(self, fakes, make):
        """The first action of an episode is its own, not the last one's."""
        engine = make(fakes.Robot(), cameras=())
        values = dict.fromkeys(fakes.JOINTS, 0.0)
        engine.reset()
        for _ in range(3):
            engine.act(values)
        engine.reset()
        assert engine.act(values)["pan.pos"] == 100

    def test_pipelines_surround_the_policy_and_are_reset(self, fakes, make):
        """Preprocessor before, postprocessor after, both reset with the episode."""
        calls = []

        class Pipeline:
            def __init__(self, function):
                self.function = function

            def __call__(self, value):
                return self.function(value)

            def reset(self):
                calls.append("reset")

        pre = Pipeline(lambda b: {**b, "observation.state": b["observation.state"] * 2})
        engine = make(fakes.Robot(), cameras=(), pre=pre, post=Pipeline(lambda a: a + 1))
        engine.reset()
        assert engine.act(dict.fromkeys(fakes.JOINTS, 5.0))["lift.pos"] == 11
        assert calls == ["reset", "reset"]

    def test_robot_without_cameras_is_told_to_take_some(self, fakes, make):
        """Joints are never offered in place of a picture."""
        with pytest.raises(IncompatibleError) as caught:
            make(fakes.Robot(), cameras=("front", "top"))
        assert caught.value.hint == (
            "Give the robot these cameras: --robot.cameras='{front: {type: ...}, top: {type: ...}}'"
        )

    def test_missing_camera_is_refused_by_name_and_can_be_mapped(self, fakes, make):
        """The error names the key, the nearest one and the flag; with the map it works."""
        robot = fakes.Robot({"front": fakes.Camera()})
        with pytest.raises(IncompatibleError, match=r"observation\.images\.front_cam \(nearest:.*front\)") as caught:
            make(robot, cameras=("front_cam",))
        assert caught.value.missing == ("observation.images.front_cam",)
        assert """{"observation.images.front": "observation.images.front_cam"}""" in caught.value.hint
        renames = {"observation.images.front": "observation.images.front_cam"}
        engine = make(robot, cameras=("front_cam",), rename_map=renames)
        observation = {**dict.fromkeys(fakes.JOINTS, 0.0), "front": np.zeros((8, 12, 3), np.uint8)}
        assert "observation.images.front_cam" in engine.batch(observation)

    def test_renaming_saved_in_the_preprocessor_counts(self, fakes, make):
        """A checkpoint trained with a rename map takes the robot's own names."""
        steps = [SimpleNamespace(rename_map={"observation.images.front": "observation.images.cam1"})]
        pre = SimpleNamespace(steps=steps)
        engine = make(fakes.Robot({"front": fakes.Camera()}), cameras=("cam1",), pre=pre)
        observation = {**dict.fromkeys(fakes.JOINTS, 0.0), "front": np.zeros((8, 12, 3), np.uint8)}
        assert "observation.images.front" in engine.batch(observation)

    @pytest.mark.parametrize(("sizes", "words"), [({"state": 4}, "state of 4"), ({"width": 2}, "gives 2 actions")])
    def test_other_sizes_are_refused(self, fakes, make, sizes, words):
        """A policy of another robot is not run."""
        with pytest.raises(IncompatibleError, match=words):
            make(fakes.Robot(), cameras=(), **sizes)

    def test_other_joints_are_refused(self, fakes, make):
        """Names that the robot does not have are listed."""
        from ulna.control.policy_engine import PolicyNames

        names = PolicyNames(("pan.pos", "lift.pos", "wrist.pos"), ("pan.pos", "lift.pos", "wrist.pos"))
        with pytest.raises(IncompatibleError, match=r"wrist\.pos"):
            make(fakes.Robot(), cameras=(), names=names)

    def test_unused_and_resized_cameras_are_told(self, fakes, make, caplog):
        """A picture of another size is a warning, an unused camera a note."""
        import logging

        caplog.set_level(logging.INFO)
        make(fakes.Robot({"front": fakes.Camera(shape=(4, 6, 3)), "top": fakes.Camera()}))
        assert "does not look at observation.images.top" in caplog.text
        assert "(3, 4, 6), the policy was trained on (3, 8, 12)" in caplog.text
