# SPDX-License-Identifier: Apache-2.0
"""A simulated wire with servos on it, and a bus connected to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ulna.core.motors import Motor, MotorCalibration, MotorNormMode
from ulna.motors.feetech import FeetechMotorsBus
from ulna.sim.bus import SimFeetechBus
from ulna.sim.clock import VirtualClock
from ulna.sim.feetech import SimFeetechServo
from ulna.sim.settling import settled_ports

NAMES = ("pan", "lift", "elbow", "flex", "roll", "gripper")


@pytest.fixture(autouse=True)
def times_of_the_simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A simulated bus answers at once: what it has not answered when it has settled is lost."""
    monkeypatch.setattr(FeetechMotorsBus, "scan_window_s", 0.02)
    monkeypatch.setattr(FeetechMotorsBus, "reply_timeout_s", 0.02)
    with settled_ports():
        yield


@pytest.fixture
def make_wire() -> Iterator[Callable[..., SimFeetechBus]]:
    """Make wires that are closed after the test."""
    wires: list[SimFeetechBus] = []

    def make(*servos: SimFeetechServo) -> SimFeetechBus:
        wires.append(SimFeetechBus(list(servos), clock=VirtualClock(), log_wire=True))
        return wires[-1]

    yield make
    for wire in wires:
        wire.close()


@pytest.fixture
def wire(make_wire: Callable[..., SimFeetechBus]) -> SimFeetechBus:
    """Six servos, ids 1 to 6."""
    return make_wire(*(SimFeetechServo(ident, position=1000 + 100 * ident) for ident in range(1, 7)))


@pytest.fixture
def motors() -> dict[str, Motor]:
    """Six motors; the last in 0..100, the one before in -100..100, the others in degrees."""
    modes = [MotorNormMode.DEGREES] * 4 + [MotorNormMode.RANGE_M100_100, MotorNormMode.RANGE_0_100]
    return {name: Motor(k + 1, "sts3215", modes[k]) for k, name in enumerate(NAMES)}


@pytest.fixture
def calibration() -> dict[str, MotorCalibration]:
    """A range for each of them."""
    return {name: MotorCalibration(k + 1, 0, 0, 500, 3500) for k, name in enumerate(NAMES)}


@pytest.fixture
def bus(
    wire: SimFeetechBus, motors: dict[str, Motor], calibration: dict[str, MotorCalibration]
) -> Iterator[FeetechMotorsBus]:
    """A connected bus on the six servos."""
    bus = FeetechMotorsBus(wire.port, motors, calibration)
    bus.connect()
    yield bus
    wire.faults.clear()
    bus.serial.close()
