# SPDX-License-Identifier: Apache-2.0
"""Deliberately wrong motor buses: each fails the check that speaks of its fault, and no other."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from ulna.core.calibration import MotorCalibration
from ulna.core.errors import (
    DeviceAlreadyConnectedError,
    DeviceDisconnectError,
    DeviceNotConnectedError,
    MissingMotorsError,
    MotorCommunicationError,
)
from ulna.core.motors import BusCapabilities, Motor, MotorsBus
from ulna.testing import MotorsBusSuite, isolation, run_suite
from ulna.testing.fakes import FakeMotorsBus

MODES = {"a": "degrees", "b": "range_0_100", "c": "range_m100_100"}
MOTORS = {name: Motor(i, "fake", mode) for i, (name, mode) in enumerate(MODES.items(), start=1)}  # type: ignore[arg-type]


class StartsThread(FakeMotorsBus):
    """M01"""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        threading.Thread(target=lambda: None).start()


class AnyMotors(FakeMotorsBus):
    """M02"""

    def _check_motors(self) -> None:
        pass


class ConnectsTwice(FakeMotorsBus):
    """M03"""

    def connect(self, handshake: bool = True) -> None:
        try:
            super().connect(handshake)
        except DeviceAlreadyConnectedError:
            return


class DisconnectsOnce(FakeMotorsBus):
    """M04"""

    def disconnect(self, disable_torque: bool = True) -> None:
        self._require_connected()
        super().disconnect(disable_torque)


class StaysStiff(FakeMotorsBus):
    """M05"""

    def disconnect(self, disable_torque: bool = True) -> None:
        stiff = [n for n, held in self.memory.items() if held["Torque_Enable"]] if not self.faults.dead else []
        super().disconnect(disable_torque)
        for name in stiff:
            self.memory[name]["Torque_Enable"] = 1


class ReadsWhileClosed(FakeMotorsBus):
    """M06"""

    def sync_read(self, data_name: str, motors: Any = None, **named: Any) -> dict[str, float]:
        return super().sync_read(data_name, motors, **named) if self.is_connected else {}

    def read(self, data_name: str, motor: str, **named: Any) -> float:
        self._require_connected()
        return super().read(data_name, motor, **named)


class MapsByOrder(FakeMotorsBus):
    """M07"""

    def sync_read(self, data_name: str, motors: Any = None, **named: Any) -> dict[str, float]:
        found = super().sync_read(data_name, motors, **named)
        return (
            dict(zip(found, [found[n] for n in sorted(found)], strict=True)) if data_name == "Goal_Position" else found
        )


class FirstOnly(FakeMotorsBus):
    """M08"""

    def sync_write(self, data_name: str, values: Any, **named: Any) -> None:
        super().sync_write(data_name, values if isinstance(values, Mapping) else {"a": values}, **named)


class IgnoresUnknown(FakeMotorsBus):
    """M09"""

    def _names(self, motors: str | Sequence[str] | None) -> list[str]:
        names = super()._names(None) if motors is None else [motors] if isinstance(motors, str) else list(motors)
        return [n for n in names if n in self.motors]

    def sync_write(self, data_name: str, values: Any, **named: Any) -> None:
        known = {n: v for n, v in values.items() if n in self.motors} if isinstance(values, Mapping) else values
        super().sync_write(data_name, known, **named)


class NoRetry(FakeMotorsBus):
    """M10"""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "num_retry": 0})


class Nameless(FakeMotorsBus):
    """M11"""

    def sync_read(self, data_name: str, motors: Any = None, **named: Any) -> dict[str, float]:
        try:
            return super().sync_read(data_name, motors, **named)
        except MotorCommunicationError as error:
            raise MotorCommunicationError("There is no status packet!") from error


class TriesForever(FakeMotorsBus):
    """M11"""

    def sync_read(self, data_name: str, motors: Any = None, **named: Any) -> dict[str, float]:
        return super().sync_read(data_name, motors, **{**named, "num_retry": 200})


class StaysOpen(FakeMotorsBus):
    """M12"""

    def connect(self, handshake: bool = True) -> None:
        try:
            super().connect(handshake)
        except MissingMotorsError:
            self._open = True
            raise


class StopsAtDead(FakeMotorsBus):
    """M13"""

    def disable_torque(self, motors: Any = None, num_retry: int | None = None) -> None:
        for name in self._names(motors):
            self.write("Torque_Enable", name, 0, num_retry=num_retry)


class HidesDead(FakeMotorsBus):
    """M13"""

    def disconnect(self, disable_torque: bool = True) -> None:
        try:
            super().disconnect(disable_torque)
        except DeviceDisconnectError:
            return


class StumblesOverNothing(FakeMotorsBus):
    """M14"""

    def sync_write(self, data_name: str, values: Any, **named: Any) -> None:
        if isinstance(values, Mapping):
            next(iter(values))
        super().sync_write(data_name, values, **named)


class SendsNan(FakeMotorsBus):
    """M15"""

    def _raw(self, data_name: str, motor: str, value: float, scaled: bool) -> int:
        return super()._raw(data_name, motor, value if math.isfinite(value) else 0.0, scaled)


class SendsHalf(FakeMotorsBus):
    """M15"""

    def sync_write(self, data_name: str, values: Any, **named: Any) -> None:
        if isinstance(values, Mapping) and len(values) > 1:
            for name, value in values.items():
                super().sync_write(data_name, {name: value}, **named)
        else:
            super().sync_write(data_name, values, **named)


class OwnFormula(FakeMotorsBus):
    """M16"""

    def _raw(self, data_name: str, motor: str, value: float, scaled: bool) -> int:
        return super()._raw(data_name, motor, value * 1.02 if scaled else value, scaled)


class GuessesCalibration(FakeMotorsBus):
    """M17"""

    def _calibration_of(self, motor: str) -> MotorCalibration:
        return self.calibration.get(motor) or MotorCalibration(self.motors[motor].id, 0, 0, 0, 4095)


class WritesHalf(FakeMotorsBus):
    """M18"""

    def _store(self, name: str, values: MotorCalibration) -> None:
        self.memory[name]["Min_Position_Limit"] = values.range_min


class WritesAnything(FakeMotorsBus):
    """M19"""

    def write_calibration(self, calibration: Mapping[str, MotorCalibration], cache: bool = True) -> None:
        for name, values in calibration.items():
            super().write_calibration({name: values}, cache)


class AlwaysEnables(FakeMotorsBus):
    """M20"""

    @contextmanager
    def torque_disabled(self, motors: Any = None) -> Iterator[None]:
        self.disable_torque(motors)
        try:
            yield
        finally:
            self.enable_torque(motors)


class HomesTwice(FakeMotorsBus):
    """M21"""

    def set_half_turn_homings(self, motors: Any = None) -> dict[str, int]:
        offsets = super().set_half_turn_homings(motors)
        for name in offsets:
            self.memory[name]["Homing_Offset"] += 500
        return offsets


WRONG = [
    StartsThread,
    AnyMotors,
    ConnectsTwice,
    DisconnectsOnce,
    StaysStiff,
    ReadsWhileClosed,
    MapsByOrder,
    FirstOnly,
    IgnoresUnknown,
    NoRetry,
    Nameless,
    TriesForever,
    StaysOpen,
    StopsAtDead,
    HidesDead,
    StumblesOverNothing,
    SendsNan,
    SendsHalf,
    OwnFormula,
    GuessesCalibration,
    WritesHalf,
    WritesAnything,
    AlwaysEnables,
    HomesTwice,
]
IN_PROCESS = [i for i, c in MotorsBusSuite.checks().items() if c.short != "M22"]  # it starts an interpreter


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less for what will not end."""
    monkeypatch.setattr(isolation, "PATIENCE_S", 0.2)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda cls: cls.__name__)
def test_wrong_bus_fails_its_check(wrong: type[FakeMotorsBus]) -> None:
    """A bus with one fault fails the one check of that fault."""
    report = run_suite(MotorsBusSuite, lambda: wrong("fake://bus", MOTORS), only=IN_PROCESS)
    assert [i.partition("-")[0] for i in report.failed] == [wrong.__doc__], str(report)


def test_right_bus_passes() -> None:
    """A right bus passes every check."""
    report = run_suite(MotorsBusSuite, lambda: FakeMotorsBus("fake://bus", MOTORS))
    assert len(report.passed) == 22, str(report)


def test_what_a_bus_lacks_is_reported() -> None:
    """Without goals to read back, homing offsets and a wire to disturb, the checks of these are not exercised."""

    class PlainSuite(MotorsBusSuite):
        goal_name = None

        def _faults(self, bus: MotorsBus) -> Any:
            return MotorsBusSuite._faults(self, object())  # type: ignore[arg-type]

    report = run_suite(PlainSuite, lambda: FakeMotorsBus("fake://bus", MOTORS), only=IN_PROCESS)
    assert report.ok, str(report)
    lacking = [i.partition("-")[0] for i in report.not_exercised]
    assert lacking == ["M07", "M08", "M10", "M11", "M12", "M13", "M14", "M15", "M16"]
    report = run_suite(MotorsBusSuite, lambda: FakeMotorsBusWithoutOffsets("fake://bus", MOTORS), only=["M21"])
    assert report.not_exercised == {"M21-half-turn-homing": "its motors store no homing offset"}


class FakeMotorsBusWithoutOffsets(FakeMotorsBus):
    capabilities = BusCapabilities(homing_offset=False)


def test_not_connected_error_is_that_of_the_tree() -> None:
    """The fake raises the error that the contract names."""
    with pytest.raises(DeviceNotConnectedError):
        FakeMotorsBus("fake://bus", MOTORS).read("Present_Position", "a")
