# SPDX-License-Identifier: Apache-2.0
"""Joins the files of single episodes into files of the size the dataset asks for, when a recording is finalized.

All new files are prepared beside the dataset and checked; then one journal swaps them in. Whatever happens, the dataset
is either as it was or as it shall be (see `ulna.data.workspace`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq

from ulna.core.errors import DatasetError
from ulna.core.files import make_dirs
from ulna.data.dataset_stats import settle_stats
from ulna.data.episode_store import write_row_groups
from ulna.data.episodes import write_rows
from ulna.data.layout import EPISODES_TEMPLATE, FileId
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.sketch_files import SKETCHES_TEMPLATE, read_sketch_file, write_sketch_file
from ulna.data.video_concat import concatenate, video_form
from ulna.data.workspace import Workspace

__all__ = ["compact"]

_MB = 1024 * 1024
_ROWS_A_FILE = 2000

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class _Shard:
    """Old files that become one.

    Attributes:
        file: Number of the new file.
        sources: Numbers of the old ones.
    """

    file: FileId
    sources: tuple[FileId, ...]


def compact(meta: LeRobotDatasetMetadata, workspace: Workspace, first_episode: int) -> None:
    """Join the files of the episodes that a recording added. For holders of the lock.

    Args:
        meta: Metadata of the dataset; read again afterwards.
        workspace: Its `.ulna` folder.
        first_episode: The first episode that the recording added.

    Raises:
        DatasetError: A joined file would not hold what its parts hold, or the disk is full; nothing was changed.
    """
    job = _Job(meta, workspace.begin_swap(), range(first_episode, meta.total_episodes))
    try:
        job.prepare()
    except OSError as error:
        raise DatasetError(
            f"The files of {meta.root} could not be joined: {error}. The recording is whole as it is.",
            hint=f"Free some space, then: ulna dataset repair {meta.root}",
        ) from error
    if job.moves or job.deletions:
        workspace.commit_swap(job.moves, job.deletions)
        meta.reload_episodes()
        settle_stats(meta)


class _Job:
    """One compaction: collects moves and deletions while preparing files."""

    def __init__(self, meta: LeRobotDatasetMetadata, folder: Path, episodes: range) -> None:
        self.meta, self.folder, self.episodes = meta, folder, episodes
        self.moves: list[tuple[Path, Path]] = []
        self.deletions: list[Path] = []

    def prepare(self) -> None:
        info, table = self.meta.info, self.meta.episodes
        data = self._plan(table.data_files, info.data_path, "", info.data_files_size_in_mb * _MB)
        self._join(data, info.data_path, "", self._join_tables)
        spans: dict[str, list[tuple[FileId, float]]] = {}
        for key in self.meta.video_keys:
            shards = self._plan(table.video_files[key], info.video_template, key, info.video_files_size_in_mb * _MB)
            self._join(shards, info.video_template, key, self._join_videos)
            spans[key] = self._spans(key, shards)
        self._rewrite_rows(_renamed(data), spans)

    def _plan(self, files: Sequence[FileId], template: str, key: str, limit: float) -> list[_Shard]:
        """Group consecutive files of one form so that each group stays below the size limit."""
        ordered = list(dict.fromkeys(files[e] for e in self.episodes))
        groups: list[list[FileId]] = []
        size = 0.0
        form: Any = None
        for file in ordered:
            path = file.path(self.meta.root, template, key)
            more, before = path.stat().st_size, form
            form = video_form(path) if key else None
            if not groups or size + more >= limit or form != before:
                groups.append([])
                size = 0.0
            groups[-1].append(file)
            size += more
        number, shards = ordered[0], []
        for group in groups:
            shards.append(_Shard(number, tuple(group)))
            number = number.next(self.meta.info.chunks_size)
        return shards

    def _join(self, shards: list[_Shard], template: str, key: str, join: Callable[[list[Path], Path], None]) -> None:
        root = self.meta.root
        taken = {shard.file for shard in shards}
        for shard in shards:
            sources = [file.path(root, template, key) for file in shard.sources]
            target = shard.file.path(root, template, key)
            if sources == [target]:
                continue
            prepared = shard.file.path(self.folder, template, key)
            make_dirs(prepared.parent)
            if len(sources) == 1:
                _link(sources[0], prepared)
            else:
                join(sources, prepared)
            self.moves.append((prepared, target))
        old = (file for shard in shards for file in shard.sources)
        self.deletions.extend(file.path(root, template, key) for file in old if file not in taken)

    def _join_tables(self, sources: list[Path], target: Path) -> None:
        def groups() -> Any:
            for source in sources:
                parquet = pq.ParquetFile(source)
                for group in range(parquet.num_row_groups):
                    yield parquet.read_row_group(group, use_threads=False)

        rows = write_row_groups(target, groups(), self.meta.parsed_features)
        expected = sum(pq.read_metadata(source).num_rows for source in sources)
        if rows != expected:
            raise DatasetError(
                f"Joining {len(sources)} tables gave {rows} rows instead of {expected}; nothing was changed."
            )

    def _join_videos(self, sources: list[Path], target: Path) -> None:
        concatenate(sources, target, self.meta.fps)

    def _spans(self, key: str, shards: list[_Shard]) -> list[tuple[FileId, float]]:
        """Return, for each episode, its new file and its start in it."""
        table, fps = self.meta.episodes, self.meta.fps
        renamed = _renamed(shards)
        frames: dict[FileId, int] = {}
        spans = []
        for episode in self.episodes:
            file = renamed[table.video_files[key][episode]]
            spans.append((file, frames.get(file, 0) / fps))
            frames[file] = frames.get(file, 0) + int(table.lengths[episode])
        return spans

    def _rewrite_rows(self, data: dict[FileId, FileId], spans: dict[str, list[tuple[FileId, float]]]) -> None:
        meta, root = self.meta, self.meta.root
        files = list(dict.fromkeys(meta.episodes.row(e).row for e in self.episodes))
        schema = pq.read_schema(files[-1].path(root, EPISODES_TEMPLATE))
        rows = [
            r
            for file in files
            for r in pq.read_table(file.path(root, EPISODES_TEMPLATE), use_threads=False).to_pylist()
        ]
        if [row["episode_index"] for row in rows] != list(self.episodes):
            raise DatasetError(f"{root}: the episode table changed while it was being compacted; nothing was changed.")
        number = files[0]
        taken = []
        for first in range(0, len(rows), _ROWS_A_FILE):
            part = rows[first : first + _ROWS_A_FILE]
            for offset, row in enumerate(part):
                _point(row, data[FileId(row["data/chunk_index"], row["data/file_index"])], number)
                _point_videos(row, {key: span[first + offset] for key, span in spans.items()}, meta.fps)
            prepared = number.path(self.folder, EPISODES_TEMPLATE)
            write_rows(prepared, part, schema)
            self.moves.append((prepared, number.path(root, EPISODES_TEMPLATE)))
            self._join_sketches(self.episodes[first : first + len(part)], number)
            taken.append(number)
            number = number.next(meta.info.chunks_size)
        self.deletions.extend(file.path(root, EPISODES_TEMPLATE) for file in files if file not in taken)
        moved = {target for _, target in self.moves}
        sketches = (file.path(root, SKETCHES_TEMPLATE) for file in files)
        self.deletions.extend(path for path in sketches if path.exists() and path not in moved)

    def _join_sketches(self, episodes: range, number: FileId) -> None:
        root, table = self.meta.root, self.meta.episodes
        files = dict.fromkeys(table.row(episode).row for episode in episodes)
        joined = {e: s for file in files for e, s in read_sketch_file(root, file).items() if e in episodes}
        if joined:
            prepared = number.path(self.folder, SKETCHES_TEMPLATE)
            write_sketch_file(prepared, joined)
            self.moves.append((prepared, number.path(root, SKETCHES_TEMPLATE)))


def _renamed(shards: list[_Shard]) -> dict[FileId, FileId]:
    return {source: shard.file for shard in shards for source in shard.sources}


def _point(row: dict[str, Any], data: FileId, number: FileId) -> None:
    row.update({"data/chunk_index": data.chunk, "data/file_index": data.file})
    row.update({"meta/episodes/chunk_index": number.chunk, "meta/episodes/file_index": number.file})


def _point_videos(row: dict[str, Any], spans: dict[str, tuple[FileId, float]], fps: int) -> None:
    for key, (file, start_s) in spans.items():
        prefix = f"videos/{key}"
        row.update({f"{prefix}/chunk_index": file.chunk, f"{prefix}/file_index": file.file})
        row.update({f"{prefix}/from_timestamp": start_s, f"{prefix}/to_timestamp": start_s + row["length"] / fps})


def _link(source: Path, target: Path) -> None:
    """Make `source` appear at `target` too, without copying where the file system can."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
