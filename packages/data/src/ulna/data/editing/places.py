# SPDX-License-Identifier: Apache-2.0
"""Where an edit reads from and where its result goes: beside the original, or in its place. Edits nothing itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ulna.core.errors import DatasetError, DatasetNotFinishedError
from ulna.data.editing.replacement import prepared_folder, remove_leftovers, replace_dataset
from ulna.data.layout import INFO_PATH, STATS_PATH, TASKS_PATH
from ulna.data.location import hub_cache, new_root
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.timing import RECORDING_LOG
from ulna.data.workspace import Workspace

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = ["Place", "carry_side_files", "new_place", "open_source", "place_for"]

_PER_FRAME: Final = frozenset({"sarm_progress.parquet"})
"""Files that other programs keep beside a dataset, with one row a frame: they fit no other numbering."""
_OWN_META: Final = frozenset({INFO_PATH, STATS_PATH, TASKS_PATH, RECORDING_LOG})
_OWN: Final = frozenset({"data", "videos", "images", "meta", ".ulna"})


def open_source(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
) -> LeRobotDatasetMetadata:
    """Return the metadata of a dataset that shall be edited, read from disk now.

    Args:
        dataset: An opened dataset or its metadata, its folder, or `user/name`.

    Raises:
        DatasetError: It is not on this machine, or still open for recording.
        DatasetFormatError: Its files contradict the format.
    """
    if isinstance(dataset, (str, os.PathLike)):
        folder = Path(dataset)
        return LeRobotDatasetMetadata(folder.name, folder) if folder.is_dir() else LeRobotDatasetMetadata(str(dataset))
    if getattr(dataset, "is_recording", False):
        raise DatasetNotFinishedError(
            f"{dataset.repo_id} is open for recording.", hint="Call finalize() first; then it can be edited."
        )
    return LeRobotDatasetMetadata(dataset.repo_id, dataset.root)


@dataclass(frozen=True)
class Place:
    """Where the result of an edit goes.

    Attributes:
        repo_id: `user/name` of the result.
        root: Folder of the result.
        in_place: Whether it takes the place of the original.
    """

    repo_id: str
    root: Path
    in_place: bool

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Yield the folder to build in; afterwards the dataset that was finished there is in its place.

        An original that is replaced is locked meanwhile against recording and other edits. Whatever goes wrong leaves
        it as it was.

        Yields:
            A folder that does not exist.

        Raises:
            DatasetError: The original is in use, or the disk is full or cannot be written.
            DatasetNotFinishedError: The original has an unfinished recording.
        """
        try:
            if not self.in_place:
                yield self.root
                return
            with _held(self.root):
                remove_leftovers(self.root)
                prepared = prepared_folder(self.root)
                try:
                    yield prepared
                    replace_dataset(self.root, prepared)
                finally:
                    if self.root.is_dir():
                        shutil.rmtree(prepared, ignore_errors=True)
        except OSError as error:
            original = f" {self.root} is as it was." if self.in_place else ""
            raise DatasetError(
                f"The edited dataset could not be written beside {self.root}: {error}.{original}",
                hint="Free some space, or choose a folder on another disk.",
            ) from error


def place_for(meta: LeRobotDatasetMetadata, output_dir: str | os.PathLike[str] | None, repo_id: str | None) -> Place:
    """Decide where the result of an edit goes.

    Args:
        meta: The original.
        output_dir: Folder of the result. None with `repo_id` looks its folder up by name; None without edits in place.
        repo_id: Name of the result; the original's when not given.

    Raises:
        DatasetError: The folder is taken or cannot be written, or in-place editing would lose something, or the
            original is in use.
        DatasetNotFinishedError: The original would be replaced, and has an unfinished recording.
    """
    name, original = repo_id or meta.repo_id, meta.root.resolve()
    folder = Path(output_dir) if output_dir is not None else None
    if (folder is None and name == meta.repo_id) or (folder is not None and folder.resolve() == original):
        _refuse_loss(meta)
        _refuse_unfinished(original)
        _refuse_unwritable(original)
        return Place(name, original, in_place=True)
    return new_place(name, folder)


def new_place(repo_id: str, folder: str | os.PathLike[str] | None) -> Place:
    """Return the place of a result that replaces nothing.

    Args:
        repo_id: Its name.
        folder: Its folder; looked up by its name when not given.

    Raises:
        DatasetError: The folder is taken, or cannot be made.
    """
    root = new_root(repo_id, None if folder is None else Path(folder), edited=True)
    _refuse_unwritable(root)
    return Place(repo_id, root, in_place=False)


def _refuse_unwritable(root: Path) -> None:
    """Refuse a place beside which no folder can be made, where the new dataset is built."""
    parent = root.parent
    while not os.path.lexists(parent):  # what may not be looked at counts as missing: the folder above is refused then
        parent = parent.parent
    wrong = "may not be written" if parent.is_dir() else "is not a folder"
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise DatasetError(
            f"The edited dataset cannot be written beside {root}: {parent} {wrong}.",
            hint="Choose another folder: output_dir, or --output on the command line.",
        )


def _refuse_unfinished(root: Path) -> None:
    """Refuse to replace a dataset that is being written, or whose recording was interrupted. Leaves no trace."""
    workspace = Workspace(root)
    if workspace.is_locked:
        raise _in_use(root)
    if _is_unfinished(workspace):
        raise _interrupted(root)


def _is_unfinished(workspace: Workspace) -> bool:
    return workspace.mark() is not None or bool(workspace.unfinished_episodes())


def _in_use(root: Path) -> DatasetError:
    return DatasetError(
        f"{root} is in use by a recording or another edit.", hint="Wait until that has ended, then try again."
    )


def _interrupted(root: Path) -> DatasetNotFinishedError:
    return DatasetNotFinishedError(
        f"A recording into {root} was interrupted; editing it in place could lose what it left.",
        hint=f"Finish it first: ulna dataset repair {root}",
    )


def _refuse_loss(meta: LeRobotDatasetMetadata) -> None:
    """Refuse to replace a dataset of which not everything can be read, or that others rely on as it is."""
    if meta.root.resolve().is_relative_to(hub_cache().resolve()):
        raise DatasetError(
            f"{meta.root} is what was pulled from the Hub, and is not edited in place.",
            hint="Give a folder for the result: output_dir, or --output on the command line.",
        )
    if meta.left_out:
        raise DatasetError(
            f"Editing {meta.root} in place would lose the episodes {meta.left_out}, whose files are not whole.",
            hint=f"Restore the files, or see what can be mended: ulna dataset repair {meta.root}. "
            "An edit with an output folder of its own leaves them out and changes nothing here.",
        )


@contextmanager
def _held(root: Path) -> Iterator[None]:
    """Keep recorders and other edits away from a dataset that will be replaced."""
    workspace = Workspace(root)
    unfinished = _is_unfinished(workspace)
    if not workspace.lock():
        raise _in_use(root)
    held = workspace.folder.stat().st_ino
    try:
        if unfinished:
            raise _interrupted(root)
        yield
    finally:
        # After a replacement the folder of that name, if there is one, belongs to a recorder that has just begun.
        ours = workspace.folder.is_dir() and workspace.folder.stat().st_ino == held
        if ours and not unfinished:
            workspace.remove()
        else:
            workspace.unlock()


def carry_side_files(root: Path, target: Path, *, renumbered: bool) -> Sequence[Path]:
    """Take over what lies beside the files of a dataset: its card, licence, notes and the like.

    Args:
        root: Folder of the original.
        target: Folder of the new dataset.
        renumbered: Whether frames have new numbers, so that files with one row a frame no longer fit.

    Returns:
        Files that were left behind.
    """
    left = []
    for path in sorted((root / "meta").iterdir()):
        if path.is_file() and str(path.relative_to(root)) not in _OWN_META:
            (target / "meta").mkdir(exist_ok=True)
            shutil.copy2(path, target / "meta" / path.name)
    for path in sorted(root.iterdir()):
        if path.name in _OWN:
            continue
        if renumbered and path.name in _PER_FRAME:
            left.append(path)
        elif path.is_dir() and not path.is_symlink():
            shutil.copytree(path, target / path.name, symlinks=True)
        else:
            shutil.copy2(path, target / path.name, follow_symlinks=False)
    return left
