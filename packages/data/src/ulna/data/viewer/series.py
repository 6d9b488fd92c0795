# SPDX-License-Identifier: Apache-2.0
"""Numbers of an episode as JSON values for a plot: every frame, or the range of each stretch of frames. Pure functions.

A long episode has more frames than a plot has pixels. Leaving frames out would hide what somebody looks for, a single
frame that jumps, so each stretch of frames keeps its lowest and its highest value.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ulna.data.features import Feature

__all__ = ["MOST_ELEMENTS", "MOST_POINTS", "element_names", "plain", "series", "unit_of"]

MOST_POINTS: Final = 2000
"""Points of a line, above which stretches of frames are given instead of frames."""
MOST_ELEMENTS: Final = 64
"""Elements of a feature that are shown; a matrix has more than a person can tell apart."""


def element_names(feature: Feature) -> list[str]:
    """Return a name for each shown element of a feature: the declared ones, else their position.

    Args:
        feature: A feature of numbers.
    """
    size = int(np.prod(feature.shape, dtype=np.int64))
    declared = feature.names
    if isinstance(declared, dict):
        flat = [name for group in declared.values() if isinstance(group, list) for name in group]
        declared = flat or list(declared)
    if isinstance(declared, list) and len(declared) == size:
        return [str(name) for name in declared[:MOST_ELEMENTS]]
    if size == 1:
        return [feature.name.rpartition(".")[2]]
    indices = np.ndindex(*feature.shape)
    return [", ".join(map(str, index)) for index, _ in zip(indices, range(MOST_ELEMENTS), strict=False)]


def unit_of(feature: Feature) -> str | None:
    """Return the unit a feature declares (`unit` or `units`, beside its dtype or in its `info`), if one.

    Args:
        feature: Any feature.
    """
    info = feature.extra.get("info")
    for place in (feature.extra, info if isinstance(info, dict) else {}):
        for key in ("unit", "units"):
            if isinstance(place.get(key), str):
                return str(place[key])
    return None


def series(values: npt.NDArray[Any], most: int = MOST_POINTS) -> dict[str, Any]:
    """Return the lines of a feature.

    Args:
        values: (frames, ...) numbers or booleans.
        most: Points of a line.

    Returns:
        `step`, the frames of a stretch, with `values` (element, frame) where it is 1, else with `low` and `high`
        (element, stretch). What is not finite is null, and a stretch without a finite value too.
    """
    frames = len(values)
    lines = np.asarray(values, np.float64).reshape(frames, -1)[:, :MOST_ELEMENTS].T
    step = 1 if frames <= most else -(-frames // (most // 2))
    if step == 1:
        return {"step": 1, "values": plain(lines)}
    padding = -frames % step
    padded = np.pad(lines, ((0, 0), (0, padding)), constant_values=np.nan)
    stretches = padded.reshape(len(lines), -1, step)
    finite = np.isfinite(stretches)
    low = np.where(finite, stretches, np.inf).min(axis=2)
    high = np.where(finite, stretches, -np.inf).max(axis=2)
    return {"step": step, "low": plain(low), "high": plain(high)}


def plain(lines: npt.NDArray[np.float64]) -> list[list[float | None]]:
    """Return numbers as JSON values: at most seven digits, which is what float32 holds, and null for the others.

    Args:
        lines: (element, point).
    """
    finite = np.isfinite(lines)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (6 - np.floor(np.log10(np.abs(np.where(finite & (lines != 0), lines, 1.0)))))
    rounded = np.where(finite, np.round(np.where(finite, lines, 0.0) * scale) / scale, 0.0)
    kept: list[list[float | None]] = rounded.tolist()
    for element, point in zip(*np.nonzero(~finite), strict=True):
        kept[int(element)][int(point)] = None
    return kept
