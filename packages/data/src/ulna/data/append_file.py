# SPDX-License-Identifier: Apache-2.0
"""A file that only grows, record by record, each handed to the system at once so that it survives the process."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["AppendFile"]


class AppendFile:
    """Appends records to a new file; after an error it ends behind the last whole one. Used by one thread.

    Args:
        path: The file, which must not exist.

    Raises:
        OSError: It cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        self.length = 0

    def append(self, record: bytes) -> int:
        """Add a record.

        Args:
            record: Its bytes.

        Returns:
            The length of the file.

        Raises:
            OSError: The disk is full or does not answer; the file is as it was before.
        """
        try:
            written = self._file.write(record)
            while written < len(record):  # a short write: the next one tells why
                written += self._file.write(record[written:])
        except BaseException:
            self.shorten(self.length)
            raise
        self.length += len(record)
        return self.length

    def shorten(self, length: int) -> None:
        """Forget what lies behind a place.

        Args:
            length: A former length.
        """
        os.ftruncate(self._file.fileno(), length)
        self._file.seek(length)
        self.length = length

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()
