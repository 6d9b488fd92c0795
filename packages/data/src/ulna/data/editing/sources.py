# SPDX-License-Identifier: Apache-2.0
"""Reads existing datasets as blocks of whole episodes, in Arrow, each file once. Changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.constants import ACTION
from ulna.core.errors import DatasetFormatError
from ulna.data.editing.blocks import EpisodeBlock, VideoPiece
from ulna.data.editing.stats_columns import differ
from ulna.data.layout import FileId
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.quantiles import EpisodeSketches
from ulna.data.reading_errors import readable
from ulna.data.sketch_files import read_sketch_file
from ulna.data.timing import read_log

__all__ = ["blocks", "episode_rows"]

logger = logging.getLogger(__name__)

_BLOCK_BYTES: Final = 64 * 2**20
_WRITTEN_ANEW: Final = frozenset(
    {"episode_index", "tasks", "length", "dataset_from_index", "dataset_to_index"}
    | {f"{kind}/{number}" for kind in ("data", "meta/episodes") for number in ("chunk_index", "file_index")}
)


def blocks(meta: LeRobotDatasetMetadata, episodes: Sequence[int]) -> Iterator[EpisodeBlock]:
    """Yield some episodes of a dataset. Every file is opened once; memory is bounded.

    Args:
        meta: Metadata of the dataset.
        episodes: Their numbers, ascending.

    Yields:
        Episodes of one data file, at most some ten megabytes (or one episode).

    Raises:
        DatasetFormatError: A file does not hold what the episode table says.
    """
    rows, sketches = episode_rows(meta, episodes)
    logs = read_log(meta.root)
    done = 0
    for file, wanted in _by_file(meta.episodes.data_files, episodes):
        for part, data in _read(meta, file, wanted):
            block = _block(meta, part, data, rows.slice(done, len(part)))
            yield replace(
                block,
                sketches=[sketches.get(episode) for episode in part],
                logs=[logs.get(episode) for episode in part],
            )
            done += len(part)


def _by_file(files: Sequence[FileId], episodes: Sequence[int]) -> Iterator[tuple[FileId, list[int]]]:
    group: list[int] = []
    for episode in episodes:
        if group and files[episode] != files[group[-1]]:
            yield files[group[-1]], group
            group = []
        group.append(episode)
    if group:
        yield files[group[-1]], group


def _read(meta: LeRobotDatasetMetadata, file: FileId, episodes: Sequence[int]) -> Iterator[tuple[list[int], pa.Table]]:
    """Yield the rows of some episodes of a data file, several episodes at a time."""
    path = file.path(meta.root, meta.info.data_path)
    lengths = meta.episodes.lengths
    try:
        with pq.ParquetFile(path, memory_map=True) as parquet:
            first_rows = _first_rows(meta, file, path, parquet.metadata.num_rows)
            groups = [parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups)]
            stops = np.cumsum([group.num_rows for group in groups])
            sizes = [group.total_byte_size for group in groups]
            for part in _parts(episodes, first_rows, lengths, stops, sizes):
                low, high = first_rows[part[0]], first_rows[part[-1]] + int(lengths[part[-1]])
                wanted = range(int(np.searchsorted(stops, low, "right")), int(np.searchsorted(stops, high)) + 1)
                data = parquet.read_row_groups(list(wanted), use_threads=False)
                before = int(stops[wanted[0] - 1]) if wanted[0] else 0
                yield part, _select(data, [first_rows[e] - before for e in part], lengths[part])
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetFormatError(f"The table {path} cannot be read: {error}") from error


def _first_rows(meta: LeRobotDatasetMetadata, file: FileId, path: Path, rows: int) -> dict[int, int]:
    """Return the first row of each episode in a file, which holds whole episodes in order and nothing else."""
    table = meta.episodes
    held = [e for e, other in enumerate(table.data_files) if other == file]
    lengths = table.lengths[held]
    if int(lengths.sum()) != rows:
        raise DatasetFormatError(
            f"The table {path} has {rows} rows, but the episodes {held[0]} to {held[-1]} in it have {lengths.sum()}.",
            hint=f"See what is wrong: ulna dataset validate {meta.root}",
        )
    return dict(zip(held, (np.cumsum(lengths) - lengths).tolist(), strict=True))


def _parts(
    episodes: Sequence[int],
    first_rows: dict[int, int],
    lengths: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    sizes: Sequence[int],
) -> Iterator[list[int]]:
    """Group episodes so that the row groups that hold them stay small together."""
    part: list[int] = []
    low = 0
    cumulative = np.concatenate([[0], np.cumsum(sizes)])
    for episode in episodes:
        first = int(np.searchsorted(stops, first_rows[episode], "right"))
        last = int(np.searchsorted(stops, first_rows[episode] + int(lengths[episode])))
        if part and cumulative[last + 1] - cumulative[low] > _BLOCK_BYTES:
            yield part
            part = []
        if not part:
            low = first
        part.append(episode)
    if part:
        yield part


def _select(data: pa.Table, starts: Sequence[int], lengths: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows of some episodes; neighbouring ones are one slice."""
    slices: list[tuple[int, int]] = []
    for start, length in zip(starts, lengths.tolist(), strict=True):
        if slices and sum(slices[-1]) == start:
            slices[-1] = (slices[-1][0], slices[-1][1] + length)
        else:
            slices.append((start, length))
    return pa.concat_tables([data.slice(*piece) for piece in slices]) if len(slices) > 1 else data.slice(*slices[0])


def _block(meta: LeRobotDatasetMetadata, episodes: list[int], data: pa.Table, rows: pa.Table) -> EpisodeBlock:
    table = meta.episodes
    lengths = table.lengths[episodes]
    _check_rows(meta, episodes, data, lengths)
    videos = {
        key: [
            VideoPiece(
                table.video_files[key][e].path(meta.root, meta.info.video_template, key),
                float(table.video_starts[key][e]),
                int(table.lengths[e]),
            )
            for e in episodes
        ]
        for key in meta.video_keys
    }
    numbers = data["task_index"].to_numpy().astype(np.int64)
    wrong = np.flatnonzero((numbers < 0) | (numbers >= len(meta.tasks)))
    if wrong.size:
        raise DatasetFormatError(
            f"Frame {data['index'][int(wrong[0])]} of {meta.root} has task {numbers[wrong[0]]}; "
            f"there are {len(meta.tasks)} tasks."
        )
    return EpisodeBlock(
        data, lengths, numbers, list(meta.tasks), videos, rows, (), episodes, meta.get_data_file_path(episodes[0])
    )


def _check_rows(
    meta: LeRobotDatasetMetadata, episodes: list[int], data: pa.Table, lengths: npt.NDArray[np.int64]
) -> None:
    """Insist that the rows are those of the episodes."""
    starts = meta.episodes.starts[episodes]
    offsets = np.arange(len(data)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    expected = np.repeat(starts, lengths) + offsets
    found = data["index"].to_numpy()
    wrong = np.flatnonzero(found != expected)
    if wrong.size:
        row = int(wrong[0])
        episode = int(np.repeat(episodes, lengths)[row])
        raise DatasetFormatError(
            f"Episode {episode}, frame {offsets[row]} of {meta.root} should have the index {expected[row]}, "
            f"but its row has {found[row]}.",
            hint=f"See what is wrong: ulna dataset validate {meta.root}",
        )


def episode_rows(meta: LeRobotDatasetMetadata, episodes: Sequence[int]) -> tuple[pa.Table, dict[int, EpisodeSketches]]:
    """Return the statistics, sketches, and columns without a meaning here, of some episodes.

    Args:
        meta: Metadata of the dataset.
        episodes: Their numbers.

    Returns:
        One row an episode, statistics of features and cameras that do not exist left out; and the sketches of those
        episodes that have any.
    """
    tables: list[pa.Table] = []
    sketches: dict[int, EpisodeSketches] = {}
    for path in sorted((meta.root / "meta/episodes").glob("chunk-*/file-*.parquet")):
        with readable(path):
            tables.append(pq.read_table(path, use_threads=False))
        chunk, file = path.parent.name.removeprefix("chunk-"), path.stem.removeprefix("file-")
        sketches.update(read_sketch_file(meta.root, FileId(int(chunk), int(file))))
    if not tables:
        return pa.table({}), sketches
    whole = pa.concat_tables(tables, promote_options="permissive")
    _note_other_stats(meta, whole)
    position = np.argsort(whole["episode_index"].to_numpy(), kind="stable")
    kept = [name for name in whole.column_names if _is_kept(name, meta)]
    return whole.select(kept).take(pa.array(position[list(episodes)], pa.int64())), sketches


def _note_other_stats(meta: LeRobotDatasetMetadata, rows: pa.Table) -> None:
    """Say when the dataset has statistics of actions that are not those of its rows, which no episode knows of."""
    recorded, names = (meta.recorded_stats or {}).get(ACTION), [f"stats/{ACTION}/{key}" for key in ("min", "max")]
    if recorded is None or any(name not in rows.column_names or rows[name].null_count for name in names):
        return
    low, high = (np.array(rows[name].to_pylist(), dtype=np.float64) for name in names)
    if differ(recorded, {"min": low.min(axis=0), "max": high.max(axis=0)}):
        logger.warning(
            "%s: the statistics of %r in stats.json are not those of its rows, but of relative actions perhaps. When "
            "episodes go or come they are computed from the rows; ulna dataset edit recompute-stats makes others.",
            meta.root,
            ACTION,
        )


def _is_kept(name: str, meta: LeRobotDatasetMetadata) -> bool:
    if name.startswith("stats/"):
        return name.removeprefix("stats/").rpartition("/")[0] in meta.parsed_features
    return name not in _WRITTEN_ANEW and not name.startswith("videos/")
