# SPDX-License-Identifier: Apache-2.0
"""Turns a finished episode into files, in the order that makes it durable. Takes no frames and starts no threads.

An episode becomes part of the dataset in one instant: when its row file appears in `meta/episodes`. Before that its
table and videos are already in place, whole and flushed to disk; counters and statistics follow and can be derived.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.errors import DatasetError
from ulna.core.files import atomic_path, fsync_dir, make_dirs, write_json
from ulna.data.arrow_schema import column_array, data_schema, table_columns
from ulna.data.dataset_stats import DatasetTotals
from ulna.data.episodes import EpisodeRow, VideoSpan, row_schema, write_rows
from ulna.data.features import Feature
from ulna.data.images import SpooledPictures
from ulna.data.info import write_tasks
from ulna.data.language import language_column
from ulna.data.layout import EPISODES_TEMPLATE, STATS_PATH, FileId
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.quantiles import EpisodeSketches
from ulna.data.reading_errors import readable
from ulna.data.sketch_files import SKETCHES_TEMPLATE, write_sketches
from ulna.data.stats import Stats, array_summary, stats_to_json
from ulna.data.timing import EpisodeTiming, log_timing
from ulna.data.video_codecs import VideoEncoderConfig
from ulna.data.video_encoding import EncodedVideo, probe_video

__all__ = ["EpisodeData", "EpisodeStore", "write_row_groups"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpisodeData:
    """A finished episode, not yet part of the dataset.

    Attributes:
        index: Its number.
        tasks: Task of each frame.
        values: Numbers and texts of each frame.
        cameras: Camera to its encoded pictures.
        timing: How fast it was recorded, if that is known.
    """

    index: int
    tasks: Sequence[str]
    values: Sequence[Mapping[str, Any]]
    cameras: Mapping[str, EncodedVideo | SpooledPictures]
    timing: EpisodeTiming | None = None


class EpisodeStore:
    """Writes the files of one dataset, one set an episode. Created by a recorder, which holds the dataset's lock.

    Args:
        meta: Metadata of the dataset; kept up to date.
        encoders: How the videos of each camera are encoded, for `info.json`.
    """

    def __init__(self, meta: LeRobotDatasetMetadata, encoders: Mapping[str, VideoEncoderConfig]) -> None:
        self.meta = meta
        self._encoders = encoders
        self._next_frame = meta.total_frames
        data, videos, row = meta.last_files()
        size = meta.info.chunks_size
        self._data = data.next(size) if data else FileId(0, 0)
        self._row = row.next(size) if row else FileId(0, 0)
        self._videos = {k: videos[k].next(size) if k in videos else FileId(0, 0) for k in meta.video_keys}
        self._placed: list[tuple[Path, Path]] = []
        self.remove_leftovers()
        self._row_schema = _existing_row_schema(meta)
        self._totals = DatasetTotals(meta)

    def remove_leftovers(self) -> None:
        """Remove the files of an episode whose storing was interrupted before it counted."""
        info, root = self.meta.info, self.meta.root
        self._data.path(root, info.data_path).unlink(missing_ok=True)
        for key, file in self._videos.items():
            file.path(root, info.video_template, key).unlink(missing_ok=True)
        self._row.path(root, SKETCHES_TEMPLATE).unlink(missing_ok=True)

    def store(self, episode: EpisodeData) -> None:
        """Make an episode part of the dataset. When this returns it survives any interruption.

        Args:
            episode: The episode.

        Raises:
            DatasetError: Its pictures and rows do not fit together.
            OSError: The disk is full or does not answer; the dataset and the episode's files are as they were before.
        """
        try:
            self._store(episode)
        except BaseException:
            while self._placed:
                was, now = self._placed.pop()
                now.replace(was)
            self.remove_leftovers()
            raise
        self._complete(episode)

    def _store(self, episode: EpisodeData) -> None:
        frames = len(episode.values)
        for name, camera in episode.cameras.items():
            if camera.frames != frames:
                raise DatasetError(
                    f"Episode {episode.index} has {frames} rows but {camera.frames} pictures of {name!r}."
                )
        tasks = dict(self.meta.tasks)
        for task in episode.tasks:
            tasks.setdefault(task, len(tasks))
        columns = self._columns(episode, tasks)
        stats, sketches = self._episode_stats(columns, episode.cameras)
        self._write_table(columns, episode.cameras)
        spans = {n: self._place_video(n, v) for n, v in episode.cameras.items() if isinstance(v, EncodedVideo)}
        distinct = tuple(dict.fromkeys(episode.tasks))
        row = EpisodeRow(episode.index, distinct, self._next_frame, frames, self._data, self._row, spans, stats)
        write_sketches(self.meta.root, self._row, {episode.index: sketches})
        self._commit(row, tasks)
        self._totals.add(stats, sketches)

    def _columns(self, episode: EpisodeData, tasks: Mapping[str, int]) -> dict[str, Any]:
        frames = len(episode.values)
        numbers = np.arange(frames, dtype=np.int64)
        columns: dict[str, Any] = {}
        for name, feature in self.meta.parsed_features.items():
            if not feature.is_default and not feature.is_camera:
                values = [row[name] for row in episode.values]
                if feature.dtype == "language":
                    values = language_column(name, values, self.meta.fps)
                columns[name] = np.stack(values) if feature.is_numeric else values
        columns["timestamp"] = (numbers / self.meta.fps).astype(np.float32)
        columns["frame_index"] = numbers
        columns["episode_index"] = np.full(frames, episode.index, dtype=np.int64)
        columns["index"] = numbers + self._next_frame
        columns["task_index"] = np.array([tasks[t] for t in episode.tasks], dtype=np.int64)
        return columns

    def _episode_stats(self, columns: Mapping[str, Any], cameras: Mapping[str, Any]) -> tuple[Stats, EpisodeSketches]:
        stats: Stats = {}
        sketches: EpisodeSketches = {}
        for name, feature in self.meta.parsed_features.items():
            if feature.is_camera:
                stats[name], sketches[name] = cameras[name].stats, cameras[name].sketch
            elif feature.is_numeric:
                stats[name], sketches[name] = array_summary(columns[name])
        return stats, sketches

    def _write_table(self, columns: Mapping[str, Any], cameras: Mapping[str, Any]) -> None:
        features, path = self.meta.parsed_features, self._data.path(self.meta.root, self.meta.info.data_path)
        arrays = [
            cameras[f.name].column() if f.dtype == "image" else column_array(f, columns[f.name])
            for f in table_columns(features)
        ]
        write_row_groups(path, [pa.table(arrays, schema=data_schema(features))], features)

    def _place_video(self, key: str, video: EncodedVideo) -> VideoSpan:
        meta, file = self.meta, self._videos[key]
        feature = meta.info.features[key]
        declared = feature.extra.get("info") or {}
        if "video.codec" not in declared:
            described = {**declared, **probe_video(video.path, self._encoders[key])}
            meta.info.features[key] = replace(feature, extra={**feature.extra, "info": described})
        target = file.path(meta.root, meta.info.video_template, key)
        make_dirs(target.parent)
        with video.path.open("rb+") as written:
            os.fsync(written.fileno())
        video.path.replace(target)
        self._placed.append((video.path, target))
        fsync_dir(target.parent)
        return VideoSpan(file, 0.0, video.frames / meta.fps)

    def _commit(self, row: EpisodeRow, tasks: dict[str, int]) -> None:
        meta, size = self.meta, self.meta.info.chunks_size
        if tasks != meta.tasks:
            write_tasks(meta.root, tasks)
            meta.tasks = tasks
        columns = row.to_columns()
        schema = self._row_schema or row_schema(columns, meta.parsed_features)
        write_rows(row.row.path(meta.root, EPISODES_TEMPLATE), [columns], schema)
        self._row_schema = schema
        self._placed.clear()
        meta.append(row)
        self._next_frame += row.length
        self._data, self._row = self._data.next(size), self._row.next(size)
        self._videos = {key: file.next(size) for key, file in self._videos.items()}

    def _complete(self, episode: EpisodeData) -> None:
        """Write what can be derived or is not vital; the episode is stored already, so a full disk must not deny it."""
        timing, fps = episode.timing, self.meta.fps
        if timing is not None and timing.differs_from(fps):
            logger.warning(
                "Episode %d ran at %.1f Hz, and the dataset says %d: its timestamps differ from the truth by as much.",
                episode.index,
                timing.measured_fps,
                fps,
            )
        try:
            if timing is not None:
                log_timing(self.meta.root, episode.index, fps, timing)
            self.write_totals()
        except OSError as error:
            logger.warning(
                "Episode %d is stored, but counters and statistics could not be brought up to it: %s. "
                "The next episode or finalize() does that.",
                episode.index,
                error,
            )

    def write_totals(self) -> None:
        """Bring `stats.json` and `info.json` up to the episodes that are durable."""
        meta, info = self.meta, self.meta.info
        stats = self._totals.stats
        if stats is not None:
            write_json(meta.root / STATS_PATH, stats_to_json(stats))
            meta.recorded_stats = stats
        info.total_episodes, info.total_frames, info.total_tasks = (
            meta.total_episodes,
            self._next_frame,
            len(meta.tasks),
        )
        info.splits = {"train": f"0:{info.total_episodes}"} if info.total_episodes else {}
        info.save(meta.root)


def write_row_groups(path: Path, tables: Iterable[pa.Table], features: Mapping[str, Feature]) -> int:
    """Write tables to one data parquet atomically, each as a row group of its own.

    Args:
        path: The file.
        tables: Tables of single episodes, all of one schema; may be a generator.
        features: All features of the dataset.

    Returns:
        Number of rows written.
    """
    # Dictionary pages are kept in memory until the row group ends: with pictures that would be the whole episode.
    dictionary = all(f.dtype != "image" for f in features.values())
    rows, writer = 0, None
    with atomic_path(path) as temporary:
        try:
            for table in tables:
                if writer is None:
                    writer = pq.ParquetWriter(temporary, table.schema, compression="snappy", use_dictionary=dictionary)
                writer.write_table(table, row_group_size=max(len(table), 1))
                rows += len(table)
        finally:
            if writer is not None:
                writer.close()
    return rows


def _existing_row_schema(meta: LeRobotDatasetMetadata) -> pa.Schema | None:
    """Return the schema of the newest episode file; LeRobot reads only files of equal schemas together."""
    files = sorted((meta.root / "meta/episodes").glob("chunk-*/file-*.parquet"))
    if not files or not meta.total_episodes:
        return None
    with readable(files[-1]):
        return pq.read_schema(files[-1])
