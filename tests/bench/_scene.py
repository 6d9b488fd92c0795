# SPDX-License-Identifier: Apache-2.0
"""What the simulated arm of the measurements sees and does. Used by `data_cases.py`, under any library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

FPS, HEIGHT, WIDTH = 30, 480, 640
CAMERAS = ("observation.images.top", "observation.images.wrist")


class Camera:
    """A cheap moving scene: a slowly rolling gradient with grain, over which textured squares move."""

    def __init__(self, height: int, width: int, seed: int) -> None:
        random_numbers = np.random.default_rng(seed)
        rows, columns = np.mgrid[0:height, 0 : 2 * width]
        waves = [110 + 70 * np.sin(columns / (41 + 9 * c) + c) * np.cos(rows / (67 - 11 * c)) for c in range(3)]
        scene = np.stack(waves, axis=-1) + random_numbers.normal(0, 2, (height, 2 * width, 3))
        self._scene = np.clip(scene, 0, 255).astype(np.uint8)
        size = max(height // 10, 4)
        self._square = random_numbers.integers(0, 256, (8, size, size, 3), dtype=np.uint8)
        self._corners = random_numbers.integers(0, (height - size, width - size), (4, 2))
        self._width, self._room = width, (height - size, width - size)

    def frame(self, number: int) -> np.ndarray:
        """Return frame `number`, uint8 (height, width, 3)."""
        start = 2 * number % self._width
        picture = self._scene[:, start : start + self._width].copy()
        size = self._square.shape[1]
        for k, (row, column) in enumerate(self._corners):
            y, x = (int(row) + k * number) % self._room[0], (int(column) + 2 * number) % self._room[1]
            picture[y : y + size, x : x + size] = self._square[(number // 3 + k) % 8]
        return picture


def vector(number: int) -> np.ndarray:
    """Return six joint values."""
    return np.sin(0.02 * number + np.arange(6)).astype(np.float32)


def features(dtype: str | None, height: int = HEIGHT, width: int = WIDTH) -> dict[str, Any]:
    """Return the features of an arm with two cameras, or without any."""
    joints = {"dtype": "float32", "shape": (6,), "names": [f"joint_{i}" for i in range(6)]}
    picture = {"dtype": dtype, "shape": (height, width, 3), "names": ["height", "width", "channels"]}
    cameras = {} if dtype is None else {key: dict(picture) for key in CAMERAS}
    return {**cameras, "observation.state": dict(joints), "action": dict(joints)}


def frames(cameras: dict[str, Camera], first: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield frames as a robot would give them."""
    for number in range(first, first + count):
        pictures = {key: camera.frame(number) for key, camera in cameras.items()}
        yield {**pictures, "observation.state": vector(number), "action": vector(number + 1), "task": "do it"}
