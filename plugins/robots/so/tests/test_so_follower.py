# SPDX-License-Identifier: Apache-2.0
"""The follower on the simulated arm: connecting, moving, limits, rest, and what happens when something fails."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ulna.core.calibration import load_calibration, save_calibration
from ulna.core.clock import Clock
from ulna.core.errors import (
    ActionError,
    CalibrationError,
    DeviceConnectError,
    DeviceDisconnectError,
    MotorCommunicationError,
)
from ulna.core.motors import unnormalize
from ulna.robots.so import SOFollower
from ulna.robots.so.joints import JOINTS
from ulna.sim.simulation import Simulation

Make = Callable[..., SOFollower]
STILL = {f"{joint}.pos": 0.0 for joint in JOINTS}


def _pass(clock: Clock, seconds: float) -> None:
    clock.sleep_until(clock.now() + seconds)


def _torque(sim: Simulation, arm: str = "follower") -> list[bool]:
    return [servo.torque_enabled for servo in sim.arm(arm).servos.values()]


def test_it_connects_and_moves(sim: Simulation, make_follower: Make) -> None:
    """Goals are reached, observations carry the declared keys, torque ends off."""
    robot = make_follower()
    with robot:
        assert robot.is_calibrated
        assert all(_torque(sim))
        observation = robot.get_observation()
        assert list(observation) == list(robot.observation_features)
        goal = {**STILL, "shoulder_pan.pos": 20.0, "elbow_flex.pos": -15.0, "gripper.pos": 40.0}
        assert robot.send_action(goal) == goal
        sim.bus().settle()
        _pass(sim.clock, 2.0)
        reached = robot.get_observation()
        for key in ("shoulder_pan.pos", "elbow_flex.pos", "gripper.pos"):
            assert reached[key] == pytest.approx(goal[key], abs=3.0)
        assert sim.arm().joints["shoulder_pan"] == pytest.approx(20.0, abs=3.0)
    assert not any(_torque(sim))
    assert not robot.is_connected


def test_connecting_moves_nothing(sim: Simulation, make_follower: Make) -> None:
    """Torque comes on where the arm is, whatever goal the motors still hold."""
    for servo in sim.arm().servos.values():
        servo.set("Goal_Position", 3000)
    before = sim.arm().joints
    with make_follower():
        _pass(sim.clock, 0.5)
        assert sim.arm().joints == pytest.approx(before, abs=2.0)


def test_settings_reach_the_motors_once(sim: Simulation, make_follower: Make) -> None:
    """Gains and the gripper's limits are written where they differ, and not again at the next connection."""
    with make_follower(position_p_coefficient=20):
        pass
    servos = sim.arm().servos
    assert {
        name: (s.get("P_Coefficient"), s.get("I_Coefficient"), s.get("D_Coefficient")) for name, s in servos.items()
    } == (dict.fromkeys(JOINTS, (20, 0, 32)))
    grip = servos["gripper"]
    assert [grip.get(n) for n in ("Max_Torque_Limit", "Protection_Current", "Overload_Torque")] == [500, 250, 25]
    assert servos["shoulder_pan"].get("Max_Torque_Limit") == 1000
    start = len(sim.bus().wire)
    with make_follower(position_p_coefficient=20):
        pass
    writes = [r.data for r in sim.bus().wire[start:] if r.direction == "to_servos" and r.data[4] == 0x03]
    assert {packet[5] for packet in writes} <= {40, 42, 55}  # torque, goal and lock: nothing that wears out


def test_no_calibration(sim: Simulation, make_follower: Make, tmp_path: Path) -> None:
    """Without a file connecting fails with the command that helps, and leaves nothing open or stiff."""
    robot = make_follower(calibration_dir=tmp_path / "elsewhere")
    with pytest.raises(
        CalibrationError, match=r"ulna calibrate --robot.type=so101_follower --robot.port=.* --robot.id=sim"
    ):
        robot.connect()
    assert not robot.bus.is_connected
    assert not any(_torque(sim))
    assert not (tmp_path / "elsewhere").exists()
    robot.connect(calibrate=False)
    robot.disconnect()


def test_the_file_wins_over_the_motors(
    sim: Simulation, make_follower: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Motors that hold another calibration get the file's, and that is said."""
    servo = sim.arm().servos["elbow_flex"]
    servo.preset("Max_Position_Limit", 2500)
    servo.preset("Homing_Offset", 7)
    with caplog.at_level(logging.WARNING), make_follower() as robot:
        assert robot.is_calibrated
    saved = load_calibration(tmp_path / "calibration/robots/so_follower/sim.json")["elbow_flex"]
    assert (servo.get("Max_Position_Limit"), servo.get("Homing_Offset")) == (saved.range_max, saved.homing_offset)
    assert "writing the file's" in caplog.text


def test_a_foreign_calibration_file(make_follower: Make, tmp_path: Path) -> None:
    """A file that lacks joints, or is degenerate, is refused by name."""
    path = tmp_path / "calibration/robots/so_follower/sim.json"
    full = load_calibration(path)
    save_calibration(path, {n: c for n, c in full.items() if n != "gripper"})
    with pytest.raises(CalibrationError, match="says nothing of gripper"):
        make_follower().connect()
    path.write_text(path.read_text().replace(f'"range_max": {full["wrist_flex"].range_max}', '"range_max": 0'))
    with pytest.raises(CalibrationError, match="wrist_flex: range_min"):
        make_follower().connect()


def test_what_is_returned_is_what_was_sent(sim: Simulation, make_follower: Make) -> None:
    """Goals beyond a joint's range come back limited, and cut to ticks they give exactly what the motors got."""
    with make_follower() as robot:
        sent = robot.send_action({**STILL, "shoulder_pan.pos": 500.0, "elbow_flex.pos": -12.34567, "gripper.pos": -3.0})
        sim.bus().settle()
        assert sent["gripper.pos"] == 0.0
        assert 90 < sent["shoulder_pan.pos"] < 180
        for joint in JOINTS:
            motor, cal = robot.bus.motors[joint], robot.bus.calibration[joint]
            ticks = sim.arm().servos[joint].get("Goal_Position")
            assert ticks == unnormalize(sent[f"{joint}.pos"], cal, motor.norm_mode, 4096)
            assert cal.range_min <= ticks <= cal.range_max
        assert robot.send_action(sent) == sent


@pytest.mark.parametrize("cap", [5.0, {**dict.fromkeys(JOINTS, 90.0), "shoulder_pan": 5.0}])
def test_the_distance_of_a_step_is_limited(make_follower: Make, cap: float | dict[str, float]) -> None:
    """A goal lies at most `max_relative_target` from where the joint is, for all or for each."""
    with make_follower(max_relative_target=cap) as robot:
        here = robot.get_observation()
        sent = robot.send_action({key: here[key] for key in here} | {"shoulder_pan.pos": here["shoulder_pan.pos"] + 40})
        assert sent["shoulder_pan.pos"] == pytest.approx(here["shoulder_pan.pos"] + 5.0)


def test_ranges_instead_of_degrees(sim: Simulation, make_follower: Make) -> None:
    """With `use_degrees` off the joints are in -100..100."""
    with make_follower(use_degrees=False) as robot:
        robot.send_action({**STILL, "wrist_roll.pos": 100.0})
        sim.bus().settle()
        assert sim.arm().servos["wrist_roll"].get("Goal_Position") == 4095
        assert robot.action_features["wrist_roll.pos"].unit == "percent"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_actions_reach_no_motor(sim: Simulation, make_follower: Make, bad: float) -> None:
    """NaN, missing and unknown keys are refused before anything is written."""
    with make_follower() as robot:
        start = len(sim.bus().wire)
        for action in ({**STILL, "gripper.pos": bad}, {"gripper.pos": 0.0}, {**STILL, "grip.pos": 0.0}, {}):
            with pytest.raises(ActionError):
                robot.send_action(action)
        assert len(sim.bus().wire) == start


def test_torque_may_stay_on(sim: Simulation, make_follower: Make) -> None:
    """With `disable_torque_on_disconnect` off the arm holds its pose when it is disconnected."""
    robot = make_follower(disable_torque_on_disconnect=False)
    robot.connect()
    robot.disconnect()
    assert all(_torque(sim))


class BrokenCamera:
    """Stands for a camera whose cable is out."""

    def connect(self, warmup: bool = True) -> None:
        raise DeviceConnectError("Cannot open camera 0.")

    def disconnect(self) -> None:
        raise AssertionError("it was never open")


def test_a_camera_that_fails_leaves_nothing_open(sim: Simulation, make_follower: Make) -> None:
    """Connecting is atomic: the bus is closed again and the arm limp, even if it held torque before."""
    for servo in sim.arm().servos.values():
        servo.park_goal()
        servo.set("Torque_Enable", 1)
    robot = make_follower(disable_torque_on_disconnect=False)
    robot.cameras = {"front": BrokenCamera()}  # type: ignore[dict-item]
    with pytest.raises(DeviceConnectError, match="camera 0"):
        robot.connect()
    assert not robot.bus.is_connected
    assert not any(_torque(sim))
    robot.cameras = {}
    robot.connect()
    robot.disconnect()


def test_torque_is_released_after_any_error(sim: Simulation, make_follower: Make) -> None:
    """An exception or Ctrl-C in the middle of the work leaves the arm limp."""
    for error in (RuntimeError, KeyboardInterrupt):
        with contextlib.suppress(error), make_follower():
            assert all(_torque(sim))
            raise error
        assert not any(_torque(sim))


def test_a_motor_that_dies_at_work(sim: Simulation, make_follower: Make) -> None:
    """It is named; the others are released all the same, and the failure to release it is reported."""
    robot = make_follower()
    robot.connect()
    sim.bus().faults.kill(3)
    with pytest.raises(MotorCommunicationError, match=r"elbow_flex \(id 3\)"):
        robot.get_observation()
    with pytest.raises(DeviceDisconnectError, match="elbow_flex") as caught:
        robot.disconnect()
    assert list(caught.value.failures) == ["torque"]
    assert _torque(sim) == [False, False, True, False, False, False]
    robot.disconnect()


def test_a_lossy_wire_is_bridged(sim: Simulation, make_follower: Make) -> None:
    """Every fiftieth reply lost ends nothing."""
    with make_follower() as robot:
        sim.bus().faults.drop(every=50)
        for _ in range(40):
            robot.send_action(robot.get_observation())
        assert robot.bus.counters.retries > 0
        sim.bus().faults.clear()


def test_a_firm_grip_ends_nothing(sim: Simulation, make_follower: Make, caplog: pytest.LogCaptureFixture) -> None:
    """A gripper that squeezes something protects itself by an overload; the session goes on, with a warning."""
    with make_follower() as robot:
        sim.hand("follower").set({"gripper": 60.0})
        for _ in range(12):
            robot.send_action({**robot.get_observation(), "gripper.pos": 0.0})
            sim.bus().settle()
            _pass(sim.clock, 0.3)
        robot.get_observation()
        assert robot.bus.counters.faults["gripper"] > 0
        assert "gripper on" in caplog.text
        assert "overload" in caplog.text


def test_return_to_rest(sim: Simulation, make_follower: Make) -> None:
    """Before torque is released the arm can go back to the pose it had when it was connected."""
    with make_follower() as robot:
        rest = robot.get_observation()
        robot.send_action({**STILL, "shoulder_lift.pos": -20.0})
        sim.bus().settle()
        _pass(sim.clock, 2.0)
        robot.return_to_rest(0.1)
        sim.bus().settle()
        _pass(sim.clock, 2.0)
        assert robot.get_observation() == pytest.approx(rest, abs=4.0)


def test_return_to_rest_of_a_dead_bus(sim: Simulation, make_follower: Make) -> None:
    """It gives up at once when nothing answers, and is bounded in time when asked for none."""
    robot = make_follower()
    robot.connect()
    robot.return_to_rest(0.0)
    sim.bus().unplug()
    robot.return_to_rest(60.0)
    with pytest.raises(DeviceDisconnectError):
        robot.disconnect()


def test_the_constructor_touches_nothing(make_follower: Make, tmp_path: Path) -> None:
    """No file, folder or port comes of making a robot."""
    before = sorted(tmp_path.rglob("*"))
    robot = make_follower(port="/nowhere", calibration_dir=tmp_path / "new")
    assert sorted(tmp_path.rglob("*")) == before
    assert not robot.is_connected
    keys: dict[str, Any] = robot.observation_features.plain
    assert keys == {f"{joint}.pos": float for joint in JOINTS}
