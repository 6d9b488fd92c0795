# SPDX-License-Identifier: Apache-2.0
"""How a servo moves: modes, limits, wrap, hands, gravity, protections."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.sim.feetech import (
    ERROR_CURRENT,
    ERROR_HEAT,
    ERROR_OVERLOAD,
    ERROR_VOLTAGE,
    MODELS,
    SimFeetechServo,
)


def run(servo: SimFeetechServo, seconds: float) -> SimFeetechServo:
    """Advance in steps of a control loop."""
    for _ in range(round(seconds * 50)):
        servo.advance(0.02)
    return servo


def powered(model: str = "sts3215", **settings: float) -> SimFeetechServo:
    servo = SimFeetechServo(1, model, **settings)  # type: ignore[arg-type]
    servo.set("Torque_Enable", 1)
    return servo


@pytest.mark.parametrize("model", sorted(MODELS))
def test_reaches_its_goal_without_overshoot(model: str) -> None:
    servo = powered(model)
    goal = servo.spec.resolution * 3 // 4
    servo.set("Goal_Position", goal)
    highest = 0
    for _ in range(100):
        servo.advance(0.02)
        highest = max(highest, servo.get("Present_Position"))
    assert servo.get("Present_Position") == pytest.approx(goal, abs=1)
    assert highest <= goal + 10
    assert servo.get("Moving") == 0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 4095), st.sampled_from([16, 32]))
def test_every_goal_is_reached_with_usual_gains(goal: int, gain: int) -> None:
    servo = powered()
    servo.set("P_Coefficient", gain)
    servo.set("Goal_Position", goal)
    assert run(servo, 3.0).get("Present_Position") == pytest.approx(goal, abs=1)


def test_motion_takes_time_and_shows_in_the_registers() -> None:
    servo = powered()
    servo.set("Goal_Position", 3500)
    run(servo, 0.2)
    assert 2048 < servo.get("Present_Position") < 3500
    assert servo.get("Present_Velocity") > 100
    assert servo.get("Present_Load") > 0
    assert servo.get("Moving") == 1


def test_goal_velocity_caps_the_speed() -> None:
    servo = powered()
    servo.set("Goal_Velocity", 500)
    servo.set("Goal_Position", 4000)
    run(servo, 1.0)
    assert servo.get("Present_Velocity") == pytest.approx(500, abs=20)
    assert servo.get("Present_Position") < 2048 + 520


def test_acceleration_delays_the_start() -> None:
    slow, fast = powered(), powered()
    slow.set("Acceleration", 5)
    for servo in (slow, fast):
        servo.set("Goal_Position", 3500)
        run(servo, 0.2)
    assert slow.position < fast.position


def test_small_steps_give_the_same_as_large_ones() -> None:
    fine, coarse = powered(), powered()
    for servo in (fine, coarse):
        servo.set("Goal_Position", 3000)
    for _ in range(200):
        fine.advance(0.0025)
    coarse.advance(0.5)
    assert fine.position == pytest.approx(coarse.position, abs=1e-6)


def test_position_limits_hold_the_goal_back() -> None:
    servo = powered()
    servo.set("Max_Position_Limit", 2500)
    servo.set("Goal_Position", 4000)
    assert run(servo, 2.0).get("Present_Position") == pytest.approx(2500, abs=1)


def test_present_position_is_actual_minus_offset() -> None:
    servo = SimFeetechServo(1, position=3000)
    servo.set("Homing_Offset", 953)
    assert servo.get("Present_Position") == 2047
    servo.set("Homing_Offset", -500)
    assert servo.get("Present_Position") == 3500


@settings(deadline=None)
@given(st.integers(-10_000, 10_000), st.integers(-2047, 2047))
def test_single_turn_readings_stay_in_range(actual: int, offset: int) -> None:
    servo = SimFeetechServo(1)
    servo.set("Homing_Offset", offset)
    servo.position = actual
    assert servo.get("Present_Position") == (actual - offset) % 4096


@settings(deadline=None)
@given(st.integers(-20_000, 20_000))
def test_multi_turn_readings_count_on(actual: int) -> None:
    servo = SimFeetechServo(1, multi_turn=True)
    servo.position = actual
    assert servo.get("Present_Position") == actual


def test_sweep_across_the_seam_wraps() -> None:
    servo = SimFeetechServo(1, position=3900)
    servo.hold(4096 + 300, rate=1000)
    seen = [servo.get("Present_Position")]
    for _ in range(60):
        servo.advance(0.01)
        seen.append(servo.get("Present_Position"))
    assert min(seen) < 20
    assert max(seen) > 4075
    assert seen[-1] == 300


def test_power_cycle_forgets_full_turns_but_not_the_angle() -> None:
    servo = SimFeetechServo(1, multi_turn=True)
    servo.position = 4096 * 2 + 100
    servo.power_cycle()
    assert servo.get("Present_Position") == 100


def test_torque_centre_command_makes_the_pose_the_middle() -> None:
    servo = SimFeetechServo(1, position=3100)
    servo.set("Torque_Enable", 128)
    assert servo.get("Present_Position") == 2048
    servo.power_cycle()
    assert servo.get("Present_Position") == 2048


def test_old_goal_is_pursued_when_torque_comes_back() -> None:
    servo = SimFeetechServo(1)
    servo.set("Goal_Position", 2600)
    assert run(servo, 0.5).get("Present_Position") == 2048
    servo.set("Torque_Enable", 1)
    assert run(servo, 1.0).get("Present_Position") == pytest.approx(2600, abs=1)


def test_velocity_mode_turns_at_the_asked_speed_both_ways() -> None:
    servo = SimFeetechServo(1)
    servo.set("Operating_Mode", 1)
    servo.set("Torque_Enable", 1)
    for speed in (800, -800):
        servo.set("Goal_Velocity", speed)
        assert run(servo, 2.0).get("Present_Velocity") == pytest.approx(speed, abs=40)


def test_pwm_mode_applies_a_duty_cycle() -> None:
    servo = SimFeetechServo(1)
    servo.set("Operating_Mode", 2)
    servo.set("Torque_Enable", 1)
    servo.set("Goal_Time", -500)
    run(servo, 1.0)
    assert servo.get("Present_Load") == -500
    assert servo.get("Present_Velocity") == pytest.approx(-1700, abs=20)


def test_step_mode_moves_on_by_steps_beyond_a_turn() -> None:
    servo = SimFeetechServo(1)
    servo.set("Operating_Mode", 3)
    servo.set("Torque_Enable", 1)
    for _ in range(2):
        servo.set("Goal_Position", 3000)
        run(servo, 3.0)
    assert servo.position == pytest.approx(2048 + 6000, abs=2)


def test_a_free_joint_sags_and_a_powered_one_droops_little() -> None:
    free, held = SimFeetechServo(1), powered()
    for servo in (free, held):
        servo.motion.external = 0.3
        run(servo, 1.0)
    assert free.position > 2048 + 100
    assert 0 < held.position - 2048 < 20
    assert held.get("Present_Load") == pytest.approx(-300, abs=20)


def test_friction_holds_a_light_load() -> None:
    servo = SimFeetechServo(1)
    servo.motion.external = 0.04
    assert run(servo, 1.0).position == 2048


def test_end_stops_block() -> None:
    servo = SimFeetechServo(1, stops=(1000, 3000))
    servo.set("Torque_Enable", 1)
    servo.set("Goal_Position", 3500)
    assert run(servo, 1.0).get("Present_Position") == 3000
    assert servo.get("Present_Load") == 1000


def test_torque_limit_limits_the_load() -> None:
    servo = SimFeetechServo(1, stops=(1000, 3000))
    servo.set("Torque_Limit", 200)
    servo.set("Torque_Enable", 1)
    servo.set("Goal_Position", 3500)
    run(servo, 4.0)
    assert servo.get("Present_Load") == 200


def test_overload_trips_after_the_protection_time_and_backing_off_clears_it() -> None:
    servo = powered()
    servo.hold(2048)
    servo.set("Goal_Position", 3000)
    run(servo, 1.5)
    assert servo.errors == 0
    run(servo, 1.0)
    assert servo.errors == ERROR_OVERLOAD
    assert servo.get("Status") == ERROR_OVERLOAD
    assert servo.get("Present_Load") == 200  # Protective_Torque, 20 %
    servo.set("Goal_Position", 2000)
    assert servo.errors == 0


def test_overload_is_cleared_by_writing_torque() -> None:
    servo = powered()
    servo.hold(2048)
    servo.set("Goal_Position", 3000)
    run(servo, 2.5)
    servo.set("Torque_Enable", 0)
    assert servo.errors == 0


def test_over_current_releases_the_motor() -> None:
    servo = powered()
    servo.set("Protection_Current", 100)
    servo.set("Over_Current_Protection_Time", 20)
    servo.hold(2048)
    servo.set("Goal_Position", 3000)
    run(servo, 0.5)
    assert servo.errors & ERROR_CURRENT
    assert not servo.torque_enabled


def test_heat_builds_up_under_load_and_trips() -> None:
    servo = powered()
    servo.set("Overload_Torque", 100)
    servo.set("Max_Temperature_Limit", 50)
    servo.hold(2048)
    servo.set("Goal_Position", 3000)
    cold = servo.get("Present_Temperature")
    run(servo, 5.0)
    assert servo.get("Present_Temperature") > cold
    assert servo.torque_enabled
    servo.motion.temperature = 51.0
    assert servo.errors == ERROR_HEAT
    run(servo, 0.02)
    assert not servo.torque_enabled


def test_the_motor_goes_the_long_way_round_rather_than_across_the_seam() -> None:
    servo = SimFeetechServo(1, position=4000)
    servo.set("Torque_Enable", 1)
    servo.set("Goal_Position", 100)
    run(servo, 0.5)
    assert 100 < servo.get("Present_Position") < 4000
    assert run(servo, 2.0).position == pytest.approx(100, abs=1)


def test_wrong_supply_voltage_is_an_error() -> None:
    servo = SimFeetechServo(1)
    assert servo.get("Present_Voltage") == 74
    servo.supply_v = 3.0
    assert servo.errors == ERROR_VOLTAGE


def test_a_hand_moves_a_free_joint_at_its_rate() -> None:
    servo = SimFeetechServo(1)
    servo.hold(3048, rate=1000)
    run(servo, 0.5)
    assert servo.position == pytest.approx(2548, abs=25)
    assert run(servo, 1.0).position == 3048
    servo.hold(None)
    assert run(servo, 1.0).position == 3048
