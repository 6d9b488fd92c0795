# SPDX-License-Identifier: Apache-2.0
"""Opening an OpenCV capture with settings that are checked, and turning its raw pictures into frames."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from ulna.cameras.opencv.config import OpenCVCameraConfig
from ulna.core.cameras import ColorMode, Cv2Rotation
from ulna.core.errors import DeviceConnectError

__all__ = [
    "Capture",
    "CaptureFactory",
    "CaptureSource",
    "Profile",
    "default_factory",
    "is_video_file",
    "open_capture",
    "profile_of",
]

logger = logging.getLogger(__name__)

_COMMON_SIZES = ((320, 240), (640, 480), (800, 600), (1280, 720), (1920, 1080))
_TURNED = (Cv2Rotation.ROTATE_90, Cv2Rotation.ROTATE_270)
_ROTATE = {
    Cv2Rotation.ROTATE_90: cv2.ROTATE_90_CLOCKWISE,
    Cv2Rotation.ROTATE_180: cv2.ROTATE_180,
    Cv2Rotation.ROTATE_270: cv2.ROTATE_90_COUNTERCLOCKWISE,
}
_RATE_TOLERANCE = 1.0


class Capture(Protocol):
    """The part of `cv2.VideoCapture` that is used."""

    def isOpened(self) -> bool:  # noqa: N802
        """Tell whether it is open."""
        ...

    def read(self) -> tuple[bool, Any]:
        """Wait for a picture."""
        ...

    def get(self, prop: int) -> float:
        """Read a setting."""
        ...

    def set(self, prop: int, value: float) -> bool:
        """Write a setting."""
        ...

    def release(self) -> None:
        """Close it."""
        ...


CaptureFactory = Callable[[int | str, int], Capture]
"""Opens a camera number or path with a backend number; `cv2.VideoCapture` does."""


def default_factory(where: int | str, backend: int) -> Capture:
    """Open a capture with OpenCV.

    Args:
        where: Camera number or path.
        backend: OpenCV's number of the backend.
    """
    capture: Capture = cv2.VideoCapture(where, backend)
    return capture


class Profile:
    """What a capture delivers, before rotation.

    Args:
        width: Columns.
        height: Rows.
        fps: Frames per second, 0 when the driver does not say.
        fourcc: Pixel format, empty when the driver does not say.
    """

    def __init__(self, width: int, height: int, fps: float, fourcc: str) -> None:
        self.width, self.height, self.fps, self.fourcc = width, height, fps, fourcc

    def __str__(self) -> str:
        return f"{self.width}x{self.height} at {self.fps:g} fps" + (f" {self.fourcc}" if self.fourcc else "")


def profile_of(capture: Capture) -> Profile:
    """Read what a capture delivers.

    Args:
        capture: An open capture.
    """
    code = int(capture.get(cv2.CAP_PROP_FOURCC))
    letters = bytes(code >> shift & 0xFF for shift in (0, 8, 16, 24)) if code > 0 else b""
    return Profile(
        int(capture.get(cv2.CAP_PROP_FRAME_WIDTH)),
        int(capture.get(cv2.CAP_PROP_FRAME_HEIGHT)),
        float(capture.get(cv2.CAP_PROP_FPS)),
        letters.decode("ascii", "replace").strip("\0 "),
    )


def is_video_file(config: OpenCVCameraConfig) -> bool:
    """Tell whether settings name a video file instead of a camera.

    Args:
        config: The settings.
    """
    return isinstance(config.index_or_path, Path) and config.index_or_path.is_file()


def open_capture(config: OpenCVCameraConfig, factory: CaptureFactory) -> tuple[Capture, Profile]:
    """Open a camera or video file and make it deliver what the settings ask for.

    Args:
        config: The settings.
        factory: Opens the capture.

    Returns:
        The capture and what it delivers.

    Raises:
        DeviceConnectError: It cannot be opened, or delivers something else; the message says what it offers.
    """
    where = config.index_or_path if isinstance(config.index_or_path, int) else str(config.index_or_path)
    capture = factory(where, int(config.backend))
    if not capture.isOpened():
        capture.release()
        raise DeviceConnectError(f"Cannot open camera {where}.", device=str(where), hint=_opening_hint(config))
    try:
        asked = _asked_size(config)
        if not is_video_file(config):
            _apply(capture, config, asked)
        profile = profile_of(capture)
        wrong = _differences(profile, config, asked)
        if wrong:
            raise DeviceConnectError(
                f"Camera {where} delivers {profile}, not {' and '.join(wrong)}.",
                device=str(where),
                hint="It offers: " + (str(profile) if is_video_file(config) else _offers(capture, config)),
            )
        if config.fourcc and profile.fourcc and profile.fourcc != config.fourcc:
            logger.warning("Camera %s delivers %s instead of %s.", where, profile.fourcc, config.fourcc)
    except BaseException:
        capture.release()
        raise
    return capture, profile


def _opening_hint(config: OpenCVCameraConfig) -> str:
    path = config.index_or_path
    if isinstance(path, Path) and not path.exists():
        return f"{path} does not exist. List the cameras: ulna cameras find"
    if isinstance(path, Path) and is_video_file(config):
        return "OpenCV cannot read this file; is it a video, and complete?"
    permission = " On Linux your user must be in the group video." if sys.platform == "linux" else ""
    return f"Is another program using it?{permission} List the cameras: ulna cameras find"


def _asked_size(config: OpenCVCameraConfig) -> tuple[int | None, int | None]:
    if config.rotation in _TURNED:
        return config.height, config.width
    return config.width, config.height


def _apply(capture: Capture, config: OpenCVCameraConfig, asked: tuple[int | None, int | None]) -> None:
    """Write settings in the order drivers need: the format decides which sizes there are, the size which rates."""
    if config.fourcc:
        capture.set(cv2.CAP_PROP_FOURCC, float(cv2.VideoWriter.fourcc(*config.fourcc)))
    _set_size(capture, asked)
    if config.fps:
        capture.set(cv2.CAP_PROP_FPS, float(config.fps))


def _set_size(capture: Capture, size: tuple[int | None, int | None]) -> None:
    # Some drivers refuse a width that does not go with the old height; asked once more they take it.
    for _ in range(2):
        for prop, value in zip((cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT), size, strict=True):
            if value is not None and int(capture.get(prop)) != value:
                capture.set(prop, float(value))


def _differences(profile: Profile, config: OpenCVCameraConfig, asked: tuple[int | None, int | None]) -> list[str]:
    wrong = []
    width, height = asked
    if (width or profile.width, height or profile.height) != (profile.width, profile.height):
        wrong.append(f"{width or profile.width}x{height or profile.height}")
    if config.fps and profile.fps > 0 and abs(profile.fps - config.fps) >= _RATE_TOLERANCE:
        wrong.append(f"{config.fps} fps")
    return wrong


def _offers(capture: Capture, config: OpenCVCameraConfig) -> str:
    """Try the usual sizes, since OpenCV cannot list what a camera offers."""
    found: dict[str, None] = {}
    for size in _COMMON_SIZES:
        _set_size(capture, size)
        capture.set(cv2.CAP_PROP_FPS, float(config.fps or 30))
        profile = profile_of(capture)
        found[str(profile)] = None
    return ", ".join(found)


class CaptureSource:
    """An open capture as a source of frames: checked, rotated, in the colours asked for. Made for each opening.

    Args:
        capture: The open capture; closed with this.
        profile: What it delivers.
        config: The settings.
    """

    def __init__(self, capture: Capture, profile: Profile, config: OpenCVCameraConfig) -> None:
        self._capture = capture
        self._shape = (profile.height, profile.width, 3)
        self._rotate = _ROTATE.get(config.rotation)
        self._to_rgb = config.color_mode is ColorMode.RGB

    def read(self) -> NDArray[np.uint8] | None:
        """Wait for the next picture; None when there was none, or a damaged one."""
        good, image = self._capture.read()
        if not good or image is None:
            return None
        if image.shape != self._shape:
            logger.warning("A frame of shape %s came instead of %s; dropped.", image.shape, self._shape)
            return None
        if self._to_rgb:
            image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        if self._rotate is not None:
            image = cv2.rotate(image, self._rotate)
        return np.asarray(image, dtype=np.uint8)

    def close(self) -> None:
        """Release the capture."""
        self._capture.release()
