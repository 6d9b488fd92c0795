# SPDX-License-Identifier: Apache-2.0
"""Statistics of all episodes of a dataset on disk: read episode by episode, mended from the rows, combined, kept up."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.files import write_json
from ulna.data.arrow_schema import numeric_column
from ulna.data.layout import STATS_PATH, FileId
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.moments import FeatureStats
from ulna.data.quantiles import EpisodeSketches, FeatureSketch
from ulna.data.reading_errors import readable
from ulna.data.running_stats import RunningStats
from ulna.data.sketch_files import read_sketch_file, write_sketches
from ulna.data.sketches import counted_in_frames, episode_summary, fitting_sketches, merged_stats
from ulna.data.stats import Stats, stats_to_json
from ulna.data.stats_columns import FeatureColumn, file_column, stacked

__all__ = ["DatasetTotals", "episode_parts", "read_row_stats", "settle_stats", "whole_sketches", "whole_stats"]

logger = logging.getLogger(__name__)

_NUMBERED: Final = frozenset({"index", "episode_index", "frame_index", "task_index"})

Part = tuple[Stats, EpisodeSketches]


class DatasetTotals:
    """The statistics of a dataset while episodes are added. Created by the episode store; used by one thread at a time.

    After each episode they are exact but for quantiles, which come from sketches that are reduced to stay small, at a
    cost that does not depend on the number of episodes. `settle_stats` brings them to what `whole_stats` gives.

    Args:
        meta: Metadata of the dataset.
    """

    def __init__(self, meta: LeRobotDatasetMetadata) -> None:
        self._meta = meta
        self._running: dict[str, RunningStats] = {}
        self._added = False
        if meta.total_episodes:
            self._start()

    def _start(self) -> None:
        recorded, total = self._meta.recorded_stats or {}, self._meta.total_episodes
        for name in _told(self._meta):
            column = _column(self._meta, name)
            if column is not None and len(column) == total:
                self._add(name, column.total(), column.sorted_sketch())
            elif name in recorded:
                # Some episodes say nothing of this feature, as after a conversion by LeRobot: only the total knows.
                self._add(name, recorded[name], None)

    def _add(self, name: str, stats: FeatureStats, sketch: FeatureSketch | None) -> None:
        self._running.setdefault(name, RunningStats()).add(stats, sketch)

    def add(self, stats: Stats, sketches: EpisodeSketches) -> None:
        """Take one more episode.

        Args:
            stats: Its statistics.
            sketches: Its sketches.
        """
        self._added = True
        for name, values in stats.items():
            self._add(name, values, sketches.get(name))

    @property
    def stats(self) -> Stats | None:
        """Feature to statistics; None without an episode. As they were recorded, until an episode is added."""
        if not self._added:
            stats, frames = self._meta.recorded_stats, self._meta.total_frames
            behind = stats is None or ("index" in stats and int(stats["index"]["count"][0]) != frames)
            return (whole_stats(self._meta) or None) if behind else stats
        return {name: running.result() for name, running in self._running.items()} or None


def whole_stats(meta: LeRobotDatasetMetadata) -> Stats:
    """Compute the statistics of a dataset from those of its episodes and their sketches, one feature at a time.

    Args:
        meta: Metadata of the dataset.

    Returns:
        Feature to statistics, for the features of which every episode has some. See `merged_stats`.
    """
    if meta.total_episodes == 1:  # its own quantiles are exact
        return merged_stats(episode_parts(meta), checked=True)
    found: Stats = {}
    for name in _told(meta):
        column = _column(meta, name)
        if column is not None and len(column) == meta.total_episodes:
            if column.sketch is None:
                logger.warning(
                    "%s: not all of %d parts have a sketch, so that the quantiles of all together are left out of the "
                    "statistics.",
                    name,
                    len(column),
                )
            found[name] = column.total()
    return found


def whole_sketches(meta: LeRobotDatasetMetadata) -> EpisodeSketches:
    """Return one sketch of all episodes for each feature of which every episode has one that fits. Reads no rows.

    Args:
        meta: Metadata of the dataset.
    """
    starts, lengths = meta.episodes.starts, meta.episodes.lengths
    found: EpisodeSketches = {}
    for name in _told(meta):
        columns = [file_column(meta.root, file, path, name, starts, lengths) for file, path in _files(meta)]
        known = [column for column in columns if column is not None and len(column)]
        if known and len(known) == len(columns) and len({column.shape for column in known}) == 1:
            whole = FeatureColumn.joined(known)
            sketch = whole.sorted_sketch()
            if sketch is not None and len(whole) == meta.total_episodes:
                found[name] = sketch
    return found


def _column(meta: LeRobotDatasetMetadata, name: str) -> FeatureColumn | None:
    """Return what all episodes say of one feature; None when no episode says anything."""
    starts, lengths = meta.episodes.starts, meta.episodes.lengths
    columns = []
    for file, path in _files(meta):
        column = file_column(meta.root, file, path, name, starts, lengths)
        if column is None:
            parts = [_counted(part, name) for part in _parts_of_file(meta, file, path, name) if name in part[0]]
            column = FeatureColumn.of(*zip(*parts, strict=True)) if parts else None
        if column is not None:
            columns.append(column)
    shapes = {column.shape for column in columns}
    return FeatureColumn.joined(columns) if len(shapes) == 1 else None


def _counted(part: Part, name: str) -> tuple[FeatureStats, FeatureSketch | None]:
    stats, sketches = part
    return counted_in_frames(stats[name], stats), sketches.get(name)


def settle_stats(meta: LeRobotDatasetMetadata) -> None:
    """Write the statistics of a dataset anew from those of its episodes, so that their order has had no influence.

    Sketches that had to be computed from rows are kept for the next time. Features of which some episodes have no
    statistics stay as they are.

    Args:
        meta: Metadata of the dataset; kept up to date.
    """
    if not meta.total_episodes:
        return
    _mend(meta)
    kept = {name: stats for name, stats in (meta.recorded_stats or {}).items() if name in meta.parsed_features}
    stats = {**kept, **whole_stats(meta)}
    write_json(meta.root / STATS_PATH, stats_to_json(stats))
    meta.recorded_stats = stats


def episode_parts(meta: LeRobotDatasetMetadata) -> Iterator[Part]:
    """Yield statistics and sketches of each episode, in order; those of numbers are computed where they are missing.

    Args:
        meta: Metadata of the dataset.
    """
    for file, path in _files(meta):
        yield from _parts_of_file(meta, file, path)


def _told(meta: LeRobotDatasetMetadata) -> list[str]:
    return [name for name, feature in meta.parsed_features.items() if feature.is_numeric or feature.is_camera]


def _files(meta: LeRobotDatasetMetadata) -> Iterator[tuple[FileId, Path]]:
    for path in sorted((meta.root / "meta/episodes").glob("chunk-*/file-*.parquet")):
        yield FileId(int(path.parent.name.removeprefix("chunk-")), int(path.stem.removeprefix("file-"))), path


def _parts_of_file(meta: LeRobotDatasetMetadata, file: FileId, path: Path, only: str | None = None) -> list[Part]:
    """Return the parts of one file of the episode table; of one feature and `index` if so asked."""
    rows = _Rows(meta, only)
    stated = {e: stats for e, stats in read_row_stats(path, only).items() if e < meta.total_episodes}
    stored = read_sketch_file(meta.root, file, only)
    return [_part(stats, stored.get(e), rows, e) for e, stats in stated.items()]


def _mend(meta: LeRobotDatasetMetadata) -> None:
    """Write the side files that lack number features of some episodes."""
    starts, lengths, rows = meta.episodes.starts, meta.episodes.lengths, _Rows(meta)
    for file, path in _files(meta):
        if all(file_column(meta.root, file, path, name, starts, lengths) is not None for name in rows.numbers):
            continue
        stated = {e: stats for e, stats in read_row_stats(path).items() if e < meta.total_episodes}
        stored = read_sketch_file(meta.root, file)
        known = {e: fitting_sketches(stats, stored.get(e)) for e, stats in stated.items()}
        if any(name not in sketches for sketches in known.values() for name in rows.numbers):
            mended = {e: _part(stats, stored.get(e), rows, e)[1] for e, stats in stated.items()}
            write_sketches(meta.root, file, mended)


def _part(stats: Stats, stored: EpisodeSketches | None, rows: _Rows, episode: int) -> Part:
    if not rows.agree(episode, stats):
        stats = {name: values for name, values in stats.items() if name not in _NUMBERED}
    sketches = fitting_sketches({n: s for n, s in stats.items() if rows.only in {None, n}}, stored)
    missing = [name for name in rows.numbers if name not in sketches]
    if missing:
        more, sketched = episode_summary(rows.columns(episode, missing))
        stats, sketches = {**stats, **more}, {**sketches, **sketched}
    return stats, sketches


class _Rows:
    """Number columns of single episodes; holds those of the last data file."""

    def __init__(self, meta: LeRobotDatasetMetadata, only: str | None = None) -> None:
        wanted = [f for f in meta.parsed_features.values() if f.is_numeric]
        self.numbers = [f.name for f in wanted if only is None or f.name == only]
        self.only, self._meta = only, meta
        self._loaded: tuple[Path, list[str]] | None = None
        self._columns: dict[str, npt.NDArray[Any]] = {}

    def agree(self, episode: int, stats: Stats) -> bool:
        """Tell whether the statistics of the index columns are those of this episode.

        Where LeRobot deletes or merges, some stay those of the episode that had the number before.
        """
        wanted = {"index": int(self._meta.episodes.starts[episode]), "episode_index": episode, "frame_index": 0}
        return all(stats[name]["min"][0] == low for name, low in wanted.items() if "min" in stats.get(name, {}))

    def columns(self, episode: int, names: list[str]) -> dict[str, npt.NDArray[Any]]:
        path = self._meta.get_data_file_path(episode)
        if self._loaded != (path, names):
            with readable(path):
                table = pq.read_table(path, columns=[*names, *({"index"} - set(names))], use_threads=False)
            features = self._meta.parsed_features
            self._columns = {n: numeric_column(features[n], table[n], str(path)) for n in table.column_names}
            self._loaded = (path, names)
        start = int(self._meta.episodes.starts[episode])
        first = int(np.flatnonzero(self._columns["index"].reshape(-1) == start)[0])
        stop = first + int(self._meta.episodes.lengths[episode])
        return {name: self._columns[name][first:stop] for name in names}


def read_row_stats(path: Path, feature: str | None = None) -> dict[int, Stats]:
    """Read the statistics of all episodes of one file of the episode table.

    Args:
        path: The file.
        feature: Read only this feature and `index`.

    Returns:
        Episode to feature to statistics; an empty mapping for an episode without.
    """
    with readable(path):
        names = [name for name in pq.read_schema(path).names if name.startswith("stats/")]
        if feature is not None:
            names = [n for n in names if n.removeprefix("stats/").rpartition("/")[0] in {feature, "index"}]
        table = pq.read_table(path, columns=["episode_index", *names], use_threads=False)
    episodes: list[int] = table["episode_index"].to_pylist()
    found: dict[int, Stats] = {episode: {} for episode in episodes}
    for column in names:
        name, _, stat = column.removeprefix("stats/").rpartition("/")
        for episode, value in zip(episodes, _arrays(table[column].combine_chunks()), strict=True):
            if value is not None:
                found[episode].setdefault(name, {})[stat] = value
    return found


def _arrays(column: pa.Array) -> Sequence[npt.NDArray[Any] | None]:
    """Return one array for each row of nested lists, None for a null; all rows at once where they have one shape."""
    rows = stacked(column)
    if rows is not None:
        return list(rows)
    return [None if value is None else np.atleast_1d(np.asarray(value)) for value in column.to_pylist()]
