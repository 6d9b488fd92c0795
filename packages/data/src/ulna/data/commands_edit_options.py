# SPDX-License-Identifier: Apache-2.0
"""What the commands that change datasets share: their options, where results go, and how a plan is carried out.

The commands themselves are in `commands_edit` and `commands_convert`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ulna.core.commands import message, output

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset
    from ulna.data.editing.plans import EditPlan
    from ulna.data.metadata import LeRobotDatasetMetadata

__all__ = [
    "EPISODES_HELP",
    "Dataset",
    "DryRun",
    "InPlace",
    "carry_out",
    "edit_places",
    "episode_numbers",
    "output_option",
]

EPISODES_HELP: Final = "Episodes: numbers and ranges, such as 3 7-9 12,14."
_MOST_EPISODES: Final = 10_000_000


def output_option(default: str | None, what: str = "Folder of the result") -> Any:
    """Return the option that names the folder of a result.

    Args:
        default: Where the result goes without it; None where it must be given.
        what: What lies there.
    """
    return typer.Option("--output", "-o", help=f"{what}{'' if default is None else f'; default: {default}'}.")


Dataset = Annotated[str, typer.Argument(help="user/name, or the folder of a dataset.")]
"""The dataset that a command changes."""
InPlace = Annotated[bool, typer.Option("--in-place", help="Let the result take the place of the dataset, in one step.")]
"""Whether the result replaces the dataset."""
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check the request and say what would be done, and do nothing.")
]
"""Whether nothing is written."""


class _ProgressLine:
    """Draws one line on a terminal that says how far a command is; elsewhere it is silent.

    Args:
        unit: What is counted.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit

    def __call__(self, done: int, total: int) -> None:
        """Draw the line anew.

        Args:
            done: What is done.
            total: How much there is.
        """
        if sys.stderr is not None and sys.stderr.isatty():
            end = "" if done < total else "\r\033[K"
            typer.echo(f"\r\033[K{self._unit} {done} of {total}{end}", err=True, nl=False)


def edit_places(
    dataset: str, output_dir: Path | None, in_place: bool, suffix: str
) -> tuple[LeRobotDatasetMetadata, Path | None]:
    """Return the dataset that a command edits and where the result goes.

    Args:
        dataset: user/name, or a folder.
        output_dir: Folder of the result, if it was named.
        in_place: Whether the result takes the place of the dataset.
        suffix: What stands behind the name of the dataset in that of the result, if neither was said.

    Returns:
        The dataset, and the folder of the result; None when that takes the place of the dataset.

    Raises:
        DatasetError: Both were said, or the dataset is not on this machine.
    """
    from ulna.core.errors import DatasetError
    from ulna.data.editing.places import open_source

    if in_place and output_dir is not None:
        raise DatasetError("--in-place and --output exclude one another.", hint="Leave one of them out.")
    meta = open_source(dataset)
    if in_place:
        return meta, None
    root = meta.root.absolute()
    return meta, output_dir or root.with_name(f"{root.name}_{suffix}")


def episode_numbers(texts: Sequence[str]) -> list[int]:
    """Return the numbers that "3", "7-9" and "12,14" name.

    Args:
        texts: What was typed.

    Raises:
        DatasetError: One of them names no episodes.
    """
    from ulna.core.errors import DatasetError

    numbers: list[int] = []
    for text in texts:
        for piece in text.split(","):
            first, dash, last = piece.strip().partition("-")
            ends = (first, last if dash else first)
            if not all(end.isdecimal() for end in ends) or not 0 <= int(ends[1]) - int(ends[0]) < _MOST_EPISODES:
                raise DatasetError(f"{text!r} names no episodes: expected were numbers and ranges such as 3 7-9 12,14.")
            numbers.extend(range(int(ends[0]), int(ends[1]) + 1))
    return numbers


def carry_out(plan: EditPlan, dry_run: bool, unit: str = "episode") -> None:
    """Say what an edit does and do it, or only say it.

    Args:
        plan: What was found possible.
        dry_run: Whether nothing is written; what can be wrong with the contents is looked for all the same.
        unit: What its progress counts.

    Raises:
        DatasetError: The target has been taken or come into use meanwhile, or the disk is full.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    if dry_run:
        plan.rehearse(_ProgressLine(unit))
    message(str(plan))
    if not dry_run:
        _report(plan.carry_out(_ProgressLine(unit)))


def _report(result: LeRobotDataset) -> None:
    """Tell what a command wrote: its folder on stdout, its size on stderr."""
    message(f"{result.num_episodes} episodes, {result.num_frames} frames")
    output(str(result.root))
