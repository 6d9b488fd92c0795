# SPDX-License-Identifier: Apache-2.0
"""A camera over time: stalls, losses, reconnection, stopping in every state, video files."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ulna.cameras.opencv import OpenCVCamera, OpenCVCameraConfig
from ulna.cameras.opencv.reader import Timing
from ulna.core.cameras import CameraState
from ulna.core.errors import (
    DeviceAlreadyConnectedError,
    DeviceConnectError,
    DeviceNotConnectedError,
    FrameTimeoutError,
    StaleFrameError,
)
from ulna.testing import leftovers

LONG_S = 60.0
"""Longer than anything here takes on a busy machine."""

QUICK = {"stalled_after_s": 0.1, "lost_after_s": LONG_S, "reopen_after_s": 0.05, "retry_s": 0.02}


def _camera(driver: Any, **patience: float) -> OpenCVCamera:
    config = OpenCVCameraConfig(index_or_path=0, warmup_s=0)
    return OpenCVCamera(config, capture_factory=driver, timing=Timing(**{**QUICK, **patience}))


def _give_up_after(camera: OpenCVCamera, lost_after_s: float) -> None:
    """Change a camera's patience while it runs, so that a pause of the machine before that is no loss."""
    assert camera._timing is not None
    camera._timing.lost_after_s = lost_after_s


def _until(condition: Callable[[], bool], limit_s: float = LONG_S) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def test_frames_come_with_numbers_and_times(driver: Any) -> None:
    """Numbers rise, times rise, ages are those of the clock; every frame is a new picture."""
    with _camera(driver, stalled_after_s=LONG_S) as camera:
        first, second = camera.read_frame(), camera.read_frame()
        assert second.number > first.number
        assert second.captured_at_s > first.captured_at_s
        assert camera.frame_age_ms < LONG_S * 1e3
        assert camera.state is CameraState.LIVE
        assert second.image[0, 0, 0] != first.image[0, 0, 0]


def test_life_cycle(driver: Any) -> None:
    """Closed, live, closed; connecting twice is refused, disconnecting twice is not."""
    camera = _camera(driver)
    assert camera.state is CameraState.CLOSED
    assert camera.frame_age_ms == float("inf")
    for read in (camera.read, camera.async_read, camera.read_latest):
        with pytest.raises(DeviceNotConnectedError):
            read()
    camera.connect()
    with pytest.raises(DeviceAlreadyConnectedError):
        camera.connect()
    camera.disconnect()
    camera.disconnect()
    assert (camera.state, driver.open_now) == (CameraState.CLOSED, 0)


def test_a_short_stall_is_bridged(driver: Any) -> None:
    """Frames that fail for a moment age visibly, are refused when too old, and come again."""
    with _camera(driver) as camera:
        camera.read()
        driver.frozen = True
        _until(lambda: camera.state is CameraState.STALLED)
        assert camera.is_connected
        assert camera.frame_age_ms > 90
        camera.read_latest(max_age_ms=LONG_S * 1e3)
        with pytest.raises(StaleFrameError) as caught:
            camera.read_latest(max_age_ms=50)
        assert caught.value.age_ms > 50
        with pytest.raises(FrameTimeoutError):
            camera.read_frame(timeout_ms=30)
        driver.frozen = False
        _until(lambda: camera.state is CameraState.LIVE)
        camera.read()


def test_unplugged_and_plugged_in_again(driver: Any) -> None:
    """The camera is opened anew by itself when it comes back, with its settings."""
    with _camera(driver) as camera:
        camera.read()
        driver.present = False
        _until(lambda: camera.state is CameraState.STALLED)
        _until(lambda: len(driver.opened) > 3)
        driver.present = True
        _until(lambda: camera.state is CameraState.LIVE)
        camera.read()
    assert driver.open_now == 0


def test_a_lasting_loss_is_the_end(driver: Any) -> None:
    """A camera that does not come back is lost: reading raises, and it can be connected again."""
    camera = _camera(driver)
    camera.connect()
    camera.read()
    driver.present = False
    _give_up_after(camera, 0.3)
    _until(lambda: camera.state is CameraState.LOST)
    assert not camera.is_connected
    with pytest.raises(DeviceNotConnectedError, match="lost"):
        camera.read_latest(max_age_ms=1e9)
    with pytest.raises(DeviceConnectError):
        camera.connect()
    driver.present = True
    _give_up_after(camera, LONG_S)
    camera.connect()
    camera.read()
    camera.disconnect()


def test_a_reader_that_waits_learns_of_the_loss(driver: Any) -> None:
    """It does not have to wait for its own timeout."""
    with _camera(driver) as camera:
        camera.read()
        driver.present = False
        _give_up_after(camera, 0.2)
        with pytest.raises(DeviceNotConnectedError, match="no more frames, Cannot open camera 0"):
            camera.read_frame(timeout_ms=60_000)


def test_a_driver_that_hangs(driver: Any) -> None:
    """A read that never returns is seen by the age of the frame: stalled, then lost."""
    with _camera(driver) as camera:
        camera.read()
        driver.hung = True
        _until(lambda: camera.state is CameraState.STALLED)
        _give_up_after(camera, 0.4)
        _until(lambda: camera.state is CameraState.LOST)
        driver.hung = False


def test_a_camera_that_opens_but_shows_nothing(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting fails with advice, and leaves nothing open."""
    monkeypatch.setattr("ulna.cameras.opencv.camera._FIRST_FRAME_S", 0.1)
    driver.delivers = False
    camera = _camera(driver)
    with pytest.raises(DeviceConnectError, match="gave no picture"):
        camera.connect()
    assert (camera.state, driver.open_now) == (CameraState.CLOSED, 0)


def test_pictures_of_another_shape_are_dropped(driver: Any) -> None:
    """A frame that is not of the agreed shape never reaches a reader."""
    with _camera(driver) as camera:
        camera.read()
        driver.shape = (10, 10, 3)
        _until(lambda: camera.state is not CameraState.LIVE)
        assert camera.read_latest(max_age_ms=1e9).shape == (240, 320, 3)


def test_a_driver_that_raises(driver: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An exception of the driver makes the camera lost, with the reason, instead of killing a thread in silence."""
    camera = _camera(driver)
    camera.connect()
    driver.shape = (-1, 2, 3)
    _until(lambda: camera.state is CameraState.LOST)
    with pytest.raises(DeviceNotConnectedError):
        camera.read()
    assert "reading frames failed" in caplog.text
    camera.disconnect()


def test_many_connections_leave_no_thread(driver: Any) -> None:
    """Two hundred rounds with random pauses: no exception in any thread, no thread left, nothing open."""
    raised: list[Any] = []
    threading.excepthook, hook = raised.append, threading.excepthook
    rng = random.Random(0)
    camera = _camera(driver)
    try:
        with leftovers() as left:
            for _ in range(200):
                camera.connect(warmup=rng.random() < 0.2)
                time.sleep(rng.random() * 0.004)
                camera.disconnect()
    finally:
        threading.excepthook = hook
    assert raised == []
    assert not left, left
    assert driver.open_now == 0


def test_stopping_while_another_thread_reads(driver: Any) -> None:
    """The reader is woken up with an error that says why."""
    camera = _camera(driver)
    camera.connect()
    camera.read()
    driver.frozen = True
    errors: list[Exception] = []

    def read() -> None:
        try:
            while True:
                camera.read_frame(timeout_ms=60_000)
        except Exception as error:  # noqa: BLE001 - what ends it is what is checked
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.02)
    camera.disconnect()
    thread.join(LONG_S)
    assert isinstance(errors[0], DeviceNotConnectedError)


def test_a_video_file_plays_and_ends(make_video: Callable[..., Path]) -> None:
    """Every frame comes once, at the file's pace; then the camera is lost, and can be connected again."""
    camera = OpenCVCamera(
        OpenCVCameraConfig(index_or_path=make_video(8), width=64, height=48, fps=50, color_mode="bgr")
    )
    for _ in range(2):
        start = time.perf_counter()
        camera.connect()
        frame = camera._wait_newer(-1, LONG_S)
        shades = {frame.number: int(frame.image[-1, -1, 0])}
        while frame.number < 7:
            frame = camera._wait_newer(frame.number, LONG_S)
            shades[frame.number] = int(frame.image[-1, -1, 0])
        with pytest.raises(DeviceNotConnectedError, match="the video has ended"):
            camera._wait_newer(7, LONG_S)
        assert time.perf_counter() - start > 0.1
        assert camera.state is CameraState.LOST
        assert np.allclose(list(shades.values()), [20 * number + 10 for number in shades], atol=4)
    camera.disconnect()


def test_a_video_file_that_loops(make_video: Callable[..., Path]) -> None:
    """It starts over and goes on counting."""
    config = OpenCVCameraConfig(index_or_path=make_video(3, fps=100.0), loop=True)
    with OpenCVCamera(config) as camera:
        assert (camera.width, camera.height, camera.fps) == (64, 48, 100)
        assert camera._wait_newer(10, LONG_S).number > 10
        _until(lambda: camera.state is CameraState.LIVE)


def test_a_video_file_that_vanishes(make_video: Callable[..., Path]) -> None:
    """A loop over a file that was deleted ends as a loss."""
    path = make_video(3, fps=100.0)
    timing = Timing(lost_after_s=0.3, retry_s=0.02, period_s=0.01)
    with OpenCVCamera(OpenCVCameraConfig(index_or_path=path, loop=True), timing=timing) as camera:
        path.unlink()
        _until(lambda: camera.state is CameraState.LOST)
