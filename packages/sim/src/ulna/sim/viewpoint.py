# SPDX-License-Identifier: Apache-2.0
"""Pinhole cameras: named viewpoints and the projection of points to pixels. It draws nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ulna.sim.kinematics import Skeleton

__all__ = ["VIEWS", "Camera", "camera_for"]

Array = NDArray[np.float64]
_NEAR_M: Final = 0.01


class Camera:
    """A pinhole camera that looks from one point to another.

    Args:
        eye: Where it is, metres.
        look_at: A point in the middle of its picture.
        up: Direction that is up in the picture.
        field_deg: Angle that the picture's shorter side spans.
        width: Pixels.
        height: Pixels.
    """

    def __init__(
        self,
        eye: ArrayLike,
        look_at: ArrayLike,
        up: ArrayLike,
        field_deg: float,
        width: int,
        height: int,
    ) -> None:
        self.eye = np.asarray(eye, dtype=np.float64)
        forward = np.asarray(look_at, dtype=np.float64) - self.eye
        forward /= math.sqrt(float(forward @ forward))
        right = np.cross(forward, np.asarray(up, dtype=np.float64))
        right /= math.sqrt(float(right @ right))
        self._rotation = np.stack([right, np.cross(forward, right), forward])
        self.focal = 0.5 * min(width, height) / math.tan(math.radians(field_deg) / 2)
        self._middle = np.array([width / 2 - 0.5, height / 2 - 0.5])

    def look(self, points: Any) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Return where points appear; those behind the camera are moved just in front of it.

        Args:
            points: (N, 3) metres.

        Returns:
            (N, 2) pixels, (N,) depths in metres, and (N,) whether each is in front of the camera.
        """
        local = (points - self.eye) @ self._rotation.T  # (N, 3)
        depth = np.maximum(local[:, 2], _NEAR_M)
        return local[:, :2] * (self.focal / depth)[:, None] + self._middle, depth, local[:, 2] >= _NEAR_M

    def clip(self, polygon: Any) -> Array:
        """Return the part of a polygon that lies in front of the camera.

        Args:
            polygon: (N, 3) metres, in order.

        Returns:
            (M, 3) metres; M is 0 when all of it is behind.
        """
        points = np.asarray(polygon, dtype=np.float64)
        depth = (points - self.eye) @ self._rotation[2] - _NEAR_M
        if (depth >= 0.0).all():
            return points
        kept = []
        for k in range(len(points)):
            a, b, da, db = points[k - 1], points[k], depth[k - 1], depth[k]
            if (da >= 0.0) != (db >= 0.0):
                kept.append(a + (b - a) * (da / (da - db)))
            if db >= 0.0:
                kept.append(b)
        return np.asarray(kept).reshape(-1, 3)


def _wrist(arm: Skeleton, width: int, height: int) -> Camera:
    forward, side = np.asarray(arm.forward), np.asarray(arm.side)
    up = np.cross(forward, side)
    eye = np.asarray(arm.wrist) + 0.055 * up + 0.005 * forward
    return Camera(eye, np.asarray(arm.tip) + 0.02 * forward, up, 78.0, width, height)


_FIXED: Final[Mapping[str, tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], float]]] = {
    "front": ((0.53, 0.17, 0.46), (0.125, 0.0, 0.072), (0.0, 0.0, 1.0), 43.0),
    "top": ((0.12, 0.0, 0.68), (0.12, 0.0, 0.0), (1.0, 0.0, 0.0), 42.0),
    "side": ((0.14, -0.72, 0.26), (0.12, 0.0, 0.09), (0.0, 0.0, 1.0), 36.0),
}

_MOVING: Final[Mapping[str, Callable[[Skeleton, int, int], Camera]]] = {"wrist": _wrist}

VIEWS: Final = (*_FIXED, *_MOVING)
"""Names of the viewpoints."""


def camera_for(view: str, arm: Skeleton, width: int, height: int) -> tuple[Camera, bool]:
    """Return the camera of a view.

    Args:
        view: One of `VIEWS`.
        arm: The arm, on which a camera may ride.
        width: Pixels.
        height: Pixels.

    Returns:
        The camera, and whether it stands still.
    """
    if view in _MOVING:
        return _MOVING[view](arm, width, height), False
    eye, look_at, up, field_deg = _FIXED[view]
    return Camera(eye, look_at, up, field_deg, width, height), True
