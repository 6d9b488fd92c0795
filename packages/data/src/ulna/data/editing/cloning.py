# SPDX-License-Identifier: Apache-2.0
"""A second dataset that shares the files of another, for changes of which most files know nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ulna.core.files import fsync_dir
from ulna.data.editing.replacement import building_folder, flush_tree
from ulna.data.layout import WORK_FOLDER

__all__ = ["cloned"]


@contextmanager
def cloned(root: Path, target: Path) -> Iterator[Path]:
    """Yield a hidden copy of a dataset that may be changed; afterwards it is flushed to disk and gets its name.

    Files are linked, not copied, where the system can: no file may be written in place, only replaced by a new one.

    Args:
        root: Folder of the dataset.
        target: Folder of the copy; it must not exist, or be empty.

    Yields:
        The folder to change.

    Raises:
        OSError: The disk is full, or the target has been made by somebody else.
    """
    owned = building_folder(target)
    folder = owned.path
    try:
        for path in sorted(root.rglob("*")):
            inside = path.relative_to(root)
            if inside.parts[0] == WORK_FOLDER:
                continue
            if path.is_dir():
                (folder / inside).mkdir(exist_ok=True)
            else:
                _link(path, folder / inside)
        yield folder
        flush_tree(folder)
        if target.is_dir():
            target.rmdir()
        folder.rename(target)
        fsync_dir(target.parent)
    finally:
        owned.remove()


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
