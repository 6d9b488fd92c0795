# SPDX-License-Identifier: Apache-2.0
"""The leader on the simulated arm: limp, readable, and stiff only when feedback is asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ulna.core.capabilities import HasBus, HasMotorSetup, HasTorque
from ulna.core.errors import ActionError, DeviceNotConnectedError
from ulna.robots.so import SOFollower, SOLeader
from ulna.robots.so.joints import JOINTS
from ulna.sim.simulation import Simulation


def test_it_follows_the_hand(sim: Simulation, leader: SOLeader) -> None:
    """The pose that a hand gives the arm is what comes out, in the follower's units."""
    pose = {"shoulder_pan": 30.0, "elbow_flex": -40.0, "wrist_roll": 90.0, "gripper": 75.0}
    with leader:
        sim.hand().set(pose)
        action = leader.get_action()
        assert list(action) == list(leader.action_features) == [f"{joint}.pos" for joint in JOINTS]
        for joint, value in pose.items():
            assert action[f"{joint}.pos"] == pytest.approx(value, abs=0.2)
        assert not any(servo.torque_enabled for servo in sim.arm("leader").servos.values())


def test_the_follower_takes_what_the_leader_gives(
    sim: Simulation, leader: SOLeader, make_follower: Callable[..., SOFollower]
) -> None:
    """Keys and units fit; the follower ends up where the leader is."""
    with leader, make_follower() as follower:
        sim.hand().set({"shoulder_pan": 15.0, "gripper": 50.0})
        follower.send_action(leader.get_action())
        sim.bus().settle()
        sim.clock.sleep_until(sim.clock.now() + 2.0)
        assert sim.arm().joints["shoulder_pan"] == pytest.approx(15.0, abs=3.0)
        assert sim.arm().joints["gripper"] == pytest.approx(50.0, abs=5.0)


def test_feedback_leads_the_hand(sim: Simulation, leader: SOLeader) -> None:
    """With torque on the arm goes where it is told; it is limp again after disconnecting."""
    leader.connect()
    leader.enable_torque()
    sim.hand().release()
    leader.send_feedback({**leader.get_action(), "shoulder_pan.pos": 25.0})
    sim.bus("leader").settle()
    sim.clock.sleep_until(sim.clock.now() + 2.0)
    assert sim.arm("leader").joints["shoulder_pan"] == pytest.approx(25.0, abs=4.0)
    with pytest.raises(ActionError):
        leader.send_feedback({"shoulder_pan.pos": 0.0})
    leader.disable_torque()
    leader.enable_torque()
    leader.disconnect()
    assert not any(servo.torque_enabled for servo in sim.arm("leader").servos.values())


def test_abilities_are_declared(leader: SOLeader) -> None:
    """What a leader can do is asked by protocol; nothing works while it is disconnected."""
    assert isinstance(leader, HasBus)
    assert isinstance(leader, HasTorque)
    assert isinstance(leader, HasMotorSetup)
    for call in (leader.get_action, leader.enable_torque, leader.disable_torque):
        with pytest.raises(DeviceNotConnectedError):
            call()
