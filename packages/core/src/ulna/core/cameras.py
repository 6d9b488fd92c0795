# SPDX-License-Identifier: Apache-2.0
"""The Camera contract: frames with capture times, and a stalled camera as a state instead of a frozen picture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field

from ulna.core.config import PluginConfig
from ulna.core.errors import DeviceNotConnectedError, StaleFrameError

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Camera",
    "CameraConfig",
    "CameraState",
    "ColorMode",
    "Cv2Backends",
    "Cv2Rotation",
    "Frame",
    "make_cameras_from_configs",
]


class ColorMode(str, Enum):
    """Order of the colour channels."""

    RGB = "rgb"
    BGR = "bgr"


class Cv2Rotation(IntEnum):
    """Rotation of a picture in degrees, clockwise; 270 is written -90."""

    NO_ROTATION = 0
    ROTATE_90 = 90
    ROTATE_180 = 180
    ROTATE_270 = -90


class Cv2Backends(IntEnum):
    """OpenCV's capture backends, by their numbers there."""

    ANY = 0
    V4L2 = 200
    DSHOW = 700
    PVAPI = 800
    ANDROID = 1000
    AVFOUNDATION = 1200
    MSMF = 1400


class CameraState(str, Enum):
    """What a camera is doing."""

    CLOSED = "closed"
    LIVE = "live"
    STALLED = "stalled"
    LOST = "lost"


@dataclass(frozen=True)
class Frame:
    """One picture and when it was taken.

    Attributes:
        image: uint8 (H, W, 3); uint16 (H, W, 1) for depth. Owned by the reader: it may be changed.
        captured_at_s: Capture time in seconds on the camera's clock (`time.perf_counter` for hardware).
        number: Counts up by one for every frame the camera delivered; gaps are frames nobody read.
    """

    image: np.ndarray[Any, Any]
    captured_at_s: float
    number: int


class CameraConfig(PluginConfig):
    """Settings every camera has. Width and height are those after rotation."""

    plugin_kind: ClassVar[str] = "cameras"
    plugin_base: ClassVar[bool] = True

    fps: int | None = Field(None, gt=0, description="Frames per second; default: the camera's own.")
    width: int | None = Field(None, gt=0, description="Columns of a frame after rotation; default: the camera's own.")
    height: int | None = Field(None, gt=0, description="Rows of a frame after rotation; default: the camera's own.")


class Camera(ABC):
    """A camera. Implementers write `connect`, `disconnect`, `state`, `_latest`, `_wait_newer` and `_now`.

    Thread-safe: frames may be read while a background thread captures. `connect` is atomic, `disconnect` is idempotent.
    """

    config_class: ClassVar[type[CameraConfig]]

    def __init__(self, config: CameraConfig) -> None:
        self.config = config
        self.fps, self.width, self.height = config.fps, config.width, config.height
        self._consumed = -1

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.config.type})"

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    @staticmethod
    @abstractmethod
    def find_cameras() -> list[dict[str, Any]]:
        """List the cameras there are: dicts with `name`, `type`, `id` and, if known, `default_stream_profile`."""

    @property
    @abstractmethod
    def state(self) -> CameraState:
        """What the camera is doing right now."""

    @property
    def is_connected(self) -> bool:
        """Whether it is open and frames may still come."""
        return self.state in (CameraState.LIVE, CameraState.STALLED)

    @abstractmethod
    def connect(self, warmup: bool = True) -> None:
        """Open the camera and start capturing.

        Args:
            warmup: Whether to wait for the first good frames.

        Raises:
            DeviceAlreadyConnectedError: It is connected.
            DeviceConnectError: It cannot be opened, or does not offer the asked size or rate (its offers are listed).
        """

    @abstractmethod
    def disconnect(self) -> None:
        """Stop capturing and release the camera; safe to call at any time."""

    @abstractmethod
    def _latest(self) -> Frame | None:
        """Return the newest frame without waiting, or None before the first."""

    @abstractmethod
    def _wait_newer(self, number: int, timeout_s: float) -> Frame:
        """Wait for a frame numbered above `number`; FrameTimeoutError after `timeout_s` seconds."""

    @abstractmethod
    def _now(self) -> float:
        """Return the time in seconds on the clock that stamps the frames."""

    def _require_connected(self) -> None:
        if not self.is_connected:
            hint = (
                "Call connect() first."
                if self.state is CameraState.CLOSED
                else "Check the cable, then connect() again."
            )
            raise DeviceNotConnectedError(f"{self} is {self.state.value}.", device=str(self), hint=hint)

    def read_frame(self, timeout_ms: float = 10_000) -> Frame:
        """Wait for a frame captured after this call.

        Args:
            timeout_ms: How long to wait, milliseconds.

        Returns:
            The new frame with its capture time.

        Raises:
            DeviceNotConnectedError: Not connected, or lost.
            FrameTimeoutError: No new frame in time.
        """
        self._require_connected()
        latest = self._latest()
        frame = self._wait_newer(-1 if latest is None else latest.number, timeout_ms / 1e3)
        self._consumed = frame.number
        return frame

    def read(self) -> np.ndarray[Any, Any]:
        """Wait up to 10 s for a new picture.

        Returns:
            uint8 (H, W, 3).

        Raises:
            DeviceNotConnectedError: Not connected, or lost.
            FrameTimeoutError: No new frame in time.
        """
        return self.read_frame().image

    def async_read(self, timeout_ms: float = 200) -> np.ndarray[Any, Any]:
        """Return the newest picture not yet returned by this method, waiting for one if need be.

        Args:
            timeout_ms: How long to wait, milliseconds.

        Returns:
            uint8 (H, W, 3).

        Raises:
            DeviceNotConnectedError: Not connected, or lost.
            FrameTimeoutError: No new frame in time.
        """
        self._require_connected()
        latest = self._latest()
        frame = (
            latest if latest and latest.number > self._consumed else self._wait_newer(self._consumed, timeout_ms / 1e3)
        )
        self._consumed = frame.number
        return frame.image

    @property
    def frame_age_ms(self) -> float:
        """Age of the newest frame in milliseconds, infinite before the first; works in every state."""
        frame = self._latest()
        return float("inf") if frame is None else (self._now() - frame.captured_at_s) * 1e3

    def latest_frame(self, max_age_ms: float = 500) -> Frame:
        """Return the newest frame without waiting.

        Args:
            max_age_ms: Oldest age accepted, milliseconds.

        Returns:
            The frame with its capture time.

        Raises:
            DeviceNotConnectedError: Not connected, or lost.
            StaleFrameError: The newest frame is older, or there is none yet.
        """
        self._require_connected()
        frame = self._latest()
        age_ms = float("inf") if frame is None else (self._now() - frame.captured_at_s) * 1e3
        if frame is None or age_ms > max_age_ms:
            raise StaleFrameError(
                f"{self}: the newest frame is {age_ms:.0f} ms old, allowed are {max_age_ms:.0f} ms.",
                age_ms=age_ms,
                device=str(self),
                hint="Check the camera's cable and USB bandwidth, or allow older frames.",
            )
        return frame

    def read_latest(self, max_age_ms: float = 500) -> np.ndarray[Any, Any]:
        """Return the newest picture without waiting; see `latest_frame`.

        Args:
            max_age_ms: Oldest age accepted, milliseconds.

        Returns:
            uint8 (H, W, 3).

        Raises:
            DeviceNotConnectedError: Not connected, or lost.
            StaleFrameError: The newest frame is older, or there is none yet.
        """
        return self.latest_frame(max_age_ms).image


def make_cameras_from_configs(configs: Mapping[str, CameraConfig]) -> dict[str, Camera]:
    """Make cameras, in the order given; opens nothing.

    Args:
        configs: Name to settings.

    Returns:
        Name to camera.

    Raises:
        PluginLoadError: A camera's implementation cannot be imported.
    """
    return {name: config.load_implementation()(config) for name, config in configs.items()}
