# SPDX-License-Identifier: Apache-2.0
"""Deliberately wrong teleoperators: each fails the check that speaks of its fault, and no other."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import field_validator

from ulna.core.calibration import CalibrationStep
from ulna.core.devices import OpenParts
from ulna.core.errors import DeviceNotConnectedError
from ulna.core.motors import Motor, MotorNormMode
from ulna.testing import TeleoperatorSuite, isolation, run_suite
from ulna.testing.fakes import FakeMotorsBus, FakeTeleoperator, FakeTeleoperatorConfig


class ReadsFile(FakeTeleoperator):
    """T01"""

    def __init__(self, config: FakeTeleoperatorConfig) -> None:
        super().__init__(config)
        self.host = Path("/etc/hostname").exists() and Path("/etc/hostname").read_text()


class FeaturesWhenConnected(FakeTeleoperator):
    """T02"""

    @property
    def action_features(self) -> Mapping[str, Any]:
        return super().action_features if self.is_connected else {"guess.pos": float}

    @property
    def feedback_features(self) -> Mapping[str, Any]:
        return {f"{joint}.pos": float for joint in self.config.joints}


class Leader(FakeTeleoperator):
    """A right one with a bus and stiff motors while connected."""

    def __init__(self, config: FakeTeleoperatorConfig) -> None:
        super().__init__(config)
        motors = {n: Motor(i, "fake", MotorNormMode.DEGREES) for i, n in enumerate(config.joints, start=1)}
        self.bus = FakeMotorsBus("fake://leader", motors)

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        parts.open("bus", self.bus.connect, self.bus.disconnect)
        self.configure()

    def configure(self) -> None:
        self.bus.enable_torque()


class OpensByHand(Leader):
    """T03"""

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        self.bus.connect()
        self.configure()
        self.bus.disable_torque()
        parts.on_close("bus", self.bus.disconnect)

    def configure(self) -> None:
        pass


class ConnectsTwice(FakeTeleoperator):
    """T04"""

    def connect(self, calibrate: bool = True) -> None:
        if not self.is_connected:
            super().connect(calibrate)


class DisconnectsOnce(FakeTeleoperator):
    """T05"""

    def disconnect(self) -> None:
        if not self.is_connected and not self._parts:
            raise DeviceNotConnectedError(f"{self} is not connected.")
        super().disconnect()


class LeavesFile(FakeTeleoperator):
    """T06"""

    kept: ClassVar[list[Any]] = []

    def _get_action(self) -> dict[str, Any]:
        self.kept.append(Path(__file__).open())  # noqa: SIM115 - never closed on purpose
        return super()._get_action()


class HidesFailure(Leader):
    """T07"""

    def disconnect(self) -> None:
        try:
            super().disconnect()
        except ConnectionError:
            return


class ActsWhileClosed(FakeTeleoperator):
    """T08"""

    def get_action(self) -> dict[str, Any]:
        return dict(self.pose)


class ForgetsJoint(FakeTeleoperator):
    """T09"""

    def _get_action(self) -> dict[str, Any]:
        action = super()._get_action()
        return {k: v for k, v in action.items() if k != "elbow.pos"}


class LendsItsPose(FakeTeleoperator):
    """T10"""

    def _get_action(self) -> dict[str, Any]:
        return self.pose


class AnyFeedback(FakeTeleoperator):
    """T11"""

    def send_feedback(self, feedback: Mapping[str, Any]) -> None:
        self._require_connected()
        self._send_feedback(dict(feedback))


class NoFeedback(FakeTeleoperator):
    """T12"""

    def _send_feedback(self, feedback: dict[str, Any]) -> None:
        raise NotImplementedError


class TextEvents(FakeTeleoperator):
    """T13"""

    def get_teleop_events(self) -> Any:
        return {"success": True}


class Prints(FakeTeleoperator):
    """T14"""

    def calibrate(self) -> Generator[CalibrationStep, str, None]:
        sys.stdout.write("calibrating")
        yield CalibrationStep("Hold still.")


class StaysStiff(Leader):
    """T15"""

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        parts.open("bus", self.bus.connect, lambda: self.bus.disconnect(disable_torque=False))
        self.configure()


class GrowingConfig(FakeTeleoperatorConfig):
    speed: float = 1.0

    @field_validator("speed")
    @classmethod
    def _grow(cls, value: float) -> float:
        return value * 2


class Grows(FakeTeleoperator):
    """T16"""


class ForeignConfig(FakeTeleoperatorConfig):
    implementation: ClassVar[str] = "ulna.testing.fakes.robot:FakeRobot"


class NamedElsewhere(FakeTeleoperator):
    """T17"""


IN_PROCESS = [
    i for i, c in TeleoperatorSuite.checks().items() if c.short not in ("T18", "T19")
]  # the others start an interpreter


WRONG = [
    ReadsFile,
    FeaturesWhenConnected,
    OpensByHand,
    ConnectsTwice,
    DisconnectsOnce,
    LeavesFile,
    HidesFailure,
    ActsWhileClosed,
    ForgetsJoint,
    LendsItsPose,
    AnyFeedback,
    NoFeedback,
    TextEvents,
    Prints,
    StaysStiff,
    Grows,
    NamedElsewhere,
]
CONFIGS: dict[type[FakeTeleoperator], type[FakeTeleoperatorConfig]] = {
    Grows: GrowingConfig,
    NamedElsewhere: ForeignConfig,
}


@pytest.fixture(autouse=True)
def close_what_was_left(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(isolation, "PATIENCE_S", 0.2)
    yield
    while LeavesFile.kept:
        LeavesFile.kept.pop().close()


@pytest.mark.parametrize("wrong", WRONG, ids=lambda cls: cls.__name__)
def test_wrong_teleoperator_fails_its_check(wrong: type[FakeTeleoperator]) -> None:
    """A teleoperator with one fault fails the one check of that fault."""
    config = CONFIGS.get(wrong, FakeTeleoperatorConfig)()
    report = run_suite(TeleoperatorSuite, lambda: wrong(config), only=IN_PROCESS)
    assert [i.partition("-")[0] for i in report.failed] == [wrong.__doc__], str(report)


@pytest.mark.parametrize("right", [FakeTeleoperator, Leader])
def test_right_teleoperator_passes(right: type[FakeTeleoperator]) -> None:
    """A right teleoperator passes; checks of what it lacks are not exercised."""
    report = run_suite(TeleoperatorSuite, lambda: right(FakeTeleoperatorConfig(feedback=False)))
    assert report.ok, str(report)
    assert report.not_exercised["T11-bad-feedback-refused"] == "it declares no feedback"
    assert ("T15-torque-released" in report.not_exercised) is (right is FakeTeleoperator)
