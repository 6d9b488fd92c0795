# SPDX-License-Identifier: Apache-2.0
"""The raw files of a dataset as the checks see them: nothing is refused, what cannot be read is reported."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.errors import DatasetError, FeatureError
from ulna.data.checks.report import Report
from ulna.data.info import DatasetInfo, read_tasks
from ulna.data.layout import INFO_PATH, TASKS_PATH, FileId

__all__ = ["Contents", "read_contents"]

Ints = npt.NDArray[np.int64]

_NEEDED = {
    "episode_index": pa.int64(),
    "length": pa.int64(),
    "dataset_from_index": pa.int64(),
    "dataset_to_index": pa.int64(),
    "data/chunk_index": pa.int64(),
    "data/file_index": pa.int64(),
}


@dataclass(frozen=True)
class Contents:
    """One dataset, read without refusing anything.

    Attributes:
        root: Its folder.
        info: `meta/info.json`.
        tasks: Task to number.
        episodes: The episode table without statistics, in file order; columns that are needed are there.
        row_files: The file each row of `episodes` came from.
    """

    root: Path
    info: DatasetInfo
    tasks: dict[str, int]
    episodes: pa.Table
    row_files: list[Path]

    def column(self, name: str) -> Ints:
        """Return a whole-number column of the episode table; -1 where it is empty or missing.

        Args:
            name: The column.
        """
        if name not in self.episodes.column_names:
            return np.full(len(self.episodes), -1, np.int64)
        filled = self.episodes[name].cast(pa.int64()).fill_null(-1)
        return np.asarray(filled.to_numpy(), dtype=np.int64)

    @cached_property
    def numbers(self) -> Ints:
        """Number of each episode."""
        return self.column("episode_index")

    @cached_property
    def lengths(self) -> Ints:
        """Frames of each episode."""
        return self.column("length")

    @cached_property
    def starts(self) -> Ints:
        """Global number of each episode's first frame."""
        return self.column("dataset_from_index")

    def files(self, prefix: str) -> list[FileId]:
        """Return the file each episode points at.

        Args:
            prefix: `data` or `videos/<camera>`.
        """
        chunks, files = self.column(f"{prefix}/chunk_index"), self.column(f"{prefix}/file_index")
        return [FileId(int(c), int(f)) for c, f in zip(chunks, files, strict=True)]

    def rows_of(self, prefix: str) -> dict[FileId, list[int]]:
        """Return, for each file, the rows of the episode table that point at it.

        Args:
            prefix: `data` or `videos/<camera>`.
        """
        grouped: dict[FileId, list[int]] = {}
        for row, file in enumerate(self.files(prefix)):
            grouped.setdefault(file, []).append(row)
        return grouped


def read_contents(root: Path, report: Report) -> Contents | None:
    """Read the metadata files and report what is wrong with each.

    Args:
        root: Folder of the dataset.
        report: Where problems go.

    Returns:
        The contents; None when `info.json` is unusable, because nothing else means anything then.
    """
    report.files += 1
    try:
        info = DatasetInfo.load(root)
    except (DatasetError, FeatureError) as error:
        report.add("info-unusable", error.message, path=Path(INFO_PATH), remedy=error.hint)
        return None
    tasks: dict[str, int] = {}
    report.files += 1
    try:
        tasks = read_tasks(root)
    except DatasetError as error:
        report.add("tasks-unusable", error.message, path=Path(TASKS_PATH), remedy=error.hint)
    table, files = _episode_table(root, report)
    return Contents(root, info, tasks, table, files)


def _episode_table(root: Path, report: Report) -> tuple[pa.Table, list[Path]]:
    tables, origins, names = [], [], None
    for path in sorted((root / "meta/episodes").glob("chunk-*/file-*.parquet")):
        report.files += 1
        try:
            schema = pq.read_schema(path)
            table = pq.read_table(path, columns=[n for n in schema.names if not n.startswith("stats/")])
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            report.add("episodes-unreadable", f"The file cannot be read: {error}", path=path, remedy="restore the file")
            continue
        missing = [name for name in _NEEDED if name not in table.column_names]
        if missing:
            report.add("episodes-columns", f"The columns {missing} are missing.", path=path)
            continue
        if names is not None and set(schema.names) != names:
            odd = sorted(names ^ set(schema.names))
            report.add(
                "episodes-schemas",
                f"The columns differ from those of the files before: {odd[:6]}. LeRobot reads only equal ones.",
                "warning",
                path=path,
                remedy=f"ulna dataset repair {root}",
            )
        names = names or set(schema.names)
        tables.append(table)
        origins.extend([path] * len(table))
    if not tables:
        return pa.table({name: pa.array([], kind) for name, kind in _NEEDED.items()}), []
    return _joined(tables), origins


def _joined(tables: list[pa.Table]) -> pa.Table:
    plain: list[Any] = [table.replace_schema_metadata(None) for table in tables]
    return pa.concat_tables(plain, promote_options="permissive")
