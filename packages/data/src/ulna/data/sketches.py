# SPDX-License-Identifier: Apache-2.0
"""Sketches of whole episodes: how they are made from columns, merged with statistics, and kept beside the dataset.

`meta/sketches/chunk-CCC/file-FFF.parquet` belongs to the file of the episode table with the same number. It holds one
row for each episode and feature. Nothing depends on it: what is absent, or does not fit the episode's statistics, is
computed from the rows again, and LeRobot ignores the folder.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.files import atomic_path
from ulna.data.layout import FileId
from ulna.data.moments import QUANTILES, FeatureStats, array_summary, combine_moments, in_order
from ulna.data.quantiles import POINTS, FeatureSketch
from ulna.data.stats import Stats

__all__ = [
    "SKETCHES_TEMPLATE",
    "EpisodeSketches",
    "FeatureSketch",
    "RunningStats",
    "episode_sketches",
    "episode_summary",
    "fitting_sketches",
    "merged_stats",
    "read_sketch_file",
    "read_sketches",
    "write_sketches",
]

logger = logging.getLogger(__name__)

EpisodeSketches = dict[str, FeatureSketch]

SKETCHES_TEMPLATE: Final = "meta/sketches/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_VERSION: Final = 1
_SCHEMA: Final = pa.schema(
    [
        ("episode_index", pa.int64()),
        ("feature", pa.string()),
        ("values_rows", pa.int32()),
        ("values", pa.list_(pa.field("element", pa.float64()))),
        ("weights_rows", pa.int32()),
        ("weights", pa.list_(pa.field("element", pa.int64()))),
    ],
    metadata={"ulna.sketches": str(_VERSION)},
)
_RUNNING_POINTS: Final = 4 * POINTS
_RUNNING_LOT: Final = 16
_ABSOLUTE, _RELATIVE = 1e-12, 1e-6


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


def merged_stats(parts: Iterable[tuple[Stats, EpisodeSketches | None]]) -> Stats:
    """Combine the statistics of episodes: moments exactly, quantiles from their sketches.

    The result does not depend on the order of the parts. A single part keeps its statistics as they are. The quantiles
    of a feature are left out, with a warning, where several parts have it and one of them has no sketch that fits its
    statistics: what could be said then would not be a quantile of all rows.

    Args:
        parts: Statistics and sketches of each episode. Parts may lack features.

    Returns:
        Feature to statistics; features in the order in which they appear first.
    """
    stats: dict[str, list[FeatureStats]] = {}
    sketches: dict[str, list[FeatureSketch | None]] = {}
    for of_part, sketched in parts:
        fitting = fitting_sketches(of_part, sketched)
        for name, values in of_part.items():
            stats.setdefault(name, []).append(values)
            sketches.setdefault(name, []).append(fitting.get(name))
    return {name: _merged(name, stats[name], sketches[name]) for name in stats}


def _merged(name: str, stats: Sequence[FeatureStats], sketches: Sequence[FeatureSketch | None]) -> FeatureStats:
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
    return in_order({**total, **_quantiles(FeatureSketch.merged(known), total["mean"].shape)})


def _quantiles(sketch: FeatureSketch, shape: tuple[int, ...]) -> FeatureStats:
    found = sketch.quantiles(list(QUANTILES.values()))
    return {key: value.reshape(shape) for key, value in zip(QUANTILES, found, strict=True)}


def fitting_sketches(stats: Stats, sketches: EpisodeSketches | None) -> EpisodeSketches:
    """Return the sketches that tell the same count, minimum and maximum as the statistics; others are stale.

    Args:
        stats: Statistics of an episode.
        sketches: What is kept beside them.
    """
    known = {name: sketch for name, sketch in (sketches or {}).items() if name in stats}
    return {name: sketch for name, sketch in known.items() if _fits(sketch, stats[name])}


def _fits(sketch: FeatureSketch, stats: FeatureStats) -> bool:
    if not {"count", "min", "max"} <= stats.keys() or sketch.channels != np.size(stats["min"]):
        return False
    if sketch.count == 0 or sketch.count % max(int(np.ravel(stats["count"])[0]), 1):
        return False
    wanted = (np.ravel(stats["min"]).astype(np.float64), np.ravel(stats["max"]).astype(np.float64))
    pairs = zip(sketch.extremes, wanted, strict=True)
    return all(np.allclose(a, b, rtol=_RELATIVE, atol=_ABSOLUTE) for a, b in pairs)


class RunningStats:
    """Statistics of rows that come a part at a time, in memory that grows with the logarithm of their number.

    Moments are exact (float64, Welford's parallel form). Quantiles come from a sketch that is reduced again and again:
    each doubling of the number of parts adds up to 0.14 % of the rows to the rank error. Used by one thread.

    Args:
        points: Size of the sketch of a part that is given as rows.
    """

    def __init__(self, points: int = POINTS) -> None:
        self._points = points
        self._moments: FeatureStats | None = None
        self._parts: list[FeatureSketch] = []
        self._levels: list[FeatureSketch | None] = []
        self._whole = True

    def update(self, rows: npt.NDArray[Any]) -> None:
        """Take some rows.

        Args:
            rows: Shape (rows, *shape) as for `array_stats`; may be empty.
        """
        if len(rows):
            self.add(*array_summary(rows, self._points))

    def add(self, stats: FeatureStats, sketch: FeatureSketch | None) -> None:
        """Take rows of which only the statistics are known.

        Args:
            stats: Their statistics.
            sketch: Their sketch; without one the quantiles are left out from now on.
        """
        self._moments = combine_moments([stats] if self._moments is None else [self._moments, stats])
        if sketch is None:
            self._whole = False
            self._parts, self._levels = [], []
        elif self._whole:
            self._parts.append(sketch)
            if len(self._parts) > _RUNNING_LOT:
                self._reduce()

    def _reduce(self) -> None:
        """Make room as a binary counter does: two summaries of one size become one of the next."""
        carry, self._parts = FeatureSketch.merged(self._parts).reduced(_RUNNING_POINTS), []
        for i, level in enumerate(self._levels):
            if level is None:
                self._levels[i] = carry
                return
            carry, self._levels[i] = FeatureSketch.merged([level, carry]).reduced(_RUNNING_POINTS), None
        self._levels.append(carry)

    def result(self) -> FeatureStats:
        """Return the statistics of all rows so far; empty before the first."""
        if self._moments is None:
            return {}
        if not self._whole:
            return in_order(self._moments)
        everything = FeatureSketch.merged([*self._parts, *(level for level in self._levels if level is not None)])
        return in_order({**self._moments, **_quantiles(everything, self._moments["mean"].shape)})


def write_sketches(root: Path, file: FileId, rows: Mapping[int, EpisodeSketches]) -> None:
    """Write one side file atomically, flushed to disk.

    Args:
        root: Folder of the dataset.
        file: Number of the file of the episode table that it belongs to.
        rows: Episode to sketches.
    """
    write_sketch_file(file.path(root, SKETCHES_TEMPLATE), rows)


def write_sketch_file(path: Path, rows: Mapping[int, EpisodeSketches]) -> None:
    """Write one side file atomically, flushed to disk, each feature as a row group.

    Args:
        path: The file.
        rows: Episode to sketches.
    """
    names = list(dict.fromkeys(name for sketches in rows.values() for name in sketches))
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(
            temporary,
            _SCHEMA,
            compression="zstd",
            use_dictionary=["feature"],
            column_encoding={"values.list.element": "BYTE_STREAM_SPLIT"},
        ) as writer,
    ):
        tables = [_table([(e, name, s[name]) for e, s in rows.items() if name in s]) for name in names]
        if len(rows) == 1:
            tables = [pa.concat_tables(tables)]
        for table in tables:
            writer.write_table(table)


def _table(rows: Sequence[tuple[int, str, FeatureSketch]]) -> pa.Table:
    def lists(arrays: Sequence[npt.NDArray[Any]], kind: pa.DataType) -> pa.Array:
        offsets = np.cumsum([0, *(a.size for a in arrays)]).astype(np.int32)
        return pa.ListArray.from_arrays(offsets, pa.array(np.concatenate([a.ravel() for a in arrays])), type=kind)

    sketches = [sketch for _, _, sketch in rows]
    columns = [
        pa.array([episode for episode, _, _ in rows], pa.int64()),
        pa.array([name for _, name, _ in rows], pa.string()),
        pa.array([len(s.values) for s in sketches], pa.int32()),
        lists([s.values for s in sketches], _SCHEMA.field("values").type),
        pa.array([len(s.weights) for s in sketches], pa.int32()),
        lists([s.weights for s in sketches], _SCHEMA.field("weights").type),
    ]
    return pa.table(columns, schema=_SCHEMA)


def read_sketch_file(root: Path, file: FileId) -> dict[int, EpisodeSketches]:
    """Read one side file.

    Args:
        root: Folder of the dataset.
        file: Number of the file of the episode table that it belongs to.

    Returns:
        Episode to sketches; empty when there is no such file, or it is damaged or of a later version (which is logged).
    """
    path = file.path(root, SKETCHES_TEMPLATE)
    try:
        table = pq.read_table(path, use_threads=False)
    except FileNotFoundError:
        return {}
    except (pa.ArrowException, OSError) as error:
        logger.warning("%s cannot be read; its sketches are computed from the rows where possible: %s", path, error)
        return {}
    if (table.schema.metadata or {}).get(b"ulna.sketches") != str(_VERSION).encode():
        logger.warning("%s is not of version %d and was passed over.", path, _VERSION)
        return {}
    return _parsed(table)


def _parsed(table: pa.Table) -> dict[int, EpisodeSketches]:
    found: dict[int, EpisodeSketches] = {}
    values, weights = (table[key].combine_chunks() for key in ("values", "weights"))
    flat = [column.values.to_numpy() for column in (values, weights)]
    ends = [column.offsets.to_numpy() for column in (values, weights)]
    rows = [table[key].to_pylist() for key in ("episode_index", "feature", "values_rows", "weights_rows")]
    for i, (episode, name, *shape) in enumerate(zip(*rows, strict=True)):
        parts = [f[e[i] : e[i + 1]].reshape(n, -1) for f, e, n in zip(flat, ends, shape, strict=True)]
        found.setdefault(episode, {})[name] = FeatureSketch(*parts)
    return found


def read_sketches(root: Path, file: FileId, episode: int) -> EpisodeSketches | None:
    """Read the sketches of one episode. To read many, read whole files with `read_sketch_file`.

    Args:
        root: Folder of the dataset.
        file: File of the episode table that holds the episode.
        episode: Its number.

    Returns:
        Feature to sketch; None where there is none.
    """
    return read_sketch_file(root, file).get(episode)
