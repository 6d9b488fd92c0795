# SPDX-License-Identifier: Apache-2.0
"""Deliberately wrong cameras: each fails the check that speaks of its fault, and no other."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pytest
from pydantic import field_validator

from ulna.core.cameras import CameraState, Frame
from ulna.core.errors import DeviceConnectError, DeviceNotConnectedError, FrameTimeoutError
from ulna.testing import CameraSuite, isolation, run_suite
from ulna.testing.fakes import FakeCamera, FakeCameraConfig


class StartsThread(FakeCamera):
    """C01"""

    def __init__(self, config: FakeCameraConfig) -> None:
        super().__init__(config)
        threading.Thread(target=lambda: None).start()


class HalfOpen(FakeCamera):
    """C02"""

    def connect(self, warmup: bool = True) -> None:
        if self.faults.unplugged:
            self._begin_s = self.clock.now()
            raise DeviceConnectError(f"{self} is not there.")
        if self._begin_s is not None and not self.is_connected:
            self._begin_s = None
        super().connect(warmup)


class ConnectsTwice(FakeCamera):
    """C03"""

    def connect(self, warmup: bool = True) -> None:
        if not self.is_connected:
            super().connect(warmup)


class DisconnectsOnce(FakeCamera):
    """C04"""

    def disconnect(self) -> None:
        if self.state is CameraState.CLOSED:
            raise DeviceNotConnectedError(f"{self} is closed.")
        super().disconnect()


class LeavesThread(FakeCamera):
    """C05"""

    stop: ClassVar[threading.Event] = threading.Event()

    def read(self) -> Any:
        if self.faults.count("connect") == 2:
            threading.Thread(target=self.stop.wait, args=(30,), daemon=True, name="forgotten").start()
        return super().read()


class SeesWhileClosed(FakeCamera):
    """C06"""

    def latest_frame(self, max_age_ms: float = 500) -> Frame:
        if self.state is CameraState.CLOSED:
            return Frame(self._picture(0), 0.0, 0)
        return super().latest_frame(max_age_ms)


class WrongSize(FakeCamera):
    """C07"""

    def __init__(self, config: FakeCameraConfig) -> None:
        super().__init__(config)
        self._shape = (self._shape[1], self._shape[0], 3)


class OldFrames(FakeCamera):
    """C08"""

    def read_frame(self, timeout_ms: float = 10_000) -> Frame:
        if self.faults.frozen or self.faults.unplugged:
            return super().read_frame(timeout_ms)
        self._require_connected()
        return self._latest() or self._wait_newer(-1, timeout_ms / 1e3)


class Repeats(FakeCamera):
    """C09"""

    def async_read(self, timeout_ms: float = 200) -> Any:
        self._require_connected()
        return (self._latest() or self._wait_newer(-1, timeout_ms / 1e3)).image


class NeverStale(FakeCamera):
    """C10"""

    def latest_frame(self, max_age_ms: float = 500) -> Frame:
        return super().latest_frame(max(max_age_ms, 0.0))


class StampedLater(FakeCamera):
    """C11"""

    def _latest(self) -> Frame | None:
        frame = super()._latest()
        return None if frame is None else Frame(frame.image, frame.captured_at_s - 5, frame.number)

    def latest_frame(self, max_age_ms: float = 500) -> Frame:
        return super().latest_frame(max_age_ms + (5000 if max_age_ms >= 0 else 0))


class AlwaysLive(FakeCamera):
    """C12"""

    @property
    def state(self) -> CameraState:
        return CameraState.LIVE if super().state is CameraState.STALLED else super().state


class NeverLost(FakeCamera):
    """C13"""

    @property
    def state(self) -> CameraState:
        return CameraState.LIVE if super().state is CameraState.LOST and self.faults.count("wait") else super().state

    def _wait_newer(self, number: int, timeout_s: float) -> Frame:
        try:
            return super()._wait_newer(number, timeout_s)
        except FrameTimeoutError:
            if not self.faults.unplugged:
                raise
            return Frame(self._picture(0), self.clock.now(), number + 1)


class SharesMemory(FakeCamera):
    """C14"""

    def _picture(self, number: int) -> Any:
        self.buffer = getattr(self, "buffer", None)
        if self.buffer is None:
            self.buffer = super()._picture(number)
        return self.buffer


class ForgetsThread(FakeCamera):
    """C15"""

    stop: ClassVar[threading.Event] = threading.Event()

    def connect(self, warmup: bool = True) -> None:
        super().connect(warmup)
        if self.faults.count("connect") > 5:
            threading.Thread(target=self.stop.wait, args=(30,), daemon=True, name="forgotten").start()


class CrashesReaders(FakeCamera):
    """C16"""

    def read_frame(self, timeout_ms: float = 10_000) -> Frame:
        try:
            return super().read_frame(timeout_ms)
        except DeviceNotConnectedError:
            if threading.current_thread() is threading.main_thread():
                raise
            raise AttributeError("'NoneType' object has no attribute 'wait'") from None


class FindsText(FakeCamera):
    """C17"""

    @staticmethod
    def find_cameras() -> list[dict[str, Any]]:
        return [{"name": "camera"}]


class GrowingConfig(FakeCameraConfig):
    speed: float = 1.0

    @field_validator("speed")
    @classmethod
    def _grow(cls, value: float) -> float:
        return value * 2


class Grows(FakeCamera):
    """C18"""


class ForeignConfig(FakeCameraConfig):
    implementation: ClassVar[str] = "ulna.testing.fakes.robot:FakeRobot"


class NamedElsewhere(FakeCamera):
    """C19"""


WRONG = [
    StartsThread,
    HalfOpen,
    ConnectsTwice,
    DisconnectsOnce,
    LeavesThread,
    SeesWhileClosed,
    WrongSize,
    OldFrames,
    Repeats,
    NeverStale,
    StampedLater,
    AlwaysLive,
    NeverLost,
    SharesMemory,
    ForgetsThread,
    CrashesReaders,
    FindsText,
    Grows,
    NamedElsewhere,
]
CONFIGS: dict[type[FakeCamera], type[FakeCameraConfig]] = {Grows: GrowingConfig, NamedElsewhere: ForeignConfig}


class QuickSuite(CameraSuite):
    cycles = 8


IN_PROCESS = [
    i for i, c in QuickSuite.checks().items() if c.short not in ("C20", "C21")
]  # the others start an interpreter


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less for what will not end."""
    monkeypatch.setattr(isolation, "PATIENCE_S", 0.2)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda cls: cls.__name__)
def test_wrong_camera_fails_its_check(wrong: type[FakeCamera]) -> None:
    """A camera with one fault fails the one check of that fault."""
    for stop in (LeavesThread.stop, ForgetsThread.stop):
        stop.clear()
    config = CONFIGS.get(wrong, FakeCameraConfig)()
    report = run_suite(QuickSuite, lambda: wrong(config), only=IN_PROCESS)
    for stop in (LeavesThread.stop, ForgetsThread.stop):
        stop.set()
    assert [i.partition("-")[0] for i in report.failed] == [wrong.__doc__], str(report)


@pytest.mark.parametrize("real_time", [False, True])
def test_right_camera_passes(real_time: bool) -> None:
    """A right camera passes every check, on a clock of its own and in real time."""
    config = FakeCameraConfig(real_time=real_time, fps=200)
    report = run_suite(QuickSuite, lambda: FakeCamera(config))
    assert report.ok, str(report)
    assert set(report.not_exercised) <= {"C14-frames-are-owned"}
