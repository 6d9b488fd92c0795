# SPDX-License-Identifier: Apache-2.0
"""Statistics and sketches of one feature in all episodes as a few arrays, so that thousands of episodes cost little.

What does not have the usual form (gaps, stale statistics, missing sketches) is left to the reading of single episodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.data.layout import FileId
from ulna.data.moments import FeatureStats, combine_columns, in_order, quantile_stats
from ulna.data.quantiles import FeatureSketch
from ulna.data.reading_errors import readable
from ulna.data.sketch_files import read_sketch_table
from ulna.data.sketch_fit import SketchFacts, fitting

__all__ = ["FeatureColumn", "file_column", "stacked"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_MOMENTS: Final = ("min", "max", "mean", "std")
_COUNTING: Final = frozenset({"index", "frame_index", "episode_index"})


@dataclass(frozen=True)
class FeatureColumn:
    """What some episodes say of one feature.

    Attributes:
        moments: `min`, `max`, `mean` and `std` of each episode, (episodes, channels).
        counts: Rows of each episode.
        shape: Shape of a statistic.
        sketch: Weighted values of all of them, each channel in no order; None where one of them has none.
    """

    moments: Mapping[str, Floats]
    counts: Ints
    shape: tuple[int, ...]
    sketch: FeatureSketch | None

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def joined(cls, parts: Sequence[FeatureColumn]) -> FeatureColumn:
        """Return the episodes of several columns as one.

        Args:
            parts: At least one; all of the same shape.
        """
        if len(parts) == 1:
            return parts[0]
        sketches = [part.sketch for part in parts if part.sketch is not None]
        return cls(
            {key: np.concatenate([part.moments[key] for part in parts]) for key in _MOMENTS},
            np.concatenate([part.counts for part in parts]),
            parts[0].shape,
            _laid_together(sketches) if len(sketches) == len(parts) else None,
        )

    @classmethod
    def of(cls, stats: Sequence[FeatureStats], sketches: Sequence[FeatureSketch | None]) -> FeatureColumn:
        """Return single episodes as a column.

        Args:
            stats: Statistics of each; at least one.
            sketches: Sketch of each, None where there is none that fits.
        """
        moments = {key: np.stack([np.ravel(s[key]) for s in stats]).astype(np.float64) for key in _MOMENTS}
        counts = np.array([int(np.ravel(s["count"])[0]) for s in stats], dtype=np.int64)
        known = [sketch for sketch in sketches if sketch is not None]
        whole = _laid_together(known) if len(known) == len(sketches) else None
        return cls(moments, counts, np.shape(stats[0]["mean"]), whole)

    def total(self) -> FeatureStats:
        """Return the statistics of all episodes together; without quantiles where a sketch is missing."""
        total = combine_columns(self.moments, self.counts, self.shape)
        return in_order(total if self.sketch is None else {**total, **quantile_stats([self.sketch], self.shape)})

    def sorted_sketch(self) -> FeatureSketch | None:
        """Return the sketch with the values of each channel ascending."""
        return None if self.sketch is None else FeatureSketch.merged([self.sketch])


def _laid_together(sketches: Sequence[FeatureSketch]) -> FeatureSketch:
    channels = max(sketch.channels for sketch in sketches)

    def side(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.concatenate([np.broadcast_to(a, (channels, a.shape[1])) for a in arrays], axis=1)

    return FeatureSketch(side([s.values for s in sketches]), side([s.weights for s in sketches]))


def file_column(root: Path, file: FileId, path: Path, name: str, starts: Ints, lengths: Ints) -> FeatureColumn | None:
    """Read one feature from one file of the episode table and its side file.

    Args:
        root: Folder of the dataset.
        file: Number of the file.
        path: The file.
        name: The feature.
        starts: First frame of every episode of the dataset.
        lengths: Length of every episode of the dataset.

    Returns:
        The episodes of the file that the dataset has; None when they have not the usual form.
    """
    stated = _stated(path, name, len(lengths))
    if stated is None:
        return None
    episodes, moments, counts, shape = stated
    if name in _COUNTING:
        return _counting(name, episodes, starts, lengths)
    if name == "task_index" and not _belongs(path, starts):
        return None
    if name == "task_index" and np.array_equal(moments["min"], moments["max"]):
        sketch: FeatureSketch | None = FeatureSketch(moments["min"].T, counts[None])
    else:
        sketch = _stored(root, file, name, episodes, moments, counts, camera=len(shape) == 3)
    return None if sketch is None else FeatureColumn(moments, counts, shape, sketch)


def _belongs(path: Path, starts: Ints) -> bool:
    """Tell whether statistics of index columns are those of the episodes; LeRobot leaves some as they were."""
    stated = _stated(path, "index", len(starts))
    return stated is not None and np.array_equal(stated[1]["min"][:, 0], starts[stated[0]])


def _stated(path: Path, name: str, total: int) -> tuple[Ints, dict[str, Floats], Ints, tuple[int, ...]] | None:
    """Read the moments of one feature; those of a camera count frames, not pixels (see `counted_in_frames`)."""
    columns = [f"stats/{name}/{key}" for key in (*_MOMENTS, "count")]
    with readable(path):
        names = pq.read_schema(path).names
        if any(column not in names for column in columns):
            return None
        beside = ["stats/index/count"] if "stats/index/count" in names else []
        table = pq.read_table(path, columns=["episode_index", *dict.fromkeys([*columns, *beside])], use_threads=False)
    episodes: Ints = table["episode_index"].to_numpy()
    arrays = {column: stacked(table[column].combine_chunks()) for column in table.column_names[1:]}
    if not len(episodes) or any(arrays[column] is None for column in columns):
        return None
    found = {column: array for column, array in arrays.items() if array is not None}
    moments = {key: found[f"stats/{name}/{key}"] for key in _MOMENTS}
    shape = moments["mean"].shape[1:]
    if any(array.shape[1:] != shape for array in moments.values()) or found[columns[-1]].size != len(episodes):
        return None
    counts = found[columns[-1]].reshape(-1).astype(np.int64)
    frames = found.get("stats/index/count")
    if len(shape) == 3 and frames is not None and frames.size == len(counts):
        counts = np.minimum(counts, frames.reshape(-1).astype(np.int64))
    here = episodes < total
    flat = {key: array[here].reshape(int(here.sum()), -1).astype(np.float64) for key, array in moments.items()}
    return episodes[here], flat, counts[here], shape


def stacked(column: pa.Array) -> npt.NDArray[Any] | None:
    """Return rows of nested lists as one array; None where they have gaps or different lengths.

    Args:
        column: Lists of numbers, the outermost of any length, those inside of length 1.
    """
    if column.null_count or not pa.types.is_list(column.type) or not len(column):
        return None
    flat, depth = column, 0
    while pa.types.is_list(flat.type):
        flat, depth = flat.flatten(), depth + 1
    sizes = np.unique(np.diff(column.offsets.to_numpy()))
    if len(sizes) != 1 or len(flat) != len(column) * sizes[0] or flat.null_count:
        return None
    rows: npt.NDArray[Any] = flat.to_numpy(zero_copy_only=False)
    return rows.reshape(len(column), sizes[0], *[1] * (depth - 1))


def _counting(name: str, episodes: Ints, starts: Ints, lengths: Ints) -> FeatureColumn:
    """Return what the episode table says of a column that only counts.

    Where LeRobot deletes or merges, statistics of these columns stay those of the episode that had the number before.
    """
    long = lengths[episodes]
    first = {"index": starts[episodes], "episode_index": episodes}.get(name, np.zeros(len(episodes), np.int64))
    steps = np.zeros(len(long)) if name == "episode_index" else long - 1.0
    moments = {"min": first, "max": first + steps, "mean": first + steps / 2, "std": np.sqrt(steps * (steps + 2) / 12)}
    if name == "episode_index":
        sketch = FeatureSketch(first[None].astype(np.float64), long[None])
    else:
        one = {int(n): FeatureSketch.of(np.arange(n)[None]) for n in np.unique(long)}
        parts = [one[int(n)] for n in long]
        values = np.concatenate([start + part.values[0] for start, part in zip(first, parts, strict=True)])
        sketch = FeatureSketch(values[None], np.concatenate([part.weights[0] for part in parts])[None])
    columns = {key: np.asarray(value, np.float64)[:, None] for key, value in moments.items()}
    return FeatureColumn(columns, long, (1,), sketch)


def _stored(
    root: Path,
    file: FileId,
    name: str,
    episodes: Ints,
    moments: Mapping[str, Floats],
    counts: Ints,
    *,
    camera: bool,
) -> FeatureSketch | None:
    """Return the sketches of a side file; None if an episode has none, or one that does not fit its statistics."""
    table = read_sketch_table(root, file, name)
    if table is None or not np.array_equal(np.sort(table["episode_index"].to_numpy()), np.sort(episodes)):
        return None
    table = table.take(pa.array(np.argsort(table["episode_index"].to_numpy())[np.argsort(np.argsort(episodes))]))
    channels = moments["mean"].shape[1]
    valued, weighted = (_unpacked(table, side, channels) for side in ("values", "weights"))
    if valued is None or weighted is None or not np.array_equal(valued[1], weighted[1]):
        return None
    (values, points), (weights, _) = valued, weighted
    ends = np.cumsum(points)
    begins = ends - points
    sums = np.add.reduceat(weights, begins, axis=1)
    filled = weights > 0
    low = np.minimum.reduceat(np.where(filled, values, np.inf), begins, axis=1).T
    high = np.maximum.reduceat(np.where(filled, values, -np.inf), begins, axis=1).T
    told = _told_moments(table, channels)
    if told is None:
        return None
    fits = fitting(SketchFacts(sums[0], low, high, told), moments, counts, camera=camera).all()
    return FeatureSketch(values, weights.astype(np.int64)) if fits else None


def _told_moments(table: pa.Table, channels: int) -> Floats | None:
    """Return mean and deviation that each sketch was made with, NaN where one, as of an earlier version, has none."""
    found = np.full((len(table), 2, channels), np.nan)
    if "moments" in table.column_names:
        column = table["moments"].combine_chunks()
        known = column.is_valid().to_numpy(zero_copy_only=False)
        if (column.value_lengths().drop_null().to_numpy() != 2 * channels).any():
            return None
        found[known] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, 2, channels)
    return found


def _unpacked(table: pa.Table, side: str, channels: int) -> tuple[npt.NDArray[Any], Ints] | None:
    """Return one side of all sketches as (channels, points of all), and how many points each sketch has."""
    column = table[side].combine_chunks()
    rows: Ints = table[f"{side}_rows"].to_numpy().astype(np.int64)
    offsets = column.offsets.to_numpy().astype(np.int64)
    sizes = np.diff(offsets)
    if not np.isin(rows, [1, channels]).all() or (sizes % rows).any() or not (sizes > 0).all():
        return None
    points = sizes // rows
    flat = column.values.to_numpy(zero_copy_only=False)
    inside = np.arange(points.sum()) - np.repeat(np.cumsum(points) - points, points)
    begin = np.repeat(offsets[:-1], points) + inside
    step = np.repeat(np.where(rows == 1, 0, points), points)
    return np.stack([flat[begin + channel * step] for channel in range(channels)]), points
