# SPDX-License-Identifier: Apache-2.0
"""Rows for streams: the episodes that are being read are in memory, and nothing else of their files."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ulna.core.errors import DatasetFormatError
from ulna.data.arrow_schema import table_columns
from ulna.data.features import Feature
from ulna.data.layout import FileId
from ulna.data.table_store import TableFile, TableStore, table_file

__all__ = ["EpisodeRows"]

_GROUPS_BYTES: Final = 256 * 2**20


class EpisodeRows(TableStore):
    """Reads one episode at a time out of data files: only the row groups that hold it. For one thread.

    `select` names the episode whose rows `get` gives next. The last episodes, and the last row groups that hold more
    than one episode, are kept.

    Args:
        root: Folder of the dataset.
        template: Path template of data files.
        features: All features.
        most_episodes: Episodes kept in memory.
    """

    def __init__(self, root: Path, template: str, features: dict[str, Feature], most_episodes: int) -> None:
        super().__init__(root, template, features)
        self._place = root, template
        self._declared = table_columns(features)
        self._most_episodes = most_episodes
        self._episodes: OrderedDict[tuple[FileId, int], TableFile] = OrderedDict()
        self._groups: OrderedDict[tuple[FileId, int], pa.Table] = OrderedDict()
        self._selected = (0, 0)

    def select(self, first: int, length: int) -> None:
        """Say which episode is read next.

        Args:
            first: Global number of its first frame.
            length: Its length.
        """
        self._selected = (first, length)

    def get(self, file: FileId) -> TableFile:
        """Return the rows of the selected episode.

        Args:
            file: The data file they are in.

        Raises:
            DatasetFormatError: It cannot be read, or lacks a declared column.
        """
        key = (file, self._selected[0])
        known = self._episodes.get(key)
        if known is not None:
            self._episodes.move_to_end(key)
            return known
        root, template = self._place
        path = file.path(root, template)
        try:
            table = self._rows(file, path)
        except FileNotFoundError as error:
            raise DatasetFormatError(f"The table {path} does not exist.") from error
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DatasetFormatError(f"The table {path} cannot be read: {error}") from error
        loaded = self._episodes[key] = table_file(path, table, self._declared)
        if len(self._episodes) > self._most_episodes:
            self._episodes.popitem(last=False)
        return loaded

    def _rows(self, file: FileId, path: Path) -> pa.Table:
        first, length = self._selected
        with pq.ParquetFile(path) as parquet:
            parts = []
            for group in range(parquet.num_row_groups):
                low, high = _index_range(parquet, group)
                if low is None or high is None or (low < first + length and high >= first):
                    parts.append(self._group(file, group, parquet))
        table = pa.concat_tables(parts) if parts else parquet.schema_arrow.empty_table()
        index = table["index"]
        inside = pc.and_(pc.greater_equal(index, first), pc.less(index, first + length))
        # Copied, so that one episode does not keep the row group of many in memory.
        return table if pc.all(inside).as_py() else table.filter(inside)

    def _group(self, file: FileId, group: int, parquet: pq.ParquetFile) -> pa.Table:
        key = (file, group)
        table = self._groups.pop(key, None)
        if table is None:
            table = parquet.read_row_group(group, use_threads=False)
        if len(table) > self._selected[1]:
            self._groups[key] = table
            while len(self._groups) > 1 and sum(t.nbytes for t in self._groups.values()) > _GROUPS_BYTES:
                self._groups.popitem(last=False)
        return table


def _index_range(parquet: pq.ParquetFile, group: int) -> tuple[int | None, int | None]:
    """Return the smallest and largest frame number in a row group, where the file says it."""
    metadata = parquet.metadata.row_group(group)
    for column in range(metadata.num_columns):
        chunk = metadata.column(column)
        if chunk.path_in_schema == "index":
            known = chunk.statistics
            return (known.min, known.max) if known is not None and known.has_min_max else (None, None)
    return None, None
