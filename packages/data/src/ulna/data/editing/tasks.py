# SPDX-License-Identifier: Apache-2.0
"""Changing what episodes are about: tasks of whole episodes, or texts wherever they stand."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ulna.core.errors import DatasetError
from ulna.data.editing.blocks import EpisodeBlock
from ulna.data.editing.builder import DatasetBuilder
from ulna.data.editing.marks import Marks, read_marks, write_marks
from ulna.data.editing.places import open_source, place_for
from ulna.data.editing.plans import EditPlan, Progress
from ulna.data.editing.selection import check_episodes, check_readable, check_task, check_text
from ulna.data.editing.sources import blocks
from ulna.data.metadata import LeRobotDatasetMetadata

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = ["TaskChange", "modify_tasks", "plan_tasks"]


@dataclass(frozen=True)
class TaskChange:
    """New tasks. For each frame the first of these that says something about it counts.

    Attributes:
        episodes: Episode to the task of all its frames.
        replacements: Text to its new text.
        default: Task of every other frame; None leaves them as they are.
    """

    episodes: Mapping[int, str] = field(default_factory=dict)
    replacements: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None

    def of(self, block: EpisodeBlock) -> EpisodeBlock:
        """Return a block with the new tasks.

        Args:
            block: Episodes of the original.
        """
        texts = [self.replacements.get(text, text if self.default is None else self.default) for text in block.tasks]
        tasks = list(dict.fromkeys([*texts, *self.episodes.values()]))
        numbers = np.array([tasks.index(text) for text in texts], dtype=np.int64)[block.task_numbers]
        for episode, start, length in zip(block.episodes, block.starts, block.lengths, strict=True):
            if episode in self.episodes:
                numbers[start : start + length] = tasks.index(self.episodes[episode])
        return replace(block, task_numbers=numbers, tasks=tasks)

    def described(self, total: int) -> list[str]:
        """Say what changes.

        Args:
            total: Episodes of the original.
        """
        given = Counter(self.episodes.values())
        rest = "all frames" if not (given or self.replacements) else "all other frames"
        return [
            *(f"renames the task {old!r} to {new!r}" for old, new in self.replacements.items()),
            *(f"gives {count} of {total} episodes the task {text!r}" for text, count in given.items()),
            *([] if self.default is None else [f"gives {rest} the task {self.default!r}"]),
        ]


def modify_tasks(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    new_task: str | None = None,
    episode_tasks: Mapping[int, str] | None = None,
    task_replacements: Mapping[str, str] | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> LeRobotDataset:
    """Change tasks. An episode with several tasks keeps them, each mapped on its own.

    For each frame, the task of its episode in `episode_tasks` counts first, then the replacement of its text, then
    `new_task`; without any of these it keeps its task. Tasks that no frame has any more are dropped.

    Args:
        dataset: The dataset: opened, or its folder or name.
        new_task: Task of all frames that nothing else is said about.
        episode_tasks: Episode to the task of all its frames.
        task_replacements: Text of a task to its new text.
        output_dir: Folder of the result. None edits in place, unless `repo_id` names another dataset.
        repo_id: Name of the result.

    Returns:
        The result, opened.

    Raises:
        DatasetError: An episode or text does not exist, a new text is empty, nothing was asked for, the target is taken
            or in use, or the disk is full.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    return plan_tasks(dataset, new_task, episode_tasks, task_replacements, output_dir, repo_id).carry_out()


def plan_tasks(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    new_task: str | None = None,
    episode_tasks: Mapping[int, str] | None = None,
    task_replacements: Mapping[str, str] | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> EditPlan:
    """Check what `modify_tasks` is asked for. Writes nothing.

    Args:
        dataset: As there, like all that follow.
        new_task: Task of all frames that nothing else is said about.
        episode_tasks: Episode to task.
        task_replacements: Text to its new text.
        output_dir: Folder of the result.
        repo_id: Name of the result.

    Returns:
        What would be done.

    Raises:
        DatasetError: It cannot be done as asked for.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    meta = open_source(dataset)
    change = _change(meta, new_task, episode_tasks or {}, task_replacements or {})
    check_readable(meta, range(meta.total_episodes))
    place = place_for(meta, output_dir, repo_id)
    stats = {name: values for name, values in (meta.recorded_stats or {}).items() if name != "task_index"}

    def write(progress: Progress | None) -> None:
        with place.writing() as target, DatasetBuilder(target, meta.info, whole_stats=stats) as builder:
            for block in blocks(meta, range(meta.total_episodes)):
                builder.add_block(change.of(block))
            if place.in_place:
                builder.take_over(meta.root, renumbered=False)
                marks = read_marks(meta.root)
                left = {old: new for old, new in marks.tasks.items() if old in builder.tasks}
                write_marks(builder.folder, Marks(marks.delete, left))
            builder.finish()

    return EditPlan(str(meta.root), place, "; ".join(change.described(meta.total_episodes)), write)


def _change(
    meta: LeRobotDatasetMetadata,
    new_task: str | None,
    episode_tasks: Mapping[int, str],
    task_replacements: Mapping[str, str],
) -> TaskChange:
    if new_task is None and not episode_tasks and not task_replacements:
        raise DatasetError("No task was named: give a new task, tasks of episodes, or replacements of texts.")
    check_episodes(meta, episode_tasks)
    for text in (*episode_tasks.values(), *task_replacements.values(), *([] if new_task is None else [new_task])):
        check_text(text)
    for text in task_replacements:
        check_task(meta, text)
    return TaskChange({int(e): text for e, text in episode_tasks.items()}, dict(task_replacements), new_task)
