# SPDX-License-Identifier: Apache-2.0
"""Kinematics, calibration, gravity and hands of the simulated arm."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ulna.core.errors import ConfigError, ControlError
from ulna.sim.arm import SimArm, joint_to_ticks, ticks_to_joint
from ulna.sim.kinematics import (
    FOREARM_M,
    HAND_M,
    JOINT_LIMITS,
    JOINTS,
    REST_POSE,
    SHOULDER_FORWARD_M,
    SHOULDER_HEIGHT_M,
    UPPER_ARM_M,
    forward_kinematics,
    gravity_load,
    inverse_kinematics,
)

ZERO = dict.fromkeys(JOINTS, 0.0)
REACH = inverse_kinematics((0.2, 0.05, 0.05))

joint_values = st.fixed_dictionaries(
    {name: st.floats(limits.low, limits.high) for name, limits in JOINT_LIMITS.items()}
)


def run(arm: SimArm, seconds: float) -> SimArm:
    arm.advance(0.0 if arm._time is None else arm._time)
    assert arm._time is not None
    arm.advance(arm._time + seconds)
    return arm


def power(arm: SimArm) -> SimArm:
    for servo in arm.servos.values():
        servo.set("P_Coefficient", 16)
        servo.set("Torque_Enable", 1)
    return arm


def test_zero_pose_is_an_upright_upper_arm_with_the_rest_level() -> None:
    expected = (SHOULDER_FORWARD_M + FOREARM_M + HAND_M, 0.0, SHOULDER_HEIGHT_M + UPPER_ARM_M)
    assert forward_kinematics(ZERO) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("joint", "axis", "sign"),
    [("shoulder_pan", 1, 1), ("shoulder_lift", 0, 1), ("elbow_flex", 2, -1), ("wrist_flex", 2, -1)],
)
def test_positive_angles_turn_as_documented(joint: str, axis: int, sign: int) -> None:
    moved = forward_kinematics({**ZERO, joint: 10.0})[axis] - forward_kinematics(ZERO)[axis]
    assert math.copysign(1, moved) == sign


@settings(deadline=None)
@given(st.floats(0.12, 0.27), st.floats(-100, 100), st.floats(0.0, 0.15), st.floats(-90, -60))
def test_inverse_kinematics_inverts_forward_kinematics(reach: float, pan: float, height: float, pitch: float) -> None:
    target = (reach * math.cos(math.radians(pan)), reach * math.sin(math.radians(pan)), height)
    try:
        joints = inverse_kinematics(target, hand_pitch_deg=pitch)
    except ControlError:
        assume(False)
    assert forward_kinematics(joints) == pytest.approx(target, abs=1e-9)
    upper = 90 - joints["shoulder_lift"]
    assert upper - 90 - joints["elbow_flex"] - joints["wrist_flex"] == pytest.approx(pitch)


@pytest.mark.parametrize("target", [(0.6, 0.0, 0.05), (-0.2, 0.01, 0.05), (0.03, 0.0, 0.02)])
def test_unreachable_points_say_why(target: tuple[float, float, float]) -> None:
    with pytest.raises(ControlError, match="cannot reach"):
        inverse_kinematics(target)


@settings(deadline=None)
@given(joint_values)
def test_ticks_and_joint_values_convert_back(joints: dict[str, float]) -> None:
    for name, value in joints.items():
        assert ticks_to_joint(name, joint_to_ticks(name, value)) == pytest.approx(value, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(joint_values, st.integers(0, 5))
def test_calibrated_readings_agree_with_the_joints(joints: dict[str, float], seed: int) -> None:
    arm = SimArm(seed=seed)
    arm.place(joints)
    for name, entry in arm.calibration.items():
        raw = arm.servos[name].get("Present_Position")
        middle = (entry["range_min"] + entry["range_max"]) / 2
        if name == "gripper":
            value = 100 * (raw - entry["range_min"]) / (entry["range_max"] - entry["range_min"])
        else:
            value = (raw - middle) * 360 / 4095
        assert value == pytest.approx(joints[name], abs=0.06), name


def test_an_uncalibrated_arm_has_factory_registers_and_chance_assembly() -> None:
    arms = [SimArm(seed=seed, calibrated=False) for seed in (1, 2)]
    for arm in arms:
        assert all(servo.get("Homing_Offset") == 0 for servo in arm.servos.values())
        assert all(servo.get("Max_Position_Limit") == 4095 for servo in arm.servos.values())
    readings = [[servo.get("Present_Position") for servo in arm.servos.values()] for arm in arms]
    assert readings[0] != readings[1]


def test_calibration_survives_a_power_cycle() -> None:
    arm = SimArm()
    for name, servo in arm.servos.items():
        servo.power_cycle()
        assert servo.get("Homing_Offset") == arm.calibration[name]["homing_offset"]


def test_it_rests_in_the_rest_pose_without_torque() -> None:
    arm = run(SimArm(), 5.0)
    assert arm.joints == pytest.approx(dict(REST_POSE))


def test_it_sags_without_torque_but_not_through_the_table() -> None:
    arm = SimArm()
    arm.place(REACH)
    run(arm, 3.0)
    assert arm.tip[2] < 0.02
    assert arm.tip[2] > -0.01


def test_powered_it_droops_only_a_little() -> None:
    arm = SimArm()
    arm.place(REACH)
    run(power(arm), 1.0)
    assert 0.0 < 0.05 - arm.tip[2] < 0.015


def test_it_follows_goals_within_its_limits() -> None:
    arm = power(SimArm())
    for name, value in REACH.items():
        arm.servos[name].set("Goal_Position", round(joint_to_ticks(name, value)))
    run(arm, 3.0)
    assert math.dist(arm.tip, (0.2, 0.05, 0.05)) < 0.015


def test_gravity_pulls_an_outstretched_arm_most() -> None:
    stretched = gravity_load({**ZERO, "shoulder_lift": 90.0, "elbow_flex": -90.0})
    upright = gravity_load({**ZERO, "elbow_flex": -90.0})
    assert stretched["shoulder_lift"] > 0.3
    assert abs(upright["shoulder_lift"]) < 0.01
    assert stretched["shoulder_pan"] == 0.0


def test_a_hand_moves_the_free_arm_and_holds_it() -> None:
    arm = SimArm()
    arm.advance(0.0)
    arm.hand.move_to(REACH, at_rate=100.0)
    arm.advance(0.5)
    assert arm.joints["shoulder_lift"] == pytest.approx(-50.0, abs=1.0)
    arm.advance(3.0)
    assert arm.joints == pytest.approx(REACH)
    assert arm.hand.holds
    arm.hand.release()
    assert not arm.hand.holds
    arm.advance(5.0)
    assert arm.tip[2] < 0.03


def test_hands_and_places_know_the_joints() -> None:
    arm = SimArm()
    with pytest.raises(ConfigError) as caught:
        arm.hand.set({"elbow": 1.0, "wrist_flex": 200.0})
    assert len(caught.value.problems) == 2
    with pytest.raises(ConfigError, match="shoulder_pan"):
        arm.place({"shoulder_pan": 111.0})


def test_time_does_not_run_backwards() -> None:
    arm = SimArm()
    arm.place(REACH)
    arm.advance(10.0)
    arm.advance(5.0)
    assert arm.joints == pytest.approx(REACH)
