# SPDX-License-Identifier: Apache-2.0
"""Reads items: rows by offset, windows with padding masks, one item or a whole batch at a time. Numpy only.

Pictures are left to `picture_reading`, which decodes those of a batch together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetFormatError
from ulna.data.depth import DepthUnit
from ulna.data.features import Feature
from ulna.data.frame_cache import FrameCache
from ulna.data.index import FrameIndex, Position, windows
from ulna.data.language import read_cell
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.picture_reading import PictureReader, Place
from ulna.data.table_store import TableFile, TableStore
from ulna.data.video_backends import BackendName

__all__ = ["DatasetReader"]

Item = dict[str, Any]
Ints = npt.NDArray[np.int64]


class _Rows(NamedTuple):
    """Where the frames of a batch stand.

    Attributes:
        wheres: Episode and frame of each.
        positions: Position of each in the opened dataset, none negative.
        tables: Table of each.
        starts: Row in that table of the first frame of its episode, (B,).
        frames: Frame inside its episode, (B,).
        lengths: Length of its episode, (B,).
        groups: Every table with the places in the batch that stand in it; one entry of None for all.
    """

    wheres: list[Position]
    positions: list[int]
    tables: list[TableFile]
    starts: Ints
    frames: Ints
    lengths: Ints
    groups: list[tuple[TableFile, Ints | None]]


class DatasetReader:
    """Reads one dataset or some of its episodes. Created by `LeRobotDataset`; immutable; may be pickled.

    Args:
        meta: Metadata of the dataset.
        episodes: Episodes to read, as a set; None reads all.
        delta_timestamps: Feature to time differences in seconds.
        tolerance_s: Allowed deviation of times.
        depth_output_unit: Unit of depth maps that are read.
        store: Where rows come from; by default whole data files are opened when first needed.
        backend: What decodes colour videos.
        make_cache: Called with the index of the frames, makes the cache of decoded ones; None keeps none.

    Raises:
        DatasetError: An episode does not exist, or a window names an unknown feature or a time between frames.
        DatasetFormatError: A selected episode has a broken file.
    """

    def __init__(
        self,
        meta: LeRobotDatasetMetadata,
        episodes: Iterable[int] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = 1e-4,
        depth_output_unit: DepthUnit = "mm",
        store: TableStore | None = None,
        backend: BackendName = "pyav",
        make_cache: Callable[[LeRobotDatasetMetadata, FrameIndex], FrameCache | None] | None = None,
    ) -> None:
        table = meta.episodes
        self.meta = meta
        self.index = FrameIndex(table.starts, table.lengths, episodes)
        self.tolerance_s = tolerance_s
        self._refuse_broken()
        self._features = meta.parsed_features
        self._windows = windows(delta_timestamps, self._features, meta.fps, tolerance_s)
        self._data_files = table.data_files
        self._starts = table.starts.tolist()
        self._tasks = list(meta.tasks)
        self._store = store or TableStore(meta.root, meta.info.data_path, self._features)
        self._numeric = [f for f in self._features.values() if f.is_numeric]
        self._dtypes = {f.name: f.item_dtype for f in self._numeric}
        self._shapes = {f.name: f.item_shape for f in self._numeric}
        self._texts = [f for f in self._features.values() if not f.is_numeric and not f.is_camera]
        self._image_keys, self._video_keys = meta.image_keys, meta.video_keys
        self.cache = make_cache(meta, self.index) if make_cache else None
        self._pictures = PictureReader(meta, tolerance_s, depth_output_unit, backend, self.cache)

    def _refuse_broken(self) -> None:
        broken = [e for e in self.index.episodes if e in self.meta.broken] if self.meta.broken else []
        if broken:
            whole = [e for e in self.index.episodes if e not in self.meta.broken]
            raise DatasetFormatError(
                f"{len(broken)} of the selected episodes cannot be read: "
                f"episode {broken[0]}: {self.meta.broken[broken[0]]}.",
                hint=f"Restore the file, or open the others only: episodes={whole if len(whole) < 20 else '[...]'}.",
            )

    def __len__(self) -> int:
        return len(self.index)

    def raw_item(self, position: int) -> Item:
        """Return one row of the table: no videos, no windows, pictures decoded.

        Args:
            position: Position in the opened dataset.
        """
        where = self.index.locate(position)
        table, start = self._rows(where)
        row = start + where.frame
        item: Item = {f.name: table.numbers[f.name][row].astype(self._dtypes[f.name]) for f in self._numeric}
        for feature in self._texts:
            item[feature.name] = read_cell(table.others[feature.name][row])
        place = Place(where.episode, where.frame, position % len(self), table, row)
        pictures = self._pictures.read({key: [place] for key in self._image_keys}, as_float=False)
        item.update({key: found[0] for key, found in pictures.items()})
        return {name: item[name] for name in self._features if name in item}

    def item(self, position: int, *, as_float: bool = False) -> Item:
        """Return one item: pictures with channels first, depth maps float32, numbers of the dtype LeRobot reads.

        Args:
            position: Position in the opened dataset.
            as_float: Whether colour pictures are float32 in [0, 1], else uint8.

        Returns:
            Feature to array or text, `<feature>_is_pad` for each window, and `task`.

        Raises:
            IndexError: Beyond the end.
            FrameTimestampError: A video has no frame at the time; episode, frame and file are named.
            DatasetFormatError: A file contradicts the metadata.
        """
        where = self.index.locate(position)
        table, start = self._rows(where)
        row, wins, numbers = start + where.frame, self._windows, table.numbers
        item: Item = {}
        for name, dtype in self._dtypes.items():
            if name not in wins:
                # A slice keeps scalars arrays; astype copies, so nobody can write into the cached column.
                item[name] = numbers[name][row : row + 1].astype(dtype).reshape(self._shapes[name])
        for feature in self._texts:
            if feature.name not in wins:
                item[feature.name] = read_cell(table.others[feature.name][row])
        frames: dict[str, Ints] = {}
        for name, window in wins.items():
            frames[name], item[f"{name}_is_pad"] = window.frames(where.frame, where.length)
            if name in self._dtypes:
                item[name] = numbers[name][start + frames[name]].astype(self._dtypes[name])
            elif not self._features[name].is_camera:
                column = table.others[name]
                item[name] = [read_cell(column[start + frame]) for frame in frames[name].tolist()]
        if self._image_keys or self._video_keys:
            first = position % len(self) - where.frame
            self._add_pictures(item, Place(where.episode, where.frame, first, table, start), frames, as_float)
        item["task"] = self._task(int(numbers["task_index"][row]), where)
        return item

    def _add_pictures(self, item: Item, here: Place, frames: Mapping[str, Ints], as_float: bool) -> None:
        """Read the pictures of one item; `here` gives position and row of the first frame of its episode."""
        wanted = {}
        for key in (*self._image_keys, *self._video_keys):
            chosen = [here.frame] if key not in frames else frames[key].tolist()
            wanted[key] = [
                Place(here.episode, frame, here.position + frame, here.table, here.row + frame) for frame in chosen
            ]
        for key, found in self._pictures.read(wanted, as_float=as_float).items():
            item[key] = found if key in frames else found[0]

    def items(self, positions: Sequence[int], *, as_float: bool = False) -> list[Item]:
        """Return several items, see `item`; quicker than one by one.

        The values of one feature are parts of one array. Pictures are decoded file by file, each frame once.

        Args:
            positions: Positions in the opened dataset, in any order, repeats allowed.
            as_float: Whether colour pictures are float32 in [0, 1].

        Returns:
            One item for each position.

        Raises:
            IndexError: Beyond the end.
            FrameTimestampError: A video has no frame at the time; episode, frame and file are named.
            DatasetFormatError: A file contradicts the metadata.
        """
        columns = self.batch(positions, as_float=as_float)
        return [
            {name: v[n, ...] if isinstance(v, np.ndarray) else v[n] for name, v in columns.items()}
            for n in range(len(positions))
        ]

    def batch(self, positions: Sequence[int], *, as_float: bool = False, to_send: bool = False) -> dict[str, Any]:
        """Return several items as columns.

        Args:
            positions: Positions in the opened dataset, in any order, repeats allowed.
            as_float: Whether colour pictures are float32 in [0, 1].
            to_send: Whether a worker of a torch DataLoader will send the batch to its parent.

        Returns:
            The keys of an item, each with an array (B, ...), or a list where values are texts or differ in size.

        Raises:
            IndexError: Beyond the end.
            FrameTimestampError: A video has no frame at the time; episode, frame and file are named.
            DatasetFormatError: A file contradicts the metadata.
        """
        if not len(positions):
            return {}
        rows, wins = self._locate(positions), self._windows
        here = rows.starts + rows.frames
        columns: dict[str, Any] = {n: self._numbers(n, rows, here) for n in self._dtypes if n not in wins}
        for feature in self._texts:
            if feature.name not in wins:
                columns[feature.name] = _texts(feature, rows, here)
        frames: dict[str, Ints] = {}
        for name, window in wins.items():
            frames[name], columns[f"{name}_is_pad"] = window.many(rows.frames, rows.lengths)
            if name in self._dtypes:
                columns[name] = self._numbers(name, rows, rows.starts[:, None] + frames[name])
            elif not self._features[name].is_camera:
                columns[name] = _texts(self._features[name], rows, rows.starts[:, None] + frames[name])
        if self._image_keys or self._video_keys:
            self._add_picture_columns(columns, rows, frames, as_float, to_send)
        tasks = self._numbers("task_index", rows, here).tolist()
        columns["task"] = [self._task(task, where) for task, where in zip(tasks, rows.wheres, strict=True)]
        return columns

    def _locate(self, positions: Sequence[int]) -> _Rows:
        total = len(self)
        wheres = [self.index.locate(int(position)) for position in positions]
        found = [self._rows(where) for where in wheres]
        tables = [table for table, _ in found]
        starts = np.fromiter((start for _, start in found), np.int64, len(found))
        frames = np.fromiter((where.frame for where in wheres), np.int64, len(wheres))
        lengths = np.fromiter((where.length for where in wheres), np.int64, len(wheres))
        places: dict[int, list[int]] = {}
        for n, table in enumerate(tables):
            places.setdefault(id(table), []).append(n)
        if len(places) == 1:
            groups: list[tuple[TableFile, Ints | None]] = [(tables[0], None)]
        else:
            groups = [(tables[some[0]], np.asarray(some)) for some in places.values()]
        return _Rows(wheres, [int(p) % total for p in positions], tables, starts, frames, lengths, groups)

    def _numbers(self, name: str, rows: _Rows, wanted: Ints) -> npt.NDArray[Any]:
        """Return the values of a column in rows of any shape (B, ...), each in the table of its place."""
        dtype = self._dtypes[name]
        if rows.groups[0][1] is None:
            return rows.groups[0][0].numbers[name][wanted].astype(dtype, copy=False)
        values = np.empty((*wanted.shape, *self._shapes[name]), dtype)
        for table, some in rows.groups:
            values[some] = table.numbers[name][wanted[some]]
        return values

    def _add_picture_columns(
        self, columns: dict[str, Any], rows: _Rows, frames: Mapping[str, Ints], as_float: bool, to_send: bool
    ) -> None:
        wanted: dict[str, list[Place]] = {}
        for key in (*self._image_keys, *self._video_keys):
            chosen = frames[key].tolist() if key in frames else [[where.frame] for where in rows.wheres]
            places = wanted[key] = []
            for n, where in enumerate(rows.wheres):
                first, start, table = rows.positions[n] - where.frame, int(rows.starts[n]), rows.tables[n]
                places += [Place(where.episode, f, first + f, table, start + f) for f in chosen[n]]
        for key, found in self._pictures.read(wanted, as_float=as_float, to_send=to_send).items():
            size = frames[key].shape[1] if key in frames else 0
            if isinstance(found, np.ndarray):
                columns[key] = found.reshape(-1, size, *found.shape[1:]) if size else found
            else:
                parts = range(0, len(found), size) if size else range(0)
                columns[key] = [np.stack(found[n : n + size]) for n in parts] if size else found

    def _rows(self, where: Position) -> tuple[TableFile, int]:
        file = self._data_files[where.episode]
        table = self._store.get(file)
        first = self._starts[where.episode]
        start = table.starts.get(first)
        rows = len(table.numbers["index"])
        if (
            start is None
            or start + where.length > rows
            or table.numbers["index"][start + where.length - 1] != first + where.length - 1
        ):
            raise DatasetFormatError(
                f"Episode {where.episode} should be frames {first} to {first + where.length} in {table.path}, "
                f"but the table ({rows} rows) does not hold them."
            )
        return table, start

    def _task(self, number: int, where: Position) -> str:
        if not 0 <= number < len(self._tasks):
            raise DatasetFormatError(
                f"Episode {where.episode}, frame {where.frame} has task {number}; there are {len(self._tasks)} tasks."
            )
        return self._tasks[number]


def _texts(feature: Feature, rows: _Rows, wanted: Ints) -> list[Any]:
    """Return texts, or whatever else is no number, in rows (B,) or (B, T)."""
    columns = [table.others[feature.name] for table in rows.tables]
    if wanted.ndim == 1:
        return [read_cell(column[row]) for column, row in zip(columns, wanted.tolist(), strict=True)]
    pairs = zip(columns, wanted.tolist(), strict=True)
    return [[read_cell(column[row]) for row in some] for column, some in pairs]
