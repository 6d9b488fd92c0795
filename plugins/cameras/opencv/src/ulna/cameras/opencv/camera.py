# SPDX-License-Identifier: Apache-2.0
"""The OpenCV camera: connecting, warming up, discovery. Frames are `reader`'s subject, settings `capture`'s."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ulna.cameras.opencv.capture import (
    CaptureFactory,
    CaptureSource,
    Profile,
    default_factory,
    is_video_file,
    open_capture,
    profile_of,
)
from ulna.cameras.opencv.config import OpenCVCameraConfig
from ulna.cameras.opencv.reader import FrameReader, FrameSource, Timing
from ulna.core.cameras import Camera, CameraState, Cv2Rotation, Frame
from ulna.core.errors import DeviceAlreadyConnectedError, DeviceConnectError, DeviceError, DeviceNotConnectedError

__all__ = ["OpenCVCamera"]

logger = logging.getLogger(__name__)

_FIRST_FRAME_S = 5.0
_MOST_NUMBERS = 60
_GAP_OF_NUMBERS = 8
_STALLED_PERIODS = 4


class OpenCVCamera(Camera):
    """A webcam, or a video file played at its own rate, read by a thread from `connect` to `disconnect`.

    A webcam that stops delivering is stalled, is opened again when it comes back, and is lost after 10 s. A video file
    that ends is lost at once, unless it loops.

    Args:
        config: Its settings.
        capture_factory: Opens a capture; default `cv2.VideoCapture`.
        timing: How patient it is; default: by its frame rate.

    Example:
        >>> camera = OpenCVCamera(OpenCVCameraConfig(index_or_path=0))
        >>> camera.state.value
        'closed'
    """

    config_class: ClassVar[type[OpenCVCameraConfig]] = OpenCVCameraConfig
    config: OpenCVCameraConfig

    def __init__(
        self, config: OpenCVCameraConfig, *, capture_factory: CaptureFactory | None = None, timing: Timing | None = None
    ) -> None:
        super().__init__(config)
        self._factory = capture_factory or default_factory
        self._timing = timing
        self._reader: FrameReader | None = None

    def __str__(self) -> str:
        return f"OpenCVCamera({self.config.index_or_path})"

    @property
    def state(self) -> CameraState:
        """What the camera is doing right now."""
        reader = self._reader
        return CameraState.CLOSED if reader is None else reader.state

    def connect(self, warmup: bool = True) -> None:
        """Open the camera and start reading; see `Camera.connect`. A lost camera may be connected again."""
        if self.is_connected:
            raise DeviceAlreadyConnectedError(f"{self} is already connected.", device=str(self))
        self.disconnect()
        capture, profile = open_capture(self.config, self._factory)
        self._adopt(profile)
        source = CaptureSource(capture, profile, self.config)
        reader = FrameReader(str(self), source, self._open_again, self._timing or self._patience(profile))
        self._consumed = -1
        self._reader = reader
        reader.start()
        try:
            if warmup:
                self._warm_up(reader)
        except BaseException:
            self.disconnect()
            raise

    def _adopt(self, profile: Profile) -> None:
        turned = self.config.rotation in (Cv2Rotation.ROTATE_90, Cv2Rotation.ROTATE_270)
        size = (profile.height, profile.width) if turned else (profile.width, profile.height)
        self.width, self.height = size
        self.fps = self.config.fps or round(profile.fps) or None

    def _patience(self, profile: Profile) -> Timing:
        period_s = 1.0 / (profile.fps if profile.fps > 0 else 30.0)
        stalled_after_s = max(0.25, _STALLED_PERIODS * period_s)
        return Timing(stalled_after_s=stalled_after_s, period_s=period_s if is_video_file(self.config) else 0.0)

    def _open_again(self) -> FrameSource | None:
        if is_video_file(self.config) and not self.config.loop:
            return None
        capture, profile = open_capture(self.config, self._factory)
        return CaptureSource(capture, profile, self.config)

    def _warm_up(self, reader: FrameReader) -> None:
        try:
            reader.wait_newer(-1, _FIRST_FRAME_S)
        except DeviceError as error:
            raise DeviceConnectError(
                f"{self} opened, but gave no picture: {error}",
                device=str(self),
                hint="Try another USB port, a lower size or rate, or another fourcc (MJPG needs less bandwidth).",
            ) from error
        if not is_video_file(self.config):
            time.sleep(self.config.warmup_s)

    def disconnect(self) -> None:
        """Stop reading and release the camera; safe to call at any time."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.stop()

    @property
    def frame_age_ms(self) -> float:
        """Age of the newest frame in milliseconds, infinite before the first; works in every state."""
        reader = self._reader
        frame = None if reader is None else reader.latest()
        return float("inf") if frame is None else (self._now() - frame.captured_at_s) * 1e3

    def _latest(self) -> Frame | None:
        reader = self._reader
        frame = None if reader is None else reader.latest()
        return None if frame is None else _copy(frame)

    def _wait_newer(self, number: int, timeout_s: float) -> Frame:
        reader = self._reader
        if reader is None:
            raise DeviceNotConnectedError(f"{self} was disconnected.", device=str(self))
        return _copy(reader.wait_newer(number, timeout_s))

    def _now(self) -> float:
        return time.perf_counter()

    @staticmethod
    def find_cameras(
        dev: Path = Path("/dev"), capture_factory: CaptureFactory | None = None, platform: str = sys.platform
    ) -> list[dict[str, Any]]:
        """Open each camera for a moment to see whether it is one.

        Args:
            dev: Folder of the device files, on Linux.
            capture_factory: Opens a capture; default `cv2.VideoCapture`.
            platform: As `sys.platform`.

        Returns:
            For each camera `name`, `type`, `id` (a path on Linux, a number elsewhere), `backend_api` and
            `default_stream_profile`.
        """
        factory = capture_factory or default_factory
        cameras: list[dict[str, Any]] = []
        misses = 0
        for ident in _candidates(dev, platform):
            found = _look_at(ident, factory)
            if found is not None:
                cameras.append(found)
            misses = 0 if found is not None else misses + 1
            if isinstance(ident, int) and misses >= _GAP_OF_NUMBERS:
                break
        return cameras

    @classmethod
    def from_found(cls, found: Mapping[str, Any]) -> OpenCVCamera:
        """Make a camera from what `find_cameras` told of it, with its own size and rate; opens nothing.

        Args:
            found: One of the mappings.
        """
        return cls(OpenCVCameraConfig(index_or_path=found["id"]))


def _copy(frame: Frame) -> Frame:
    # Whoever gets a picture may draw into it, and others may get the same one.
    return replace(frame, image=frame.image.copy())


def _candidates(dev: Path, platform: str) -> Iterator[int | str]:
    if platform == "linux":
        numbered = {int(m[1]): path for path in dev.glob("video*") if (m := re.fullmatch(r"video(\d+)", path.name))}
        yield from (str(path) for _, path in sorted(numbered.items()))
    else:
        yield from range(_MOST_NUMBERS)


def _look_at(ident: int | str, factory: CaptureFactory) -> dict[str, Any] | None:
    capture = factory(ident, 0)
    try:
        if not capture.isOpened():
            return None
        profile = profile_of(capture)
    finally:
        capture.release()
    return {
        "name": f"OpenCV camera {ident}",
        "type": "opencv",
        "id": ident,
        "default_stream_profile": {
            "format": profile.fourcc,
            "width": profile.width,
            "height": profile.height,
            "fps": profile.fps,
        },
    }
