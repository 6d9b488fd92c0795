# SPDX-License-Identifier: Apache-2.0
"""Folders of a run: `checkpoints/<step>/{pretrained_model,training_state}` and `last`: found, and written whole."""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ulna.core.constants import CHECKPOINTS_DIR, LAST_CHECKPOINT_LINK, PRETRAINED_MODEL_DIR, TRAINING_STATE_DIR
from ulna.core.errors import CheckpointError
from ulna.core.files import fsync_dir, replace_dir, write_text
from ulna.training.state_files import read_json

__all__ = ["TRAINING_STEP", "Checkpoint", "checkpoint_folder", "find_checkpoint", "last_checkpoint", "new_checkpoint"]

_log = logging.getLogger(__name__)

TRAINING_STEP = "training_step.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk.

    Attributes:
        path: Its folder.
    """

    path: Path

    @property
    def model(self) -> Path:
        """The folder that policies are loaded from."""
        return self.path / PRETRAINED_MODEL_DIR

    @property
    def state(self) -> Path:
        """The folder that training resumes from."""
        return self.path / TRAINING_STATE_DIR

    @property
    def run_dir(self) -> Path | None:
        """The run it belongs to; None when it lies somewhere else."""
        return self.path.parent.parent if self.path.parent.name == CHECKPOINTS_DIR else None

    @property
    def complete(self) -> bool:
        """Whether a training can resume from it."""
        return self.model.is_dir() and (self.state / TRAINING_STEP).is_file()

    def training_step(self) -> dict[str, Any]:
        """Return the content of `training_step.json`: `step`, `batch_size`, `num_processes` and more.

        Raises:
            CheckpointError: It is missing or damaged.
        """
        data = read_json(self.state / TRAINING_STEP)
        if not isinstance(data, dict) or not isinstance(data.get("step"), int) or data["step"] < 0:
            raise CheckpointError(f"{self.state / TRAINING_STEP} does not say a step: {data!r}.")
        return data


def checkpoint_folder(run_dir: Path, step: int, total_steps: int) -> Path:
    """Return the folder of a checkpoint: the step, padded to six digits or more.

    Args:
        run_dir: The run.
        step: Steps taken.
        total_steps: Steps in all.
    """
    return run_dir / CHECKPOINTS_DIR / str(step).zfill(max(6, len(str(total_steps))))


def find_checkpoint(source: Path | str) -> Checkpoint:
    """Find the checkpoint that somebody means.

    Args:
        source: A run folder (its last checkpoint), its `checkpoints`, one checkpoint, the `pretrained_model` in it,
            or a file there.

    Returns:
        The checkpoint.

    Raises:
        CheckpointError: There is none that a training could resume from.
    """
    path = Path(source).expanduser()
    if not path.exists():
        raise CheckpointError(f"{path} does not exist.", hint="Name a run folder or one of its checkpoints.")
    folder = path if path.is_dir() else path.parent
    if path.is_file() and path.name == LAST_CHECKPOINT_LINK:
        folder = path.parent
    for candidate in (folder, folder.parent):
        if (found := Checkpoint(candidate.resolve())).complete:
            return found
    for checkpoints in (folder / CHECKPOINTS_DIR, folder):
        if (last := last_checkpoint(checkpoints)) is not None:
            return last
    raise CheckpointError(
        f"{path} holds no checkpoint that a training can resume from.",
        hint=f"One has the folders {PRETRAINED_MODEL_DIR} and {TRAINING_STATE_DIR}; "
        f"a run has them in {CHECKPOINTS_DIR}/<step>.",
    )


def last_checkpoint(checkpoints: Path) -> Checkpoint | None:
    """Return the checkpoint that `last` names, else the one of the highest step.

    Args:
        checkpoints: The folder `checkpoints` of a run.
    """
    link = checkpoints / LAST_CHECKPOINT_LINK
    if link.is_file() and not link.is_symlink():
        named = checkpoints / link.read_text(encoding="utf-8").strip()
    else:
        named = link.resolve()
    candidates = [named, *reversed(_numbered(checkpoints))]
    return next((c for c in map(Checkpoint, candidates) if c.path != checkpoints and c.complete), None)


def _numbered(checkpoints: Path) -> list[Path]:
    if not checkpoints.is_dir():
        return []
    found = [path for path in checkpoints.iterdir() if path.name.isdigit() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name))


@contextmanager
def new_checkpoint(folder: Path, *, keep_last: int = 0) -> Iterator[Checkpoint]:
    """Yield a checkpoint to write into; it gets its place, and `last` its name, when everything is written and flushed.

    On an error nothing changes: older checkpoints and `last` stay as they were.

    Args:
        folder: Where it will be.
        keep_last: How many checkpoints of the run are kept; 0 keeps all.

    Yields:
        A checkpoint in a temporary folder.
    """
    _tidy(folder.parent)
    with replace_dir(folder) as temporary:
        unfinished = Checkpoint(temporary)
        unfinished.model.mkdir()
        unfinished.state.mkdir()
        yield unfinished
    _point_last(folder)
    if keep_last:
        for old in _numbered(folder.parent)[:-keep_last]:
            shutil.rmtree(old, ignore_errors=True)


def _tidy(checkpoints: Path) -> None:
    """Remove what a killed process left: unfinished folders; and put back a checkpoint that was moved aside."""
    for aside in checkpoints.glob(".*.old"):
        home = checkpoints / aside.name[1:].split(".", 1)[0]
        if not home.exists() and Checkpoint(aside).complete:
            aside.rename(home)
        else:
            shutil.rmtree(aside, ignore_errors=True)
    for unfinished in checkpoints.glob(".*.tmp"):
        if unfinished.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.unlink(missing_ok=True)


def _point_last(folder: Path) -> None:
    """Make `last` name a checkpoint: a relative link, or a small file with the name where links are not allowed."""
    last = folder.parent / LAST_CHECKPOINT_LINK
    temporary = folder.parent / f".{LAST_CHECKPOINT_LINK}.tmp"
    temporary.unlink(missing_ok=True)
    if last.is_dir() and not last.is_symlink():  # a copy that followed links made a whole checkpoint of it
        aside = next(p for n in itertools.count() if not (p := last.with_name(f"{last.name}.{n}")).exists())
        _log.warning("%s is a folder instead of a link; it is kept as %s.", last, aside)
        last.rename(aside)
    try:
        temporary.symlink_to(folder.name, target_is_directory=True)
    except OSError as error:
        _log.info("No link can be made here (%s); %s is a file that names the checkpoint.", error, last)
        if last.is_symlink():
            last.unlink()
        write_text(last, folder.name + "\n")
        return
    temporary.replace(last)
    fsync_dir(folder.parent)
