# SPDX-License-Identifier: Apache-2.0
"""Writes tables of a dataset anew with what follows from lengths and numbers, and swaps them in together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.errors import DatasetError
from ulna.data.checks.contents import Contents
from ulna.data.episode_store import write_row_groups
from ulna.data.info import DatasetInfo
from ulna.data.layout import FileId
from ulna.data.reading_errors import readable
from ulna.data.sketch_files import SKETCHES_TEMPLATE, read_sketch_file, write_sketch_file
from ulna.data.workspace import Workspace

__all__ = ["Rewriting"]


class Rewriting:
    """Collects new files beside the dataset and swaps them in together at the end of the `with` block.

    In `new`, the methods take the number that each episode, by its present number, shall have.

    Args:
        root: Folder of the dataset.

    Raises:
        DatasetError: A recording into it is open.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._workspace = root, Workspace(root)
        self._moves: list[tuple[Path, Path]] = []

    def __enter__(self) -> Rewriting:
        if not self._workspace.lock():
            raise DatasetError(
                f"A recording into {self._root} is open.", hint="Finish or stop that recording first, then try again."
            )
        self._folder = self._workspace.begin_swap()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None and self._moves:
                self._workspace.commit_swap(self._moves, [])
        finally:
            self._workspace.remove()

    def _prepare(self, target: Path) -> Path:
        prepared = self._folder / target.relative_to(self._root)
        prepared.parent.mkdir(parents=True, exist_ok=True)
        self._moves.append((prepared, target))
        return prepared

    def rewrite_rows(self, contents: Contents, new: dict[int, int]) -> None:
        """Write every data file anew with right index columns and times; all other columns stay as they are."""
        starts = _starts(contents, new)
        for file in sorted(contents.rows_of("data")):
            path = file.path(self._root, contents.info.data_path)
            with readable(path):
                tables = _corrected(pq.ParquetFile(path), contents, new, starts)
            write_row_groups(self._prepare(path), tables, contents.info.features)

    def rewrite_table(self, contents: Contents, new: dict[int, int]) -> None:
        """Write the episode table anew, file by file, in one schema."""
        paths = list(dict.fromkeys(contents.row_files))
        with readable(contents.root / "meta/episodes"):
            whole = pa.concat_tables([pq.read_table(path) for path in paths], promote_options="permissive")
        numbers = np.array([new[int(number)] for number in contents.numbers])
        order = np.argsort(numbers, kind="stable")
        whole = _with_columns(whole, _row_columns(contents, new)).take(pa.array(order))
        first = 0
        for path in paths:
            count = sum(origin == path for origin in contents.row_files)
            part, file = whole.slice(first, count), _file_id(path)
            pointers = {"meta/episodes/chunk_index": file.chunk, "meta/episodes/file_index": file.file}
            part = _with_columns(part, {name: np.full(count, value) for name, value in pointers.items()})
            pq.write_table(part, self._prepare(path))
            first += count
        if not np.array_equal(whole["episode_index"].to_numpy(), contents.numbers):
            self._rewrite_sketches(whole["episode_index"].to_pylist(), contents, new)

    def _rewrite_sketches(self, numbers: list[int], contents: Contents, new: dict[int, int]) -> None:
        """Write the side files anew for episodes that have other numbers, or lie in other files, than before."""
        files = {path: _file_id(path) for path in dict.fromkeys(contents.row_files)}
        known = {new[e]: s for f in files.values() for e, s in read_sketch_file(self._root, f).items() if e in new}
        first = 0
        for path, file in files.items():
            count = sum(origin == path for origin in contents.row_files)
            held = {number: known[number] for number in numbers[first : first + count] if number in known}
            if known:
                write_sketch_file(self._prepare(file.path(self._root, SKETCHES_TEMPLATE)), held)
            first += count

    def rewrite_info(self, contents: Contents) -> None:
        """Write `info.json` with the totals of the tables."""
        info = DatasetInfo.load(self._root)
        info.total_episodes, info.total_frames = len(contents.episodes), int(contents.lengths.sum())
        info.total_tasks, info.splits = len(contents.tasks), {"train": f"0:{len(contents.episodes)}"}
        info.save(self._folder)
        self._moves.append((self._folder / "meta/info.json", self._root / "meta/info.json"))


def _file_id(path: Path) -> FileId:
    return FileId(int(path.parent.name.removeprefix("chunk-")), int(path.stem.removeprefix("file-")))


def _starts(contents: Contents, new: dict[int, int]) -> dict[int, int]:
    """Return the global number of each episode's first frame, by its old number."""
    order = sorted(range(len(contents.episodes)), key=lambda row: new[int(contents.numbers[row])])
    ends = np.cumsum(contents.lengths[order])
    return {int(contents.numbers[row]): int(ends[i] - contents.lengths[row]) for i, row in enumerate(order)}


def _corrected(
    parquet: pq.ParquetFile, contents: Contents, new: dict[int, int], starts: dict[int, int]
) -> Iterator[pa.Table]:
    """Yield the rows of one file episode by episode, with right index columns and times."""
    table = parquet.read(use_threads=False)
    episode = np.asarray(table["episode_index"].to_numpy())
    for number in dict.fromkeys(episode.tolist()):
        rows = np.flatnonzero(episode == number)
        frames = np.arange(len(rows), dtype=np.int64)
        yield _with_columns(
            table.take(pa.array(rows)),
            {
                "frame_index": frames,
                "index": frames + starts[int(number)],
                "episode_index": np.full(len(rows), new[int(number)], np.int64),
                "timestamp": (frames / contents.info.fps).astype(np.float32),
            },
        )


def _row_columns(contents: Contents, new: dict[int, int]) -> dict[str, Any]:
    """Return the columns of the episode table that follow from lengths and numbers."""
    starts = _starts(contents, new)
    first = np.array([starts[int(number)] for number in contents.numbers])
    columns: dict[str, Any] = {
        "episode_index": np.array([new[int(number)] for number in contents.numbers]),
        "dataset_from_index": first,
        "dataset_to_index": first + contents.lengths,
    }
    for key in contents.info.video_keys:
        begin = np.asarray(contents.episodes[f"videos/{key}/from_timestamp"].to_numpy(), dtype=np.float64)
        columns[f"videos/{key}/to_timestamp"] = begin + contents.lengths / contents.info.fps
    if "tasks" not in contents.episodes.column_names:
        columns["tasks"] = _tasks_of_rows(contents)
    return columns


def _tasks_of_rows(contents: Contents) -> pa.Array:
    """Return the tasks of each episode, in order of appearance in its rows."""
    texts = list(contents.tasks)
    found: dict[int, dict[str, None]] = {int(number): {} for number in contents.numbers}
    for file in contents.rows_of("data"):
        path = file.path(contents.root, contents.info.data_path)
        with readable(path):
            table = pq.read_table(path, columns=["episode_index", "task_index"])
        for episode, task in zip(table["episode_index"].to_pylist(), table["task_index"].to_pylist(), strict=True):
            found[episode][texts[task]] = None
    kind = pa.list_(pa.field("element", pa.string()))
    return pa.array([list(found[int(number)]) for number in contents.numbers], kind)


def _with_columns(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """Return the table with columns replaced, in their own types, or added."""
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        if place < 0:
            table = table.append_column(name, pa.array(values))
        else:
            field = table.schema.field(name)
            table = table.set_column(place, field, pa.array(values, type=field.type))
    return table
