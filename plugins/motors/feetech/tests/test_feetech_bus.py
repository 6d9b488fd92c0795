# SPDX-License-Identifier: Apache-2.0
"""The bus on a simulated wire: values, units, handshake, torque, permanent registers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.core.errors import (
    CalibrationError,
    ConfigError,
    DeviceAlreadyConnectedError,
    DeviceConnectError,
    DeviceNotConnectedError,
    MissingMotorsError,
)
from ulna.core.motors import Motor, MotorCalibration, MotorNormMode, normalize, unnormalize
from ulna.motors.feetech import FeetechMotorsBus, OperatingMode
from ulna.sim.bus import SimFeetechBus
from ulna.sim.feetech import SimFeetechServo

DEG = MotorNormMode.DEGREES


def test_positions_come_by_name_in_user_units(bus: FeetechMotorsBus) -> None:
    """Group and single reads agree with the exact formulas, whatever order the names are given in."""
    raw = {name: 1000 + 100 * motor.id for name, motor in bus.motors.items()}
    want = {n: normalize(raw[n], bus.calibration[n], m.norm_mode, 4096) for n, m in bus.motors.items()}
    assert bus.sync_read("Present_Position") == want
    assert bus.sync_read("Present_Position", normalize=False) == raw
    assert list(bus.sync_read("Present_Position", ["roll", "pan"]).items()) == [
        ("roll", want["roll"]),
        ("pan", want["pan"]),
    ]
    assert {n: bus.read("Present_Position", n) for n in bus.motors} == want


def test_goals_are_cut_as_the_formulas_say(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """A group write puts into each register what `unnormalize` gives, also for mirrored motors and beyond the range."""
    bus.calibration = {**bus.calibration, "gripper": replace(bus.calibration["gripper"], drive_mode=1)}
    goal = {"pan": 33.3, "lift": -200.0, "roll": -250.0, "gripper": 20.0}
    bus.sync_write("Goal_Position", goal)
    wire.settle()
    for name, value in goal.items():
        motor, cal = bus.motors[name], bus.calibration[name]
        want = unnormalize(value, cal, motor.norm_mode, 4096, inverted=name == "gripper")
        assert wire.servos[motor.id - 1].get("Goal_Position") == want
    bus.write("Goal_Position", "pan", -12.5)
    assert wire.servos[0].get("Goal_Position") == unnormalize(-12.5, bus.calibration["pan"], DEG, 4096)


def test_a_new_calibration_counts_at_once(bus: FeetechMotorsBus) -> None:
    """Prepared conversions never outlive the calibration they were made from, also when it is changed in place."""
    before = bus.sync_read("Present_Position")
    bus.calibration["pan"] = MotorCalibration(1, 0, 0, 0, 4095)
    after = bus.sync_read("Present_Position")
    assert after["pan"] == normalize(1100, bus.calibration["pan"], DEG, 4096) != before["pan"]
    assert {n: v for n, v in after.items() if n != "pan"} == {n: v for n, v in before.items() if n != "pan"}


def test_a_mirrored_gripper_closes_at_zero(bus: FeetechMotorsBus) -> None:
    """With drive_mode 1, 0 % is at the top of the range, in reading as in writing."""
    for mode, ticks in ((0, 500), (1, 3500)):
        cal = MotorCalibration(6, mode, 0, 500, 3500)
        bus.calibration["gripper"] = cal
        bus.sync_write("Goal_Position", {"gripper": 0.0})
        assert bus.read("Goal_Position", "gripper", normalize=False) == ticks
        assert bus.read("Goal_Position", "gripper") == 0.0


@settings(deadline=None)
@given(st.integers(-32767, 32767))
def test_signed_registers_round_trip(value: int) -> None:
    """Sign and magnitude are taken apart and put together again."""
    bus = FeetechMotorsBus("nowhere", {})
    register = bus.model_ctrl_table["sts3215"]["Goal_Position"]
    assert bus._decode(register, bus._encode(register, value)) == value


@pytest.mark.parametrize(
    ("register", "value"),
    [("Homing_Offset", 2048), ("Homing_Offset", -2048), ("Torque_Enable", 256), ("Torque_Limit", -1)],
)
def test_what_does_not_fit_is_refused(bus: FeetechMotorsBus, wire: SimFeetechBus, register: str, value: int) -> None:
    """Overflow is an error before anything is sent, not a wrong number in the motor."""
    sent = len(wire.wire)
    with pytest.raises(ValueError, match="does not fit"):
        bus.write(register, "pan", value)
    assert len(wire.wire) == sent


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_goals_must_be_finite(bus: FeetechMotorsBus, wire: SimFeetechBus, bad: float) -> None:
    """A NaN among good goals stops the whole packet."""
    sent = len(wire.wire)
    with pytest.raises(ValueError, match="Goal_Position of lift: expected a finite number"):
        bus.sync_write("Goal_Position", {"pan": 0.0, "lift": bad})
    with pytest.raises(ValueError, match="finite"):
        bus.write("Goal_Position", "pan", bad)
    assert len(wire.wire) == sent


def test_an_empty_write_does_nothing(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """A teleoperator without joints must not crash the bus."""
    sent = len(wire.wire)
    bus.sync_write("Goal_Position", {})
    assert len(wire.wire) == sent


def test_names_are_checked(bus: FeetechMotorsBus) -> None:
    """Unknown motors and registers are named, with what comes nearest."""
    with pytest.raises(ValueError, match="did you mean 'gripper'"):
        bus.sync_read("Present_Position", ["griper"])
    with pytest.raises(ValueError, match="did you mean 'Present_Position'"):
        bus.sync_read("Present_Positon")


def test_positions_need_a_calibration(wire: SimFeetechBus, motors: dict[str, Motor]) -> None:
    """Without one, user units are an error that names the motor; raw ticks work."""
    with FeetechMotorsBus(wire.port, motors) as bus:
        with pytest.raises(CalibrationError, match="'pan'") as caught:
            bus.sync_read("Present_Position")
        assert caught.value.motors == ("pan",)
        assert bus.sync_read("Present_Position", normalize=False)["pan"] == 1100


def test_life_cycle(wire: SimFeetechBus, motors: dict[str, Motor]) -> None:
    """Made without I/O, connected once, usable only in between, disconnected any number of times."""
    bus = FeetechMotorsBus(wire.port, motors)
    assert not wire.wire
    with pytest.raises(DeviceNotConnectedError):
        bus.sync_read("Present_Position", normalize=False)
    with pytest.raises(DeviceNotConnectedError):
        bus.sync_write("Goal_Position", 2048, normalize=False)
    bus.connect()
    with pytest.raises(DeviceAlreadyConnectedError):
        bus.connect()
    bus.sync_read("Present_Position", normalize=False)
    bus.disconnect()
    bus.disconnect()
    with pytest.raises(DeviceNotConnectedError):
        bus.sync_read("Present_Position", normalize=False)


def test_the_port_belongs_to_one_process_at_a_time(bus: FeetechMotorsBus) -> None:
    """A second opening says that another program has the port."""
    other = FeetechMotorsBus(bus.port, {})
    with pytest.raises(DeviceConnectError, match="Another program has it open"):
        other.connect(handshake=False)


def test_configuration_errors() -> None:
    """Shared ids, unknown models and mixed protocols are refused when the bus is made."""
    with pytest.raises(ConfigError, match="a has it too"):
        FeetechMotorsBus("p", {"a": Motor(1, "sts3215", DEG), "b": Motor(1, "sts3215", DEG)})
    with pytest.raises(ConfigError, match="did you mean 'sts3215'"):
        FeetechMotorsBus("p", {"a": Motor(1, "STS-3215", DEG)})
    with pytest.raises(ConfigError, match="one protocol"):
        FeetechMotorsBus("p", {"a": Motor(1, "sts3215", DEG), "b": Motor(2, "scs0009", DEG)})
    with pytest.raises(ConfigError, match="one protocol"):
        FeetechMotorsBus("p", {"a": Motor(1, "sts3215", DEG)}, protocol_version=1)


def test_torque_holds_where_the_motor_is(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """Enabling sets the goal to the present position first, so that nothing jumps to an old goal."""
    wire.servos[0].set("Goal_Position", 3000)
    bus.enable_torque()
    assert [servo.get("Goal_Position") for servo in wire.servos] == [1100, 1200, 1300, 1400, 1500, 1600]
    assert all(servo.torque_enabled and servo.get("Lock") == 1 for servo in wire.servos)
    bus.disable_torque()
    assert not any(servo.torque_enabled or servo.get("Lock") for servo in wire.servos)


def test_a_holding_motor_keeps_its_goal(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """Enabling again changes nothing for a motor that is on its way."""
    bus.enable_torque()
    bus.write("Goal_Position", "pan", 2000, normalize=False)
    bus.enable_torque()
    assert wire.servos[0].get("Goal_Position") == 2000


def test_step_mode_gets_no_goal(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """In step mode a goal is a step: writing the position there would turn the motor."""
    bus.write("Operating_Mode", "pan", OperatingMode.STEP)
    before = wire.servos[0].get("Goal_Position")
    bus.enable_torque("pan")
    assert wire.servos[0].get("Goal_Position") == before


def test_torque_disabled_restores_what_was(bus: FeetechMotorsBus) -> None:
    """Only motors that held torque before hold it after the block, also when it raises."""
    bus.enable_torque(["pan", "roll"])
    with contextlib.suppress(ZeroDivisionError), bus.torque_disabled():
        assert not any(bus.torque_state().values())
        raise ZeroDivisionError
    assert bus.torque_state() == {n: n in ("pan", "roll") for n in bus.motors}


def test_permanent_registers_are_spared(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """Configuring twice writes once."""
    bus.configure_motors()
    start = len(wire.wire)
    bus.configure_motors()
    instructions = {record.data[4] for record in wire.wire[start:] if record.direction == "to_servos"}
    assert instructions == {0x82}
    assert [servo.get("Return_Delay_Time") for servo in wire.servos] == [0] * 6


def test_settings_survive_the_power_switch(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """A permanent write opens the lock, whether torque is on or off, and closes it again."""
    bus.enable_torque("pan")
    bus.write_if_different("P_Coefficient", dict.fromkeys(bus.motors, 16))
    assert wire.servos[0].get("Lock") == 1
    for servo in wire.servos:
        servo.power_cycle()
        assert servo.get("P_Coefficient") == 16


def test_calibration_registers(bus: FeetechMotorsBus, calibration: dict[str, MotorCalibration]) -> None:
    """What is written is read back and counts as calibrated; the direction is not stored and does not matter."""
    assert not bus.is_calibrated
    bus.write_calibration(calibration)
    assert bus.is_calibrated
    assert bus.read_calibration() == calibration
    bus.calibration["gripper"] = replace(calibration["gripper"], drive_mode=1)
    assert bus.is_calibrated
    bus.calibration["gripper"] = replace(calibration["gripper"], range_max=3501)
    assert not bus.is_calibrated


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"range_min": 3500}, "range_min must be below range_max"),
        ({"range_min": 3600}, "range_min must be below range_max"),
        ({"range_max": 4096}, r"range 500\.\.4096, but a sts3215 has 0\.\.4095"),
        ({"homing_offset": 2048}, "homing_offset 2048, at most ±2047"),
        ({"id": 9}, "id 9, but the motor has 2"),
    ],
)
def test_a_foreign_calibration_is_refused(
    bus: FeetechMotorsBus,
    wire: SimFeetechBus,
    calibration: dict[str, MotorCalibration],
    change: dict[str, int],
    text: str,
) -> None:
    """Degenerate or foreign values name the joint, and nothing is written."""
    start = len(wire.wire)
    with pytest.raises(CalibrationError, match=text) as caught:
        bus.write_calibration({**calibration, "lift": replace(calibration["lift"], **change)})
    assert caught.value.motors == ("lift",)
    assert len(wire.wire) == start


def test_protocol_1_reads_motor_by_motor(make_wire: Callable[..., SimFeetechBus]) -> None:
    """SCS servos know no sync read and no homing offset: the capabilities say so, and the calls still work."""
    wire = make_wire(*(SimFeetechServo(i, "scs0009", position=100 * i) for i in (1, 2, 3)))
    motors = {f"m{i}": Motor(i, "scs0009", MotorNormMode.RANGE_0_100) for i in (1, 2, 3)}
    with FeetechMotorsBus(wire.port, motors) as bus:
        assert not bus.capabilities.sync_read
        assert not bus.capabilities.broadcast_ping
        assert bus.sync_read("Present_Position", normalize=False) == {"m1": 100, "m2": 200, "m3": 300}
        bus.write_calibration({n: MotorCalibration(m.id, 0, 0, 0, 1023) for n, m in motors.items()})
        assert bus.is_calibrated
        bus.sync_write("Goal_Position", dict.fromkeys(motors, 50.0))
        assert bus.sync_read("Goal_Position", normalize=False) == dict.fromkeys(motors, 511)
        with pytest.raises(CalibrationError, match="no homing offset"):
            bus.set_half_turn_homings()
        wire.faults.drop(at=[2])
        assert bus.sync_read("Present_Position", normalize=False)["m3"] == 300


def test_another_model_is_told(make_wire: Callable[..., SimFeetechBus], motors: dict[str, Motor]) -> None:
    """A wrong model is an error that says what is there."""
    wire = make_wire(SimFeetechServo(1), SimFeetechServo(2, "sts3250"))
    bus = FeetechMotorsBus(wire.port, {n: motors[n] for n in ("pan", "lift")})
    with pytest.raises(MissingMotorsError, match=r"lift \(id 2\) is a sts3250, not a sts3215") as caught:
        bus.connect()
    assert caught.value.wrong_model == {"lift": 2825}
    assert not bus.is_connected


def test_mixed_firmware_is_refused(make_wire: Callable[..., SimFeetechBus], motors: dict[str, Motor]) -> None:
    """Motors of one bus run one firmware; the versions are listed."""
    wire = make_wire(SimFeetechServo(1), SimFeetechServo(2, firmware=(3, 9)))
    bus = FeetechMotorsBus(wire.port, {n: motors[n] for n in ("pan", "lift")})
    with pytest.raises(DeviceConnectError, match=r"pan 3\.10, lift 3\.9"):
        bus.connect()
    assert not bus.is_connected
