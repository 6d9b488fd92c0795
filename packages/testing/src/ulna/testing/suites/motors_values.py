# SPDX-License-Identifier: Apache-2.0
"""Checks of what a motor bus reads and writes: a part of `MotorsBusSuite`."""

from __future__ import annotations

import math
from collections.abc import Callable

from ulna.core.errors import CalibrationError
from ulna.core.motors import MotorNormMode, MotorsBus, normalize, unnormalize
from ulna.testing.checks import NotExercised, check, expect, refused
from ulna.testing.suites.motors_subject import MotorsBusSubject

__all__ = ["MotorsBusValueChecks"]

_MODES = {
    MotorNormMode.RANGE_0_100: (10.0, 50.0, 90.0),
    MotorNormMode.RANGE_M100_100: (-80.0, 0.0, 80.0),
    MotorNormMode.DEGREES: (-20.0, 0.0, 20.0),
}


class MotorsBusValueChecks(MotorsBusSubject):
    """M07 to M09, and M14 to M17."""

    @check(
        "M07-mapped-by-name",
        "Values belong to motor names: the order in which motors are asked or written changes nothing.",
        "Look motors up by name and answers up by id.",
    )
    def test_m07_mapped_by_name(self, bus: MotorsBus) -> None:
        name, goals = self._goal(), self._goals(bus)
        backwards = list(reversed(bus.motors))
        with self._session(bus):
            bus.sync_write(name, {n: goals[n] for n in backwards}, normalize=False)
            single = {n: bus.read(name, n, normalize=False) for n in bus.motors}
            expect(single == goals, f"written {goals}, single reads gave {single}")
            for order in (None, backwards, backwards[:1]):
                found = bus.sync_read(name, order, normalize=False)
                wanted = {n: goals[n] for n in (order or bus.motors)}
                expect(found == wanted, f"sync_read of {order or 'all'} gave {found}, expected {wanted}")

    @check(
        "M08-one-value-for-all",
        "sync_write with one number writes it to every motor.",
        "Turn a number into {name: number for every motor}.",
    )
    def test_m08_one_value_for_all(self, bus: MotorsBus) -> None:
        name, ticks = self._goal(), min(self._goals(bus).values())
        with self._session(bus):
            bus.sync_write(name, ticks, normalize=False)
            found = bus.sync_read(name, normalize=False)
        expect(set(found.values()) == {ticks}, f"written {ticks} to all, read {found}")

    @check(
        "M09-unknown-motor-refused",
        "A motor name that is not on the bus is refused with a ValueError that names it.",
        "Resolve names with self._names(...).",
    )
    def test_m09_unknown_motor_refused(self, bus: MotorsBus) -> None:
        with self._session(bus, calibrated=False):
            calls: dict[str, Callable[[], object]] = {
                "sync_read": lambda: bus.sync_read(self.position_name, ["no_such_motor"], normalize=False),
                "sync_write": lambda: bus.sync_write(self.position_name, {"no_such_motor": 1}, normalize=False),
                "disable_torque": lambda: bus.disable_torque("no_such_motor"),
            }
            for what, call in calls.items():
                with refused(ValueError, f"{what} of 'no_such_motor'"):
                    try:
                        call()
                    except ValueError as error:
                        expect("no_such_motor" in str(error), f"the error of {what} does not name it: {error}")
                        raise

    @check(
        "M14-empty-write",
        "sync_write of an empty mapping does nothing and raises nothing.",
        "Return early when there is nothing to write.",
    )
    def test_m14_empty_write(self, bus: MotorsBus) -> None:
        name = self._goal()
        with self._session(bus):
            before = bus.sync_read(name, normalize=False)
            bus.sync_write(name, {})
            bus.sync_write(name, {}, normalize=False)
            after = bus.sync_read(name, normalize=False)
        expect(before == after, f"an empty write changed {name} from {before} to {after}")

    @check(
        "M15-non-finite-refused",
        "A NaN or infinite value is refused with a ValueError before anything is sent, also to the other motors.",
        "Check every value before the first byte goes out.",
    )
    def test_m15_non_finite_refused(self, bus: MotorsBus) -> None:
        name, goals = self._goal(), self._goals(bus)
        last = list(goals)[-1]
        with self._session(bus):
            before = bus.sync_read(name, normalize=False)
            for bad in (math.nan, math.inf, -math.inf):
                for scaled in (True, False):
                    values = {**dict.fromkeys(goals, 1.0), last: bad}
                    with refused((ValueError, OverflowError), f"sync_write with {bad}"):
                        bus.sync_write(name, values, normalize=scaled)
                    with refused((ValueError, OverflowError), f"write of {bad}"):
                        bus.write(name, last, bad, normalize=scaled)
            after = bus.sync_read(name, normalize=False)
        expect(before == after, f"a refused write changed {name} from {before} to {after}")

    @check(
        "M16-user-units-follow-the-formulas",
        "Positions in user units are those of ulna.core.motors.normalize and unnormalize, for reading and for writing.",
        "Convert with these two functions and drive_mode where apply_drive_mode is True.",
    )
    def test_m16_user_units_follow_the_formulas(self, bus: MotorsBus) -> None:
        name = self._goal()
        if name not in bus.normalized_data:
            raise NotExercised(f"{name} is not in normalized_data")
        with self._session(bus):
            for motor in bus.motors:
                for value in _MODES[bus.motors[motor].norm_mode]:
                    self._expect_converted(bus, name, motor, value)

    def _expect_converted(self, bus: MotorsBus, name: str, motor: str, value: float) -> None:
        mode, size = bus.motors[motor].norm_mode, bus.model_resolution[bus.motors[motor].model]
        held = bus.calibration[motor]
        inverted = bus.apply_drive_mode and bool(held.drive_mode)
        bus.sync_write(name, {motor: value})
        ticks = bus.read(name, motor, normalize=False)
        wanted = unnormalize(value, held, mode, size, inverted=inverted)
        expect(ticks == wanted, f"{motor}: {value} {mode.value} was written as {ticks} ticks, expected {wanted}")
        back, single = bus.sync_read(name, motor)[motor], bus.read(name, motor)
        formula = normalize(ticks, held, mode, size, inverted=inverted)
        expect(
            abs(back - formula) < 1e-3 and abs(single - formula) < 1e-3,
            f"{motor}: {ticks} ticks are read as {back} and {single} {mode.value}, expected {formula}",
        )
        one_tick = 400 / size
        expect(abs(back - value) <= one_tick, f"{motor}: {value} {mode.value} came back as {back}")

    @check(
        "M17-needs-calibration",
        "Positions in user units without a calibration raise CalibrationError that names the motor.",
        "Take the calibration through self._calibration_of(motor).",
    )
    def test_m17_needs_calibration(self, bus: MotorsBus) -> None:
        motor = next(iter(bus.motors))
        with self._session(bus, calibrated=False):
            bus.calibration.clear()
            with refused(CalibrationError, f"reading {motor} in user units without a calibration"):
                try:
                    bus.read(self.position_name, motor)
                except CalibrationError as error:
                    expect(motor in str(error), f"the message does not name {motor!r}: {error}")
                    raise
