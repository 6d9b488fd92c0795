# SPDX-License-Identifier: Apache-2.0
"""A fake camera: frames come from a clock and count themselves; it can freeze, be unplugged and come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ulna.core.cameras import Camera, CameraState, Frame
from ulna.core.clock import Clock, MonotonicClock
from ulna.core.errors import (
    DeviceAlreadyConnectedError,
    DeviceConnectError,
    DeviceNotConnectedError,
    FrameTimeoutError,
)
from ulna.testing.fakes.configs import FakeCameraConfig
from ulna.testing.fakes.faults import FakeClock, FaultPlan

if TYPE_CHECKING:
    import numpy as np

__all__ = ["FakeCamera"]

_STALLED_AFTER_S = 0.5


class FakeCamera(Camera):
    """A camera whose picture number `n` is filled with `n % 256`.

    Args:
        config: Its settings.

    Attributes:
        faults: What goes wrong, and a log of the calls.
        clock: What stamps the frames; replace it to share one between devices.
    """

    config_class = FakeCameraConfig

    def __init__(self, config: FakeCameraConfig) -> None:
        super().__init__(config)
        self.clock: Clock = MonotonicClock() if config.real_time else FakeClock()
        self.faults = FaultPlan(clock=self.clock)
        self._period_s = 1 / (config.fps or 30)
        self._shape = (config.height or 6, config.width or 8, 3)
        self._begin_s: float | None = None
        self._newest: tuple[int, float] | None = None
        self._frozen_s: float | None = None

    @staticmethod
    def find_cameras() -> list[dict[str, Any]]:
        """Return the one fake camera there is."""
        return [{"name": "Fake camera", "type": "fake_camera", "id": "0"}]

    @property
    def state(self) -> CameraState:
        """Closed, live, stalled when frozen for half a second, or lost when unplugged."""
        begin = self._begin_s
        if begin is None:
            return CameraState.CLOSED
        if self.faults.unplugged:
            return CameraState.LOST
        newest = self._newest_frame()
        since = newest[1] if newest else begin
        return CameraState.STALLED if self.clock.now() - since > _STALLED_AFTER_S else CameraState.LIVE

    def connect(self, warmup: bool = True) -> None:
        """Start delivering frames; see `Camera.connect`."""
        self.faults.called("connect", warmup)
        if self._begin_s is not None and not self.faults.unplugged:
            raise DeviceAlreadyConnectedError(f"{self} is already connected.", device=str(self))
        if self.faults.unplugged:
            raise DeviceConnectError(f"{self} is not there.", device=str(self), hint="Plug it in: faults.replug().")
        self._begin_s, self._newest, self._consumed = self.clock.now(), None, -1
        if warmup:
            self.clock.sleep_until(self._begin_s + self._period_s)

    def disconnect(self) -> None:
        """Stop delivering frames; see `Camera.disconnect`."""
        self._begin_s = None
        self.faults.called("disconnect")

    def _now(self) -> float:
        return self.clock.now()

    def _newest_frame(self) -> tuple[int, float] | None:
        """Return number and time of the newest frame by now; a frozen camera keeps the last one."""
        begin, faults = self._begin_s, self.faults
        if begin is not None and not faults.frozen and not faults.unplugged:
            now = self.clock.now()
            number = int((now - begin) / self._period_s + 1e-6) - 1
            captured_s = min(now, begin + (number + 1) * self._period_s)
            self._newest = (number, captured_s) if number >= 0 else None
        return self._newest

    def _picture(self, number: int) -> np.ndarray[Any, Any]:
        import numpy as np

        return np.full(self._shape, number % 256, dtype=np.uint8)

    def _latest(self) -> Frame | None:
        newest = self._newest_frame()
        return None if newest is None else Frame(self._picture(newest[0]), newest[1], newest[0])

    def _wait_newer(self, number: int, timeout_s: float) -> Frame:
        self.faults.called("wait", number, timeout_s)
        deadline = self.clock.now() + timeout_s
        while self.is_connected:
            frame = self._latest()
            if frame is not None and frame.number > number:
                return frame
            if self.clock.now() >= deadline:
                raise FrameTimeoutError(f"{self}: no new frame within {timeout_s * 1e3:.0f} ms.", device=str(self))
            self.clock.sleep_until(min(deadline, self.clock.now() + self._period_s))
        raise DeviceNotConnectedError(f"{self} is {self.state.value}.", device=str(self))
