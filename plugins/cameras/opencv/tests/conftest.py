# SPDX-License-Identifier: Apache-2.0
"""A fake driver with switchable faults, and a small video file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

PERIOD_S = 0.005
SIZES = ((320, 240), (640, 480), (1280, 720))


class FakeDriver:
    """A webcam's driver: it knows a few modes, wants its settings in order, and fails on demand.

    Attributes:
        frozen: Deliver nothing, blocking as long as a real driver does.
        hung: Block inside `read` until cleared.
        present: Whether the camera is plugged in.
        delivers: Whether reads give pictures.
        strict: Whether each single setting must lead to a mode, instead of to the nearest one.
        log: Settings in the order they were written.
    """

    def __init__(self) -> None:
        self.frozen = self.hung = False
        self.present = self.delivers = True
        self.log: list[int] = []
        self.opened: list[Any] = []
        self.open_now = 0
        self.shape: tuple[int, ...] | None = None
        self.strict = False
        self.sizes: tuple[tuple[int, int], ...] = SIZES
        self.rates: dict[tuple[int, int], tuple[int, ...]] = {
            (320, 240): (30, 60),
            (640, 480): (30,),
            (1280, 720): (10,),
        }
        self.fourccs = ("YUYV", "MJPG")
        self.lock = threading.Lock()

    def __call__(self, where: int | str, backend: int) -> FakeCapture:
        self.opened.append((where, backend))
        return FakeCapture(self)


class FakeCapture:
    """One opening of the fake camera."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.live = driver.present
        self.size, self.fps, self.fourcc = [320, 240], 30, "YUYV"
        self.number = 0
        if self.live:
            with driver.lock:
                driver.open_now += 1

    def isOpened(self) -> bool:
        return self.live

    def get(self, prop: int) -> float:
        values = {
            cv2.CAP_PROP_FRAME_WIDTH: self.size[0],
            cv2.CAP_PROP_FRAME_HEIGHT: self.size[1],
            cv2.CAP_PROP_FPS: self.fps,
            cv2.CAP_PROP_FOURCC: cv2.VideoWriter.fourcc(*self.fourcc),
        }
        return float(values[prop])

    def set(self, prop: int, value: float) -> bool:
        driver = self.driver
        driver.log.append(prop)
        if prop == cv2.CAP_PROP_FOURCC:
            letters = int(value).to_bytes(4, "little").decode()
            self.fourcc = letters if letters in driver.fourccs else self.fourcc
            return letters in driver.fourccs
        if prop == cv2.CAP_PROP_FPS:
            good = int(value) in driver.rates[tuple(self.size)]
            self.fps = int(value) if good else driver.rates[tuple(self.size)][0]
            return good
        index = 0 if prop == cv2.CAP_PROP_FRAME_WIDTH else 1
        if driver.strict:
            size = (int(value), self.size[1]) if index == 0 else (self.size[0], int(value))
            self.size = list(size) if size in driver.sizes else self.size
            return size in driver.sizes
        allowed = [size for size in driver.sizes if size[index] == int(value)]
        if allowed:
            # As a real driver: a dimension at a time makes it jump to the mode that has it.
            self.size = list(allowed[0])
            self.fps = driver.rates[tuple(self.size)][0]
        return bool(allowed)

    def read(self) -> tuple[bool, Any]:
        while self.driver.hung:
            time.sleep(PERIOD_S)
        time.sleep(PERIOD_S)
        if not (self.live and self.driver.present and self.driver.delivers) or self.driver.frozen:
            return False, None
        self.number += 1
        width, height = self.size
        image = np.zeros(self.driver.shape or (height, width, 3), np.uint8)
        image[0, 0] = (255, 0, self.number % 256)
        return True, image

    def release(self) -> None:
        if self.live:
            with self.driver.lock:
                self.driver.open_now -= 1
        self.live = False


@pytest.fixture
def driver() -> FakeDriver:
    """A camera that works until a test makes it fail."""
    return FakeDriver()


@pytest.fixture(scope="session")
def make_video(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Write small videos whose frames can be told apart by their brightness."""

    def make(frames: int = 10, fps: float = 50.0, size: tuple[int, int] = (64, 48)) -> Path:
        path = tmp_path_factory.mktemp("video") / "clip.avi"
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), fps, size)
        for number in range(frames):
            image = np.full((size[1], size[0], 3), 20 * number + 10, np.uint8)
            image[: size[1] // 2, : size[0] // 2] = (255, 0, 0)
            writer.write(image)
        writer.release()
        return path

    return make
