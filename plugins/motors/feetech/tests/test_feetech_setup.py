# SPDX-License-Identifier: Apache-2.0
"""Finding motors at any speed and giving one its id."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ulna.core.errors import MissingMotorsError
from ulna.core.motors import Motor
from ulna.motors.feetech import FeetechMotorsBus, FeetechMotorsBusConfig
from ulna.sim.bus import SimFeetechBus
from ulna.sim.feetech import SimFeetechServo

MakeWire = Callable[..., SimFeetechBus]


def test_scan_finds_every_speed(make_wire: MakeWire) -> None:
    """Motors of all models are found at the speed they listen at, and nothing is changed on them."""
    wire = make_wire(SimFeetechServo(1), SimFeetechServo(7, "sm8512bl", baud=115_200), SimFeetechServo(9, baud=128_000))
    assert FeetechMotorsBus.scan_port(wire.port) == {115_200: {7: 11272}, 128_000: {9: 777}, 1_000_000: {1: 777}}
    assert FeetechMotorsBus.scan_port(wire.port, baudrates=[500_000]) == {}


def test_scan_of_protocol_1_asks_every_id(make_wire: MakeWire, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCS servos do not answer a broadcast, so each id is asked; their number is read in their byte order."""
    monkeypatch.setattr("ulna.motors.feetech.bus._PING_EACH_TIMEOUT_S", 0.005)
    wire = make_wire(SimFeetechServo(3, "scs0009"), SimFeetechServo(200, "scs0009"))
    found = FeetechMotorsBus.scan_port(wire.port, baudrates=[1_000_000], protocol_version=1)
    assert found == {1_000_000: {3: 1284, 200: 1284}}


def test_ping_tells_models_of_either_protocol(make_wire: MakeWire) -> None:
    """A scan does not know yet what hangs there: the number is right whatever its byte order."""
    wire = make_wire(SimFeetechServo(3, "scs0009"), SimFeetechServo(4))
    with FeetechMotorsBus(wire.port, {}) as bus:
        assert (bus.ping(3), bus.ping(4), bus.ping(5, num_retry=0)) == (1284, 777, None)


def test_setup_of_a_new_motor(make_wire: MakeWire, motors: dict[str, Motor]) -> None:
    """A motor with a foreign id and speed gets those of its joint, and keeps them without power."""
    wire = make_wire(SimFeetechServo(1, baud=115_200))
    bus = FeetechMotorsBus(wire.port, motors)
    bus.setup_motor("flex")
    servo = wire.servos[0]
    servo.power_cycle()
    assert (servo.id, servo.baud, servo.get("Lock")) == (4, 1_000_000, 1)
    assert bus.ping("flex") == 777
    bus.disconnect(disable_torque=False)


def test_setup_with_what_is_known(make_wire: MakeWire, motors: dict[str, Motor]) -> None:
    """Given speed and id, nothing is searched."""
    wire = make_wire(SimFeetechServo(9, baud=57_600))
    bus = FeetechMotorsBus(wire.port, motors)
    bus.setup_motor("pan", initial_baudrate=57_600, initial_id=9)
    assert (wire.servos[0].id, wire.servos[0].baud) == (1, 1_000_000)
    bus.disconnect(disable_torque=False)


def test_a_motor_that_is_right_is_not_rewritten(make_wire: MakeWire, motors: dict[str, Motor]) -> None:
    """Setting up again writes neither id nor speed."""
    wire = make_wire(SimFeetechServo(4))
    bus = FeetechMotorsBus(wire.port, motors)
    bus.setup_motor("flex")
    written = {r.data[5] for r in wire.wire if r.direction == "to_servos" and r.data[4] == 0x03}
    assert written.isdisjoint({5, 6})
    bus.disconnect(disable_torque=False)


def test_several_motors_plugged_in(wire: SimFeetechBus, motors: dict[str, Motor]) -> None:
    """With the whole chain connected nothing is written."""
    bus = FeetechMotorsBus(wire.port, motors)
    with pytest.raises(MissingMotorsError, match="only pan may be plugged in"):
        bus.setup_motor("pan")
    assert [servo.id for servo in wire.servos] == [1, 2, 3, 4, 5, 6]
    bus.disconnect(disable_torque=False)


def test_the_wrong_model_plugged_in(make_wire: MakeWire, motors: dict[str, Motor]) -> None:
    """Another model is refused before its id is changed."""
    wire = make_wire(SimFeetechServo(1, "sts3250"))
    bus = FeetechMotorsBus(wire.port, motors)
    with pytest.raises(MissingMotorsError, match="is a sts3250, but lift must be a sts3215"):
        bus.setup_motor("lift")
    assert wire.servos[0].id == 1
    bus.disconnect(disable_torque=False)


def test_nothing_plugged_in(make_wire: MakeWire, motors: dict[str, Motor]) -> None:
    """Silence at every speed says what to check."""
    wire = make_wire()
    bus = FeetechMotorsBus(wire.port, motors)
    with pytest.raises(MissingMotorsError, match=r"No motor answers.*lift expected"):
        bus.setup_motor("lift")
    bus.disconnect(disable_torque=False)


def test_the_configuration_names_its_bus() -> None:
    """The plugin's config leads to the bus class."""
    config = FeetechMotorsBusConfig(port="/dev/ttyACM0")
    assert config.type == "feetech"
    assert config.load_implementation() is FeetechMotorsBus
