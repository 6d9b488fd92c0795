# SPDX-License-Identifier: Apache-2.0
"""Statistics of one feature: moments in float64, exact quantiles, and how moments combine. Knows no files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ulna.data.quantiles import POINTS, FeatureSketch, order_quantiles, union_quantiles

__all__ = [
    "QUANTILES",
    "FeatureStats",
    "array_stats",
    "array_summary",
    "combine_columns",
    "combine_moments",
    "in_order",
    "quantile_stats",
]

FeatureStats = dict[str, npt.NDArray[Any]]

QUANTILES: Final = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
_MOMENTS: Final = ("min", "max", "mean", "std")
_ORDER: Final = (*_MOMENTS, "count", *QUANTILES)


def array_stats(values: npt.NDArray[Any]) -> FeatureStats:
    """Compute the statistics of one feature over one episode.

    Args:
        values: Shape (frames, *shape). A feature with several axes gets statistics over its last one.

    Returns:
        `min`, `max`, `mean`, `std`, `count` and the exact quantiles; vectors of the length of the last axis, `count`
        of 1. All float64 but `count`.
    """
    return array_summary(values)[0]


def array_summary(values: npt.NDArray[Any], points: int = POINTS) -> tuple[FeatureStats, FeatureSketch]:
    """Compute the statistics of one feature over one episode, and the sketch that lets its quantiles be merged.

    Args:
        values: Shape (frames, *shape), at least one frame.
        points: Size of the sketch.

    Returns:
        As `array_stats`, and the sketch.
    """
    channels = 1 if values.ndim == 1 else values.shape[-1]
    rows = np.sort(values.reshape(-1, channels).T, axis=1)
    exact = rows.astype(np.float64)
    mean = exact.mean(axis=1)
    stats = {
        "min": exact[:, 0].copy(),
        "max": exact[:, -1].copy(),
        "mean": mean,
        "std": np.sqrt(np.square(exact - mean[:, None]).mean(axis=1)),
        "count": np.array([len(values)], dtype=np.int64),
    }
    quantiles = order_quantiles(rows, list(QUANTILES.values()))
    sketch = FeatureSketch.of(rows, points).with_moments(stats["mean"], stats["std"])
    return {**stats, **dict(zip(QUANTILES, quantiles, strict=True))}, sketch


def combine_moments(parts: Sequence[FeatureStats]) -> FeatureStats:
    """Combine min, max, mean, std and count of one feature, each row counted once.

    Sums are rounded once, at the end, so that the result is the same for every order of the parts.

    Args:
        parts: At least one; arrays of one shape.
    """
    if len(parts) == 1:
        return {key: parts[0][key] for key in (*_MOMENTS, "count")}
    stacked = {key: np.stack([np.ravel(p[key]) for p in parts]).astype(np.float64) for key in _MOMENTS}
    counts = np.array([int(np.ravel(p["count"])[0]) for p in parts], dtype=np.int64)
    return combine_columns(stacked, counts, np.shape(parts[0]["mean"]))


def combine_columns(
    moments: Mapping[str, npt.NDArray[np.float64]], counts: npt.NDArray[np.int64], shape: tuple[int, ...]
) -> FeatureStats:
    """Combine min, max, mean, std and count of one feature, given as arrays over the parts. See `combine_moments`.

    Args:
        moments: `min`, `max`, `mean` and `std`, each (parts, channels).
        counts: Rows of each part.
        shape: Shape of a statistic.
    """
    low, high, mean, std = (moments[key] for key in _MOMENTS)
    if len(counts) == 1:
        single = {key: moments[key][0].reshape(shape) for key in _MOMENTS}
        return {**single, "count": counts.copy()}
    total = max(int(counts.sum()), 1)
    around = mean.min(axis=0)
    centre = around + _sums(counts[:, None] * (mean - around)) / total
    squares = _sums(counts[:, None] * (np.square(std) + np.square(mean - centre)))
    combined = {"min": low.min(axis=0), "max": high.max(axis=0), "mean": centre, "std": np.sqrt(squares / total)}
    return {**{k: v.reshape(shape) for k, v in combined.items()}, "count": counts.sum(keepdims=True)}


def _sums(terms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.array([math.fsum(column) for column in terms.T.tolist()])


def quantile_stats(parts: Sequence[FeatureSketch], shape: tuple[int, ...]) -> FeatureStats:
    """Return the quantiles of some sketches together.

    Args:
        parts: At least one.
        shape: Shape of each statistic.
    """
    found = union_quantiles(parts, list(QUANTILES.values()))
    return {key: value.reshape(shape) for key, value in zip(QUANTILES, found, strict=True)}


def in_order(stats: FeatureStats) -> FeatureStats:
    """Return statistics in the order in which LeRobot lists them; others follow by name.

    Args:
        stats: Statistics of one feature.
    """
    return {key: stats[key] for key in (*_ORDER, *sorted(stats.keys() - set(_ORDER))) if key in stats}
