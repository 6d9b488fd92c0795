# SPDX-License-Identifier: Apache-2.0
"""Durable file writing: every file appears whole or not at all. Nothing here knows what the files mean."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["atomic_path", "fsync_dir", "make_dirs", "replace_dir", "write_bytes", "write_json", "write_text"]


def fsync_dir(folder: Path) -> None:
    """Flush a folder's entries to disk, where the platform can.

    Args:
        folder: An existing folder.
    """
    if os.name == "nt":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_dirs(folder: Path) -> None:
    """Create a folder with its parents, each one's entry flushed to disk. Does nothing where it exists.

    Args:
        folder: The folder.
    """
    if folder.is_dir():
        return
    make_dirs(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_dir(folder.parent)


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on normal exit it is flushed and renamed over `path`.

    On an exception the temporary file is removed and `path` stays as it was.

    Args:
        path: The file to be written. Its folder is created.

    Yields:
        The path to write to.
    """
    path = Path(path)
    make_dirs(path.parent)
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(fd)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        fsync_dir(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write `data` to `path` atomically.

    Args:
        path: The file.
        data: Its whole content.
    """
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path | str, text: str) -> None:
    """Write UTF-8 `text` to `path` atomically.

    Args:
        path: The file.
        text: Its whole content.
    """
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path | str, value: Any, *, default: Callable[[Any], Any] | None = None) -> None:
    """Encode `value` first, then write it atomically with an indent of 4 and non-ASCII kept.

    Args:
        path: The file.
        value: A JSON value.
        default: Called for objects JSON does not know.

    Raises:
        TypeError: A value cannot be encoded; the old file is untouched.
    """
    text = json.dumps(value, indent=4, ensure_ascii=False, default=default)
    write_text(path, text + "\n")


@contextmanager
def replace_dir(folder: Path | str) -> Iterator[Path]:
    """Yield a new empty folder beside `folder`; on normal exit it takes the place of `folder`.

    An existing `folder` is moved aside first and removed last, so that either the old or the new one is always whole.

    Args:
        folder: The folder to be written.

    Yields:
        The folder to write into.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    aside = temporary.with_suffix(".old")
    try:
        temporary.chmod(0o777 & ~_umask())
        yield temporary
        for path in temporary.rglob("*"):
            if path.is_file():
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
        if folder.exists():
            folder.rename(aside)
        temporary.rename(folder)
        fsync_dir(folder.parent)
    except BaseException:
        if aside.exists() and not folder.exists():
            aside.rename(folder)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)
