# SPDX-License-Identifier: Apache-2.0
"""Writes the data files of a new dataset: one row group an episode, a new file when one is full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.errors import DatasetError
from ulna.data.language import LANGUAGE_COLUMNS, language_array, read_cell
from ulna.data.layout import FileId

__all__ = ["TableShards", "conform"]


class TableShards:
    """Created, fed and closed by a `DatasetBuilder`; used by one thread.

    Args:
        root: Folder of the new dataset.
        template: Path template of data files.
        schema: Schema of the table.
        limit: Size in bytes that a file shall stay below.
        chunks_size: Files per chunk folder.
        dictionary: Whether columns are dictionary encoded.
    """

    def __init__(
        self, root: Path, template: str, schema: pa.Schema, limit: float, chunks_size: int, *, dictionary: bool
    ) -> None:
        self._root, self._template, self._schema = root, template, schema
        self._limit, self._chunks_size, self._dictionary = limit, chunks_size, dictionary
        self._next = FileId(0, 0)
        self._current = self._next
        self._sink: Any = None
        self._writer: Any = None
        self._rows = 0

    def write(self, rows: pa.Table) -> FileId:
        """Write one episode.

        Args:
            rows: Its rows, of the schema of the table.

        Returns:
            The file that holds it.
        """
        if self._writer is not None and self._size_with(len(rows)) >= self._limit:
            self.close()
        if self._writer is None:
            self._open()
        self._writer.write_table(rows, row_group_size=max(len(rows), 1))
        self._rows += len(rows)
        return self._current

    def _size_with(self, rows: int) -> float:
        """Estimate the size of the file with an episode more, by the rows that are in it."""
        size: int = self._sink.tell()
        return size * (1 + rows / max(self._rows, 1))

    def _open(self) -> None:
        self._current, self._next = self._next, self._next.next(self._chunks_size)
        path = self._current.path(self._root, self._template)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._sink, self._rows = pa.OSFile(str(path), "wb"), 0
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="snappy", use_dictionary=self._dictionary)

    def close(self) -> None:
        """Finish the current file. Idempotent."""
        writer, sink = self._writer, self._sink
        self._writer = self._sink = None
        try:
            if writer is not None:
                writer.close()
        finally:
            if sink is not None:
                sink.close()


def conform(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Return a table with exactly the columns and types of a schema; what is equal already is not copied.

    Args:
        table: Rows; columns that the schema lacks are dropped.
        schema: The wanted schema.
        where: What the rows are, for messages.

    Raises:
        DatasetError: A column is missing, or holds something else.
    """
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise DatasetError(f"{where} lack the columns {missing}; they have {table.column_names}.")
    columns = [_column(table[field.name], field, where) for field in schema]
    return pa.table(columns, schema=schema)


def _column(column: pa.ChunkedArray, field: pa.Field, where: str) -> pa.ChunkedArray:
    if isinstance(column.type, pa.ExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if column.type.equals(field.type):
        return column
    if field.name in LANGUAGE_COLUMNS:  # other writers store the calls of tools as structures
        return pa.chunked_array([language_array(field.name, [read_cell(cell) for cell in column])])
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise DatasetError(
            f"{where}: column {field.name!r} is {column.type} and cannot become {field.type}: {error}"
        ) from error
