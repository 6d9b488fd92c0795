# SPDX-License-Identifier: Apache-2.0
"""Statistics of episodes and how they combine: float64 moments, quantiles, picture histograms, LeRobot's `stats.json`.

Moments (mean, std, min, max, count) combine exactly, in any order, by the parallel form of Welford's formula.
Quantiles of one episode are exact; over several episodes they are the count-weighted mean of the episodes' quantiles,
which is LeRobot 0.6's published rule and not the quantile of all rows together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "QUANTILES",
    "FeatureStats",
    "PictureStats",
    "Stats",
    "aggregate_stats",
    "array_stats",
    "picture_step",
    "sample_indices",
    "stats_from_json",
    "stats_to_json",
]

FeatureStats = dict[str, npt.NDArray[Any]]
Stats = dict[str, FeatureStats]

QUANTILES: Final = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
_LEVELS: Final = 256
_THIN_FROM, _THIN_TO, _MIN_SAMPLES, _MAX_SAMPLES = 300, 150, 100, 10_000


def array_stats(values: npt.NDArray[Any]) -> FeatureStats:
    """Compute the statistics of one feature over one episode.

    Args:
        values: Shape (frames, *shape). A feature with several axes gets statistics over its last one.

    Returns:
        `min`, `max`, `mean`, `std`, `count` and the quantiles; vectors of the length of the last axis, `count` of 1.
    """
    frames = len(values)
    rows = values.reshape(frames, 1) if values.ndim == 1 else values.reshape(-1, values.shape[-1])
    exact = rows.astype(np.float64)
    mean = exact.mean(axis=0)
    result = {
        "min": exact.min(axis=0),
        "max": exact.max(axis=0),
        "mean": mean,
        "std": np.sqrt(np.square(exact - mean).mean(axis=0)),
        "count": np.array([frames], dtype=np.int64),
    }
    quantiles = np.quantile(exact, list(QUANTILES.values()), axis=0)
    return {**result, **dict(zip(QUANTILES, quantiles, strict=True))}


def sample_indices(frames: int) -> list[int]:
    """Return the evenly spaced frames whose pictures enter the statistics of an episode.

    Args:
        frames: Length of the episode.
    """
    count = max(min(_MIN_SAMPLES, frames), min(int(frames**0.75), _MAX_SAMPLES))
    return [int(i) for i in np.round(np.linspace(0, frames - 1, count))]


def picture_step(height: int, width: int) -> int:
    """Return the step by which large pictures are thinned before counting.

    Args:
        height: Rows.
        width: Columns.
    """
    longest = max(height, width)
    return 1 if longest < _THIN_FROM else longest // _THIN_TO


class PictureStats:
    """Counts the colour levels of every frame of one camera and episode while it is recorded.

    A uint8 picture's histogram holds everything its statistics need, so the sample, which depends on the final
    length of the episode, can be chosen afterwards. Created per camera and episode; used by one thread.

    Args:
        height: Rows.
        width: Columns.
        channels: Channels.
    """

    def __init__(self, height: int, width: int, channels: int) -> None:
        self._step = picture_step(height, width)
        self._channels = channels
        self._offsets = (np.arange(channels) * _LEVELS).astype(np.int32)
        self._histograms: list[npt.NDArray[np.uint32]] = []

    def add(self, picture: npt.NDArray[np.uint8]) -> None:
        """Count one frame.

        Args:
            picture: uint8 (H, W, C).
        """
        thin = picture[:: self._step, :: self._step].reshape(-1, self._channels)
        flat = (thin + self._offsets).reshape(-1)
        counts = np.bincount(flat, minlength=_LEVELS * self._channels)
        self._histograms.append(counts.astype(np.uint32))

    def result(self) -> FeatureStats:
        """Return the statistics of the sampled frames, in [0, 1] and of shape (C, 1, 1); `count` is their number."""
        chosen = sample_indices(len(self._histograms))
        total = np.sum([self._histograms[i] for i in chosen], axis=0, dtype=np.int64).reshape(self._channels, _LEVELS)
        stats = [_level_stats(counts) for counts in total]
        merged = {key: np.array([s[key] for s in stats]).reshape(-1, 1, 1) for key in stats[0]}
        return {**merged, "count": np.array([len(chosen)], dtype=np.int64)}


def _level_stats(counts: npt.NDArray[np.int64]) -> dict[str, float]:
    levels = np.arange(_LEVELS) / 255.0
    pixels = int(counts.sum())
    present = np.flatnonzero(counts)
    mean = float((counts * levels).sum() / pixels)
    std = float(np.sqrt((counts * np.square(levels - mean)).sum() / pixels))
    stats = {"min": levels[present[0]], "max": levels[present[-1]], "mean": mean, "std": std}
    cumulative = np.cumsum(counts)
    for name, q in QUANTILES.items():
        # numpy's linear rule: between the order statistics around q * (n - 1)
        position = q * (pixels - 1)
        low, high = np.searchsorted(cumulative, [int(position) + 1, min(int(position) + 2, pixels)])
        stats[name] = float(levels[low] + (levels[high] - levels[low]) * (position - int(position)))
    return {key: float(value) for key, value in stats.items()}


def aggregate_stats(parts: Sequence[Mapping[str, Mapping[str, Any]]]) -> Stats:
    """Combine the statistics of several episodes or datasets.

    Args:
        parts: Feature to statistics, one mapping a part. Parts may lack features.

    Returns:
        Feature to combined statistics. A quantile is left out where any part lacks it.
    """
    names = list(dict.fromkeys(name for part in parts for name in part))
    return {name: _combine([_arrays(part[name]) for part in parts if name in part]) for name in names}


def _arrays(stats: Mapping[str, Any]) -> FeatureStats:
    return {key: np.asarray(value, dtype=np.int64 if key == "count" else np.float64) for key, value in stats.items()}


def _combine(parts: list[FeatureStats]) -> FeatureStats:
    total = {k: v for k, v in parts[0].items() if k != "count"}
    count = parts[0]["count"].astype(np.int64)
    for part in parts[1:]:
        more = part["count"].astype(np.int64)
        both = count + more
        share = float(more[0]) / max(float(both[0]), 1.0)
        delta = part["mean"] - total["mean"]
        variance = (1 - share) * total["std"] ** 2 + share * part["std"] ** 2 + share * (1 - share) * delta**2
        merged = {
            "min": np.minimum(total["min"], part["min"]),
            "max": np.maximum(total["max"], part["max"]),
            "mean": total["mean"] + delta * share,
            "std": np.sqrt(variance),
        }
        for name in total.keys() & part.keys() & QUANTILES.keys():
            merged[name] = total[name] + (part[name] - total[name]) * share
        total, count = merged, both
    ordered = ("min", "max", "mean", "std", "count", *QUANTILES)
    everything = {**total, "count": count}
    return {key: everything[key] for key in (*ordered, *(everything.keys() - set(ordered))) if key in everything}


def stats_to_json(stats: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return nested lists as `stats.json` holds them.

    Args:
        stats: Feature to statistics.
    """
    return {name: {key: np.asarray(v).tolist() for key, v in values.items()} for name, values in stats.items()}


def stats_from_json(raw: Mapping[str, Mapping[str, Any]]) -> Stats:
    """Return arrays from nested lists.

    Args:
        raw: Content of `stats.json`.
    """
    return {name: {key: np.atleast_1d(np.asarray(v)) for key, v in values.items()} for name, values in raw.items()}
