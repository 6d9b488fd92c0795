# SPDX-License-Identifier: Apache-2.0
"""Webcams and video files through OpenCV. Names load on use, so that looking at this package does not import OpenCV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.cameras.opencv.camera import OpenCVCamera
    from ulna.cameras.opencv.config import OpenCVCameraConfig

__all__ = ["OpenCVCamera", "OpenCVCameraConfig"]

_HOMES = {"OpenCVCamera": "camera", "OpenCVCameraConfig": "config"}

__getattr__, __dir__ = lazy_names(globals(), _HOMES)
