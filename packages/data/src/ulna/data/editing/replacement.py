# SPDX-License-Identifier: Apache-2.0
"""Puts a finished new dataset in the place of an old one, in one instant.

The new dataset is built in a hidden folder beside the old one. When it is whole and flushed to disk it gets the name
`.NAME.ulna-new`. Where the system can exchange two folders in one step, that is done; elsewhere the old one is first
moved to `.NAME.ulna-old`. Should the process end between those two steps, `finish_replacement` does the second: whoever
opens the dataset calls it.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from ulna.core.errors import DatasetError
from ulna.core.files import fsync_dir
from ulna.data.owned_folders import OwnedFolder, orphans, remove_orphans

__all__ = [
    "building_folder",
    "finish_replacement",
    "flush_tree",
    "leftovers",
    "prepared_folder",
    "remove_leftovers",
    "replace_dataset",
]

logger = logging.getLogger(__name__)

_NEW, _OLD, _BUILDING = "ulna-new", "ulna-old", "ulna-building"
_BUILDING_NAME = f".{_BUILDING}-"
_LONGEST = 100  # names of folders end at 255 bytes
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NOT_SUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV, errno.EPERM}


def prepared_folder(root: Path) -> Path:
    """Return where a whole new version of a dataset lies before it takes its place.

    Args:
        root: Folder of the dataset.
    """
    return _sibling(root, _NEW)


def _sibling(root: Path, what: str) -> Path:
    return root.parent / f".{root.name}.{what}"


def building_folder(target: Path) -> OwnedFolder:
    """Make a new hidden folder beside a target, on the same disk. Those that killed edits left there are removed.

    Args:
        target: Where the dataset shall be.
    """
    name = target.name.removeprefix(".").removesuffix(f".{_NEW}")
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_orphans(target.parent, ".", _BUILDING_NAME)
    folder = OwnedFolder(f".{name[:_LONGEST]}.{_BUILDING}-", target.parent)
    folder.path.chmod(0o755)
    return folder


def leftovers(root: Path) -> list[Path]:
    """Return the folders that interrupted changes of a dataset, or into new ones, have left beside it.

    Args:
        root: Folder of the dataset, which is whole.
    """
    root = root.resolve()
    found = [path for path in (_sibling(root, _NEW), _sibling(root, _OLD)) if path.exists()]
    return found + orphans(root.parent, ".", _BUILDING_NAME)


def remove_leftovers(root: Path) -> None:
    """Remove what interrupted changes have left beside a dataset. The dataset itself must be in place.

    Args:
        root: Folder of the dataset.
    """
    if root.is_dir():
        for path in leftovers(root):
            shutil.rmtree(path)


def finish_replacement(root: Path) -> bool:
    """Complete a replacement that was interrupted between its two steps. Does nothing otherwise.

    Args:
        root: Folder of the dataset, as it was asked for.

    Returns:
        Whether there was anything to complete.
    """
    root = root.resolve()
    new, old = _sibling(root, _NEW), _sibling(root, _OLD)
    if root.exists() or not (new.is_dir() and old.is_dir()):
        return False
    try:
        new.rename(root)
    except FileNotFoundError:
        return root.exists()  # somebody else was faster
    fsync_dir(root.parent)
    logger.warning("%s: an interrupted change was completed.", root)
    shutil.rmtree(old, ignore_errors=True)
    return True


def flush_tree(folder: Path) -> None:
    """Flush every file and folder below a folder to disk.

    Args:
        folder: An existing folder.
    """
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_symlink():
            continue
        if path.is_dir():
            fsync_dir(path)
        elif path.stat().st_nlink == 1:  # a file that has a second name is an old one and lies there already
            with path.open("rb+" if os.access(path, os.W_OK) else "rb") as file:
                os.fsync(file.fileno())
    fsync_dir(folder)


def replace_dataset(root: Path, prepared: Path) -> None:
    """Put a whole new dataset in the place of an old one, which is removed. A kill leaves one or the other.

    Args:
        root: Folder of the old dataset.
        prepared: Folder of the new one, flushed to disk, on the same file system.

    Raises:
        DatasetError: The folders cannot be renamed; the old dataset is in its place.
    """
    root, prepared = root.resolve(), prepared.absolute()
    new, old = _sibling(root, _NEW), _sibling(root, _OLD)
    try:
        if prepared != new:
            shutil.rmtree(new, ignore_errors=True)
            prepared.rename(new)
        shutil.rmtree(old, ignore_errors=True)
        fsync_dir(root.parent)
        _swap(root, new, old)
    except OSError as error:
        raise DatasetError(
            f"{root} could not be replaced by its new version: {error}. It is as it was.",
            hint="Close programs that hold its files open, or choose a folder of its own for the result.",
        ) from error
    shutil.rmtree(old, ignore_errors=True)


def _swap(root: Path, new: Path, old: Path) -> None:
    if _exchange(root, new):
        new.rename(old)
    else:
        root.rename(old)
        try:
            new.rename(root)
        except OSError:
            if not root.exists():  # else a reader has completed it meanwhile
                old.rename(root)
                raise
    with suppress(OSError):  # the new version is in place; should power fail now, the old one may be there again
        fsync_dir(root.parent)


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two folders in one step where the system can."""
    if not sys.platform.startswith("linux"):
        return False
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_SUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(a))
