# SPDX-License-Identifier: Apache-2.0
"""The `.ulna` folder inside a dataset: who is recording, what is unfinished, and files that are being swapped in.

It exists only while a recording is open or was interrupted. A swap is made safe by a journal: new files are written
in full here first, then the journal names every move and deletion, then they are carried out. Whoever opens the dataset
afterwards either finds no journal (nothing happened) or carries the rest out.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ulna.core.errors import DatasetError, DatasetFormatError
from ulna.core.files import fsync_dir, make_dirs, write_json
from ulna.data.layout import WORK_FOLDER

__all__ = ["FolderLock", "RecordingMark", "Workspace"]


class FolderLock:
    """An exclusive lock that dies with its process. Created and closed by a recorder or a repairing reader.

    Args:
        path: The lock file; its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = None

    def acquire(self, *, made: bool = True) -> bool:
        """Take the lock if it is free.

        Args:
            made: Whether the file is made where there is none; else it need not be writable.

        Returns:
            Whether it is held now.
        """
        file = self._path.open("ab" if made else "rb")  # held open as long as the lock
        try:
            _lock(file)
        except OSError:
            file.close()
            return False
        self._file = file
        return True

    def release(self) -> None:
        """Give the lock back; does nothing when it is not held."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _lock(file: Any) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@dataclass(frozen=True)
class RecordingMark:
    """Says that a recording is open.

    Attributes:
        first_episode: First episode whose files have not been compacted.
        process: Id of the recording process.
        started: Unix time.
    """

    first_episode: int
    process: int
    started: float


class Workspace:
    """Access to the `.ulna` folder of one dataset.

    Args:
        root: Folder of the dataset.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / WORK_FOLDER
        self.staging = self.folder / "staging"
        self.swap = self.folder / "swap"
        self._journal = self.folder / "journal.json"
        self._mark = self.folder / "recording.json"
        self._lock_path = self.folder / "lock"
        self._lock = FolderLock(self._lock_path)

    @property
    def exists(self) -> bool:
        """Whether a recording is open, or was interrupted."""
        return self.folder.is_dir()

    def lock(self) -> bool:
        """Create the folder and take its lock.

        Returns:
            False when another process (or another object of this one) holds it.
        """
        make_dirs(self.folder)
        return self._lock.acquire()

    @property
    def is_locked(self) -> bool:
        """Whether a recorder has the dataset open at this moment."""
        probe = FolderLock(self._lock_path)
        try:
            taken = probe.acquire(made=False)
        except OSError:  # there is none, or somebody else's that may not even be read
            return False
        probe.release()
        return not taken

    def unlock(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def mark(self) -> RecordingMark | None:
        """Return the mark of an open or interrupted recording.

        Raises:
            DatasetFormatError: The mark is damaged.
        """
        try:
            raw = json.loads(self._mark.read_text(encoding="utf-8"))
            return RecordingMark(int(raw["first_episode"]), int(raw["process"]), float(raw["started"]))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DatasetFormatError(
                f"{self._mark} is damaged: {error!r}.", hint=f"No episode depends on it: delete {self._mark}"
            ) from error

    def set_mark(self, first_episode: int) -> None:
        """Say that a recording is open.

        Args:
            first_episode: First episode whose files are not compacted.
        """
        write_json(self._mark, {"first_episode": first_episode, "process": os.getpid(), "started": time.time()})

    def unfinished_episodes(self) -> list[int]:
        """Return the episodes that were being recorded, or whose storing had not ended."""
        if not self.staging.is_dir():
            return []
        names = (path.name.removeprefix("episode-") for path in self.staging.glob("episode-*"))
        return sorted(int(name) for name in names if name.isdigit())

    def folder_of(self, episode: int) -> Path:
        """Return where the unfinished files of an episode lie.

        Args:
            episode: Its number.
        """
        return self.staging / f"episode-{episode:06d}"

    def episode_folder(self, episode: int) -> Path:
        """Return the folder for the unfinished files of an episode, new and empty.

        Args:
            episode: Its number.
        """
        folder = self.folder_of(episode)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def begin_swap(self) -> Path:
        """Return a new empty folder for files that will be swapped in."""
        shutil.rmtree(self.swap, ignore_errors=True)
        make_dirs(self.swap)
        return self.swap

    def commit_swap(self, moves: Sequence[tuple[Path, Path]], deletions: Sequence[Path]) -> None:
        """Swap prepared files in. After a kill, `replay` does what is left.

        Args:
            moves: Prepared file below `swap`, and the path that it takes (replacing what is there).
            deletions: Files that go.
        """
        for source, _ in moves:
            with source.open("rb+") as file:
                os.fsync(file.fileno())
        for folder in {source.parent for source, _ in moves}:
            fsync_dir(folder)
        plan = {
            "moves": [[str(a.relative_to(self.root)), str(b.relative_to(self.root))] for a, b in moves],
            "deletions": [str(path.relative_to(self.root)) for path in deletions],
        }
        write_json(self._journal, plan)
        self.replay()

    def replay(self) -> bool:
        """Carry out what a journal says, if there is one. May be repeated.

        Returns:
            Whether there was one.

        Raises:
            DatasetError: The journal names a file that is neither prepared nor in place.
            DatasetFormatError: The journal is damaged, or names a file outside the dataset; nothing was touched.
        """
        try:
            text = self._journal.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise DatasetFormatError(f"{self._journal} cannot be read: {error}") from error
        moves, deletions = self._plan(text)
        touched = set()
        for source, target in moves:
            if source.exists():
                make_dirs(target.parent)
                source.replace(target)
            elif not target.exists():
                raise DatasetError(f"{self._journal} names {source}, which is neither there nor in place at {target}.")
            touched.add(target.parent)
        for path in deletions:
            path.unlink(missing_ok=True)
            touched.add(path.parent)
        for folder in touched:
            if folder.exists():
                fsync_dir(folder)
        self._journal.unlink()
        fsync_dir(self.folder)
        self._remove_empty(touched)
        return True

    def _plan(self, text: bytes) -> tuple[list[tuple[Path, Path]], list[Path]]:
        """Return the moves and deletions of a journal. It came with the dataset, so only names inside are obeyed."""
        hint = f"If {self.root} opens without it, nothing is lost: move {self._journal} out of the dataset."
        try:
            plan = json.loads(text)
            names = [name for pair in plan["moves"] for name in pair] + list(plan["deletions"])
            outside = [n for n in names if Path(n).is_absolute() or ".." in Path(n).parts]
            moves = [(self.root / a, self.root / b) for a, b in plan["moves"]]
        except (ValueError, KeyError, TypeError) as error:
            raise DatasetFormatError(f"{self._journal} is damaged: {error!r}.", hint=hint) from error
        if outside:
            raise DatasetFormatError(f"{self._journal} names {outside[0]!r}, which is not in the dataset.", hint=hint)
        return moves, [self.root / name for name in plan["deletions"]]

    def _remove_empty(self, folders: set[Path]) -> None:
        for folder in folders:
            if folder != self.root and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    @property
    def has_journal(self) -> bool:
        """Whether a swap was interrupted."""
        return self._journal.exists()

    def clear_staging(self) -> None:
        """Remove unfinished episodes and unfinished swaps."""
        shutil.rmtree(self.staging, ignore_errors=True)
        shutil.rmtree(self.swap, ignore_errors=True)

    def clear_temporaries(self) -> None:
        """Remove the halves of files that were being written when a recorder was killed."""
        for part in ("data", "meta", "videos"):
            for path in (self.root / part).rglob(".*.tmp"):
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Give the lock back and remove the whole folder."""
        self.unlock()
        shutil.rmtree(self.folder, ignore_errors=True)
