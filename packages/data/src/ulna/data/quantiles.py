# SPDX-License-Identifier: Apache-2.0
"""A small summary of a sorted distribution that can be merged: weighted values, finer at both ends. No file access.

A feature of one episode becomes at most `POINTS` values a channel. Its sorted values are cut into consecutive groups;
each group is replaced by the value in its middle, with the group's size as weight. The smallest and the largest value
are groups of their own. Merging lays the weighted values of all parts together, which loses nothing: the answer is a
function of the set of parts, whatever their order or grouping. Rank errors of parts add up in frames, so that the error
of the whole, as a share of all frames, is never larger than the largest of its parts (see `rank_error`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["POINTS", "EpisodeSketches", "FeatureSketch", "order_quantiles", "rank_error", "union_quantiles"]

POINTS: Final = 120
"""Weighted values that a channel of one episode is reduced to. Episodes up to this length are kept exactly."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@lru_cache(maxsize=256)
def _groups(count: int, points: int) -> tuple[Ints, Ints]:
    """Cut ranks 0 ... count-1 into at most `points` groups.

    Returns:
        The middle rank of each group, and the sizes of the groups.
    """
    if count <= points:
        return np.arange(count), np.ones(count, np.int64)
    tail = points // 8
    reach = max(tail, -(-count // 50))
    ends = np.linspace(1, reach, tail)
    middle = np.linspace(reach, count - reach, points - 2 * tail + 1)[1:-1]
    edges = np.concatenate([[0], ends, middle, count - ends[::-1], [count]])
    whole = np.floor(edges + 0.5).astype(np.int64)
    sizes = np.diff(whole)
    # Of the two middle ranks of an even group, take the lower and the upper one in turn, so that no side is favoured.
    ranks = whole[:-1] + (sizes - 1 + np.arange(len(sizes)) % 2) // 2
    ranks.flags.writeable = sizes.flags.writeable = False
    return ranks, sizes


def rank_error(count: int, points: int = POINTS) -> int:
    """Return by how many ranks a summary may misplace a value: half of its largest group.

    For 120 points that is 0 up to 120 rows, 1 up to 300 rows, and never more than 1/121 of the rows; from 1,000 rows on
    at most 0.6 %. Errors of merged summaries add up in rows, as their lengths do.

    Args:
        count: Rows that were summarised.
        points: Values kept.
    """
    return int(_groups(count, points)[1].max()) // 2 if count else 0


def order_quantiles(values: npt.NDArray[Any], levels: Sequence[float]) -> Floats:
    """Return exact quantiles of sorted rows, by numpy's linear rule.

    Args:
        values: Shape (channels, rows), each channel ascending.
        levels: Quantiles in [0, 1].

    Returns:
        Shape (levels, channels).
    """
    position = np.asarray(levels, np.float64) * (values.shape[1] - 1)
    low = np.floor(position).astype(np.int64)
    high = np.minimum(low + 1, values.shape[1] - 1)
    chosen = values[:, np.concatenate([low, high])].astype(np.float64).T
    return _between(chosen[: len(low)], chosen[len(low) :], (position - low)[:, None])


def _between(low: Floats, high: Floats, share: Floats) -> Floats:
    """Interpolate as numpy does: from the nearer side, so that the result never leaves the interval."""
    step = high - low
    result: Floats = np.where(share < 0.5, low + step * share, high - step * (1 - share))
    return result


@dataclass(frozen=True, eq=False)
class FeatureSketch:
    """The distribution of one feature over some frames. Immutable; built by `of`, `merged` and the picture counters.

    Attributes:
        values: Shape (channels, points), or (1, points) where all channels have the same; each row ascending.
        weights: Likewise: how many rows each value stands for; 0 for padding.
        moments: Mean and deviation of the rows themselves, as in the statistics that belong to it, (2, channels); None
            where they are not known, as for summaries of summaries.
    """

    values: Floats
    weights: Ints
    moments: Floats | None = None

    @classmethod
    def of(cls, values: npt.NDArray[Any], points: int = POINTS) -> FeatureSketch:
        """Summarise sorted rows.

        Args:
            values: Shape (channels, rows), each channel ascending; at least one row.
            points: How many values to keep a channel. A channel with no more distinct values is kept exactly.
        """
        ranks, sizes = _groups(values.shape[1], points)
        kept = values[:, ranks].astype(np.float64) + 0.0  # makes -0.0 0.0, which would depend on the order
        if values.shape[1] <= points:
            return cls(kept, sizes[None])
        distinct = 1 + (values[:, 1:] != values[:, :-1]).sum(axis=1)
        if (distinct > points).all():
            return cls(kept, sizes[None])
        weights = np.repeat(sizes[None], len(values), axis=0)
        for channel in np.flatnonzero(distinct <= points):
            starts = np.flatnonzero(np.append(True, values[channel, 1:] != values[channel, :-1]))
            kept[channel] = values[channel, -1]
            weights[channel] = 0
            kept[channel, : len(starts)] = values[channel, starts]
            weights[channel, : len(starts)] = np.diff(starts, append=values.shape[1])
        return cls(kept + 0.0, weights)

    @classmethod
    def merged(cls, parts: Sequence[FeatureSketch]) -> FeatureSketch:
        """Lay summaries together without loss. The result answers the same for every order of the parts.

        Args:
            parts: At least one; all of the same number of channels.
        """
        if _same_values(parts):
            # One row of weights stands for all channels.
            return cls(parts[0].values, np.sum(np.broadcast_arrays(*(p.weights for p in parts)), axis=0))
        channels = max(p.channels for p in parts)
        values = np.concatenate([np.broadcast_to(p.values, (channels, p.values.shape[1])) for p in parts], axis=1)
        weights = np.concatenate([np.broadcast_to(p.weights, (channels, p.weights.shape[1])) for p in parts], axis=1)
        order = np.argsort(values, axis=1)
        return cls(np.take_along_axis(values, order, axis=1), np.take_along_axis(weights, order, axis=1))

    @property
    def channels(self) -> int:
        """Number of channels."""
        return max(len(self.values), len(self.weights))

    @property
    def count(self) -> int:
        """Rows that it stands for."""
        return int(self.weights[0].sum())

    @property
    def extremes(self) -> tuple[Floats, Floats]:
        """Smallest and largest value of each channel."""
        if self.weights.all():
            ends = np.broadcast_to(self.values, (self.channels, self.values.shape[1]))
            return ends[:, 0], ends[:, -1]
        values, weights = np.broadcast_arrays(self.values, self.weights)
        rows = np.arange(len(weights))
        last = weights.shape[1] - 1 - (weights[:, ::-1] > 0).argmax(axis=1)
        return values[rows, (weights > 0).argmax(axis=1)], values[rows, last]

    def quantiles(self, levels: Sequence[float]) -> Floats:
        """Return quantiles by numpy's linear rule, as if each value stood there as often as its weight says.

        Args:
            levels: Quantiles in [0, 1].

        Returns:
            Shape (levels, channels).
        """
        return union_quantiles([self], levels)

    def with_moments(self, mean: npt.NDArray[Any], std: npt.NDArray[Any]) -> FeatureSketch:
        """Return the same sketch with the mean and deviation of its rows, by which one that is stale is known.

        Args:
            mean: Mean of each channel, in any shape.
            std: Deviation of each channel, likewise.
        """
        return replace(self, moments=np.stack([np.ravel(mean), np.ravel(std)]).astype(np.float64))

    def scaled(self, factor: float) -> FeatureSketch:
        """Return the sketch of the same rows in another unit.

        Args:
            factor: What every value is multiplied by; positive.
        """
        moments = None if self.moments is None else self.moments * factor
        return FeatureSketch(self.values * factor, self.weights, moments)

    def channel(self, number: int) -> tuple[Floats, Ints]:
        """Return values and weights of one channel.

        Args:
            number: The channel.
        """
        return self.values[min(number, len(self.values) - 1)], self.weights[min(number, len(self.weights) - 1)]

    def reduced(self, points: int) -> FeatureSketch:
        """Return a summary of this summary. Adds `rank_error(count, points)` to the error.

        Args:
            points: How many values to keep a channel.
        """
        if self.values.shape[1] <= points:
            return self
        ranks, sizes = _groups(self.count, points)
        values = np.broadcast_to(self.values, (self.channels, self.values.shape[1]))
        weights = np.broadcast_to(self.weights, values.shape)
        kept = np.stack([_at(*self.channel(c), ranks) for c in range(self.channels)])
        lots = np.repeat(sizes[None], len(values), axis=0)
        for channel in range(len(values)):
            filled = weights[channel] > 0
            present, heavy = values[channel, filled], weights[channel, filled]
            starts = np.flatnonzero(np.append(True, present[1:] != present[:-1]))
            if len(starts) <= points:
                kept[channel], lots[channel] = self.values[min(channel, len(self.values) - 1), -1], 0
                kept[channel, : len(starts)] = present[starts]
                lots[channel, : len(starts)] = np.add.reduceat(heavy, starts)
        return FeatureSketch(kept, lots)


EpisodeSketches = dict[str, FeatureSketch]
"""Feature to sketch, of one episode."""


def _at(values: Floats, weights: Ints, ranks: Ints) -> Floats:
    """Return the values at some ranks of one channel."""
    found: Floats = values[np.searchsorted(np.cumsum(weights), ranks, "right")]
    return found


def union_quantiles(parts: Sequence[FeatureSketch], levels: Sequence[float]) -> Floats:
    """Return quantiles of all parts together, by numpy's linear rule; the same for every order of the parts.

    Works channel after channel, so that it needs little more memory than the parts.

    Args:
        parts: At least one; all of the same number of channels.
        levels: Quantiles in [0, 1].

    Returns:
        Shape (levels, channels).
    """
    count = sum(part.count for part in parts)
    position = np.asarray(levels, np.float64) * (count - 1)
    low = np.floor(position).astype(np.int64)
    ranks = np.concatenate([low, np.minimum(low + 1, count - 1)])
    if len(parts) > 1 and _same_values(parts):
        parts = [FeatureSketch.merged(parts)]
    found = []
    for number in range(parts[0].channels):
        channels = [part.channel(number) for part in parts]
        values, weights = (np.concatenate(arrays) for arrays in zip(*channels, strict=True))
        order = np.argsort(values)
        found.append(_at(values[order], weights[order], ranks))
    chosen = np.stack(found, axis=1)
    return _between(chosen[: len(low)], chosen[len(low) :], (position - low)[:, None])


def _same_values(parts: Sequence[FeatureSketch]) -> bool:
    """Tell whether all parts weigh the same values, as those of pictures do."""
    first = parts[0].values
    return all(part.values is first or np.array_equal(part.values, first) for part in parts[1:])
