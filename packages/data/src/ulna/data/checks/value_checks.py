# SPDX-License-Identifier: Apache-2.0
"""Whether the statistics of the episodes, and of all together, describe the numbers in the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from ulna.core.constants import ACTION
from ulna.core.errors import DatasetFormatError
from ulna.data.checks.contents import Contents
from ulna.data.checks.report import Report
from ulna.data.dataset_stats import read_row_stats
from ulna.data.layout import STATS_PATH
from ulna.data.moments import FeatureStats, combine_moments
from ulna.data.sketch_fit import SketchFacts, fitting
from ulna.data.stats import Stats

__all__ = ["RowFacts", "check_values", "difference"]

Ints = npt.NDArray[np.int64]

_MOMENTS: Final = ("min", "max", "mean", "std")
_ROUNDED: Final = 1e-6


class RowFacts:
    """Count, extremes, mean and deviation of the numbers of each episode, gathered while the rows are read."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[int, list[FeatureStats]]] = {}

    def add(self, name: str, episodes: Ints, values: npt.NDArray[np.generic]) -> None:
        """Take in some rows.

        Args:
            name: The feature.
            episodes: Episode of each row, (rows,).
            values: Its numbers, (rows, *shape), at least one row. Statistics are over the last axis.
        """
        order = np.argsort(episodes, kind="stable")
        numbers, starts = np.unique(episodes[order], return_index=True)
        channels = values.shape[-1] if values.ndim > 1 else 1
        exact = values[order].reshape(len(values), -1, channels).astype(np.float64)
        rows = np.diff(np.append(starts, len(values)))
        with np.errstate(invalid="ignore"):  # what is not finite is reported where it stands
            mean = np.add.reduceat(exact.mean(axis=1), starts) / rows[:, None]
            squares = np.square(exact - np.repeat(mean, rows, axis=0)[:, None]).mean(axis=1)
            deviation = np.sqrt(np.add.reduceat(squares, starts) / rows[:, None])
        low, high = np.minimum.reduceat(exact.min(axis=1), starts), np.maximum.reduceat(exact.max(axis=1), starts)
        parts = self._parts.setdefault(name, {})
        for at, number in enumerate(numbers.tolist()):
            stats = dict(zip(_MOMENTS, (low[at], high[at], mean[at], deviation[at]), strict=True))
            parts.setdefault(number, []).append({**stats, "count": rows[at : at + 1]})

    def episodes(self) -> dict[str, dict[int, FeatureStats]]:
        """Return of each feature min, max, mean, std (channels,) and the count of rows (1,) in each episode."""
        return {
            name: {episode: combine_moments(several) for episode, several in parts.items()}
            for name, parts in self._parts.items()
        }


def check_values(contents: Contents, report: Report, facts: RowFacts, stats: Stats) -> None:
    """Report statistics that are those of other numbers than the rows hold, as after an edit by other software.

    Args:
        contents: The dataset.
        report: Where problems go.
        facts: What the rows say. Episodes of which rows are missing are passed over.
        stats: What `stats.json` says.
    """
    lengths = dict(zip(contents.numbers.tolist(), contents.lengths.tolist(), strict=True))
    for name, episodes in facts.episodes().items():
        whole = {e: found for e, found in episodes.items() if int(found["count"][0]) == lengths.get(e)}
        _check_episodes(contents, report, name, whole)
        if len(whole) == len(lengths) and name in stats:
            _check_union(contents, report, name, combine_moments(list(whole.values())), stats[name])


def _check_episodes(contents: Contents, report: Report, name: str, found: dict[int, FeatureStats]) -> None:
    for path in dict.fromkeys(contents.row_files):
        try:
            stated = {e: stats[name] for e, stats in read_row_stats(path, name).items() if name in stats}
        except DatasetFormatError:
            continue  # reported where the file is checked
        for episode in _differing(found, stated):
            report.add(
                "stats-differ",
                f"The rows of {name!r} and its statistics differ: {difference(found[episode], stated[episode])}.",
                "warning",
                episode=episode,
                path=path,
                remedy=f"ulna dataset repair {contents.root}",
            )


def _check_union(contents: Contents, report: Report, name: str, found: FeatureStats, stated: FeatureStats) -> None:
    """Compare `stats.json`, in which somebody may have put other statistics on purpose, as of relative actions."""
    if _differing({0: found}, {0: stated}):
        report.add(
            "stats-other",
            f"The rows of {name!r} and its statistics differ: {difference(found, stated)}.",
            "note" if name == ACTION else "warning",
            path=contents.root / STATS_PATH,
            remedy=f"if that is not on purpose: ulna dataset edit recompute-stats {contents.root}",
        )


def _differing(found: Mapping[int, FeatureStats], stated: Mapping[int, FeatureStats]) -> list[int]:
    """Return the episodes whose statistics do not fit, by the rule for sketches; all of one feature at once."""
    kept = [e for e, told in stated.items() if e in found and _comparable(found[e], told)]
    if not kept:
        return []
    own = {key: np.stack([found[e][key] for e in kept]) for key in _MOMENTS}
    told = {key: np.stack([stated[e][key].reshape(-1) for e in kept]).astype(np.float64) for key in _MOMENTS}
    rows, counts = (np.array([int(np.ravel(of[e]["count"])[0]) for e in kept]) for of in (found, stated))
    facts = SketchFacts(rows, own["min"], own["max"], np.stack([own["mean"], own["std"]], axis=1))
    fits = fitting(facts, told, counts, camera=False)
    return [episode for episode, fit in zip(kept, fits.tolist(), strict=True) if not fit]


def _comparable(found: FeatureStats, stated: FeatureStats) -> bool:
    if not {*_MOMENTS, "count"} <= stated.keys() or not np.isfinite(found["mean"]).all():
        return False
    return all(np.size(stated[key]) == found["min"].size for key in _MOMENTS)


def difference(found: FeatureStats, stated: FeatureStats) -> str:
    """Say in words where two statistics of a feature differ first.

    Args:
        found: One, vectors of the channels and `count`; moments may be missing.
        stated: The other.
    """
    for key in (key for key in _MOMENTS if key in found and key in stated):
        wanted = np.ravel(stated[key]).astype(np.float64)
        if wanted.shape != found[key].shape:
            return f"it has {found[key].size} channels, they have {wanted.size}"
        off = np.abs(found[key] - wanted)
        worst = int(off.argmax())
        if off[worst] > _ROUNDED * np.abs(wanted[worst]):
            return f"{key} {found[key][worst]:.7g} and {wanted[worst]:.7g} at element {worst}"
    return f"{int(found['count'][0])} values and a count of {int(np.ravel(stated.get('count', [0]))[0])}"
