# SPDX-License-Identifier: Apache-2.0
"""Webcams and video files through OpenCV. Names load on use, so that looking at this package does not import OpenCV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ulna.cameras.opencv.camera import OpenCVCamera
    from ulna.cameras.opencv.config import OpenCVCameraConfig

__all__ = ["OpenCVCamera", "OpenCVCameraConfig"]

_HOMES = {"OpenCVCamera": "camera", "OpenCVCameraConfig": "config"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
