# SPDX-License-Identifier: Apache-2.0
"""Settings of a capture: their order, what is read back, and what the error offers."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from ulna.cameras.opencv import OpenCVCamera, OpenCVCameraConfig
from ulna.cameras.opencv.capture import open_capture
from ulna.core.errors import DeviceConnectError


def _config(**settings: Any) -> OpenCVCameraConfig:
    return OpenCVCameraConfig(index_or_path=0, warmup_s=0, **settings)


def test_settings_go_in_the_order_drivers_need(driver: Any) -> None:
    """Format, then size, then rate: this camera knows 60 fps only at 320x240 and forgets its rate with each size."""
    _, profile = open_capture(_config(fourcc="MJPG", width=640, height=480, fps=30), driver)
    kinds = [p for p in driver.log if p != cv2.CAP_PROP_FRAME_HEIGHT]
    assert kinds == [cv2.CAP_PROP_FOURCC, cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FPS]
    assert (profile.width, profile.height, profile.fps, profile.fourcc) == (640, 480, 30, "MJPG")


def test_nothing_asked_nothing_written(driver: Any) -> None:
    """Without settings the camera stays in its own mode, which is reported."""
    _, profile = open_capture(_config(), driver)
    assert driver.log == []
    assert str(profile) == "320x240 at 30 fps YUYV"


def test_a_size_that_is_set_one_side_at_a_time(driver: Any) -> None:
    """A driver that refuses the width while the height is wrong gets both asked again."""
    driver.strict, driver.sizes = True, ((320, 240), (320, 480), (640, 480))
    _, profile = open_capture(_config(width=640, height=480), driver)
    assert (profile.width, profile.height) == (640, 480)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"width": 500, "height": 500}, "not 500x500"),
        ({"width": 640, "height": 480, "fps": 60}, "not 60 fps"),
        ({"width": 1280, "height": 720, "fps": 30}, "delivers 1280x720 at 10 fps"),
    ],
)
def test_what_cannot_be_had_is_told_with_what_can(driver: Any, asked: dict[str, int], told: str) -> None:
    """The error lists the modes there are, and the capture is closed."""
    with pytest.raises(DeviceConnectError, match=told) as caught:
        open_capture(_config(**asked), driver)
    assert "It offers: 320x240 at" in str(caught.value)
    assert "640x480 at 30 fps" in str(caught.value)
    assert driver.open_now == 0


def test_another_format_is_a_warning(driver: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The picture is the same in another format; it only needs more bandwidth."""
    with caplog.at_level(logging.WARNING):
        open_capture(_config(fourcc="H264"), driver)
    assert "delivers YUYV instead of H264" in caplog.text


def test_rotation_swaps_the_size(driver: Any) -> None:
    """Width and height are those after rotation, so the driver is asked for the other way round."""
    camera = OpenCVCamera(_config(width=480, height=640, fps=30, rotation=90), capture_factory=driver)
    with camera:
        assert camera.read().shape == (640, 480, 3)
        assert (camera.width, camera.height, camera.fps) == (480, 640, 30)


@pytest.mark.parametrize(("rotation", "corner"), [(0, (0, 0)), (90, (0, -1)), (180, (-1, -1)), (-90, (-1, 0))])
def test_rotation_is_clockwise(driver: Any, rotation: int, corner: tuple[int, int]) -> None:
    """The marked corner goes where it should, and colours come in the order asked for."""
    for mode, channel in (("bgr", 0), ("rgb", 2)):
        config = _config(rotation=rotation, color_mode=mode)
        with OpenCVCamera(config, capture_factory=driver) as camera:
            image = camera.read()
            assert image.dtype == np.uint8
            assert image[corner][channel] == 255


def test_a_camera_that_is_not_there(driver: Any, tmp_path: Path) -> None:
    """The error says how to find the right one."""
    driver.present = False
    with pytest.raises(DeviceConnectError, match="ulna cameras find"):
        OpenCVCamera(_config(), capture_factory=driver).connect()
    missing = OpenCVCameraConfig(index_or_path=tmp_path / "video9")
    with pytest.raises(DeviceConnectError, match="does not exist"):
        OpenCVCamera(missing, capture_factory=driver).connect()


def test_find_cameras_on_linux(driver: Any, tmp_path: Path) -> None:
    """Every device file is looked at, in the order of numbers, and closed again."""
    for name in ("video10", "video2", "video-decoder", "videofoo", "tty0"):
        (tmp_path / name).touch()
    found = OpenCVCamera.find_cameras(tmp_path, driver, "linux")
    assert [camera["id"] for camera in found] == [str(tmp_path / "video2"), str(tmp_path / "video10")]
    assert found[0]["type"] == "opencv"
    assert found[0]["default_stream_profile"] == {"format": "YUYV", "width": 320, "height": 240, "fps": 30.0}
    assert driver.open_now == 0


def test_camera_is_made_from_what_was_found() -> None:
    """What was found is opened again by its path or number, in its own size and rate."""
    for ident in ("/dev/video2", 3):
        camera = OpenCVCamera.from_found({"type": "OpenCV", "id": ident, "name": "Webcam"})
        assert str(camera.config.index_or_path) == str(ident)
        assert (camera.width, camera.fps) == (None, None)


def test_find_cameras_elsewhere(driver: Any) -> None:
    """Numbers are tried until several in a row are no camera."""
    tried: list[int | str] = []

    def only_two(where: int | str, backend: int) -> Any:
        tried.append(where)
        driver.present = where in (0, 3)
        return driver(where, backend)

    assert [c["id"] for c in OpenCVCamera.find_cameras(capture_factory=only_two, platform="darwin")] == [0, 3]
    assert max(map(int, tried)) < 20


def test_importing_changes_nothing_global() -> None:
    """OpenCV's number of threads stays what it was."""
    code = "import cv2; n = cv2.getNumThreads(); import ulna.cameras.opencv.camera; assert cv2.getNumThreads() == n"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_s_size_cannot_be_chosen(make_video: Callable[..., Path]) -> None:
    """A video has the size it has; the error tells it."""
    config = OpenCVCameraConfig(index_or_path=make_video(), width=640, height=480, fps=50)
    with pytest.raises(DeviceConnectError, match=r"It offers: 64x48 at 50 fps"):
        OpenCVCamera(config).connect()


def test_a_file_that_is_no_video(tmp_path: Path) -> None:
    """The error says what is wrong with it."""
    path = tmp_path / "notes.avi"
    path.write_text("not a video")
    with pytest.raises(DeviceConnectError, match="is it a video"):
        OpenCVCamera(OpenCVCameraConfig(index_or_path=path)).connect()
