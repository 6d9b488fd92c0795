# SPDX-License-Identifier: Apache-2.0
"""Statistics as columns of the episode table: many episodes at once, between Arrow and arrays.

Those of the index columns follow from the numbers of an episode; those of other number columns are computed only
where an episode has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ulna.core.errors import DatasetFormatError
from ulna.data.arrow_schema import numeric_column
from ulna.data.features import Feature
from ulna.data.stats import QUANTILES, FeatureStats, Stats, array_stats

__all__ = ["RENUMBERED", "differ", "fill_stats", "index_stats", "stats_of", "stats_table"]

RENUMBERED: Final = ("index", "episode_index", "frame_index", "task_index")
_ORDER: Final = ("min", "max", "mean", "std", "count", *QUANTILES)

Columns = dict[str, pa.Array]


def _type(feature: Feature, stat: str) -> pa.DataType:
    kind = pa.int64() if stat == "count" else pa.float64()
    for _ in range(3 if feature.is_camera and stat != "count" else 1):
        kind = pa.list_(pa.field("element", kind))
    return kind


def _nested(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Build a list column from an array of shape (episodes, ...), whose further axes are the lists."""
    kinds = [kind]
    while pa.types.is_list(kinds[-1].value_type):
        kinds.append(kinds[-1].value_type)
    nested = pa.array(np.ascontiguousarray(values).reshape(-1), kinds[-1].value_type)
    sizes = values.shape[1:]
    for size, list_type in zip(reversed(sizes), reversed(kinds), strict=True):
        offsets = np.arange(0, len(nested) + 1, size, dtype=np.int32)
        nested = pa.ListArray.from_arrays(pa.array(offsets), nested, type=list_type)
    return nested


def stats_table(stats: Sequence[Stats], features: Mapping[str, Feature]) -> pa.Table:
    """Return statistics as columns, null where an episode lacks one.

    Args:
        stats: One mapping an episode.
        features: All features; statistics of others are left out.
    """
    columns: Columns = {}
    for name, feature in features.items():
        stated = dict.fromkeys(key for part in stats for key in part.get(name, {}))
        for stat in sorted(stated, key=_rank):
            values = [part[name].get(stat) if name in part else None for part in stats]
            listed = [None if value is None else np.asarray(value).tolist() for value in values]
            columns[f"stats/{name}/{stat}"] = pa.array(listed, _type(feature, stat))
    return pa.table(columns) if columns else _without_columns(len(stats))


def _without_columns(rows: int) -> pa.Table:
    return pa.table({"": pa.nulls(rows)}).select([])


def _rank(stat: str) -> int:
    return _ORDER.index(stat) if stat in _ORDER else len(_ORDER)


def index_stats(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], first: int, task_numbers: npt.NDArray[np.int64]
) -> Columns:
    """Return the statistics of the columns that are numbered anew.

    Args:
        starts: Global number of the first frame of each episode.
        lengths: Frames of each episode.
        first: Number of the first episode.
        task_numbers: Task of each frame of all of them.
    """
    episodes = np.arange(first, first + len(lengths))
    counted = {"index": _arithmetic(starts, lengths), "frame_index": _arithmetic(0 * starts, lengths)}
    constant = {"episode_index": _arithmetic(episodes, 1 + 0 * lengths), "task_index": _tasks(lengths, task_numbers)}
    columns: Columns = {}
    for name, stats in {**counted, **constant}.items():
        stats["count"] = lengths
        for stat in _ORDER:
            kind = pa.list_(pa.field("element", pa.int64() if stat == "count" else pa.float64()))
            columns[f"stats/{name}/{stat}"] = _nested(np.asarray(stats[stat]).reshape(-1, 1), kind)
    return columns


def _arithmetic(starts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Return the statistics of start, start + 1, ... for each start and length."""
    low, span = starts.astype(np.float64), (lengths - 1).astype(np.float64)
    std = np.sqrt((np.square(lengths.astype(np.float64)) - 1) / 12)
    stats = {"min": low, "max": low + span, "mean": low + span / 2, "std": std}
    return {**stats, **{name: low + q * span for name, q in QUANTILES.items()}}


def _tasks(lengths: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    low, high = np.minimum.reduceat(numbers, starts), np.maximum.reduceat(numbers, starts)
    stats = _arithmetic(low, 1 + 0 * lengths)
    for episode in np.flatnonzero(low != high):
        start = starts[episode]
        for stat, value in array_stats(numbers[start : start + lengths[episode]]).items():
            if stat != "count":
                stats[stat][episode] = value[0]
    return stats


def fill_stats(
    rows: pa.Table,
    renumbered: Columns,
    features: Mapping[str, Feature],
    table: pa.Table,
    lengths: npt.NDArray[np.int64],
) -> Columns:
    """Return the statistics of every feature: those of the index columns, those that are known, the others computed.

    Args:
        rows: Known statistics as columns, one row an episode.
        renumbered: What `index_stats` gave.
        features: All features; the statistics of others are left out.
        table: Rows of all the episodes.
        lengths: Rows of each episode.

    Raises:
        DatasetFormatError: A column of statistics does not have the form that the format asks for.
    """
    columns: Columns = {}
    for name, feature in features.items():
        prefix = f"stats/{name}/"
        known = renumbered if name in RENUMBERED else _cast(rows, prefix, feature)
        chosen = {key: column for key, column in known.items() if key.startswith(prefix)}
        if feature.is_numeric:
            chosen = _computed(chosen, feature, table, lengths)
        columns.update(chosen)
    return columns


def _cast(rows: pa.Table, prefix: str, feature: Feature) -> Columns:
    columns: Columns = {}
    for name in sorted((n for n in rows.column_names if n.startswith(prefix)), key=lambda n: _rank(n[len(prefix) :])):
        kind = _type(feature, name.removeprefix(prefix))
        column = rows[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        try:
            columns[name] = column if column.type == kind else column.cast(kind)
        except pa.ArrowException as error:
            raise DatasetFormatError(f"The episode table has {name!r} as {column.type}, not as {kind}.") from error
    return columns


def _computed(known: Columns, feature: Feature, table: pa.Table, lengths: npt.NDArray[np.int64]) -> Columns:
    """Return the statistics of a number feature, those of episodes that have none computed from the rows."""
    mean = known.get(f"stats/{feature.name}/mean")
    todo = np.ones(len(lengths), bool) if mean is None else np.asarray(mean.is_null())
    if not todo.any():
        return known
    values = numeric_column(feature, table[feature.name], "the rows").reshape(len(table), *feature.shape)
    stops = np.cumsum(lengths)
    stats: list[Stats] = stats_of(pa.table(known), len(lengths)) if known else [{} for _ in lengths]
    for episode in np.flatnonzero(todo):
        stop = int(stops[episode])
        stats[episode] = {feature.name: array_stats(values[stop - int(lengths[episode]) : stop])}
    filled = stats_table(stats, {feature.name: feature})
    return {name: filled[name].combine_chunks() for name in filled.column_names}


def differ(a: FeatureStats, b: FeatureStats) -> bool:
    """Say whether two statistics of one feature cannot be of the same values: their extremes are not the same.

    Args:
        a: Statistics.
        b: Others.
    """
    if not {"min", "max"} <= a.keys() & b.keys() or np.shape(a["min"]) != np.shape(b["min"]):
        return True
    spread = 1e-4 * (1e-9 + np.max(np.abs([a["min"], a["max"], b["min"], b["max"]])))
    return any(bool((np.abs(a[key] - b[key]) > spread).any()) for key in ("min", "max"))


def stats_of(table: pa.Table, episodes: int) -> list[Stats]:
    """Return the statistics of each episode as arrays.

    Args:
        table: A table with columns of statistics; others are left out.
        episodes: Its rows.
    """
    stats: list[Stats] = [{} for _ in range(episodes)]
    for name in table.column_names:
        if not name.startswith("stats/"):
            continue
        feature, _, stat = name.removeprefix("stats/").rpartition("/")
        for part, value in zip(stats, _arrays(table[name], stat), strict=True):
            if value is not None:
                part.setdefault(feature, {})[stat] = value
    return stats


def _arrays(column: pa.ChunkedArray | pa.Array, stat: str) -> Sequence[npt.NDArray[Any] | None]:
    dtype = np.int64 if stat == "count" else np.float64
    flat = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    sizes: list[int] = []
    while pa.types.is_list(flat.type) and len(flat) and not flat.null_count:
        lengths = pc.list_value_length(flat)
        least, most = pc.min_max(lengths).as_py().values()
        if least != most:
            break
        flat, sizes = flat.flatten(), [*sizes, least]
    if flat.null_count or pa.types.is_list(flat.type):
        return [None if value is None else np.asarray(value, dtype) for value in column.to_pylist()]
    return list(flat.to_numpy(zero_copy_only=False).astype(dtype).reshape(len(column), *sizes))
