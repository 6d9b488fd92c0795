# SPDX-License-Identifier: Apache-2.0
"""Draws a scene state into RGB frames with OpenCV. Deterministic: equal states, views and sizes give equal bytes."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ulna.core.errors import ConfigError, ConfigProblem, MissingDependencyError, nearest
from ulna.sim.kinematics import Skeleton, skeleton
from ulna.sim.scene import TARGET_RADIUS_M, SceneState
from ulna.sim.viewpoint import VIEWS, Camera, camera_for

try:
    import cv2
except ImportError as error:
    raise MissingDependencyError("OpenCV", "Drawing simulated frames", "pip install 'ulna-sim[draw]'") from error

__all__ = ["FrameArtist", "draw", "encode_png"]

Frame = NDArray[np.uint8]
Colour = tuple[int, int, int]

_WALL_TOP: Final = np.array([226, 231, 238], dtype=np.float64)
_WALL_BOTTOM: Final = np.array([247, 248, 250], dtype=np.float64)
_TABLE: Final = (203, 188, 168)
_TABLE_LINE: Final = (195, 180, 159)
_TABLE_EDGE: Final = (150, 132, 112)
_MAT: Final = (92, 104, 116)
_MAT_EDGE: Final = (74, 84, 95)
_RED: Final = (216, 40, 62)
_WHITE: Final = (250, 246, 240)

_PRINTED: Final = ((247, 176, 44), (255, 210, 112), (176, 112, 14))  # body, highlight, outline
_SERVO: Final = ((46, 50, 58), (98, 104, 116), (22, 24, 28))

_RINGS: Final = np.array([1.25, 1.0, 0.52, 0.26])
_RING_COLOURS: Final = (_WHITE, _RED, _WHITE, _RED)

_SHIFT: Final = 4
_ONE: Final = 1 << _SHIFT
_LIGHT: Final = np.array([0.30, 0.38, 1.0])
_SHADE: Final = 0.72
_SHADOW_RADII: Final = np.array([0.034, 0.024, 0.021, 0.017, 0.008])
_GLINT: Final = np.array([-0.28, -0.34])
_GLINT_WIDTH: Final = 0.34
_SMALLEST_GLINT: Final = 1.5
_RIGHT: Final = np.array([1.0, 0.0])
_TURN: Final = np.array([-1.0, 1.0])
_ARC: Final = np.array([(math.cos(t), math.sin(t)) for t in np.linspace(-math.pi / 2, math.pi / 2, 11)])
_CIRCLE: Final = np.array([(math.cos(t), math.sin(t)) for t in np.linspace(0, 2 * math.pi, 28, endpoint=False)])


def draw(state: SceneState, view: str = "front", width: int = 640, height: int = 480) -> Frame:
    """Draw one frame.

    Args:
        state: What to show.
        view: `front`, `top`, `side` or `wrist`.
        width: Pixels.
        height: Pixels.

    Returns:
        (height, width, 3) uint8 RGB; a new array.

    Raises:
        ConfigError: The view is unknown or the size is not positive.
    """
    return _ARTIST.draw(state, view, width, height)


def encode_png(frame: Frame) -> bytes:
    """Return a frame as the bytes of a PNG file.

    Args:
        frame: (H, W, 3) uint8 RGB.
    """
    _, data = cv2.imencode(".png", np.ascontiguousarray(frame[:, :, ::-1]))
    return bytes(data)


class FrameArtist:
    """Draws frames and keeps the empty table of each fixed view and size. Thread-safe; needs no closing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._backgrounds: dict[tuple[str, int, int], tuple[Camera, Frame]] = {}

    def draw(self, state: SceneState, view: str, width: int, height: int) -> Frame:
        """Draw one frame; see `draw` of this module.

        Args:
            state: What to show.
            view: Name of a viewpoint.
            width: Pixels.
            height: Pixels.

        Raises:
            ConfigError: The view is unknown or the size is not positive.
        """
        _check(view, width, height)
        arm = skeleton(state.joints)
        camera, frame = self._start(view, arm, width, height)
        _Picture(camera, frame).scene(arm, state)
        return frame

    def _start(self, view: str, arm: Skeleton, width: int, height: int) -> tuple[Camera, Frame]:
        key = (view, width, height)
        with self._lock:
            kept = self._backgrounds.get(key)
        if kept is not None:
            return kept[0], kept[1].copy()
        camera, fixed = camera_for(view, arm, width, height)
        frame = _background(camera, width, height)
        if fixed:
            with self._lock:
                self._backgrounds[key] = (camera, frame.copy())
        return camera, frame


_ARTIST: Final = FrameArtist()


class _Picture:
    """One frame being drawn.

    Shapes are computed together and filled one by one: small NumPy calls cost more than pixels.
    """

    def __init__(self, camera: Camera, frame: Frame) -> None:
        self._camera = camera
        self._frame = frame

    def scene(self, arm: Skeleton, state: SceneState) -> None:
        shadow, rims, bars, glints, parts = self._outlines(arm, state.joints["gripper"] / 100.0)
        self._target(state.target)
        self._shadow(shadow)
        for rim, bar, glint, (printed, wide) in zip(rims, bars, glints, parts, strict=True):
            main, light, dark = _PRINTED if printed else _SERVO
            cv2.fillConvexPoly(self._frame, rim, dark, cv2.LINE_AA, _SHIFT)
            cv2.fillConvexPoly(self._frame, bar, main, cv2.LINE_AA, _SHIFT)
            if wide > _SMALLEST_GLINT:
                cv2.fillConvexPoly(self._frame, glint, light, cv2.LINE_AA, _SHIFT)

    def polygons(self, corners: NDArray[np.float64], colours: Sequence[Colour]) -> None:
        """Fill polygons, (K, N, 3) metres, each in its colour; what lies behind the camera is cut off."""
        count = len(corners)
        pixels, _, visible = self._camera.look(corners.reshape(-1, 3))
        flat, visible = _fixed(pixels).reshape(count, -1, 2), visible.reshape(count, -1)
        low, high = flat.min(axis=1), flat.max(axis=1)
        height, width = self._frame.shape[:2]
        whole: NDArray[np.bool_] = np.all(visible, axis=1)
        inside = (low[:, 0] < width * _ONE) & (low[:, 1] < height * _ONE) & (high.min(axis=1) > -_ONE)
        shown = np.where(whole, inside, np.any(visible, axis=1))
        for k in np.flatnonzero(shown).tolist():
            outline = flat[k] if whole[k] else _fixed(self._camera.look(self._camera.clip(corners[k]))[0])
            cv2.fillConvexPoly(self._frame, outline, colours[k], cv2.LINE_AA, _SHIFT)

    def _target(self, centre: tuple[float, float]) -> None:
        discs = np.zeros((len(_RINGS), len(_CIRCLE), 3))
        discs[:, :, :2] = _CIRCLE * (_RINGS * TARGET_RADIUS_M)[:, None, None] + centre
        self.polygons(discs, _RING_COLOURS)

    def _shadow(self, bars: NDArray[np.int32]) -> None:
        height, width = self._frame.shape[:2]
        left, top = (bars.min(axis=(0, 1)) // _ONE - 1).tolist()
        right, bottom = (bars.max(axis=(0, 1)) // _ONE + 2).tolist()
        left, top, right, bottom = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
        if right <= left or bottom <= top:
            return
        mask = np.zeros((bottom - top, right - left), dtype=np.uint8)
        for bar in bars - np.array([left, top], dtype=np.int32) * _ONE:
            cv2.fillConvexPoly(mask, bar, 255, cv2.LINE_AA, _SHIFT)
        part = self._frame[top:bottom, left:right]
        cv2.copyTo(cv2.convertScaleAbs(part, alpha=_SHADE), mask, part)

    def _outlines(self, arm: Skeleton, opening: float) -> tuple[Any, Any, Any, Any, list[tuple[bool, float]]]:
        """Return outlines: the shadow's, and each part's rim, body and highlight, with what it is, far to near."""
        joints = np.array([arm.base, arm.shoulder, arm.elbow, arm.wrist, arm.tip])
        points = np.concatenate([_arm_points(arm, opening), joints - joints[:, 2:] * _LIGHT])
        pixels, depth, _ = self._camera.look(points)
        scale = self._camera.focal / depth
        order = np.argsort(-(depth[_FROM] + depth[_TO]), kind="stable")
        start, end = _FROM[order], _TO[order]
        a, b = pixels[start], pixels[end]
        wide, narrow = _WIDE[order] * scale[start], _NARROW[order] * scale[end]
        shade, shade_radii = pixels[-5:], _SHADOW_RADII * scale[-5:]
        edge = max(0.35, self._frame.shape[0] / 480.0)
        outlines = _capsules(
            np.concatenate([a, a, a + _GLINT * wide[:, None], shade[:-1]]),
            np.concatenate([b, b, b + _GLINT * narrow[:, None], shade[1:]]),
            np.concatenate([wide + edge, wide, _GLINT_WIDTH * wide, shade_radii[:-1]]),
            np.concatenate([narrow + edge, narrow, _GLINT_WIDTH * narrow, shade_radii[1:]]),
        )
        rims, bars, glints = outlines[:-4].reshape(3, len(_PARTS), -1, 2)
        return outlines[-4:], rims, bars, glints, list(zip(_IS_PRINTED[order].tolist(), wide.tolist(), strict=True))


def _arm_points(arm: Skeleton, opening: float) -> NDArray[np.float64]:
    """Return the points that the rows of `_PARTS` refer to, (10, 3) metres."""
    wrist, tip, side = np.array(arm.wrist), np.array(arm.tip), np.array(arm.side)
    knuckle = wrist + 0.42 * (tip - wrist)
    spread = side * (0.006 + 0.034 * opening)
    x, y, _ = arm.base
    fixed = [(x, y, 0.014), (x, y, 0.055), arm.shoulder, arm.elbow, arm.wrist]
    fingers = [knuckle + 0.012 * side, tip + 0.9 * spread, knuckle - 0.012 * side, tip - 0.4 * spread]
    return np.array([*fixed, knuckle, *fingers])


_PARTS: Final = (
    # from, to (rows of _arm_points), radius at each in metres, printed or servo
    (0, 1, 0.036, 0.030, True),
    (1, 2, 0.027, 0.024, False),
    (2, 3, 0.019, 0.016, True),
    (3, 4, 0.016, 0.013, True),
    (2, 2, 0.024, 0.024, False),
    (3, 3, 0.021, 0.021, False),
    (4, 5, 0.015, 0.016, True),
    (4, 4, 0.017, 0.017, False),
    (6, 7, 0.009, 0.004, True),
    (8, 9, 0.009, 0.004, False),
)
_FROM: Final = np.array([part[0] for part in _PARTS])
_TO: Final = np.array([part[1] for part in _PARTS])
_WIDE: Final = np.array([part[2] for part in _PARTS])
_NARROW: Final = np.array([part[3] for part in _PARTS])
_IS_PRINTED: Final = np.array([part[4] for part in _PARTS])


def _capsules(a: Any, b: Any, wide: Any, narrow: Any) -> NDArray[np.int32]:
    """Return outlines of rounded, tapered bars: (K, 2) ends in pixels, (K,) radii -> (K, P, 2) fixed-point pixels."""
    along = b - a
    length = np.sqrt((along * along).sum(axis=1))
    long_enough = length > 1e-9
    along = np.where(long_enough[:, None], along / np.where(long_enough, length, 1.0)[:, None], _RIGHT)  # (K, 2)
    across = along[:, ::-1] * _TURN
    end = _ARC[:, 0, None] * along[:, None] + _ARC[:, 1, None] * across[:, None]  # (K, P/2, 2)
    outline = np.concatenate([end * narrow[:, None, None] + b[:, None], a[:, None] - end * wide[:, None, None]], axis=1)
    return _fixed(outline)


def _fixed(pixels: Any) -> NDArray[np.int32]:
    fixed: NDArray[np.int32] = np.rint(pixels * _ONE).astype(np.int32)
    return fixed


@lru_cache(maxsize=8)
def _wall(width: int, height: int) -> Frame:
    ramp = np.linspace(0.0, 1.0, height)[:, None, None]
    wall = (_WALL_TOP * (1.0 - ramp) + _WALL_BOTTOM * ramp).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(wall, (height, width, 3)))


def _background(camera: Camera, width: int, height: int) -> Frame:
    frame = _wall(width, height).copy()
    _Picture(camera, frame).polygons(_FURNITURE, _FURNITURE_COLOURS)
    return frame


def _furniture() -> tuple[NDArray[np.float64], list[Colour]]:
    """Return the polygons of table, grid and mat, (K, 4, 3) metres, and their colours."""
    near, far, half = -0.20, 0.46, 0.42

    def flat(x0: float, x1: float, y0: float, y1: float) -> list[tuple[float, float, float]]:
        return [(x0, y0, 0.0), (x1, y0, 0.0), (x1, y1, 0.0), (x0, y1, 0.0)]

    corners = flat(near, far, -half, half)
    sides = [
        [a, b, (b[0], b[1], -0.03), (a[0], a[1], -0.03)]
        for a, b in zip(corners, corners[1:] + corners[:1], strict=True)
    ]
    line = 0.0009
    grid = [flat(near, far, 0.05 * k - line, 0.05 * k + line) for k in range(-8, 9)]
    grid += [flat(0.05 * k - line, 0.05 * k + line, -half, half) for k in range(-3, 10)]
    mats = [flat(-0.075, 0.065, -0.07, 0.07), flat(-0.07, 0.06, -0.065, 0.065)]
    colours = [_TABLE_EDGE] * 4 + [_TABLE] + [_TABLE_LINE] * len(grid) + [_MAT_EDGE, _MAT]
    return np.array([*sides, corners, *grid, *mats]), colours


_FURNITURE, _FURNITURE_COLOURS = _furniture()


def _check(view: str, width: int, height: int) -> None:
    problems = []
    if view not in VIEWS:
        problems.append(ConfigProblem("view", view, f"one of {', '.join(VIEWS)}", nearest(view, VIEWS)))
    for name, value in (("width", width), ("height", height)):
        if value < 1:
            problems.append(ConfigProblem(name, value, "at least 1 pixel"))
    if problems:
        raise ConfigError(problems, title="simulated view")
