# SPDX-License-Identifier: Apache-2.0
"""The episode table: reading, checking and writing `meta/episodes`. Look-ups go by episode number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.errors import DatasetError, DatasetFormatError
from ulna.core.files import atomic_path
from ulna.data.features import Feature
from ulna.data.layout import FileId
from ulna.data.reading_errors import readable
from ulna.data.stats import Stats, stats_from_json, stats_to_json

__all__ = [
    "EpisodeRow",
    "EpisodeTable",
    "Finding",
    "VideoSpan",
    "drop_rows",
    "read_episode_files",
    "read_stats",
    "row_schema",
    "write_rows",
]

_FOLDER = "meta/episodes"


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be, but did not stop the dataset from opening.

    Attributes:
        message: What, where, and what was done about it.
        episode: The episode concerned, if one.
        path: The file concerned, if one.
    """

    message: str
    episode: int | None = None
    path: Path | None = None


@dataclass(frozen=True)
class VideoSpan:
    """Where an episode lies in the videos of one camera.

    Attributes:
        file: The video file.
        start_s: Time of its first frame in that file.
        end_s: Time of the end of its last frame.
    """

    file: FileId
    start_s: float
    end_s: float


@dataclass(frozen=True)
class EpisodeRow:
    """Everything the table says about one episode.

    Attributes:
        index: Number of the episode.
        tasks: Its tasks, in order of appearance.
        start: Global number of its first frame.
        length: Number of frames.
        data: The table file with its rows.
        row: The file of the episode table that holds this row.
        videos: Camera to span.
        stats: Statistics of the episode; empty where not loaded.
    """

    index: int
    tasks: tuple[str, ...]
    start: int
    length: int
    data: FileId
    row: FileId
    videos: Mapping[str, VideoSpan] = field(default_factory=dict)
    stats: Stats = field(default_factory=dict)

    def to_columns(self) -> dict[str, Any]:
        """Return the row under LeRobot's column names, in its order, statistics included."""
        columns: dict[str, Any] = {
            "episode_index": self.index,
            "tasks": list(self.tasks),
            "length": self.length,
            "data/chunk_index": self.data.chunk,
            "data/file_index": self.data.file,
            "dataset_from_index": self.start,
            "dataset_to_index": self.start + self.length,
        }
        for key, span in self.videos.items():
            columns[f"videos/{key}/chunk_index"] = span.file.chunk
            columns[f"videos/{key}/file_index"] = span.file.file
            columns[f"videos/{key}/from_timestamp"] = span.start_s
            columns[f"videos/{key}/to_timestamp"] = span.end_s
        for name, values in stats_to_json(self.stats).items():
            columns.update({f"stats/{name}/{key}": value for key, value in values.items()})
        columns["meta/episodes/chunk_index"] = self.row.chunk
        columns["meta/episodes/file_index"] = self.row.file
        return columns


def row_schema(columns: Mapping[str, Any], features: Mapping[str, Feature]) -> pa.Schema:
    """Return the schema of the episode table for rows of this form.

    Args:
        columns: One row.
        features: All features, to know which statistics are nested.
    """
    fields = []
    for name, value in columns.items():
        if name == "tasks":
            kind = pa.list_(pa.field("element", pa.string()))
        elif name.startswith("stats/"):
            feature, _, stat = name.removeprefix("stats/").rpartition("/")
            kind = _nested(pa.int64() if stat == "count" else pa.float64(), 1)
            if stat != "count" and features[feature].is_camera:
                kind = _nested(pa.float64(), 3)
        else:
            kind = pa.float64() if isinstance(value, float) else pa.int64()
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


def _nested(kind: pa.DataType, depth: int) -> pa.DataType:
    for _ in range(depth):
        kind = pa.list_(pa.field("element", kind))
    return kind


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write one file of the episode table atomically. Columns the schema lacks are left out; missing ones become null.

    Args:
        path: The file.
        rows: Its rows.
        schema: Its schema.
    """
    table = pa.table({name: [row.get(name) for row in rows] for name in schema.names}, schema=schema)
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary)


def read_episode_files(root: Path) -> tuple[pa.Table | None, list[Finding]]:
    """Read every file of the episode table, statistics left out.

    Args:
        root: Folder of the dataset.

    Returns:
        The rows in file order, None without any; and what could not be read.
    """
    tables, findings = [], []
    for path in sorted((root / _FOLDER).glob("chunk-*/file-*.parquet")):
        try:
            names = [n for n in pq.read_schema(path).names if not n.startswith("stats/")]
            tables.append(pq.read_table(path, columns=names, use_threads=False))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            findings.append(Finding(f"{path} cannot be read and was left out: {error}", path=path))
    table = pa.concat_tables(tables, promote_options="permissive") if tables else None
    return table, findings


def drop_rows(root: Path, first: int) -> None:
    """Remove the rows of the last episodes. At every instant the table that is left is whole.

    Args:
        root: Folder of the dataset.
        first: The first episode to go.
    """
    for path in sorted((root / _FOLDER).glob("chunk-*/file-*.parquet"), reverse=True):
        with readable(path):
            table = pq.read_table(path, use_threads=False)
        rows = [row for row in table.to_pylist() if row["episode_index"] < first]
        if not rows:
            path.unlink()
        elif len(rows) < len(table):
            write_rows(path, rows, table.schema)


def read_stats(root: Path, row: FileId, template: str, episode: int) -> Stats:
    """Read the statistics of one episode.

    Args:
        root: Folder of the dataset.
        row: File of the episode table that holds the episode.
        template: Path template of the episode table.
        episode: Number of the episode.

    Returns:
        Feature to statistics; empty where the table has none.
    """
    path = row.path(root, template)
    with readable(path):
        names = [n for n in pq.read_schema(path).names if n.startswith("stats/")]
        table = pq.read_table(path, columns=["episode_index", *names], use_threads=False)
        position = table["episode_index"].to_pylist().index(episode)
    nested: dict[str, dict[str, Any]] = {}
    for name in names:
        value = table[name][position].as_py()
        if value is not None:
            feature, _, stat = name.removeprefix("stats/").rpartition("/")
            nested.setdefault(feature, {})[stat] = value
    return stats_from_json(nested)


class EpisodeTable:
    """The episodes of a dataset as columns. Built by the metadata; immutable; cheap to share.

    `table[i]` is the row of episode i as LeRobot gives it, `table["length"]` a whole column.

    Args:
        columns: Rows in file order; None for an empty dataset.
        video_keys: Cameras stored as video.

    Raises:
        DatasetFormatError: Episodes are missing or twice, or their frame ranges do not join; the episode is named.
    """

    def __init__(self, columns: pa.Table | None, video_keys: Sequence[str]) -> None:
        self._table = columns if columns is not None else _empty()
        self._video_keys = tuple(video_keys)
        self._sort()
        self.starts = self._ints("dataset_from_index")
        self.stops = self._ints("dataset_to_index")
        self.lengths = self._ints("length")
        self.data_files = self._files("data")
        self.video_files = {key: self._files(f"videos/{key}") for key in self._video_keys}
        self.video_starts = {key: self._floats(f"videos/{key}/from_timestamp") for key in self._video_keys}
        self._check_ranges()

    def _sort(self) -> None:
        for name in ("episode_index", "length", "dataset_from_index", "dataset_to_index", "data/chunk_index"):
            if name not in self._table.column_names:
                raise DatasetFormatError(f"The episode table lacks the column {name!r}.")
        numbers = self._ints("episode_index")
        order = np.argsort(numbers, kind="stable")
        if not np.array_equal(order, np.arange(len(order))):
            self._table = self._table.take(pa.array(order))
            numbers = numbers[order]
        wrong = np.flatnonzero(numbers != np.arange(len(numbers)))
        if wrong.size:
            first = int(wrong[0])
            twice = first > 0 and numbers[first] == numbers[first - 1]
            what = f"episode {numbers[first]} stands there twice" if twice else f"episode {first} is missing"
            raise DatasetFormatError(
                f"The episode table is not whole: {what} (it has {len(numbers)} rows, numbered up to {numbers[-1]}).",
                hint="Restore the missing file of meta/episodes from a backup or from the Hub.",
            )

    def _check_ranges(self) -> None:
        expected = np.concatenate([[0], np.cumsum(self.lengths)])
        bad = np.flatnonzero((self.lengths <= 0) | (self.starts != expected[:-1]) | (self.stops != expected[1:]))
        if bad.size:
            e = int(bad[0])
            raise DatasetFormatError(
                f"Episode {e} claims frames {self.starts[e]} to {self.stops[e]} and length {self.lengths[e]}; "
                f"expected were frames {expected[e]} to {expected[e] + self.lengths[e]}, behind the episode before."
            )

    def _ints(self, name: str) -> npt.NDArray[np.int64]:
        return self._column(name, np.dtype(np.int64))

    def _floats(self, name: str) -> npt.NDArray[np.float64]:
        return self._column(name, np.dtype(np.float64))

    def _column(self, name: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        if name not in self._table.column_names and len(self._table) == 0:
            return np.empty(0, dtype)
        if name not in self._table.column_names:
            raise DatasetFormatError(f"The episode table lacks the column {name!r}.")
        column = self._table[name]
        if column.null_count:
            gap = next(i for i, value in enumerate(column.to_pylist()) if value is None)
            raise DatasetFormatError(f"The episode table has no value of {name!r} for episode {gap}.")
        return np.asarray(column.to_numpy(), dtype=dtype)

    def _files(self, prefix: str) -> list[FileId]:
        chunks, files = self._ints(f"{prefix}/chunk_index"), self._ints(f"{prefix}/file_index")
        # Most episodes lie in the same file as the one before: one object for each run of them.
        first = np.flatnonzero(np.diff(chunks, prepend=-1) | np.diff(files, prepend=-1))
        runs = np.diff(first, append=len(chunks)).tolist()
        numbers = map(FileId, chunks[first].tolist(), files[first].tolist())
        return [number for number, run in zip(numbers, runs, strict=True) for _ in range(run)]

    def first(self, count: int) -> EpisodeTable:
        """Return the table of the first episodes only.

        Args:
            count: How many.
        """
        return EpisodeTable(self._table.slice(0, count), self._video_keys)

    def extended(self, rows: pa.Table) -> EpisodeTable:
        """Return the table with rows added.

        Args:
            rows: The new rows, under the same column names.

        Raises:
            DatasetFormatError: They do not follow the rows that are there.
        """
        both = pa.concat_tables([self._table, rows], promote_options="permissive") if len(self) else rows
        return EpisodeTable(both, self._video_keys)

    def row(self, episode: int) -> EpisodeRow:
        """Return one episode without its statistics.

        Args:
            episode: Number of the episode.

        Raises:
            DatasetError: There is no such episode.
        """
        if not 0 <= episode < len(self):
            raise DatasetError(f"There is no episode {episode}; the dataset has {len(self)}, numbered from 0.")
        values = self[episode]
        span = "meta/episodes"
        videos = {
            key: VideoSpan(
                self.video_files[key][episode],
                float(values[f"videos/{key}/from_timestamp"]),
                float(values[f"videos/{key}/to_timestamp"]),
            )
            for key in self._video_keys
        }
        row = FileId(values.get(f"{span}/chunk_index") or 0, values.get(f"{span}/file_index") or 0)
        tasks = tuple(values.get("tasks") or ())
        start, length = int(self.starts[episode]), int(self.lengths[episode])
        return EpisodeRow(episode, tasks, start, length, self.data_files[episode], row, videos)

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    def __getitem__(self, key: int | str) -> dict[str, Any] | list[Any]:
        if isinstance(key, str):
            values: list[Any] = self._table[key].to_pylist()
            return values
        if not -len(self) <= key < len(self):
            raise IndexError(f"There is no episode {key}; the dataset has {len(self)}.")
        row: dict[str, Any] = self._table.slice(key % len(self), 1).to_pylist()[0]
        return row

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, statistics left out."""
        names: list[str] = self._table.column_names
        return names


def _empty() -> pa.Table:
    names = ("episode_index", "length", "dataset_from_index", "dataset_to_index", "data/chunk_index", "data/file_index")
    return pa.table({name: pa.array([], pa.int64()) for name in names})
