# SPDX-License-Identifier: Apache-2.0
"""Reads items: rows by offset, windows with padding masks, pictures from tables and videos. Numpy only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetFormatError, FrameTimestampError
from ulna.data.depth import DepthUnit, depth_codecs
from ulna.data.features import Feature
from ulna.data.images import decode_depth, decode_picture
from ulna.data.index import FrameIndex, Position, windows
from ulna.data.layout import FileId
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.table_store import TableFile, TableStore
from ulna.data.video_decoding import PictureLayout, decoder_pool

__all__ = ["DatasetReader"]

Item = dict[str, Any]


class DatasetReader:
    """Reads one dataset or some of its episodes. Created by `LeRobotDataset`; immutable; may be pickled.

    Args:
        meta: Metadata of the dataset.
        episodes: Episodes to read, as a set; None reads all.
        delta_timestamps: Feature to time differences in seconds.
        tolerance_s: Allowed deviation of times.
        depth_output_unit: Unit of depth maps that are read.
        store: Where rows come from; by default whole data files are opened when first needed.

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
    ) -> None:
        table = meta.episodes
        self.meta = meta
        self.index = FrameIndex(table.starts, table.lengths, episodes)
        self.tolerance_s = tolerance_s
        self._refuse_broken()
        self._features = meta.parsed_features
        self._depth, self._depth_unit = depth_codecs(self._features), depth_output_unit
        self._windows = windows(delta_timestamps, self._features, meta.fps, tolerance_s)
        self._data_files = table.data_files
        self._video_files = table.video_files
        self._video_keys = meta.video_keys
        self._video_starts = {key: starts.tolist() for key, starts in table.video_starts.items()}
        self._starts = table.starts.tolist()
        self._tasks = list(meta.tasks)
        self._store = store or TableStore(meta.root, meta.info.data_path, self._features)
        self._numeric = [f for f in self._features.values() if f.is_numeric]
        self._dtypes = {f.name: f.item_dtype for f in self._numeric}
        self._shapes = {f.name: f.item_shape for f in self._numeric}
        self._others = [f for f in self._features.values() if not f.is_numeric and f.dtype != "video"]

    def _refuse_broken(self) -> None:
        broken = [e for e in self.index.episodes if e in self.meta.broken]
        if broken:
            whole = [e for e in self.index.episodes if e not in self.meta.broken]
            raise DatasetFormatError(
                f"{len(broken)} of the selected episodes cannot be read: "
                f"episode {broken[0]}: {self.meta.broken[broken[0]]}.",
                hint=f"Restore the file, or open the others only: episodes={whole if len(whole) < 20 else '[...]'}.",
            )

    def __len__(self) -> int:
        return len(self.index)

    def items(self, positions: Sequence[int]) -> list[Item]:
        """Return several items, see `item`.

        Args:
            positions: Positions in the opened dataset, in any order.

        Returns:
            One item for each position.

        Raises:
            IndexError: Beyond the end.
            FrameTimestampError: A video has no frame at the time; episode, frame and file are named.
            DatasetFormatError: A file contradicts the metadata.
        """
        return [self.item(position) for position in positions]

    def raw_item(self, position: int) -> Item:
        """Return one row of the table: no videos, no windows, pictures decoded.

        Args:
            position: Position in the opened dataset.
        """
        where = self.index.locate(position)
        table, start = self._rows(where)
        row = start + where.frame
        item: Item = {f.name: table.numbers[f.name][row].astype(self._dtypes[f.name]) for f in self._numeric}
        for feature in self._others:
            item[feature.name] = self._other(feature, table, row)
        return item

    def item(self, position: int) -> Item:
        """Return one item: pictures uint8 with channels first, depth maps float32, numbers of the dtype LeRobot reads.

        Args:
            position: Position in the opened dataset.

        Returns:
            Feature to array or text, `<feature>_is_pad` for each window, and `task`.

        Raises:
            IndexError: Beyond the end.
            FrameTimestampError: A video has no frame at the time; episode, frame and file are named.
            DatasetFormatError: A file contradicts the metadata.
        """
        where = self.index.locate(position)
        table, start = self._rows(where)
        row, wins, numbers, dtypes = start + where.frame, self._windows, table.numbers, self._dtypes
        item: Item = {}
        for name, dtype in dtypes.items():
            if name not in wins:
                # A slice keeps scalars arrays; astype copies, so nobody can write into the cached column.
                item[name] = numbers[name][row : row + 1].astype(dtype).reshape(self._shapes[name])
        for feature in self._others:
            if feature.name not in wins:
                item[feature.name] = self._other(feature, table, row)
        frames = {}
        for name, window in wins.items():
            frames[name], item[f"{name}_is_pad"] = window.frames(where.frame, where.length)
            self._window_values(item, name, table, start + frames[name])
        self._add_videos(item, where, frames)
        task = int(numbers["task_index"][row])
        item["task"] = self._task(task, where)
        return item

    def _window_values(self, item: Item, name: str, table: TableFile, rows: npt.NDArray[np.int64]) -> None:
        feature = self._features[name]
        if feature.is_numeric:
            item[name] = table.numbers[name][rows].astype(self._dtypes[name])
        elif feature.dtype == "image":
            decoded = {row: self._other(feature, table, row) for row in dict.fromkeys(rows.tolist())}
            item[name] = np.stack([decoded[row] for row in rows.tolist()])
        elif feature.dtype != "video":
            item[name] = [self._other(feature, table, row) for row in rows.tolist()]

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

    def _other(self, feature: Feature, table: TableFile, row: int) -> Any:
        value = table.others[feature.name][row]
        if feature.dtype != "image":
            return value.as_py()
        where = f"{table.path}: {feature.name!r} in row {row}"
        codec = self._depth.get(feature.name)
        if codec is None:
            return decode_picture(value.as_buffer(), where)
        return codec.decode(decode_depth(value.as_buffer(), where), self._depth_unit)

    def _add_videos(self, item: Item, where: Position, frames: Mapping[str, npt.NDArray[np.int64]]) -> None:
        keys = self._video_keys
        if not keys:
            return
        if len(keys) > 1 and not _in_worker():
            results = list(_threads().map(lambda key: self._video(key, where, frames.get(key)), keys))
        else:
            results = [self._video(key, where, frames.get(key)) for key in keys]
        item.update(zip(keys, results, strict=True))

    def _video(self, key: str, where: Position, frames: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
        path = self._video_path(key, self._video_files[key][where.episode])
        first = self._video_starts[key][where.episode]
        wanted = [where.frame] if frames is None else frames.tolist()
        codec = self._depth.get(key)
        layout: PictureLayout = "rgb" if codec is None else "gray16"
        try:
            pictures = decoder_pool().read(path, [first + f / self.meta.fps for f in wanted], self.tolerance_s, layout)
        except FrameTimestampError as error:
            raise FrameTimestampError(
                f"Episode {where.episode}, frame {where.frame}, camera {key!r}: "
                f"{error.message} (tolerance {self.tolerance_s} s)."
            ) from error
        if codec is not None:
            pictures = codec.decode(pictures, self._depth_unit)
        return pictures[0] if frames is None else pictures

    def _video_path(self, key: str, file: FileId) -> Path:
        return file.path(self.meta.root, self.meta.info.video_template, key)


_pool: tuple[int, ThreadPoolExecutor] | None = None


def _threads() -> ThreadPoolExecutor:
    """Return the decoding threads of this process; a forked one makes its own."""
    global _pool
    if _pool is None or _pool[0] != os.getpid():
        _pool = (os.getpid(), ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="decode"))
    return _pool[1]


def _in_worker() -> bool:
    """Whether this process is a worker of a torch DataLoader, whose siblings use the other cores."""
    import sys

    torch_data = sys.modules.get("torch.utils.data")
    return torch_data is not None and torch_data.get_worker_info() is not None
