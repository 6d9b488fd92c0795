# SPDX-License-Identifier: Apache-2.0
"""A camera in a simulated world: frame times, read modes and faults. Drawing is done by `ulna.sim.drawing`."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from ulna.cameras.sim.config import SimCameraConfig
from ulna.cameras.sim.faults import CameraFaults
from ulna.cameras.sim.sources import Source, open_source, waiting_is_free
from ulna.core.cameras import Camera, CameraState, ColorMode, Frame
from ulna.core.errors import DeviceAlreadyConnectedError, DeviceConnectError, FrameTimeoutError
from ulna.sim.sharing import served_worlds
from ulna.sim.simulation import Simulation

if TYPE_CHECKING:
    from ulna.core.cameras import CameraConfig

__all__ = ["SimCamera"]

_FPS = 30
_WIDTH, _HEIGHT = 640, 480
_VIEWS = ("front", "top", "side", "wrist")
_STALL_FRAMES = 3
_GRID_SLACK = 1e-6
_SOONEST_S = 1e-3


class SimCamera(Camera):
    """A camera of a simulated world, made from its settings; `connect` looks for the world, `disconnect` lets go.

    It takes a picture each 1 / fps seconds, but draws it only when somebody looks, so it needs no thread. On a virtual
    clock waiting for a frame moves the clock.

    Args:
        config: World, view, size and rate.

    Attributes:
        faults: Freezes, stalls and unplugs it.
    """

    config_class: ClassVar[type[CameraConfig]] = SimCameraConfig

    def __init__(self, config: SimCameraConfig) -> None:
        super().__init__(config)
        self._settings = config
        self._changed = threading.Condition(threading.RLock())
        self._source: Source | None = None
        self._lost = False
        self._started_s = 0.0
        self._frame: Frame | None = None
        self.faults = CameraFaults(self._now, self._wake)

    @staticmethod
    def find_cameras() -> list[dict[str, Any]]:
        """List every view of every simulated world that runs here or is served by another process."""
        profile = {"width": _WIDTH, "height": _HEIGHT, "fps": _FPS}
        return [
            {"name": f"{world}/{view}", "type": "sim", "id": f"{world}/{view}", "default_stream_profile": profile}
            for world in sorted({*Simulation.running(), *served_worlds()})
            for view in _VIEWS
        ]

    @classmethod
    def from_found(cls, found: Mapping[str, Any]) -> SimCamera:
        """Make a camera from what `find_cameras` told of it; opens nothing.

        Args:
            found: One of the mappings.
        """
        world, _, view = str(found["id"]).rpartition("/")
        return cls(SimCameraConfig.build({"world": world, "view": view}))

    @property
    def state(self) -> CameraState:
        """What the camera is doing right now."""
        with self._changed:
            source, frame = self._source, self._frame
            if source is None:
                return CameraState.CLOSED
            if self._lost or self.faults.unplugged or not source.there:
                self._lost = True
                return CameraState.LOST
            overdue = frame is not None and self._now() - frame.captured_at_s > self._patience_s
            if source.hung or (self.faults.frozen and overdue):
                return CameraState.STALLED
            return CameraState.LIVE

    def connect(self, warmup: bool = True) -> None:
        """Look for the world and take the first picture.

        Args:
            warmup: Makes no difference: the first picture is good.

        Raises:
            DeviceAlreadyConnectedError: It is connected.
            DeviceConnectError: No such world is running, or the camera is unplugged.
        """
        if self.is_connected:
            raise DeviceAlreadyConnectedError(f"{self} is connected already.", device=str(self))
        self.disconnect()
        if self.faults.unplugged:
            raise DeviceConnectError(
                f"{self} is unplugged.", device=str(self), hint="Call faults.replug() of the simulated camera."
            )
        source = open_source(self._settings.world)
        with self._changed:
            self._source = source
            self.fps, self.width, self.height = self.fps or _FPS, self.width or _WIDTH, self.height or _HEIGHT
            self._started_s = source.clock.now()
            self._lost = False
            try:
                self._frame = self._take(source, 0)
            except BaseException:
                self.disconnect()
                raise

    def disconnect(self) -> None:
        """Let go of the world; safe to call at any time."""
        with self._changed:
            source, self._source = self._source, None
            self._frame, self._consumed, self._lost = None, -1, False
            self.fps, self.width, self.height = self.config.fps, self.config.width, self.config.height
            if source is not None:
                source.close()
            self._changed.notify_all()

    @property
    def _patience_s(self) -> float:
        return _STALL_FRAMES / (self.fps or _FPS)

    def _now(self) -> float:
        source = self._source
        return time.perf_counter() if source is None else source.clock.now()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _due(self) -> int:
        """Return the number of the newest frame that should have been taken by now."""
        return math.floor((self._now() - self._started_s) * (self.fps or _FPS) + _GRID_SLACK)

    def _latest(self) -> Frame | None:
        with self._changed:
            frame, source = self._frame, self._source
            if frame is None or source is None:
                return None
            if self.state is CameraState.LIVE and not self.faults.frozen and self._due() > frame.number:
                newer = self._take(source, self._due())
                if newer.captured_at_s > frame.captured_at_s:  # a served world moves on in steps of its own
                    frame = self._frame = newer
            return Frame(frame.image.copy(), frame.captured_at_s, frame.number)

    def _take(self, source: Source, number: int) -> Frame:
        from ulna.sim.drawing import draw

        state = source.state()
        image = draw(state, self._settings.view, self.width or _WIDTH, self.height or _HEIGHT)
        if self._settings.color_mode is ColorMode.BGR:
            image = np.ascontiguousarray(image[:, :, ::-1])
        return Frame(image, state.time_s, number)

    def _wait_newer(self, number: int, timeout_s: float) -> Frame:
        with self._changed:
            deadline = self._now() + timeout_s
            while True:
                frame = self._latest()
                if frame is not None and frame.number > number:
                    return frame
                self._require_connected()
                now = self._now()
                if now >= deadline:
                    self._time_out(timeout_s)
                self._wait_until(min(deadline, self._next_look(now, number)))

    def _next_look(self, now: float, number: int) -> float:
        if self.faults.frozen or self.state is not CameraState.LIVE:
            return now + 1.0 / (self.fps or _FPS)
        newest = max(number, 0 if self._frame is None else self._frame.number)
        return max(self._started_s + (newest + 1) / (self.fps or _FPS), now + _SOONEST_S)

    def _wait_until(self, moment: float) -> None:
        source = self._source
        if source is None:
            return
        if waiting_is_free(source.clock):
            source.clock.sleep_until(moment)
        else:
            self._changed.wait(max(0.0, moment - self._now()))

    def _time_out(self, timeout_s: float) -> NoReturn:
        raise FrameTimeoutError(
            f"{self}: no new frame within {timeout_s * 1e3:.0f} ms; it is {self.state.value}.",
            device=str(self),
            hint=f"Is the simulated world {self._settings.world!r} still running?",
        )
