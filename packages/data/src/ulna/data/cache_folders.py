# SPDX-License-Identifier: Apache-2.0
"""Folders below Ulna's home that hold what can be made again: kept below a size, oldest first out, safe to share."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

__all__ = ["in_use", "mark_used", "prune"]

logger = logging.getLogger(__name__)


class _Entry(NamedTuple):
    used: float
    size: int
    path: Path


def prune(folder: Path, max_bytes: int, keep: Collection[Path] = ()) -> int:
    """Remove the files that were used longest ago, until what is left fits.

    A file that another process has mapped or opened stays usable there; one that it has marked as in use is kept.

    Args:
        folder: The folder; files in it only, not below.
        max_bytes: Most space its files may take on disk.
        keep: Files that are not removed, and do not count.

    Returns:
        Bytes that were freed.
    """
    entries = sorted(entry for entry in _entries(folder) if entry.path not in keep)
    surplus = sum(entry.size for entry in entries) - max_bytes
    freed = 0
    for entry in entries:
        if surplus <= freed:
            break
        if _remove(entry.path):
            freed += entry.size
    if freed:
        logger.info("Removed %.1f MB that were not used lately from %s", freed / 1e6, folder)
    return freed


def _entries(folder: Path) -> Iterator[_Entry]:
    try:
        found = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in found:
        try:
            status = entry.stat()
        except FileNotFoundError:
            continue  # another process prunes, too
        if entry.is_file():
            blocks = getattr(status, "st_blocks", None)
            yield _Entry(status.st_mtime, status.st_size if blocks is None else 512 * blocks, Path(entry.path))


def _remove(path: Path) -> bool:
    try:
        with in_use(path, alone=True) as free:
            if free:
                path.unlink(missing_ok=True)
            return free
    except OSError as error:  # on Windows a file that is open cannot be removed
        logger.debug("%s stays: %s", path, error)
        return False


@contextmanager
def in_use(path: Path, *, alone: bool = False) -> Iterator[bool]:
    """Mark a file as in use by this process, for as long as the block lasts.

    Args:
        path: The file.
        alone: Whether it must be in use by nobody else.

    Yields:
        Whether the mark could be set; always True where the system has no such marks.
    """
    with path.open("rb") as file:
        yield mark_used(file.fileno(), alone=alone)


def mark_used(descriptor: int, *, alone: bool = False) -> bool:
    """Mark an open file as in use until it is closed.

    Args:
        descriptor: The open file.
        alone: Whether it must be in use by nobody else.

    Returns:
        Whether the mark could be set; always True where the system has no such marks.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
