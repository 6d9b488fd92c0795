# SPDX-License-Identifier: Apache-2.0
"""Settings of an OpenCV camera: published names and defaults, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ulna.cameras.opencv import OpenCVCamera, OpenCVCameraConfig
from ulna.core.cameras import CameraConfig, ColorMode, Cv2Backends, Cv2Rotation
from ulna.core.errors import ConfigError


def test_defaults() -> None:
    """They are those of existing files."""
    config = CameraConfig.choose({"type": "opencv", "index_or_path": 0})
    assert isinstance(config, OpenCVCameraConfig)
    assert config.to_dict() == {
        "type": "opencv",
        "fps": None,
        "width": None,
        "height": None,
        "index_or_path": 0,
        "color_mode": "rgb",
        "rotation": 0,
        "warmup_s": 1,
        "fourcc": None,
        "backend": 0,
        "loop": False,
    }
    assert config.load_implementation() is OpenCVCamera


def test_values_are_understood() -> None:
    """A number in a flag is a camera number, other text is a path; enums are given by value."""
    config = OpenCVCameraConfig.build({"index_or_path": "2", "color_mode": "bgr", "rotation": -90, "backend": 200})
    assert config.index_or_path == 2
    assert config.color_mode is ColorMode.BGR
    assert config.rotation is Cv2Rotation.ROTATE_270
    assert config.backend is Cv2Backends.V4L2
    assert OpenCVCameraConfig.build({"index_or_path": "/dev/video0"}).index_or_path == Path("/dev/video0")


@pytest.mark.parametrize(
    "wrong",
    [
        {"rotation": 270},
        {"color_mode": "hsv"},
        {"fourcc": "MJPEG"},
        {"fps": 0},
        {"width": -1},
        {"warmup_s": -1},
        {"backend": 7},
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    """Each with the name of the setting."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        OpenCVCameraConfig.build({"index_or_path": 0, **wrong})
