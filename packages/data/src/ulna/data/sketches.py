# SPDX-License-Identifier: Apache-2.0
"""Statistics of whole episodes with the sketches that let them be merged, deleted and resumed in any order.

An episode's exact statistics and its sketches come from its columns in one go; the statistics of a dataset come from
those of its episodes. How sketches are kept beside a dataset is in `ulna.data.sketch_files`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ulna.data.moments import FeatureStats, array_summary, combine_moments, in_order, quantile_stats
from ulna.data.quantiles import EpisodeSketches, FeatureSketch
from ulna.data.sketch_files import read_sketches, write_sketches
from ulna.data.sketch_fit import SketchFacts, fitting
from ulna.data.stats import Stats

__all__ = [
    "EpisodeSketches",
    "FeatureSketch",
    "episode_sketches",
    "episode_summary",
    "fitting_sketches",
    "merged_feature",
    "merged_stats",
    "read_sketches",
    "write_sketches",
]

logger = logging.getLogger(__name__)

_COUNTED: Final = frozenset({"index", "frame_index"})
_CONSTANT: Final = frozenset({"episode_index", "task_index"})


def episode_summary(columns: Mapping[str, Any]) -> tuple[Stats, EpisodeSketches]:
    """Compute statistics and sketches of the number columns of one episode.

    Args:
        columns: Feature to array of shape (frames, *shape). Texts, language, pictures (whatever is not an array of
            numbers or booleans) are passed over.
    """
    stats: Stats = {}
    sketches: EpisodeSketches = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and values.dtype.kind in "fiub" and values.size:
            stats[name], sketches[name] = array_summary(values)
    return stats, sketches


def episode_sketches(columns: Mapping[str, Any]) -> EpisodeSketches:
    """Compute the sketches of the number columns of one episode.

    Args:
        columns: As for `episode_summary`.
    """
    return episode_summary(columns)[1]


def merged_stats(parts: Iterable[tuple[Stats, EpisodeSketches | None]], *, checked: bool = False) -> Stats:
    """Combine the statistics of episodes: moments exactly, quantiles from their sketches.

    The result does not depend on the order of the parts. A single part keeps its statistics as they are. The quantiles
    of a feature are left out, with a warning, where several parts have it and one of them has no sketch that fits its
    statistics: what could be said then would not be a quantile of all rows.

    Args:
        parts: Statistics and sketches of each episode. Parts may lack features.
        checked: Whether the sketches are those that `fitting_sketches` gave, so that there is no need to look again.

    Returns:
        Feature to statistics; features in the order in which they appear first.
    """
    stats: dict[str, list[FeatureStats]] = {}
    sketches: dict[str, list[FeatureSketch | None]] = {}
    for of_part, sketched in parts:
        fitting = (sketched or {}) if checked else fitting_sketches(of_part, sketched)
        for name, values in of_part.items():
            stats.setdefault(name, []).append(counted_in_frames(values, of_part))
            sketches.setdefault(name, []).append(fitting.get(name))
    return {name: merged_feature(name, stats[name], sketches[name]) for name in stats}


def merged_feature(name: str, stats: Sequence[FeatureStats], sketches: Sequence[FeatureSketch | None]) -> FeatureStats:
    """Combine the statistics of one feature as `merged_stats` does.

    Args:
        name: The feature, for the warning.
        stats: Its statistics in each part; at least one.
        sketches: Its sketch in each part, None where there is none that fits.
    """
    if len(stats) == 1:
        return in_order(stats[0])
    total = combine_moments(stats)
    known = [sketch for sketch in sketches if sketch is not None]
    if len(known) < len(sketches):
        logger.warning(
            "%s: %d of %d parts have no sketch, so that the quantiles of all together are left out of the statistics.",
            name,
            len(sketches) - len(known),
            len(sketches),
        )
        return in_order(total)
    return in_order({**total, **quantile_stats(known, total["mean"].shape)})


def counted_in_frames(values: FeatureStats, of_part: Stats) -> FeatureStats:
    """Return the statistics of a camera with a count of frames where LeRobot counted pixels.

    It does so for episodes that were encoded while they were recorded, in which every frame was looked at. Beside
    episodes whose sampled frames were counted, such a part would weigh a thousand times too much.

    Args:
        values: Statistics of one feature.
        of_part: Those of all features of the same part.
    """
    if "mean" not in values or values["mean"].ndim != 3 or "count" not in of_part.get("index", {}):
        return values
    frames = of_part["index"]["count"]
    return {**values, "count": frames} if int(values["count"][0]) > int(frames[0]) else values


def fitting_sketches(stats: Stats, sketches: EpisodeSketches | None) -> EpisodeSketches:
    """Return the sketches that were made of the rows that the statistics describe; others are stale (see `fitting`).

    Those of the columns that only count (`index`, `frame_index`, mostly `episode_index` and `task_index`) follow from
    their statistics.

    Args:
        stats: Statistics of an episode.
        sketches: What is kept beside them.
    """
    found = {name: implied_sketch(name, stats[name]) for name in stats if name in _COUNTED | _CONSTANT}
    found.update({name: s for name, s in (sketches or {}).items() if name in stats and _fits(s, stats[name])})
    return {name: sketch for name, sketch in found.items() if sketch is not None}


def implied_sketch(name: str, stats: FeatureStats) -> FeatureSketch | None:
    """Return the distribution of a column of which the statistics tell everything.

    Args:
        name: The feature.
        stats: Its statistics in one episode.
    """
    if not {"count", "min", "max"} <= stats.keys() or np.size(stats["min"]) != 1:
        return None
    low, high, count = (float(np.ravel(stats[key])[0]) for key in ("min", "max", "count"))
    if low == high:
        return FeatureSketch(np.array([[low]]), np.array([[int(count)]]))
    if name in _COUNTED and high - low == count - 1:
        return FeatureSketch.of(np.arange(low, high + 1)[None])
    return None


def _fits(sketch: FeatureSketch, stats: FeatureStats) -> bool:
    keys: list[str] = [key for key in ("min", "max", "mean", "std") if key in stats]
    stated = {key: np.ravel(stats[key])[None] for key in keys}
    if not {"count", "min", "max"} <= stats.keys() or any(v.size != sketch.channels for v in stated.values()):
        return False
    low, high = sketch.extremes
    moments = np.full((2, sketch.channels), np.nan) if sketch.moments is None else sketch.moments
    facts = SketchFacts(np.array([sketch.count]), low[None], high[None], moments[None])
    counts = np.ravel(stats["count"])[:1].astype(np.int64)
    return bool(fitting(facts, stated, counts, camera=np.ndim(stats["min"]) == 3)[0])
