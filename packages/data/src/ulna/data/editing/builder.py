# SPDX-License-Identifier: Apache-2.0
"""Writes whole new datasets: into a hidden folder first, which gets its name when everything in it is on disk."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.errors import DatasetError
from ulna.core.files import fsync_dir, write_json, write_text
from ulna.data.arrow_schema import data_schema
from ulna.data.editing.block_sketches import block_sketches
from ulna.data.editing.blocks import EpisodeBlock, NewEpisode, VideoPiece
from ulna.data.editing.measuring import camera_summary
from ulna.data.editing.places import carry_side_files
from ulna.data.editing.replacement import building_folder, flush_tree, replace_dataset
from ulna.data.editing.stats_columns import RENUMBERED, differ, fill_stats, index_stats, stats_of
from ulna.data.editing.table_shards import TableShards, conform
from ulna.data.editing.video_shards import write_videos
from ulna.data.episodes import VideoSpan
from ulna.data.info import DatasetInfo, write_tasks
from ulna.data.layout import EPISODES_TEMPLATE, STATS_PATH, FileId
from ulna.data.quantiles import EpisodeSketches
from ulna.data.sketch_files import write_sketches
from ulna.data.sketches import merged_stats
from ulna.data.stats import Stats, stats_to_json
from ulna.data.timing import RECORDING_LOG

__all__ = ["DatasetBuilder", "NewEpisode", "VideoPiece", "replace_dataset"]

logger = logging.getLogger(__name__)

_MB = 1024 * 1024
_ROWS_A_FILE = 2000


class DatasetBuilder:
    """Builds one dataset from episodes. Used by one thread; ended by `finish` or `abandon`, or as a `with` block.

    Episodes, frames, tasks and files are numbered anew, in the order in which episodes are added. Until `finish` the
    target does not exist; then it is whole.

    Args:
        target: Folder of the new dataset; it must not exist, or be empty.
        info: What the dataset shall be; its counters and splits are set by the builder, and it is not changed.
        tasks: Texts that get the first task numbers, whether they are used or not. Others follow in order of
            appearance.
        keep_videos: Whether episodes of different old video files never share a new one.
        whole_stats: Statistics of all episodes together, for a result that has the same episodes as its source. They
            are used for features of which the episodes alone do not tell everything.
        keep_tables: Whether episodes of different old table files never share a new one, and those of one always do.

    Raises:
        DatasetError: The target exists.
    """

    def __init__(
        self,
        target: Path,
        info: DatasetInfo,
        *,
        tasks: Sequence[str] = (),
        keep_videos: bool = False,
        keep_tables: bool = False,
        whole_stats: Stats | None = None,
    ) -> None:
        self.target = Path(target).absolute()
        if self.target.exists() and (not self.target.is_dir() or any(self.target.iterdir())):
            raise DatasetError(f"{self.target} exists already.", hint="Choose another folder, or remove this one.")
        self.info = replace(info, total_episodes=0, total_frames=0, total_tasks=0, splits={})
        self.tasks = {task: number for number, task in enumerate(dict.fromkeys(tasks))}
        self._keep_videos, self._keep_tables = keep_videos, keep_tables
        self._whole_stats = whole_stats or {}
        self._schema = data_schema(info.features)
        self._owned = building_folder(self.target)
        self._folder = self._owned.path
        self._shards = TableShards(
            self._folder,
            info.data_path,
            self._schema,
            math.inf if keep_tables else info.data_files_size_in_mb * _MB,
            info.chunks_size,
            dictionary=all(f.dtype != "image" for f in info.features.values()),
        )
        self._source: Path | None = None
        self._files: list[FileId] = []
        self._lengths: list[int] = []
        self._episode_tasks: list[list[str]] = []
        self._pieces: dict[str, list[VideoPiece]] = {key: [] for key in info.video_keys}
        self._rows: list[pa.Table] = []
        self._stats: list[Stats] = []
        self._logs: list[Mapping[str, Any] | None] = []
        self._sketches: list[EpisodeSketches] = []

    def add(self, episode: NewEpisode) -> None:
        """Add one episode behind those that were added.

        Args:
            episode: The episode.

        Raises:
            DatasetError: Its rows, tasks and videos do not fit together or not into the dataset.
            DatasetFormatError: Statistics of pictures are missing, and the pictures cannot be decoded.
            OSError: The disk is full or does not answer.
        """
        self.add_block(self._measured(episode).block(self.info.features))

    def _measured(self, episode: NewEpisode) -> NewEpisode:
        """Return an episode with statistics of its cameras; those of number columns are computed in any case."""
        stats, sketches = dict(episode.stats or {}), dict(episode.sketches or {})
        where = f"Episode {self.info.total_episodes}"
        for key, feature in self.info.features.items():
            pictures = episode.videos.get(key) if feature.dtype == "video" else _column(episode.table, key)
            if feature.is_camera and key not in stats and pictures is not None:
                stats[key], sketches[key] = camera_summary(pictures, feature, self.info.fps, f"{where}, camera {key!r}")
        return replace(episode, stats=stats, sketches=sketches)

    def add_block(self, block: EpisodeBlock) -> None:
        """Add several episodes at once.

        Args:
            block: The episodes.

        Raises:
            DatasetError: Rows, tasks and videos do not fit together or not into the dataset.
            OSError: The disk is full or does not answer.
        """
        if not len(block):
            return
        self._check(block)
        first, frames = len(self._lengths), self.info.total_frames
        numbers = self._task_numbers(block)
        table = self._numbered(block, numbers)
        starts = frames + block.starts
        known = index_stats(starts, block.lengths, first, numbers)
        stats = fill_stats(block.rows, known, self.info.features, table, block.lengths)
        self._episode_tasks.extend(_texts(block, numbers, list(self.tasks)))
        if self._keep_tables and block.source != self._source:
            self._shards.close()
        self._source = block.source
        for start, length in zip(block.starts.tolist(), block.lengths.tolist(), strict=True):
            self._files.append(self._shards.write(table.slice(start, length)))
        for key in self._pieces:
            self._pieces[key].extend(block.videos[key])
        of_episodes = stats_of(pa.table(stats), len(block))
        self._stats.extend(of_episodes)
        self._sketches.extend(block_sketches(block, table, self.info.features, of_episodes))
        others = {n: block.rows[n] for n in block.rows.column_names if not n.startswith("stats/")}
        self._rows.append(pa.table({**others, **stats}))
        self._logs.extend(block.logs or [None] * len(block))
        self._lengths.extend(block.lengths.tolist())
        self.info.total_episodes += len(block)
        self.info.total_frames += int(block.lengths.sum())

    def _check(self, block: EpisodeBlock) -> None:
        frames = int(block.lengths.sum())
        if block.lengths.min() < 1 or not frames == len(block.table) == len(block.task_numbers):
            raise DatasetError(
                f"{len(block)} episodes of {frames} frames have {len(block.table)} rows and "
                f"{len(block.task_numbers)} tasks; an episode has at least one frame."
            )
        for key in self._pieces:
            pieces = block.videos.get(key, ())
            if [piece.frames for piece in pieces] != block.lengths.tolist():
                raise DatasetError(
                    f"Episodes of {block.lengths.tolist()[:20]} rows have {[p.frames for p in pieces][:20]} pictures "
                    f"of {key!r}."
                )

    def _task_numbers(self, block: EpisodeBlock) -> npt.NDArray[np.int64]:
        """Return the new task number of each row; texts are numbered when they are first used."""
        used, at = np.unique(block.task_numbers, return_index=True)
        for number in used[np.argsort(at)].tolist():
            self.tasks.setdefault(block.tasks[number], len(self.tasks))
        renumbered = np.full(len(block.tasks), -1, dtype=np.int64)
        for number in used.tolist():
            renumbered[number] = self.tasks[block.tasks[number]]
        return renumbered[block.task_numbers]

    def _numbered(self, block: EpisodeBlock, task_numbers: npt.NDArray[np.int64]) -> pa.Table:
        """Return the rows with everything that depends on their place in the dataset."""
        rows = np.arange(len(block.table), dtype=np.int64)
        frames = rows - np.repeat(block.starts, block.lengths)
        episodes = np.repeat(np.arange(len(block), dtype=np.int64) + len(self._lengths), block.lengths)
        values = {
            "index": rows + self.info.total_frames,
            "episode_index": episodes,
            "frame_index": frames,
            "task_index": task_numbers,
        }
        table = block.table
        if "timestamp" not in table.column_names:
            values["timestamp"] = (frames / self.info.fps).astype(np.float32)
        for name, column in values.items():
            if name in table.column_names:
                table = table.set_column(table.column_names.index(name), name, pa.array(column))
            else:
                table = table.append_column(name, pa.array(column))
        return conform(table, self._schema, "The rows of the episodes")

    @property
    def folder(self) -> Path:
        """Hidden folder that becomes the dataset: other files may be put into it."""
        return self._folder

    def take_over(self, root: Path, *, renumbered: bool) -> None:
        """Take over what lies beside the files of a dataset: its card, licence and the like.

        Args:
            root: Folder of that dataset.
            renumbered: Whether frames have new numbers here, so that files with one row a frame do not fit.
        """
        for path in carry_side_files(root, self._folder, renumbered=renumbered):
            logger.warning("%s has one row a frame and no longer fits; it was left out.", path)

    def finish(self) -> Path:
        """Write what is left, flush everything to disk and give the dataset its name.

        Returns:
            The folder of the dataset.

        Raises:
            DatasetError: A video does not have the frames it should have, or somebody else has made the target.
            OSError: The disk is full or does not answer.
        """
        self._shards.close()
        info, folder = self.info, self._folder
        spans = {key: self._write_videos(key, pieces) for key, pieces in self._pieces.items()}
        self._write_rows(spans)
        info.total_tasks = len(self.tasks)
        info.splits = {"train": f"0:{info.total_episodes}"} if info.total_episodes else {}
        write_tasks(folder, self.tasks)
        if self._stats:
            write_json(folder / STATS_PATH, stats_to_json(self._all_stats()))
        self._write_log()
        info.save(folder)
        flush_tree(folder)
        if self.target.is_dir():
            self.target.rmdir()
        folder.rename(self.target)
        self._owned.release()
        try:
            fsync_dir(self.target.parent)
        except OSError:
            shutil.rmtree(self.target, ignore_errors=True)
            raise
        return self.target

    def _write_log(self) -> None:
        """Write what was logged while the episodes were recorded, under their new numbers."""
        lines = [{**log, "episode_index": number} for number, log in enumerate(self._logs) if log]
        if lines:
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            write_text(self._folder / RECORDING_LOG, text)

    def _all_stats(self) -> Stats:
        """Return the statistics of all episodes, by feature in the order of the features."""
        parts = list(zip(self._stats, self._sketches, strict=True))
        told = {
            name
            for name in self.info.features
            if all(name in stats for stats, _ in parts)
            and (name not in self._whole_stats or all(name in sketches for _, sketches in parts))
        }
        chosen = (({n: v for n, v in stats.items() if n in told}, sketches) for stats, sketches in parts)
        found = {**self._whole_stats, **merged_stats(chosen, checked=True)}
        for name, known in self._whole_stats.items():
            if name not in RENUMBERED and differ(known, found[name]):
                found[name] = known  # somebody has put other statistics there on purpose, such as of relative actions
        return {name: found[name] for name in self.info.features if name in found}

    def _write_videos(self, key: str, pieces: Sequence[VideoPiece]) -> list[VideoSpan]:
        info = self.info
        return write_videos(
            self._folder,
            info.video_template,
            key,
            pieces,
            fps=info.fps,
            limit=info.video_files_size_in_mb * _MB,
            chunks_size=info.chunks_size,
            described=info.features[key].extra.get("info") or {},
            keep_files=self._keep_videos,
        )

    def _write_rows(self, spans: dict[str, list[VideoSpan]]) -> None:
        """Write the episode table, some thousand rows a file."""
        count = len(self._lengths)
        if not count:
            return
        kept = pa.concat_tables(self._rows, promote_options="permissive")
        number = FileId(0, 0)
        for first in range(0, count, _ROWS_A_FILE):
            part = slice(first, min(first + _ROWS_A_FILE, count))
            columns = self._row_columns(part, number, {key: span[part] for key, span in spans.items()})
            rows = kept.slice(first, part.stop - first)
            others = {n: rows[n] for n in rows.column_names}
            ends = {name: columns.pop(name) for name in list(columns) if name.startswith("meta/")}
            path = number.path(self._folder, EPISODES_TEMPLATE)
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({**columns, **others, **ends}), path)
            write_sketches(
                self._folder, number, dict(zip(range(part.start, part.stop), self._sketches[part], strict=True))
            )
            number = number.next(self.info.chunks_size)

    def _row_columns(self, part: slice, number: FileId, spans: dict[str, list[VideoSpan]]) -> dict[str, Any]:
        lengths = np.array(self._lengths, dtype=np.int64)
        stops = np.cumsum(lengths)
        rows = part.stop - part.start
        files = np.array(self._files[part], dtype=np.int64)
        columns: dict[str, Any] = {
            "episode_index": pa.array(np.arange(part.start, part.stop)),
            "tasks": pa.array(self._episode_tasks[part], pa.list_(pa.field("element", pa.string()))),
            "length": pa.array(lengths[part]),
            "data/chunk_index": pa.array(files[:, 0]),
            "data/file_index": pa.array(files[:, 1]),
            "dataset_from_index": pa.array((stops - lengths)[part]),
            "dataset_to_index": pa.array(stops[part]),
        }
        for key, span in spans.items():
            columns[f"videos/{key}/chunk_index"] = pa.array([s.file.chunk for s in span], pa.int64())
            columns[f"videos/{key}/file_index"] = pa.array([s.file.file for s in span], pa.int64())
            columns[f"videos/{key}/from_timestamp"] = pa.array([s.start_s for s in span], pa.float64())
            columns[f"videos/{key}/to_timestamp"] = pa.array([s.end_s for s in span], pa.float64())
        columns["meta/episodes/chunk_index"] = pa.array(np.full(rows, number.chunk, np.int64))
        columns["meta/episodes/file_index"] = pa.array(np.full(rows, number.file, np.int64))
        return columns

    def abandon(self) -> None:
        """Remove everything that was written. Does nothing when the dataset is finished already."""
        self._shards.close()
        self._owned.remove()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abandon what is not finished."""
        self.abandon()


def _column(table: pa.Table, name: str) -> pa.ChunkedArray | None:
    return table[name] if name in table.column_names else None


def _texts(block: EpisodeBlock, numbers: npt.NDArray[np.int64], texts: Sequence[str]) -> list[list[str]]:
    """Return the tasks of each episode, in order of appearance."""
    starts = block.starts
    low, high = np.minimum.reduceat(numbers, starts), np.maximum.reduceat(numbers, starts)
    tasks = [[texts[number]] for number in low.tolist()]
    for episode in np.flatnonzero(low != high).tolist():
        rows = numbers[starts[episode] : starts[episode] + block.lengths[episode]]
        tasks[episode] = [texts[number] for number in dict.fromkeys(rows.tolist())]
    return tasks
