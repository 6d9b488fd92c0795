# SPDX-License-Identifier: Apache-2.0
"""Records episodes: takes frames, encodes pictures while recording, and makes each finished episode durable on its own.

An episode becomes part of the dataset in one instant: when its row file appears in `meta/episodes`. Before that its
table and videos are already in place, whole and flushed to disk; counters and statistics follow and can be derived from it.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.errors import DatasetError
from ulna.core.files import atomic_path, fsync_dir, write_json
from ulna.data.arrow_schema import column_array, data_schema, table_columns
from ulna.data.episodes import EpisodeRow, VideoSpan, read_stats, row_schema, write_rows
from ulna.data.features import Feature
from ulna.data.frames import CheckedFrame, FrameChecker
from ulna.data.images import PictureSpool, SpooledPictures
from ulna.data.info import write_tasks
from ulna.data.layout import EPISODES_TEMPLATE, STATS_PATH, FileId
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.stats import Stats, aggregate_stats, array_stats, merge_into, stats_to_json
from ulna.data.video_encoding import EncodedVideo, RGBEncoderConfig, VideoEncoder, probe_video, try_encoder
from ulna.data.workspace import Workspace

__all__ = ["Recorder", "RecorderSettings"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecorderSettings:
    """How to record.

    Attributes:
        encoder: Video settings.
        queue_size: Frames that may wait for each camera's encoder.
        when_full: `block` slows the caller until there is room; `drop` refuses the whole frame, row and pictures.
    """

    encoder: RGBEncoderConfig = field(default_factory=RGBEncoderConfig)
    queue_size: int = 30
    when_full: Literal["block", "drop"] = "block"


@dataclass
class _Episode:
    """An episode between its first frame and its storing."""

    index: int
    folder: Path
    workers: dict[str, VideoEncoder | PictureSpool]
    tasks: list[str] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)

    def end(self) -> None:
        for worker in self.workers.values():
            worker.end()

    def discard(self) -> None:
        for worker in self.workers.values():
            worker.abort()
        shutil.rmtree(self.folder, ignore_errors=True)


class Recorder:
    """Writes one dataset. Created by `LeRobotDataset.create` or `resume`, ended by `close`; used by one thread.

    Args:
        meta: Metadata of the dataset; the recorder keeps it up to date.
        settings: How to record.

    Raises:
        DatasetError: Another process is recording into the dataset, or a camera cannot be encoded with these settings.
    """

    def __init__(self, meta: LeRobotDatasetMetadata, settings: RecorderSettings) -> None:
        self.meta = meta
        self.settings = settings
        self.dropped_frames = 0
        self.workspace = Workspace(meta.root)
        if not self.workspace.lock():
            raise DatasetError(
                f"Another recorder has {meta.root} open.", hint="Finish or stop that recording first, then try again."
            )
        try:
            self._prepare()
        except BaseException:
            self.workspace.unlock()
            raise
        self._checker = FrameChecker(meta.parsed_features)
        self._current: _Episode | None = None
        self._storing: deque[tuple[_Episode, threading.Thread]] = deque()
        self._failure: BaseException | None = None
        self.closed = False

    def _prepare(self) -> None:
        meta, workspace = self.meta, self.workspace
        workspace.replay()
        workspace.clear_staging()
        mark = workspace.mark()
        self.next_episode, self._next_frame = meta.total_episodes, meta.total_frames
        self.first_episode = min(mark.first_episode, self.next_episode) if mark else self.next_episode
        data, videos, row = meta.last_files()
        size = meta.info.chunks_size
        self._data = data.next(size) if data else FileId(0, 0)
        self._row = row.next(size) if row else FileId(0, 0)
        self._videos = {k: videos[k].next(size) if k in videos else FileId(0, 0) for k in meta.video_keys}
        self._remove_leftovers()
        self._row_schema = _existing_row_schema(meta)
        self._stats = self._whole_stats()
        workspace.set_mark(self.first_episode)
        workspace.staging.mkdir(parents=True, exist_ok=True)
        for name, feature in meta.parsed_features.items():
            if feature.dtype == "video":
                path = workspace.staging / "try.mp4"
                try_encoder(path, self.settings.encoder, meta.fps, feature.hwc, name)

    def _remove_leftovers(self) -> None:
        """Remove files of an episode whose storing was interrupted before it counted."""
        info, root = self.meta.info, self.meta.root
        self._data.path(root, info.data_path).unlink(missing_ok=True)
        for key, file in self._videos.items():
            file.path(root, info.video_template, key).unlink(missing_ok=True)

    def _whole_stats(self) -> Stats | None:
        """Return the statistics on disk, or combine them anew when an interruption left them behind the episodes."""
        meta = self.meta
        counted = int(meta.stats["index"]["count"][0]) if meta.stats and "index" in meta.stats else None
        if counted == meta.total_frames or meta.total_episodes == 0 or (meta.stats and counted is None):
            return meta.stats if meta.total_episodes else None
        rows = (meta.episodes.row(i) for i in range(meta.total_episodes))
        parts = [read_stats(meta.root, row.row, EPISODES_TEMPLATE, row.index) for row in rows]
        return aggregate_stats(parts)

    @property
    def has_pending_frames(self) -> bool:
        """Whether frames were added since the last episode was saved or discarded."""
        return self._current is not None

    @property
    def frames_waiting(self) -> int:
        """Length of the longest encoder queue."""
        return max((w.waiting for w in self._current.workers.values()), default=0) if self._current else 0

    def add(self, frame: Mapping[str, Any]) -> bool:
        """Take one frame.

        Args:
            frame: Feature name to value, and `task`.

        Returns:
            False when the frame was dropped because an encoder's queue was full.

        Raises:
            FeatureError: The frame does not fit the features; nothing of it is stored.
            DatasetError: The recording is closed, or storing something failed.
        """
        self._check()
        checked = self._checker.check(frame)
        if self._current is None:
            self._current = self._begin()
        episode = self._current
        for worker in episode.workers.values():
            worker.check()
        if self.settings.when_full == "drop" and not all(w.has_room for w in episode.workers.values()):
            self.dropped_frames += 1
            logger.warning("A frame was dropped (%d so far): encoding is slower than recording.", self.dropped_frames)
            return False
        self._store_frame(episode, checked)
        return True

    def _store_frame(self, episode: _Episode, frame: CheckedFrame) -> None:
        for name, worker in episode.workers.items():
            worker.put(frame.pictures[name])
        episode.values.append(frame.values)
        episode.tasks.append(frame.task)

    def _begin(self) -> _Episode:
        folder = self.workspace.episode_folder(self.next_episode)
        size, fps, config = self.settings.queue_size, self.meta.fps, self.settings.encoder
        workers: dict[str, VideoEncoder | PictureSpool] = {}
        for name, feature in self.meta.parsed_features.items():
            if feature.dtype == "video":
                workers[name] = VideoEncoder(folder / f"{name}.mp4", config, fps, feature.hwc, size, name)
            elif feature.dtype == "image":
                workers[name] = PictureSpool(folder / f"{name}.pictures", feature.hwc, size, name)
        return _Episode(self.next_episode, folder, workers)

    def save(self, *, wait: bool = True) -> None:
        """End the episode and store it.

        Args:
            wait: Whether to return only when it is durable. Else it is stored in the background, in order, and
                the next episode can begin at once; a failure is raised by the next call.

        Raises:
            DatasetError: There is no frame, or storing failed; the episode is discarded then.
        """
        self._check()
        if self._current is None:
            raise DatasetError("There is no frame to save; add_frame() must come first.")
        episode, self._current = self._current, None
        self.next_episode += 1
        episode.end()
        before = self._storing[-1][1] if self._storing else None
        thread = threading.Thread(
            target=self._store_in_turn, args=(episode, before), name=f"store episode {episode.index}"
        )
        self._storing.append((episode, thread))
        thread.start()
        if wait:
            self.flush()

    def flush(self) -> None:
        """Wait until every saved episode is durable.

        Raises:
            DatasetError: Storing one failed; it and those after it are discarded.
        """
        while self._storing:
            self._storing[0][1].join()
            self._storing.popleft()
        self._raise_failure()

    def _check(self) -> None:
        if self.closed:
            raise DatasetError(
                "This recording is closed.", hint="Open the dataset with LeRobotDataset.resume() to add to it."
            )
        while self._storing and not self._storing[0][1].is_alive():
            self._storing.popleft()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        while self._storing:
            self._storing.popleft()[1].join()
        failure, self._failure = self._failure, None
        self.discard()
        self.next_episode = self.meta.total_episodes
        if isinstance(failure, DatasetError):
            raise failure
        raise DatasetError(
            f"Episode {self.next_episode} could not be stored: {failure}",
            hint=f"The {self.next_episode} episodes before it are safe; recording goes on at {self.next_episode}.",
        ) from failure

    def _store_in_turn(self, episode: _Episode, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        if self._failure is not None:
            episode.discard()
            return
        try:
            self._store(episode)
        except Exception as error:  # noqa: BLE001 - kept and raised in the caller's thread
            self._failure = error
            episode.discard()

    def _store(self, episode: _Episode) -> None:
        results = {name: worker.finish() for name, worker in episode.workers.items()}
        frames = len(episode.values)
        for name, result in results.items():
            if result.frames != frames:
                raise DatasetError(
                    f"Episode {episode.index} has {frames} rows but {result.frames} pictures of {name!r}."
                )
        tasks = dict(self.meta.tasks)
        for task in episode.tasks:
            tasks.setdefault(task, len(tasks))
        columns = self._columns(episode, tasks)
        stats = {n: array_stats(c) for n, c in columns.items() if self.meta.parsed_features[n].is_numeric}
        stats.update({name: result.stats for name, result in results.items()})
        stats = {n: stats[n] for n in self.meta.parsed_features if n in stats}
        pictures = {n: r for n, r in results.items() if isinstance(r, SpooledPictures)}
        videos = {n: r for n, r in results.items() if isinstance(r, EncodedVideo)}
        self._write_table(columns, pictures)
        spans = {name: self._place_video(name, video) for name, video in videos.items()}
        row = EpisodeRow(
            episode.index,
            tuple(dict.fromkeys(episode.tasks)),
            self._next_frame,
            frames,
            self._data,
            self._row,
            spans,
            stats,
        )
        self._commit(row, tasks)
        shutil.rmtree(episode.folder, ignore_errors=True)

    def _columns(self, episode: _Episode, tasks: Mapping[str, int]) -> dict[str, Any]:
        frames = len(episode.values)
        numbers = np.arange(frames, dtype=np.int64)
        columns: dict[str, Any] = {}
        for name, feature in self.meta.parsed_features.items():
            if feature.is_default or feature.is_camera:
                continue
            values = [row[name] for row in episode.values]
            columns[name] = np.stack(values) if feature.is_numeric else values
        columns["timestamp"] = (numbers / self.meta.fps).astype(np.float32)
        columns["frame_index"] = numbers
        columns["episode_index"] = np.full(frames, episode.index, dtype=np.int64)
        columns["index"] = numbers + self._next_frame
        columns["task_index"] = np.array([tasks[t] for t in episode.tasks], dtype=np.int64)
        return columns

    def _write_table(self, columns: Mapping[str, Any], pictures: Mapping[str, SpooledPictures]) -> None:
        features, path = self.meta.parsed_features, self._data.path(self.meta.root, self.meta.info.data_path)
        arrays = [
            pictures[f.name].column() if f.dtype == "image" else column_array(f, columns[f.name])
            for f in table_columns(features)
        ]
        table = pa.table(arrays, schema=data_schema(features))
        write_row_groups(path, [table], features)

    def _place_video(self, key: str, video: EncodedVideo) -> VideoSpan:
        meta, file = self.meta, self._videos[key]
        feature = meta.info.features[key]
        if "video.codec" not in (feature.extra.get("info") or {}):
            described = {**(feature.extra.get("info") or {}), **probe_video(video.path, self.settings.encoder)}
            meta.info.features[key] = replace(feature, extra={**feature.extra, "info": described})
        target = file.path(meta.root, meta.info.video_template, key)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(video.path, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(video.path, target)
        fsync_dir(target.parent)
        return VideoSpan(file, 0.0, video.frames / meta.fps)

    def _commit(self, row: EpisodeRow, tasks: dict[str, int]) -> None:
        meta = self.meta
        if tasks != meta.tasks:
            write_tasks(meta.root, tasks)
            meta.tasks = tasks
        columns = row.to_columns()
        schema = self._row_schema or row_schema(columns, meta.parsed_features)
        write_rows(row.row.path(meta.root, EPISODES_TEMPLATE), [columns], schema)
        self._row_schema = schema
        meta.append(row)
        size = meta.info.chunks_size
        self._next_frame += row.length
        self._data, self._row = self._data.next(size), self._row.next(size)
        self._videos = {key: file.next(size) for key, file in self._videos.items()}
        self._stats = merge_into(self._stats, [row.stats])
        self.write_totals()

    def write_totals(self) -> None:
        """Bring `stats.json` and `info.json` up to the episodes that are durable."""
        meta, info = self.meta, self.meta.info
        if self._stats is not None:
            write_json(meta.root / STATS_PATH, stats_to_json(self._stats))
            meta.stats = self._stats
        info.total_episodes, info.total_frames, info.total_tasks = (
            meta.total_episodes,
            self._next_frame,
            len(meta.tasks),
        )
        info.splits = {"train": f"0:{info.total_episodes}"} if info.total_episodes else {}
        info.save(meta.root)

    def discard(self) -> None:
        """Forget the frames since the last saved episode. Leaves nothing on disk; safe at any time."""
        if self._current is not None:
            episode, self._current = self._current, None
            episode.discard()

    def close(self, compact: Callable[[Recorder], None] | None = None) -> None:
        """Discard what was not saved, wait for what was, and give the folder free. Idempotent.

        Args:
            compact: Called when everything is durable, to join the files of single episodes.

        Raises:
            DatasetError: Storing an episode, or compacting, failed.
        """
        if self.closed:
            return
        self.discard()
        try:
            self.flush()
            self._remove_leftovers()
            self.write_totals()
            if compact is not None and self.meta.total_episodes > self.first_episode:
                compact(self)
        except BaseException:
            self.closed = True
            self.workspace.clear_staging()
            self.workspace.unlock()
            raise
        self.closed = True
        self.workspace.remove()


def write_row_groups(path: Path, tables: Any, features: Mapping[str, Feature]) -> int:
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
    rows = 0
    with atomic_path(path) as temporary:
        writer = None
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
    """Return the schema of the newest episode file, which further files must share for LeRobot to read them together."""
    files = sorted((meta.root / "meta/episodes").glob("chunk-*/file-*.parquet"))
    return pq.read_schema(files[-1]) if files and meta.total_episodes else None
