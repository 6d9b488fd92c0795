# SPDX-License-Identifier: Apache-2.0
"""The working part of a stream: fetches files, reads frames piece by piece, and gives them in the order wanted.

Made for one pass of one reader. It holds the episodes that are open, the frames that wait in the buffer, and, of a
dataset that lies elsewhere, copies of a bounded number of files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ulna.core.errors import DatasetFormatError, FrameTimestampError, UlnaError
from ulna.data.depth import DepthUnit
from ulna.data.episode_rows import EpisodeRows
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.reader import DatasetReader
from ulna.data.remote import LocalCopies, RemoteFiles
from ulna.data.streaming_order import Segment, ShuffleBuffer, groups, runs
from ulna.data.video_backends import BackendName
from ulna.data.video_decoding import decoder_pool

__all__ = ["FrameSource"]

Item = dict[str, Any]
OnFailure = Callable[[UlnaError], None]


class FrameSource:
    """Reads frames of one pass. Created and closed by the stream; for one thread.

    Args:
        meta: Metadata of the dataset.
        episodes: Episodes that are opened; None opens all.
        delta_timestamps: Feature to time differences in seconds.
        tolerance_s: Allowed deviation of times.
        depth_output_unit: Unit of depth maps.
        lanes: Episodes, and files of each kind, that are open at once.
        backend: What decodes colour videos.
        on_failure: Told of each frame that cannot be read; it raises, or the frame is left out.

    Raises:
        DatasetError: An episode or feature does not exist.
        DatasetFormatError: A selected episode has a broken file.
    """

    def __init__(
        self,
        meta: LeRobotDatasetMetadata,
        episodes: Sequence[int] | None,
        delta_timestamps: Mapping[str, Sequence[float]] | None,
        tolerance_s: float,
        depth_output_unit: DepthUnit,
        *,
        lanes: int,
        backend: BackendName = "pyav",
        on_failure: OnFailure,
    ) -> None:
        self._meta, self._lanes, self._on_failure = meta, lanes, on_failure
        self._rows = EpisodeRows(meta.root, meta.info.data_path, meta.parsed_features, lanes + 1)
        self._reader = DatasetReader(
            meta, episodes, delta_timestamps, tolerance_s, depth_output_unit, store=self._rows, backend=backend
        )
        self._held: dict[int, Item | None] = {}
        self._copies: LocalCopies | None = None
        self._sizes: Mapping[str, int] = {}
        self._most_bytes = 0

    def fetch_from(self, files: RemoteFiles, most_bytes: int) -> None:
        """Fetch files into the folder of the metadata when they are needed, and remove them afterwards.

        Args:
            files: Where they come from.
            most_bytes: Most disk space for them, unless a single episode needs more.
        """
        self._copies = LocalCopies(files, self._meta.root)
        # Half of the space is for the files that are fetched ahead.
        self._sizes, self._most_bytes = files.sizes(), most_bytes // 2

    def close(self) -> None:
        """Remove copied files. Idempotent."""
        self._held.clear()
        if self._copies is not None:
            self._copies.close()
            decoder_pool().forget(self._meta.root)

    def frames(
        self, segments: Iterable[Segment], capacity: int, random: np.random.Generator | None, start: int
    ) -> Iterator[Item]:
        """Read frames.

        Args:
            segments: What to read, in the order of shards.
            capacity: Frames in the buffer.
            random: Mixes them; None keeps the order.
            start: Frames at the beginning that are left out without being read.

        Yields:
            Items of numpy arrays.

        Raises:
            DatasetError: Files cannot be fetched, or what `on_failure` raises.
        """
        buffer = ShuffleBuffer(capacity, random)
        passed = 0
        grouped = groups(segments, self._lanes, self._files_of if self._copies else None, self._most_bytes)
        for group, following in _with_next(grouped):
            if start - passed < sum(s.stop - s.start for s in group) + len(buffer.waiting):
                self._fetch(group, following)
            for run in runs(group, self._lanes, random):
                out = [position for position in map(buffer.push, run) if position is not None]
                yield from self._give(out, start - passed, buffer.waiting)
                passed += len(out)
        yield from self._give(buffer.rest(), start - passed, ())

    def _give(self, out: Sequence[int], leave_out: int, waiting: Sequence[int]) -> Iterator[Item]:
        if leave_out > 0 and leave_out >= len(out):
            return
        wanted = out[max(leave_out, 0) :]
        self._read([position for position in (*wanted, *waiting) if position not in self._held])
        for position in wanted:
            item = self._held.pop(position)
            if item is not None:
                yield item

    def _read(self, positions: Sequence[int]) -> None:
        locate = self._reader.index.locate
        for episode, part in groupby(sorted(positions), key=lambda position: locate(position).episode):
            if self._copies is not None:
                self._copies.need(self._episode_files(episode))
            row = self._meta.episodes
            self._rows.select(int(row.starts[episode]), int(row.lengths[episode]))
            neighbours = list(part)
            try:
                self._held.update(zip(neighbours, map(_on_its_own, self._reader.items(neighbours)), strict=True))
            except UlnaError:
                for position in neighbours:
                    self._held[position] = self._one(position)

    def _one(self, position: int) -> Item | None:
        """Read a frame of which a neighbour, or itself, cannot be read."""
        try:
            return self._reader.items([position])[0]
        except UlnaError as error:
            where = self._reader.index.locate(position)
            kind = FrameTimestampError if isinstance(error, FrameTimestampError) else DatasetFormatError
            place = f"Episode {where.episode}, frame {where.frame}"
            message = error.message if error.message.startswith(place) else f"{place}: {error.message}"
            failure = kind(message, hint=error.hint)
            failure.__cause__ = error
            self._on_failure(failure)
            return None

    def _fetch(self, group: Sequence[Segment], following: Sequence[Segment] | None) -> None:
        if self._copies is None:
            return
        now = {path for segment in group for path in self._files_of(segment)}
        gone = self._copies.keep_only(now)
        for path in gone:
            decoder_pool().forget(self._meta.root / path)
        self._copies.prefetch(now)
        self._copies.prefetch(path for segment in following or () for path in self._files_of(segment))

    def _files_of(self, segment: Segment) -> dict[str, int]:
        return {path: self._sizes.get(path, 0) for path in self._episode_files(segment.episode)}

    def _episode_files(self, episode: int) -> list[str]:
        table, info, here = self._meta.episodes, self._meta.info, Path()
        data = table.data_files[episode].path(here, info.data_path)
        videos = [files[episode].path(here, info.video_template, key) for key, files in table.video_files.items()]
        return [path.as_posix() for path in (data, *videos)]


def _on_its_own(item: Item) -> Item:
    """Copy arrays that are parts of larger ones: a frame that waits would keep all its neighbours in memory."""
    return {
        name: value.copy() if isinstance(value, np.ndarray) and value.base is not None else value
        for name, value in item.items()
    }


def _with_next(things: Iterable[list[Segment]]) -> Iterator[tuple[list[Segment], list[Segment] | None]]:
    remaining = iter(things)
    now = next(remaining, None)
    while now is not None:
        following = next(remaining, None)
        yield now, following
        now = following
