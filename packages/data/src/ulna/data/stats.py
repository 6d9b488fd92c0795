# SPDX-License-Identifier: Apache-2.0
"""Statistics of episodes and datasets in LeRobot's layout (`stats.json`), and everything that computes them by name.

Moments (mean, std, min, max, count) combine exactly, in any order. For quantiles of several episodes see
`ulna.data.sketches`; `aggregate_stats` alone keeps LeRobot 0.6's rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ulna.data.moments import QUANTILES, FeatureStats, array_stats, array_summary, combine_moments, in_order
from ulna.data.picture_stats import DepthStats, PictureStats, picture_step, sample_indices

__all__ = [
    "QUANTILES",
    "DepthStats",
    "FeatureStats",
    "PictureStats",
    "Stats",
    "aggregate_stats",
    "array_stats",
    "array_summary",
    "combine_moments",
    "picture_step",
    "sample_indices",
    "stats_from_json",
    "stats_to_json",
]

Stats = dict[str, FeatureStats]


def aggregate_stats(parts: Sequence[Mapping[str, Mapping[str, Any]]]) -> Stats:
    """Combine statistics of which nothing else is known, by LeRobot 0.6's rule.

    Moments are exact. A quantile is the count-weighted mean of the quantiles of the parts, which is not the quantile of
    all rows together: where the parts' sketches are at hand, `ulna.data.sketches.merged_stats` gives that.

    Args:
        parts: Feature to statistics, one mapping a part. Parts may lack features.

    Returns:
        Feature to combined statistics. A quantile is left out where any part lacks it.
    """
    names = list(dict.fromkeys(name for part in parts for name in part))
    return {name: _aggregated([_arrays(part[name]) for part in parts if name in part]) for name in names}


def _arrays(stats: Mapping[str, Any]) -> FeatureStats:
    return {key: np.asarray(value, dtype=np.int64 if key == "count" else np.float64) for key, value in stats.items()}


def _aggregated(parts: list[FeatureStats]) -> FeatureStats:
    if len(parts) == 1:
        return in_order(parts[0])
    total = combine_moments(parts)
    counts = np.array([int(part["count"][0]) for part in parts], dtype=np.float64)
    for name in QUANTILES.keys() & set.intersection(*(set(part) for part in parts)):
        weighted = [part[name] * (count / max(counts.sum(), 1.0)) for part, count in zip(parts, counts, strict=True)]
        total[name] = np.sum(weighted, axis=0)
    return in_order(total)


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
