# SPDX-License-Identifier: Apache-2.0
"""Two arms as one device: together or not at all, and both released whatever happens to one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ulna.core.calibration import CalibrationStep, drive
from ulna.core.errors import ActionError, DeviceDisconnectError, MissingMotorsError, MotorCommunicationError
from ulna.core.files import write_json
from ulna.robots.so import BiSOFollower, BiSOFollowerConfig, BiSOLeader, BiSOLeaderConfig
from ulna.robots.so.joints import JOINTS
from ulna.sim.arm import SimArm
from ulna.sim.bus import SimFeetechBus
from ulna.sim.clock import VirtualClock


class Side:
    """A simulated arm on its wire."""

    def __init__(self, seed: int) -> None:
        self.arm = SimArm(seed=seed)
        self.wire = SimFeetechBus(list(self.arm.servos.values()), clock=VirtualClock(), lock=self.arm.lock)

    @property
    def torque(self) -> list[bool]:
        return [servo.torque_enabled for servo in self.arm.servos.values()]


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[dict[str, Side]]:
    """A left and a right arm with calibration files for `two_left` and `two_right`."""
    made = {name: Side(seed) for seed, name in enumerate(("left", "right"))}
    for name, side in made.items():
        write_json(tmp_path / f"two_{name}.json", side.arm.calibration)
    yield made
    for side in made.values():
        side.wire.close()


@pytest.fixture
def robot(sides: dict[str, Side], tmp_path: Path) -> Iterator[BiSOFollower]:
    """A pair of followers, not connected."""
    arms = {f"{name}_arm_config": {"port": side.wire.port, "num_read_retries": 0} for name, side in sides.items()}
    robot = BiSOFollower(BiSOFollowerConfig(id="two", calibration_dir=tmp_path, **arms))  # type: ignore[arg-type]
    yield robot
    for arm in (robot.left, robot.right):
        arm.bus.serial.close()


def test_both_arms_move(sides: dict[str, Side], robot: BiSOFollower) -> None:
    """Keys carry the side; each arm gets its own goals."""
    with robot:
        assert robot.is_calibrated
        observation = robot.get_observation()
        assert list(observation) == [f"{side}_{joint}.pos" for side in sides for joint in JOINTS]
        sent = robot.send_action({**observation, "left_shoulder_pan.pos": 10.0, "right_shoulder_pan.pos": -10.0})
        for name, side in sides.items():
            side.wire.settle()
            goal = side.arm.servos["shoulder_pan"].get("Goal_Position")
            assert (goal > 2047) is (name == "left")
            assert abs(sent[f"{name}_shoulder_pan.pos"]) == 10.0
        with pytest.raises(ActionError, match="shoulder_pan"):
            robot.send_action({f"left_{joint}.pos": 0.0 for joint in JOINTS})
    assert not any(sides["left"].torque + sides["right"].torque)


def test_one_arm_missing_rolls_the_other_back(sides: dict[str, Side], robot: BiSOFollower) -> None:
    """The right arm cannot connect: the left is released and closed, and the error is the right arm's."""
    sides["right"].wire.faults.kill(2)
    with pytest.raises(MissingMotorsError, match="shoulder_lift"):
        robot.connect()
    assert not robot.is_connected
    assert not robot.left.is_connected
    assert not any(sides["left"].torque)
    sides["right"].wire.faults.clear()
    robot.connect()
    robot.disconnect()


def test_disconnecting_tries_both(sides: dict[str, Side], robot: BiSOFollower) -> None:
    """A left arm that does not answer does not keep the right one stiff; it is safe to call again."""
    robot.connect()
    sides["right"].wire.faults.kill(1)
    with pytest.raises(DeviceDisconnectError, match="right arm") as caught:
        robot.disconnect()
    assert list(caught.value.failures) == ["right arm"]
    assert not any(sides["left"].torque)
    assert not robot.left.bus.is_connected
    assert not robot.right.bus.is_connected
    robot.disconnect()


def test_releasing_torque_tries_both(sides: dict[str, Side], robot: BiSOFollower) -> None:
    """The same for torque alone."""
    robot.connect()
    sides["left"].wire.faults.kill(1)
    with pytest.raises(MotorCommunicationError):
        robot.disable_torque()
    assert not any(sides["right"].torque)
    sides["left"].wire.faults.clear()
    robot.enable_torque()
    assert all(sides["left"].torque + sides["right"].torque)
    robot.return_to_rest(0.0)
    robot.disconnect()


def test_a_pair_of_leaders(sides: dict[str, Side], tmp_path: Path) -> None:
    """Both poses come with their side; feedback goes to the side it is for."""
    arms = {f"{name}_arm_config": {"port": side.wire.port} for name, side in sides.items()}
    leader = BiSOLeader(BiSOLeaderConfig(id="two", calibration_dir=tmp_path, **arms))  # type: ignore[arg-type]
    with leader:
        sides["left"].arm.hand.set({"gripper": 20.0})
        sides["right"].arm.hand.set({"gripper": 80.0})
        action = leader.get_action()
        assert action["left_gripper.pos"] == pytest.approx(20.0, abs=0.2)
        assert action["right_gripper.pos"] == pytest.approx(80.0, abs=0.2)
        assert leader.action_features == leader.feedback_features
        leader.send_feedback(action)
    assert not any(sides["left"].torque + sides["right"].torque)


def test_setup_and_calibration_go_arm_by_arm(sides: dict[str, Side], robot: BiSOFollower) -> None:
    """The left arm's dialogue comes first; a single joint is named with its side."""
    with pytest.raises(ValueError, match="left_gripper"):
        next(robot.setup_motors(only="gripper"))
    assert "gripper" in next(robot.setup_motors(only="right_gripper")).message
    assert "gripper" in next(robot.setup_motors()).message
    robot.connect()
    kinds: list[str] = []

    def keep(step: CalibrationStep) -> str:
        kinds.append(step.kind)
        return "keep"

    drive(robot.calibrate(), keep)
    robot.configure()
    assert kinds == ["choose", "choose"]
    robot.disconnect()


def test_arms_are_told_apart(robot: BiSOFollower) -> None:
    """Messages of an arm carry its id."""
    assert (str(robot.left), str(robot.right)) == ("two_left SOFollower", "two_right SOFollower")
