# SPDX-License-Identifier: Apache-2.0
"""Calibrating and setting up SO arms as dialogues, with a scripted operator at the simulated arm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ulna.core.calibration import CalibrationStep, drive, load_calibration
from ulna.core.errors import CalibrationError, DeviceAlreadyConnectedError, DeviceNotConnectedError
from ulna.robots.so import SOFollower, SOFollowerRobotConfig, SOLeader
from ulna.robots.so.joints import JOINTS
from ulna.sim.bus import SimFeetechBus
from ulna.sim.clock import VirtualClock
from ulna.sim.feetech import SimFeetechServo
from ulna.sim.kinematics import JOINT_LIMITS
from ulna.sim.simulation import Simulation


class Operator:
    """Leads the hand through a calibration: middle pose, every joint from stop to stop, gripper closed."""

    def __init__(self, sim: Simulation, arm: str, first: str = "calibrate") -> None:
        self.hand, self.first = sim.hand(arm), first
        self.kinds: list[str] = []

    def __call__(self, step: CalibrationStep) -> str:
        self.kinds.append(step.kind)
        if step.kind == "choose":
            assert set(step.choices) == {"keep", "calibrate"}
            return self.first
        limits = {name: span for name, span in JOINT_LIMITS.items() if name != "wrist_roll"}
        if step.kind == "progress":
            sweep = self.kinds.count("progress")
            share = min(1.0, (sweep - 1) / 10)
            self.hand.set({name: low + share * (high - low) for name, (low, high) in limits.items()})
            return "done" if sweep == 12 else ""
        if "Close" in step.message:
            self.hand.set({"gripper": 0.0})
        else:
            self.hand.set({name: (low + high) / 2 for name, (low, high) in limits.items()} | {"wrist_roll": 0.0})
        return ""


def test_calibrating_a_follower(sim: Simulation, make_follower: Callable[..., SOFollower], tmp_path: Path) -> None:
    """The dialogue ends with a saved calibration that the motors hold, and the arm then reads right."""
    robot = make_follower(id="new")
    robot.connect(calibrate=False)
    operator = Operator(sim, "follower")
    drive(robot.calibrate(), operator)
    assert operator.kinds == ["confirm", *["progress"] * 12, "confirm"]
    saved = load_calibration(tmp_path / "calibration/robots/so_follower/new.json")
    assert list(saved) == list(JOINTS)
    assert robot.is_calibrated
    sim.hand("follower").set({"shoulder_pan": 0.0, "elbow_flex": 20.0, "gripper": 50.0})
    middle = sum(JOINT_LIMITS["elbow_flex"]) / 2
    read = robot.get_observation()
    assert read["elbow_flex.pos"] == pytest.approx(20.0 - middle, abs=0.5)
    assert read["gripper.pos"] == pytest.approx(50.0, abs=1.0)
    robot.disconnect()
    with robot:
        assert robot.is_calibrated


def test_keeping_a_calibration(sim: Simulation, leader: SOLeader) -> None:
    """With a file there, keeping it writes it to the motors and asks nothing more."""
    sim.arm("leader").servos["gripper"].preset("Max_Position_Limit", 100)
    leader.connect(calibrate=False)
    operator = Operator(sim, "leader", first="keep")
    drive(leader.calibrate(), operator)
    assert operator.kinds == ["choose"]
    assert leader.is_calibrated
    leader.disconnect()


def test_calibrating_needs_a_name_and_a_connection(make_follower: Callable[..., SOFollower]) -> None:
    """Both are asked for before the operator has done any work."""
    robot = make_follower(id=None)
    with pytest.raises(DeviceNotConnectedError):
        next(robot.calibrate())
    robot.connect(calibrate=False)
    with pytest.raises(CalibrationError, match="no id"):
        next(robot.calibrate())
    robot.disconnect()


def test_an_interrupted_calibration_changes_no_file(
    sim: Simulation, make_follower: Callable[..., SOFollower], tmp_path: Path
) -> None:
    """Stopping half way leaves the old file as it was."""
    path = tmp_path / "calibration/robots/so_follower/sim.json"
    before = path.read_text()
    robot = make_follower()
    robot.connect()
    dialogue = robot.calibrate()
    operator = Operator(sim, "follower")
    step = next(dialogue)
    for _ in range(5):
        step = dialogue.send(operator(step))
    dialogue.close()
    robot.disconnect()
    assert path.read_text() == before


@pytest.fixture
def bench() -> Iterator[SimFeetechBus]:
    """A wire to plug single motors into."""
    with SimFeetechBus([], clock=VirtualClock()) as wire:
        yield wire


def _plug(wire: SimFeetechBus, *servos: SimFeetechServo) -> None:
    with wire.lock:
        wire.servos[:] = servos


def test_setting_up_all_motors(bench: SimFeetechBus) -> None:
    """Motor after motor, fresh from the box, gets its id; the chain then connects."""
    robot = SOFollower(SOFollowerRobotConfig(port=bench.port))
    done: list[SimFeetechServo] = []
    asked: list[str] = []

    def answer(step: CalibrationStep) -> str:
        asked.append(step.message)
        done.append(SimFeetechServo(1, baud=1_000_000 if len(done) % 2 else 115_200))
        _plug(bench, done[-1])
        return ""

    drive(robot.setup_motors(), answer)
    assert [servo.id for servo in done] == [6, 5, 4, 3, 2, 1]
    assert "gripper motor alone" in asked[0]
    assert not robot.bus.is_connected
    _plug(bench, *done)
    robot.connect(calibrate=False)
    robot.disconnect()


def test_setting_up_one_motor(bench: SimFeetechBus) -> None:
    """A single joint can be done, again after a failure, or left out."""
    robot = SOFollower(SOFollowerRobotConfig(port=bench.port, num_read_retries=0))
    servo = SimFeetechServo(1)
    messages: list[str] = []

    def answer(step: CalibrationStep) -> str:
        messages.append(step.message)
        if step.kind == "choose":
            assert step.choices == ("retry", "skip")
            _plug(bench, servo)
            return "retry"
        return ""

    drive(robot.setup_motors(only="wrist_flex"), answer)
    assert servo.id == 4
    assert len(messages) == 2
    assert "No motor answers" in messages[1]
    with pytest.raises(ValueError, match="No joint 'wrist'"):
        next(robot.setup_motors(only="wrist"))


def test_setup_is_refused_while_connected(make_follower: Callable[..., SOFollower]) -> None:
    """The chain is plugged in then, so no motor is alone."""
    with make_follower() as robot, pytest.raises(DeviceAlreadyConnectedError):
        next(robot.setup_motors())
