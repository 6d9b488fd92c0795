# SPDX-License-Identifier: Apache-2.0
"""The Feetech bus and its distribution keep the contracts of Ulna: both protocols, on the simulator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ulna.core.motors import Motor, MotorNormMode, MotorsBus
from ulna.motors.feetech import FeetechMotorsBus
from ulna.sim.bus import SimFeetechBus
from ulna.sim.feetech import SimFeetechServo
from ulna.testing import MotorsBusSuite, PackagingSuite


class TestFeetechConformance(MotorsBusSuite):
    """Protocol 0."""

    model = "sts3215"

    @pytest.fixture
    def bus(self, make_wire: Callable[..., SimFeetechBus]) -> MotorsBus:
        """Three simulated servos."""
        self.wire = make_wire(*(SimFeetechServo(i, self.model) for i in (1, 2, 3)))
        modes = list(MotorNormMode)
        return FeetechMotorsBus(self.wire.port, {f"m{i}": Motor(i, self.model, modes[i - 1]) for i in (1, 2, 3)})

    def lose_replies(self, bus: MotorsBus, every: int) -> None:
        """Let the simulated wire lose them."""
        self.wire.faults.clear()
        if every:
            self.wire.faults.drop(every=every)

    def kill(self, bus: MotorsBus, motor: str) -> None:
        """Kill the simulated servo."""
        self.wire.faults.kill(bus.motors[motor].id)


class TestFeetechProtocol1Conformance(TestFeetechConformance):
    """Protocol 1."""

    model = "scs0009"

    @pytest.fixture(autouse=True)
    def short_pings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A scan of protocol 1 asks every id; the simulator needs no long wait for each."""
        monkeypatch.setattr("ulna.motors.feetech.bus._PING_EACH_TIMEOUT_S", 0.001)


class TestFeetechPackaging(PackagingSuite):
    """Its distribution."""

    vendor_modules = ("serial", "scservo_sdk")

    @pytest.fixture
    def distribution(self) -> str:
        """Its name."""
        return "ulna-motors-feetech"
