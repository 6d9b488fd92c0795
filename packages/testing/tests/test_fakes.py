# SPDX-License-Identifier: Apache-2.0
"""The fakes do what they say: faults come when planned, calls are logged, registration is undone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ulna.core.calibration import CalibrationStep, drive
from ulna.core.cameras import CameraConfig, CameraState
from ulna.core.clock import Clock
from ulna.core.errors import (
    DeviceConnectError,
    DeviceDisconnectError,
    DeviceError,
    FrameTimeoutError,
    MotorCommunicationError,
    StaleFrameError,
)
from ulna.core.factories import make_robot_from_config, make_teleoperator_from_config
from ulna.core.plugins import registry as current_registry
from ulna.core.robots import RobotConfig
from ulna.core.teleoperators import TeleoperatorConfig
from ulna.testing.fakes import (
    Call,
    FakeCamera,
    FakeCameraConfig,
    FakeClock,
    FakeEnv,
    FakeRobot,
    FakeRobotConfig,
    FakeTeleoperator,
    FakeTeleoperatorConfig,
    FaultPlan,
    fake_plugins,
    isolated_registry,
)
from ulna.testing.fakes.plugins import FAKES


@pytest.fixture
def robot() -> Iterator[FakeRobot]:
    with fake_plugins():
        made = FakeRobot(FakeRobotConfig(cameras={"front": FakeCameraConfig()}))
    yield made
    made.faults.replug()
    made.faults.revive()
    made.faults.lose()
    made.disconnect()


def test_fakes_are_registered_for_the_block() -> None:
    """Inside fake_plugins every fake is found by its type; afterwards none is."""
    with isolated_registry() as reg:
        with fake_plugins():
            assert {(r.kind, r.type) for r in reg.records()} == set(FAKES)
            robot = make_robot_from_config(RobotConfig.choose({"type": "fake_robot", "id": "a"}))
            teleoperator = make_teleoperator_from_config(TeleoperatorConfig.choose({"type": "fake_teleop"}))
            camera = CameraConfig.choose({"type": "fake_camera"}).load_implementation()
            assert (type(robot), type(teleoperator), camera) == (FakeRobot, FakeTeleoperator, FakeCamera)
            assert current_registry() is reg
        assert reg.records() == []


def test_every_nth_reply_is_lost(robot: FakeRobot) -> None:
    """Lost replies are repeated by the bus; without repetition the caller sees them."""
    robot.connect()
    robot.faults.lose(every=3)
    for _ in range(10):
        robot.get_observation()
    assert robot.bus.counters.retries >= 4
    robot.bus.num_retry = 0
    robot.faults.lose(every=1)
    with pytest.raises(MotorCommunicationError, match="shoulder"):
        robot.get_observation()


def test_losses_by_chance_repeat_with_the_seed() -> None:
    """The same seed loses the same replies."""
    lost = []
    for seed in (1, 1, 2):
        plan = FaultPlan(seed=seed)
        plan.lose(probability=0.3)
        lost.append([bool(plan.silent(["a"])) for _ in range(50)])
    assert lost[0] == lost[1] != lost[2]
    assert 5 < sum(lost[0]) < 25
    with pytest.raises(ValueError, match="probability"):
        FaultPlan().lose(probability=2)


def test_dead_motor_is_named_and_revived(robot: FakeRobot) -> None:
    """A dead motor fails with its name until it is revived; disconnecting reports it and releases the others."""
    robot.connect()
    robot.faults.kill("elbow")
    with pytest.raises(MotorCommunicationError) as error:
        robot.get_observation()
    assert error.value.motors == ("elbow",)
    with pytest.raises(DeviceDisconnectError, match="elbow"):
        robot.disconnect()
    assert [n for n, held in robot.bus.memory.items() if held["Torque_Enable"]] == ["elbow"]
    robot.faults.revive()
    robot.connect()
    robot.disconnect()
    assert not any(held["Torque_Enable"] for held in robot.bus.memory.values())


def test_exception_at_call_n(robot: FakeRobot) -> None:
    """An error is raised in the planned call of the planned method, once."""
    robot.connect()
    robot.faults.fail("sync_write", RuntimeError("brown-out"), at=3)
    action = {"shoulder.pos": 10.0, "elbow.pos": 0.0, "gripper.pos": 0.0}
    robot.send_action(action)
    robot.send_action(action)
    with pytest.raises(RuntimeError, match="brown-out"):
        robot.send_action(action)
    robot.send_action(action)
    assert robot.faults.count("sync_write") == 4
    assert robot.faults.calls[-1] == Call(
        "sync_write", ("Goal_Position", {"shoulder": 10.0, "elbow": 0.0, "gripper": 0.0})
    )


def test_unplug_and_replug() -> None:
    """An unplugged device does not answer and cannot be opened; plugged in again it can."""
    teleoperator = FakeTeleoperator(FakeTeleoperatorConfig())
    teleoperator.connect()
    teleoperator.pose["elbow.pos"] = 7.0
    assert teleoperator.get_action()["elbow.pos"] == 7.0
    teleoperator.faults.unplug()
    with pytest.raises(DeviceError):
        teleoperator.get_action()
    teleoperator.disconnect()
    with pytest.raises(DeviceConnectError):
        teleoperator.connect()
    teleoperator.faults.replug()
    with teleoperator:
        teleoperator.send_feedback(dict.fromkeys(teleoperator.feedback_features, 1.0))
        assert teleoperator.feedback == {"shoulder.pos": 1.0, "elbow.pos": 1.0, "gripper.pos": 1.0}


def test_frozen_camera_stalls_and_recovers() -> None:
    """A frozen camera times out, becomes stalled, shows no old frame as new, and goes on when it thaws."""
    camera = FakeCamera(FakeCameraConfig(fps=10))
    with camera:
        first = camera.read_frame()
        camera.faults.freeze()
        with pytest.raises(FrameTimeoutError):
            camera.read_frame(timeout_ms=1000)
        assert camera.state is CameraState.STALLED
        with pytest.raises(StaleFrameError) as stale:
            camera.read_latest(max_age_ms=500)
        assert stale.value.age_ms >= 1000
        camera.faults.thaw()
        assert camera.read_frame().number > first.number
        assert camera.state is CameraState.LIVE
        assert np.unique(camera.read()).size == 1
    assert camera.state is CameraState.CLOSED


def test_slow_calls_take_time_of_the_clock() -> None:
    """A slow call moves the plan's clock and nothing else."""
    clock = FakeClock(start_s=5.0)
    plan = FaultPlan(clock=clock)
    plan.slow("read", 0.25)
    plan.called("read")
    plan.called("write")
    assert clock.now() == 5.25
    assert isinstance(clock, Clock)
    clock.advance(1.0)
    clock.sleep_until(1.0)
    assert clock.now() == 6.25
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_robot_moves_and_limits(robot: FakeRobot) -> None:
    """The fake robot is where it was sent, within its largest step, and limp when moved by hand."""
    robot.config.max_relative_target = 5.0
    with robot:
        here = robot.get_observation()["elbow.pos"]
        sent = robot.send_action({"shoulder.pos": 0.0, "elbow.pos": here + 50, "gripper.pos": 0.0})
        assert sent["elbow.pos"] == pytest.approx(here + 5)
        assert robot.get_observation()["elbow.pos"] == pytest.approx(here + 5, abs=0.1)
        robot.bus.hand("elbow", 1024)
        assert robot.get_observation()["elbow.pos"] == pytest.approx(here + 5, abs=0.1)
        robot.bus.disable_torque("elbow")
        robot.bus.hand("elbow", 1024)
        assert robot.get_observation()["elbow.pos"] == -100


def test_robot_is_calibrated_by_a_dialogue(ulna_home: object) -> None:
    """The joints move by themselves while ranges are recorded, and the file is written under the robot's id."""
    robot = FakeRobot(FakeRobotConfig(id="arm"))
    steps: list[CalibrationStep] = []

    def answer(step: CalibrationStep) -> str:
        steps.append(step)
        return "done" if len(steps) > 6 else ""

    with robot:
        drive(robot.calibrate(), answer)
        assert robot.is_calibrated
    saved = FakeRobot(FakeRobotConfig(id="arm")).load_calibration()
    assert {(c.range_min, c.range_max) for c in saved.values()} == {(1099, 2999)}
    assert [s.kind for s in steps[:2]] == ["confirm", "progress"]


def test_environment_is_solved_by_walking_to_the_goal() -> None:
    """Walking towards the goal succeeds; standing still is cut off."""
    env = FakeEnv(num_envs=2, episode_length=20)
    observation, _ = env.reset(seed=1)
    succeeded = False
    for _ in range(20):
        place, goal = np.split(observation["agent_pos"], 2, axis=1)
        observation, _, terminated, _, info = env.step(np.clip((goal - place) / 0.2, -1, 1))
        succeeded = succeeded or bool(terminated.any() and info["final_info"]["is_success"].any())
    assert succeeded
    env.reset(seed=1)
    ends = [env.step(np.zeros((2, 2), np.float32))[3] for _ in range(20)]
    assert ends[-1].all()
    assert not np.any(ends[:-1])
    assert len(env.render()) == 2
