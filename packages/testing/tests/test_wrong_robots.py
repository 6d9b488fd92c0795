# SPDX-License-Identifier: Apache-2.0
"""Deliberately wrong robots: each fails the check that speaks of its fault, and no other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, ClassVar

import pytest
from pydantic import field_validator

from ulna.core.calibration import CalibrationStep
from ulna.core.devices import OpenParts
from ulna.core.errors import DeviceNotConnectedError
from ulna.core.paths import ulna_home
from ulna.testing import RobotSuite, isolation, run_suite
from ulna.testing.fakes import FakeCameraConfig, FakeRobot, FakeRobotConfig, fake_plugins


def settings(config: type[FakeRobotConfig] = FakeRobotConfig) -> FakeRobotConfig:
    return config(id="arm", cameras={"front": FakeCameraConfig()}, max_relative_target=5.0)


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the fakes, and wait less for what will not end."""
    monkeypatch.setattr(isolation, "PATIENCE_S", 0.2)
    with fake_plugins():
        yield


class CreatesFolder(FakeRobot):
    """R01"""

    def __init__(self, config: FakeRobotConfig) -> None:
        super().__init__(config)
        (ulna_home() / "calibration").mkdir(parents=True, exist_ok=True)


class StartsThread(FakeRobot):
    """R01"""

    def __init__(self, config: FakeRobotConfig) -> None:
        super().__init__(config)
        threading.Thread(target=lambda: None, daemon=True).start()


class FeaturesWhenConnected(FakeRobot):
    """R02"""

    @property
    def observation_features(self) -> Mapping[str, Any]:
        return super().observation_features if self.is_connected else {"guess.pos": float}


class OpensByHand(FakeRobot):
    """R03"""

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        camera = self.cameras["front"]
        camera.connect()
        parts.open("bus", self.bus.connect, self.bus.disconnect)
        self.bus.write_calibration(self._default_calibration())
        self.configure()
        parts.on_close("camera", camera.disconnect)


class ConnectsTwice(FakeRobot):
    """R04"""

    def connect(self, calibrate: bool = True) -> None:
        if not self.is_connected:
            super().connect(calibrate)


class DisconnectsOnce(FakeRobot):
    """R05"""

    def disconnect(self) -> None:
        if not self.is_connected and not self._parts:
            raise DeviceNotConnectedError(f"{self} is not connected.")
        super().disconnect()


class LeavesThread(FakeRobot):
    """R06"""

    stop: ClassVar[threading.Event] = threading.Event()

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        super()._connect(parts, calibrate)
        threading.Thread(target=self.stop.wait, args=(30,), daemon=True, name="forgotten").start()


class ClosesInOneGo(FakeRobot):
    """R07"""

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        camera = self.cameras["front"]

        def open_all() -> None:
            self.bus.connect()
            try:
                camera.connect()
            except BaseException:
                self.bus.disconnect()
                raise

        def close_all() -> None:
            camera.disconnect()
            self.bus.disconnect()

        parts.open("everything", open_all, close_all)
        self.bus.write_calibration(self._default_calibration())
        self.configure()


class SeesWhileClosed(FakeRobot):
    """R08"""

    def get_observation(self) -> dict[str, Any]:
        return super().get_observation() if self.is_connected else {}


class ForgetsPicture(FakeRobot):
    """R09"""

    def _get_observation(self) -> dict[str, Any]:
        seen = super()._get_observation()
        del seen["front"]
        return seen


class FloatPicture(FakeRobot):
    """R09"""

    def _get_observation(self) -> dict[str, Any]:
        seen = super()._get_observation()
        return {**seen, "front": seen["front"] / 255}


class OwnChecks(FakeRobot):
    """Checks actions itself, rightly; the wrong ones below each leave one thing out."""

    lets_through: ClassVar[str] = ""

    def send_action(self, action: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return super().send_action(action)
        except ValueError as error:
            if not getattr(error, self.lets_through or "nothing", ()):
                raise
        known = {k: float(action.get(k, 0.0)) for k in self.action_features}
        return self._send_action(known)


class SendsNan(OwnChecks):
    """R10"""

    lets_through = "not_finite"


class SendsUnknown(OwnChecks):
    """R11"""

    lets_through = "unknown"


class FillsMissing(FakeRobot):
    """R12"""

    def send_action(self, action: Mapping[str, Any]) -> dict[str, Any]:
        filled = {**dict.fromkeys(self.action_features, 0.0), **action} if action else action
        return super().send_action(filled)


class AcceptsNothing(FakeRobot):
    """R13"""

    def send_action(self, action: Mapping[str, Any]) -> dict[str, Any]:
        self._require_connected()
        return super().send_action(action) if action else {}


class ReturnsHalf(FakeRobot):
    """R14"""

    def _send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        sent = super()._send_action(action)
        return {"shoulder.pos": sent["shoulder.pos"]}


class ChangesAction(FakeRobot):
    """R14"""

    def send_action(self, action: Mapping[str, Any]) -> dict[str, Any]:
        sent = super().send_action(action)
        if isinstance(action, dict):
            action.update(sent)
        return sent


class ReturnsWish(FakeRobot):
    """R15"""

    def _send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        super()._send_action(action)
        return action


class MapsByOrder(FakeRobot):
    """R16"""

    def _send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        values = dict(zip(self.action_features, action.values(), strict=True))
        return super()._send_action(values)


class AsksOnStdin(FakeRobot):
    """R17"""

    def calibrate(self) -> Generator[CalibrationStep, str, None]:
        input("Move the arm and press Enter")
        yield from super().calibrate()


class PrintsWhileCalibrating(FakeRobot):
    """R17"""

    def calibrate(self) -> Generator[CalibrationStep, str, None]:
        sys.stdout.write("calibrating")
        yield from super().calibrate()


class CalibratesAtOnce(FakeRobot):
    """R17"""

    def calibrate(self) -> Any:
        return None


class KeepsTorque(FakeRobot):
    """R18"""

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        parts.open("bus", self.bus.connect, lambda: self.bus.disconnect(disable_torque=False))
        for name, camera in self.cameras.items():
            parts.open(name, camera.connect, camera.disconnect)
        self.bus.write_calibration(self._default_calibration())
        self.configure()


class GrowingConfig(FakeRobotConfig):
    speed: float = 1.0

    @field_validator("speed")
    @classmethod
    def _grow(cls, value: float) -> float:
        return value * 2


class Grows(FakeRobot):
    """R19"""


class ForeignConfig(FakeRobotConfig):
    implementation: ClassVar[str] = "ulna.testing.fakes.teleoperator:FakeTeleoperator"


class NamedElsewhere(FakeRobot):
    """R20"""


IN_PROCESS = [
    i for i, c in RobotSuite.checks().items() if c.short not in ("R21", "R22")
]  # the others start an interpreter


WRONG = [
    CreatesFolder,
    StartsThread,
    FeaturesWhenConnected,
    OpensByHand,
    ConnectsTwice,
    DisconnectsOnce,
    LeavesThread,
    ClosesInOneGo,
    SeesWhileClosed,
    ForgetsPicture,
    FloatPicture,
    SendsNan,
    SendsUnknown,
    FillsMissing,
    AcceptsNothing,
    ReturnsHalf,
    ChangesAction,
    ReturnsWish,
    MapsByOrder,
    AsksOnStdin,
    PrintsWhileCalibrating,
    CalibratesAtOnce,
    KeepsTorque,
    Grows,
    NamedElsewhere,
]
CONFIGS: dict[type[FakeRobot], type[FakeRobotConfig]] = {Grows: GrowingConfig, NamedElsewhere: ForeignConfig}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda cls: cls.__name__)
def test_wrong_robot_fails_its_check(wrong: type[FakeRobot]) -> None:
    """A robot with one fault fails the one check of that fault, whose message tells contract, sight and fix."""

    LeavesThread.stop.clear()
    config = settings(CONFIGS.get(wrong, FakeRobotConfig))
    report = run_suite(RobotSuite, lambda: wrong(config), only=IN_PROCESS)
    LeavesThread.stop.set()
    assert [i.partition("-")[0] for i in report.failed] == [wrong.__doc__], str(report)
    for word in ("contract:", "seen:", "fix:"):
        assert word in str(report)


@pytest.mark.parametrize("make", [OwnChecks, FakeRobot], ids=lambda cls: cls.__name__)
def test_right_robot_passes(make: Callable[[FakeRobotConfig], FakeRobot]) -> None:
    """A right robot passes everything that it lets be exercised."""
    report = run_suite(RobotSuite, lambda: make(settings()))
    assert report.ok, str(report)
    assert set(report.not_exercised) <= {"R22-runs-without-torch"}


def test_what_a_robot_lacks_is_reported() -> None:
    """Checks about a bus or cameras are not exercised, with a reason, on a robot that has none."""

    class Blind(FakeRobot):
        __slots__ = ()

    report = run_suite(RobotSuite, lambda: Blind(FakeRobotConfig(joints=["only"])))
    assert report.ok, str(report)
    assert report.not_exercised["R16-order-does-not-matter"] == "its actions have a single key"
    assert "1 not exercised: R16 (its actions have a single key)" in report.summary() or "R22" in report.summary()
