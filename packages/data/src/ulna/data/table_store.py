# SPDX-License-Identifier: Apache-2.0
"""The rows of a dataset as arrays, one set of columns a file, loaded when first needed. Rows are reached by offset.

Small tables are held in memory. Larger ones are unpacked once into a cache of memory-mapped Arrow files, so that all
workers share one copy and memory does not grow with the dataset.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.errors import DatasetFormatError
from ulna.data.arrow_schema import numeric_column, table_columns
from ulna.data.features import Feature
from ulna.data.language import LANGUAGE_COLUMNS
from ulna.data.layout import FileId
from ulna.data.mapped_tables import mapped_table
from ulna.data.process_limits import open_files_limit

__all__ = ["TableFile", "TableStore", "table_file"]

logger = logging.getLogger(__name__)

_IN_MEMORY_BYTES: Final = 2**20
"""Larger files are mapped, so that reading processes share them."""
_MAX_OPEN: Final = 256
_SHARE_OF_FILES: Final = 8
"""One out of this many open files that the process may have can be a table; each takes up to two."""


@dataclass(frozen=True)
class TableFile:
    """The columns of one data file.

    Attributes:
        path: The file.
        numbers: Feature to array (rows, *shape), in the stored dtype.
        others: Feature to Arrow column: texts, encoded pictures, structures.
        starts: Global number of the first row of each episode to its row in this file.
    """

    path: Path
    numbers: dict[str, npt.NDArray[Any]]
    others: dict[str, Any]
    starts: dict[int, int]


def table_file(path: Path, table: pa.Table, columns: Sequence[Feature]) -> TableFile:
    """Return the columns of a table, or of a part of one, as arrays.

    Args:
        path: The file it comes from.
        table: Its rows, or some of them.
        columns: The features that are columns.

    Returns:
        The columns.

    Raises:
        DatasetFormatError: It lacks a declared column, or one has another form than declared.
    """
    missing = [f.name for f in columns if f.name not in table.column_names]
    if missing:
        raise DatasetFormatError(f"The table {path} lacks the declared columns {missing}; it has {table.column_names}.")
    declared = {f.name for f in columns}
    hidden = [name for name in LANGUAGE_COLUMNS if name in table.column_names and name not in declared]
    if hidden:
        raise DatasetFormatError(
            f"The table {path} has the language column {hidden[0]!r}, but info.json does not declare it.",
            hint=f'Add to the features of meta/info.json: "{hidden[0]}": '
            '{"dtype": "language", "shape": [1], "names": null}',
        )
    numbers = {f.name: numeric_column(f, table[f.name], str(path)) for f in columns if f.is_numeric}
    others = {f.name: _single(table[f.name], f) for f in columns if not f.is_numeric}
    return TableFile(path, numbers, others, _starts(numbers["index"], numbers["frame_index"]))


class TableStore:
    """Opens data files on demand. Picklable and safe to share by threads; a copy in another process opens anew.

    Args:
        root: Folder of the dataset.
        template: Path template of data files.
        features: All features.
    """

    def __init__(self, root: Path, template: str, features: dict[str, Feature]) -> None:
        self._root, self._template = root, template
        self._columns = table_columns(features)
        self._files: OrderedDict[FileId, TableFile] = OrderedDict()
        self._lock = threading.Lock()
        self._max_open = max(1, min(_MAX_OPEN, open_files_limit() // _SHARE_OF_FILES))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": OrderedDict(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_lock": threading.Lock()})

    def get(self, file: FileId) -> TableFile:
        """Return the columns of a file.

        Args:
            file: Its number.

        Raises:
            DatasetFormatError: It cannot be read, or lacks a declared column.
        """
        loaded = self._files.get(file)
        if loaded is not None:
            return loaded
        with self._lock:
            if file not in self._files:
                self._files[file] = self._load(file.path(self._root, self._template))
                while len(self._files) > self._max_open:
                    self._files.popitem(last=False)
            return self._files[file]

    def _load(self, path: Path) -> TableFile:
        try:
            table = self._table(path)
        except FileNotFoundError as error:
            raise DatasetFormatError(f"The table {path} does not exist.") from error
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DatasetFormatError(f"The table {path} cannot be read: {error}") from error
        return table_file(path, table, self._columns)

    def _table(self, path: Path) -> pa.Table:
        with pq.ParquetFile(path, memory_map=True) as parquet:
            metadata = parquet.metadata
            size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
            if size <= _IN_MEMORY_BYTES:
                return parquet.read(use_threads=False)
            try:
                return mapped_table(path, parquet, [f.name for f in self._columns if f.dtype == "image"])
            except OSError as error:
                logger.warning("%s is held in memory, because the cache cannot be written: %s", path, error)
                return parquet.read(use_threads=False)


def _single(column: pa.ChunkedArray, feature: Feature) -> Any:
    """Return a column in which one row is found fast; pictures as their encoded bytes."""
    if feature.dtype == "image" and pa.types.is_struct(column.type):
        column = pa.chunked_array([chunk.field("bytes") for chunk in column.chunks], type=pa.binary())
    return column.chunk(0) if column.num_chunks == 1 else column


def _starts(index: npt.NDArray[Any], frame: npt.NDArray[Any]) -> dict[int, int]:
    rows = np.flatnonzero(frame == 0)
    return {int(index[row]): int(row) for row in rows}
