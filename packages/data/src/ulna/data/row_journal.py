# SPDX-License-Identifier: Apache-2.0
"""The rows of an unfinished episode on disk, one record a frame, so that a killed recording can be recovered.

A file of length- and checksum-prefixed records: the first is a JSON header, each further one a frame. Each is handed to
the system in one write, which survives the end of the process at any instant; nothing is flushed to disk here.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ulna.data.append_file import AppendFile
from ulna.data.features import Feature

__all__ = ["JournalRows", "RowJournal", "read_journal"]

_PREFIX = struct.Struct("<II")
_TIME = struct.Struct("<d")


@dataclass
class JournalRows:
    """What a journal holds.

    Attributes:
        header: What it was opened with.
        tasks: Task of each frame.
        values: Numbers and texts of each frame.
        times: When each frame was added, seconds on the recorder's clock.
    """

    header: dict[str, Any] = field(default_factory=dict)
    tasks: list[str] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tasks)


class RowJournal:
    """Appends the rows of one episode to a file. Created by a recorder with the episode; used by one thread.

    Args:
        path: The file, which must not exist.
        features: All features of the dataset.
        header: JSON values that recovering will need.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, path: Path, features: Mapping[str, Feature], header: Mapping[str, Any]) -> None:
        self._numbers, self._others = _layout(features)
        self._texts: dict[str, bytes] = {}
        self._file = AppendFile(path)
        try:
            self._write(json.dumps(header).encode())
        except BaseException:
            self._file.close()
            raise

    def append(self, task: str, values: Mapping[str, Any], time_s: float) -> None:
        """Add one frame. After an error the journal is as it was before.

        Args:
            task: What the robot is doing.
            values: Numbers and texts, checked.
            time_s: When it was added.

        Raises:
            OSError: The disk is full or does not answer.
        """
        parts = [_TIME.pack(time_s), *(values[f.name].tobytes() for f in self._numbers)]
        if self._others:
            parts.append(json.dumps([task, *(values[name] for name in self._others)]).encode())
        else:
            parts.append(self._texts.get(task) or self._texts.setdefault(task, json.dumps([task]).encode()))
        self._write(b"".join(parts))

    def _write(self, record: bytes) -> None:
        self._file.append(_PREFIX.pack(len(record), zlib.crc32(record)) + record)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()


def read_journal(path: Path, features: Mapping[str, Feature]) -> JournalRows:
    """Read a journal up to its last whole record.

    Args:
        path: The file.
        features: All features of the dataset.

    Returns:
        Its rows; none where there is no journal.
    """
    numbers, others = _layout(features)
    rows = JournalRows()
    records = _records(path)
    for header in records:
        rows.header = json.loads(header)
        break
    fixed = sum(_nbytes(f) for f in numbers)
    for record in records:
        position = _TIME.size
        values: dict[str, Any] = {}
        for f in numbers:
            raw = np.frombuffer(record, np.dtype(f.dtype), int(np.prod(f.shape, dtype=np.int64)), position)
            values[f.name] = raw.reshape(f.shape)
            position += _nbytes(f)
        task, *rest = json.loads(record[_TIME.size + fixed :])
        values.update(zip(others, rest, strict=True))
        rows.times.append(_TIME.unpack_from(record)[0])
        rows.tasks.append(task)
        rows.values.append(values)
    return rows


def _layout(features: Mapping[str, Feature]) -> tuple[list[Feature], list[str]]:
    """Return the features stored as numbers, and the names of those stored as JSON."""
    stored = [f for f in features.values() if not f.is_default and not f.is_camera]
    return [f for f in stored if f.is_numeric], [f.name for f in stored if not f.is_numeric]


def _nbytes(feature: Feature) -> int:
    return int(np.prod(feature.shape, dtype=np.int64)) * np.dtype(feature.dtype).itemsize


def _records(path: Path) -> Iterator[bytes]:
    try:
        data = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return
    position = 0
    while position + _PREFIX.size <= len(data):
        length, checksum = _PREFIX.unpack_from(data, position)
        position += _PREFIX.size
        record = data[position : position + length]
        if not record or len(record) < length or zlib.crc32(record) != checksum:
            return  # zeros are what a lost power supply leaves behind; their checksum would be right
        yield record
        position += length
