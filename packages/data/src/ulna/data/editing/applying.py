# SPDX-License-Identifier: Apache-2.0
"""Carries out the marks that a viewer has left: deletions and new texts of tasks, in one pass."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ulna.core.errors import DatasetError
from ulna.data.editing.builder import DatasetBuilder
from ulna.data.editing.marks import MARKS_PATH, Marks, read_marks, remove_marks
from ulna.data.editing.places import open_source, place_for
from ulna.data.editing.plans import EditPlan, Progress
from ulna.data.editing.selection import check_episodes, check_readable, check_task, check_text, kept
from ulna.data.editing.sources import blocks
from ulna.data.editing.tasks import TaskChange
from ulna.data.metadata import LeRobotDatasetMetadata

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = ["apply_marks", "plan_marks"]


def apply_marks(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> LeRobotDataset:
    """Delete the marked episodes and rename the marked tasks. The marks are gone from the result.

    A mark of a task that only deleted episodes have has nothing to do.

    Args:
        dataset: The dataset: opened, or its folder or name.
        output_dir: Folder of the result. None edits in place, unless `repo_id` names another dataset.
        repo_id: Name of the result.

    Returns:
        The result, opened.

    Raises:
        DatasetError: There are no marks, one names an episode or task that does not exist, the target is taken or in
            use, or the disk is full.
        DatasetFormatError: The marks or files of the dataset are damaged.
    """
    return plan_marks(dataset, output_dir, repo_id).carry_out()


def plan_marks(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> EditPlan:
    """Check what the marks of a dataset ask for. Writes nothing.

    Args:
        dataset: As in `apply_marks`, like all that follow.
        output_dir: Folder of the result.
        repo_id: Name of the result.

    Returns:
        What would be done.

    Raises:
        DatasetError: There are no marks, or they cannot be carried out.
        DatasetFormatError: The marks or files of the dataset are damaged.
    """
    meta = open_source(dataset)
    marks = _checked_marks(meta)
    deleted = set(marks.delete)
    episodes = [episode for episode in range(meta.total_episodes) if episode not in deleted]
    place = place_for(meta, output_dir, repo_id)
    change = TaskChange(replacements=marks.tasks)

    def write(progress: Progress | None) -> None:
        with place.writing() as target, DatasetBuilder(target, meta.info) as builder:
            for block in blocks(meta, episodes):
                builder.add_block(change.of(block))
            if place.in_place:
                builder.take_over(meta.root, renumbered=bool(deleted))
                remove_marks(builder.folder)
            builder.finish()

    gone = "".join(f" {episode}" for episode in sorted(deleted))
    deletes = f"deletes {len(deleted)} of {meta.total_episodes} episodes{gone}"
    return EditPlan(str(meta.root), place, "; ".join([deletes, *change.described(meta.total_episodes)]), write)


def _checked_marks(meta: LeRobotDatasetMetadata) -> Marks:
    """Return the marks of a dataset, all of which can be carried out."""
    marks = read_marks(meta.root)
    if not marks:
        raise DatasetError(
            f"{meta.root} has no marks ({MARKS_PATH}).", hint=f"Make some: ulna dataset view {meta.root}"
        )
    deleted = check_episodes(meta, marks.delete, MARKS_PATH)
    check_readable(meta, kept(meta, deleted) if deleted else range(meta.total_episodes))
    for old, new in marks.tasks.items():
        check_task(meta, old)
        check_text(new)
    return marks
