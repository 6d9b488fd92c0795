# SPDX-License-Identifier: Apache-2.0
"""Settings of an OpenCV camera. Does not import OpenCV."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from ulna.core.cameras import CameraConfig, ColorMode, Cv2Backends, Cv2Rotation

__all__ = ["OpenCVCameraConfig"]


class OpenCVCameraConfig(CameraConfig):
    """A webcam, or a video file in its place. Width and height are those after rotation."""

    implementation: ClassVar[str] = "ulna.cameras.opencv.camera:OpenCVCamera"

    type: Literal["opencv"] = "opencv"
    index_or_path: int | Path = Field(description="Number of the camera, its device file, or a video file.")
    color_mode: ColorMode = Field(ColorMode.RGB, description="Order of the colour channels.")
    rotation: Cv2Rotation = Field(Cv2Rotation.NO_ROTATION, description="Degrees clockwise: 0, 90, 180 or -90.")
    warmup_s: int = Field(1, ge=0, description="Seconds a webcam gets to adjust its exposure when it is connected.")
    fourcc: str | None = Field(None, min_length=4, max_length=4, description="Pixel format, MJPG or YUYV.")
    backend: Cv2Backends = Field(Cv2Backends.ANY, description="OpenCV's capture backend, by its number.")
    loop: bool = Field(False, description="Start a video file again when it ends; else the camera is lost then.")

    @field_validator("index_or_path", mode="before")
    @classmethod
    def _digits_are_a_number(cls, value: Any) -> Any:
        return int(value) if isinstance(value, str) and value.isdecimal() else value
