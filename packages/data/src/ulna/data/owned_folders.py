# SPDX-License-Identifier: Apache-2.0
"""Temporary folders that tell whether their owner still lives, so that the next one can remove what a killed one left.

The owner holds a lock on the folder itself, which dies with its process. Where the system has no such locks, nothing
is ever taken for left behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["OwnedFolder", "orphans", "remove_orphans"]


class OwnedFolder:
    """A new temporary folder. Made by whoever fills it, and ended by `release` or `remove`.

    Args:
        prefix: Beginning of its name.
        parent: The folder in which it lies.

    Attributes:
        path: Where it lies.
    """

    def __init__(self, prefix: str, parent: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._descriptor = _locked(self.path)
        while self._descriptor is None and not self.path.exists():  # somebody took it for an orphan meanwhile
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            self._descriptor = _locked(self.path)

    def release(self) -> None:
        """Own it no longer, for instance because it has got another name. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def remove(self) -> None:
        """Remove it with everything in it, if it still has its name. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()


def _locked(folder: Path, *, alone: bool = False) -> int | None:
    """Open a folder and lock it; None where that cannot be done."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        if folder.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def orphans(parent: Path, prefix: str, part: str = "") -> list[Path]:
    """Return the folders that an owner has left behind because it was killed.

    Args:
        parent: The folder in which they lie.
        prefix: Beginning of their names.
        part: What their names contain.
    """
    found = []
    for path in _folders(parent, prefix, part):
        descriptor = _locked(path, alone=True)
        if descriptor is not None:
            os.close(descriptor)
            found.append(path)
    return found


def remove_orphans(parent: Path, prefix: str, part: str = "") -> None:
    """Remove the folders that an owner has left behind because it was killed.

    Args:
        parent: The folder in which they lie.
        prefix: Beginning of their names.
        part: What their names contain.
    """
    for path in _folders(parent, prefix, part):
        descriptor = _locked(path, alone=True)
        if descriptor is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)


def _folders(parent: Path, prefix: str, part: str) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            named = [e for e in entries if e.name.startswith(prefix) and part in e.name]
            return sorted(Path(e) for e in named if e.is_dir(follow_symlinks=False))
    except OSError:
        return []
