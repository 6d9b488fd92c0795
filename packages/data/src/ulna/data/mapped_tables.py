# SPDX-License-Identifier: Apache-2.0
"""Unpacked, memory-mapped copies of data files: all processes share one, and memory does not grow with the dataset.

They lie in `cache/tables` of Ulna's home, named after the file and its state. Numbers and texts are one block, so that
columns are arrays without a copy; pictures are many small ones, so that unpacking needs little memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.files import atomic_path
from ulna.core.paths import ulna_home
from ulna.data.cache_folders import prune

__all__ = ["BUDGET_BYTES", "mapped_table"]

BUDGET_BYTES: Final = 20_000_000_000
"""Most disk space of all copies together; those used longest ago go first."""

_PICTURES_AT_ONCE: Final = 32


def mapped_table(path: Path, parquet: pq.ParquetFile, pictures: Iterable[str]) -> pa.Table:
    """Return a memory-mapped table, unpacked first when there is no copy of it or the file has changed.

    Args:
        path: The data file.
        parquet: The same, opened.
        pictures: Columns that hold pictures.

    Raises:
        OSError: The copy cannot be written or read.
    """
    stat = path.stat()
    key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|2"
    base = ulna_home() / "cache" / "tables" / hashlib.sha256(key.encode()).hexdigest()[:32]
    large = [name for name in parquet.schema_arrow.names if name in set(pictures)]
    small = [name for name in parquet.schema_arrow.names if name not in large]
    table = _part(base.with_suffix(".arrow"), parquet, small, in_one_block=True)
    if large:
        found = _part(base.with_suffix(".pictures.arrow"), parquet, large, in_one_block=False)
        for name in large:
            table = table.append_column(found.schema.field(name), found[name])
    return table


def _part(cached: Path, parquet: pq.ParquetFile, names: list[str], *, in_one_block: bool) -> pa.Table:
    try:
        return _open(cached)
    except FileNotFoundError:
        _write(cached, parquet, names, in_one_block=in_one_block)
        table = _open(cached)  # before others are removed, which can no longer touch it then
        prune(cached.parent, BUDGET_BYTES, keep={cached})
        return table


def _open(cached: Path) -> pa.Table:
    table = pa.ipc.open_file(pa.memory_map(str(cached))).read_all()
    os.utime(cached)
    return table


def _write(cached: Path, parquet: pq.ParquetFile, names: list[str], *, in_one_block: bool) -> None:
    schema = pa.schema([parquet.schema_arrow.field(name) for name in names])
    with (
        atomic_path(cached) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, schema) as writer,
    ):
        if in_one_block:
            writer.write_table(parquet.read(columns=names, use_threads=False).combine_chunks())
        else:
            for batch in parquet.iter_batches(batch_size=_PICTURES_AT_ONCE, columns=names, use_threads=False):
                writer.write_batch(batch)
