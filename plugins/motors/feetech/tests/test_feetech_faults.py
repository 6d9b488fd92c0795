# SPDX-License-Identifier: Apache-2.0
"""A bad wire: lost, damaged and stray packets, dead motors, faults, an unplugged cable."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from ulna.core.errors import (
    DeviceConnectError,
    DeviceDisconnectError,
    MissingMotorsError,
    MotorCommunicationError,
    MotorStatusError,
)
from ulna.core.motors import Motor
from ulna.motors.feetech import FeetechMotorsBus
from ulna.sim.bus import SimFeetechBus
from ulna.sim.feetech import ERROR_HEAT, ERROR_OVERLOAD, SimFeetechServo

RAW = {"pan": 1100, "lift": 1200, "elbow": 1300, "flex": 1400, "roll": 1500, "gripper": 1600}


def test_every_fiftieth_reply_lost(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """A lossy wire costs retries, not the session, and the losses can be read off by motor."""
    wire.faults.drop(every=50)
    for _ in range(60):
        assert bus.sync_read("Present_Position", normalize=False) == RAW
    assert bus.counters.retries >= wire.counters.dropped > 5
    assert sum(bus.counters.lost.values()) >= wire.counters.dropped


def test_damaged_replies(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """A reply with a wrong checksum is never used."""
    wire.faults.corrupt(every=7)
    for _ in range(20):
        assert bus.sync_read("Present_Position", normalize=False) == RAW
    assert bus.counters.corrupt == wire.counters.corrupted > 5


def test_only_who_was_silent_is_asked_again(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """A retry asks the motors that did not answer; good answers are kept."""
    wire.faults.drop(motor=3, at=[1])
    start = len(wire.wire)
    assert bus.sync_read("Present_Position", normalize=False) == RAW
    requests = [record.data for record in wire.wire[start:] if record.direction == "to_servos"]
    assert len(requests) == 2
    assert requests[1][2] == 3


def test_a_dead_motor_is_named_soon(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """A dead joint raises with its name after the bounded attempts; the others are not blamed."""
    wire.faults.kill(4)
    start = time.monotonic()
    with pytest.raises(MotorCommunicationError, match=r"flex \(id 4\).*after 3 attempts") as caught:
        bus.sync_read("Present_Position")
    assert caught.value.motors == ("flex",)
    assert time.monotonic() - start < 2.0
    assert bus.counters.lost == {"flex": 3}
    with pytest.raises(MotorCommunicationError, match="flex"):
        bus.write("Torque_Enable", "flex", 0)


def test_retries_can_be_set_for_a_call(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """Zero retries give up at the first loss; more get through a worse wire."""
    wire.faults.drop(motor=1, at=[1])
    with pytest.raises(MotorCommunicationError, match="after 1 attempts"):
        bus.read("Present_Position", "pan", num_retry=0)
    wire.faults.drop(motor=2, at=[1, 2, 3, 4])
    assert bus.read("Present_Position", "lift", normalize=False, num_retry=4) == 1200


def test_unread_acknowledgements_do_no_harm(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """Answers nobody waited for are thrown away instead of being parsed as the next reading."""
    wire.faults.acknowledge_all()
    for _ in range(20):
        bus.sync_write("Torque_Enable", 0)
        assert bus.sync_read("Present_Position", normalize=False) == RAW
    bus.disable_torque()
    assert bus.torque_state() == dict.fromkeys(bus.motors, False)


def test_releasing_torque_tries_every_motor(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """One dead motor does not keep the others stiff; those that did not confirm are listed."""
    bus.enable_torque()
    wire.faults.kill(2)
    with pytest.raises(MotorCommunicationError) as caught:
        bus.disable_torque()
    assert caught.value.motors == ("lift",)
    assert [servo.torque_enabled for servo in wire.servos] == [False, True, False, False, False, False]


def test_disconnect_closes_the_port_whatever_happens(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """The port is closed and the silent motor reported; a second call is a no-op."""
    wire.faults.kill(2)
    with pytest.raises(DeviceDisconnectError, match="torque may still be on") as caught:
        bus.disconnect()
    assert list(caught.value.failures) == ["lift"]
    assert not bus.is_connected
    bus.disconnect()


@pytest.mark.parametrize("call", ["sync_read", "read", "write"])
def test_faults_are_reported(bus: FeetechMotorsBus, wire: SimFeetechBus, call: str) -> None:
    """Error bits of any motor raise with their names, in group reads too."""
    wire.faults.error(6, ERROR_OVERLOAD | ERROR_HEAT)
    calls: dict[str, Callable[[], object]] = {
        "sync_read": lambda: bus.sync_read("Present_Position"),
        "read": lambda: bus.read("Present_Position", "gripper"),
        "write": lambda: bus.write("Goal_Position", "gripper", 10.0),
    }
    with pytest.raises(MotorStatusError, match="gripper: overheating, overload") as caught:
        calls[call]()
    assert caught.value.faults == {"gripper": ("overheating", "overload")}
    assert bus.counters.faults == {"gripper": 1}
    assert bus.sync_read("Present_Position", ["pan", "lift"], normalize=False) == {"pan": 1100, "lift": 1200}


def test_faults_can_be_tolerated(bus: FeetechMotorsBus, wire: SimFeetechBus, caplog: pytest.LogCaptureFixture) -> None:
    """A fault that its owner tolerates is logged once, counted, and the values are used; others still raise."""
    bus.tolerated_faults = frozenset({"overload"})
    wire.faults.error(6, ERROR_OVERLOAD)
    for _ in range(3):
        assert bus.sync_read("Present_Position", normalize=False) == RAW
    assert bus.counters.faults == {"gripper": 3}
    assert caplog.text.count("gripper on") == 1
    wire.faults.error(6, ERROR_OVERLOAD | ERROR_HEAT)
    with pytest.raises(MotorStatusError, match="overheating"):
        bus.sync_read("Present_Position")


def test_a_faulty_motor_is_released_all_the_same(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """An overloaded motor obeys the release; its fault must not hide that, nor stop the others."""
    bus.enable_torque()
    wire.faults.error(1, ERROR_OVERLOAD)
    bus.disconnect()
    assert not any(servo.torque_enabled for servo in wire.servos)
    assert bus.counters.faults["pan"] >= 1


def test_an_unplugged_cable_is_an_error_not_a_hang(bus: FeetechMotorsBus, wire: SimFeetechBus) -> None:
    """Every call fails at once when the device vanishes, and disconnecting still closes the port."""
    wire.unplug()
    for call in (lambda: bus.sync_read("Present_Position"), lambda: bus.sync_write("Goal_Position", 0.0)):
        with pytest.raises(MotorCommunicationError, match=r"gone|No good answer"):
            call()
    with pytest.raises(DeviceDisconnectError):
        bus.disconnect()
    assert not bus.is_connected


def test_the_cable_before_the_first_missing_motor(
    make_wire: Callable[..., SimFeetechBus], motors: dict[str, Motor]
) -> None:
    """When all after some motor are silent, the message names the cable and the next commands."""
    wire = make_wire(*(SimFeetechServo(i) for i in (1, 2, 3)))
    with pytest.raises(MissingMotorsError) as caught:
        FeetechMotorsBus(wire.port, motors, num_retry=0).connect()
    assert caught.value.missing == ("flex", "roll", "gripper")
    text = str(caught.value)
    assert "check the cable from elbow to flex" in text
    assert "ids that answer: 1 (sts3215), 2 (sts3215), 3 (sts3215)" in text
    assert f"ulna motors scan --port={wire.port}" in text
    assert "ulna motors setup --robot.type=... --robot.port=... --only=flex" in text


def test_the_first_motor_missing(make_wire: Callable[..., SimFeetechBus], motors: dict[str, Motor]) -> None:
    """A motor that never got its id is told apart from a broken chain."""
    wire = make_wire(*(SimFeetechServo(i) for i in (2, 3, 4, 5, 6)))
    with pytest.raises(MissingMotorsError, match="cable before pan; two motors that share an id") as caught:
        FeetechMotorsBus(wire.port, motors, num_retry=0).connect()
    assert caught.value.missing == ("pan",)


def test_no_motor_at_all(make_wire: Callable[..., SimFeetechBus], motors: dict[str, Motor]) -> None:
    """Total silence points at the power supply."""
    wire = make_wire()
    with pytest.raises(MissingMotorsError, match="motor power supply"):
        FeetechMotorsBus(wire.port, motors, num_retry=0).connect()


def test_a_port_that_is_not_there() -> None:
    """The error says so and lists the ports there are."""
    with pytest.raises(
        DeviceConnectError, match=r"Cannot open the serial port /nowhere/tty7.*\nPorts of this computer: "
    ):
        FeetechMotorsBus("/nowhere/tty7", {}).connect()
