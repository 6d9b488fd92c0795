# SPDX-License-Identifier: Apache-2.0
"""What an author gives to the checks of motor buses, and how these connect and calibrate one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from ulna.core.errors import DeviceError
from ulna.core.motors import MotorCalibration, MotorsBus
from ulna.testing.checks import NotExercised, Suite

__all__ = ["MotorsBusSubject"]


class MotorsBusSubject(Suite):
    """The fixture and the hooks of `MotorsBusSuite`, whose docstring describes them."""

    subject: ClassVar[str] = "bus"
    goal_name: ClassVar[str | None] = "Goal_Position"
    position_name: ClassVar[str] = "Present_Position"
    lost_every: ClassVar[int] = 5

    @pytest.fixture
    def bus(self) -> MotorsBus:
        """Give a disconnected bus. The one thing an author overrides."""
        made: MotorsBus = self.missing_fixture()
        return made

    def _faults(self, bus: MotorsBus) -> Any:
        faults = getattr(bus, "faults", None)
        if faults is None:
            raise NotExercised("the wire cannot be disturbed; override lose_replies() and kill()")
        return faults

    def lose_replies(self, bus: MotorsBus, every: int) -> None:
        """Lose each `every`-th reply from now on. Default: through the bus's `faults`.

        Args:
            bus: The bus.
            every: Which.
        """
        self._faults(bus).lose(every=every)

    def kill(self, bus: MotorsBus, motor: str) -> None:
        """Let a motor never answer again. Default: through the bus's `faults`.

        Args:
            bus: The bus.
            motor: Its name.
        """
        self._faults(bus).kill(motor)

    def calibration(self, bus: MotorsBus) -> dict[str, MotorCalibration]:
        """Return a calibration that suits the bus: half the register about its middle, different for each motor.

        Args:
            bus: The bus.

        Returns:
            Motor name to calibration.
        """
        made = {}
        for index, (name, motor) in enumerate(bus.motors.items()):
            size = bus.model_resolution[motor.model]
            made[name] = MotorCalibration(motor.id, 0, 0, size // 4 + index, size * 3 // 4 - index)
        return made

    @contextmanager
    def _session(self, bus: MotorsBus, *, calibrated: bool = True) -> Iterator[MotorsBus]:
        """Connect for the block, calibrated; the port is closed whatever happens."""
        bus.connect()
        try:
            bus.disable_torque()
            if calibrated:
                bus.write_calibration(self.calibration(bus))
            yield bus
        finally:
            with contextlib.suppress(DeviceError):
                bus.disconnect()

    def _goal(self) -> str:
        if self.goal_name is None:
            raise NotExercised("it has no register of goals that can be read back")
        return self.goal_name

    def _goals(self, bus: MotorsBus) -> dict[str, float]:
        """Return goals in ticks, different for each motor, inside its range."""
        middle = {n: (c.range_min + c.range_max) // 2 for n, c in self.calibration(bus).items()}
        return {name: float(ticks + 10 * i) for i, (name, ticks) in enumerate(middle.items(), start=1)}

    def _another(self, bus: MotorsBus, **changes: Any) -> MotorsBus:
        given: dict[str, Any] = {"port": bus.port, "motors": bus.motors, **changes}
        return type(bus)(given["port"], given["motors"])
