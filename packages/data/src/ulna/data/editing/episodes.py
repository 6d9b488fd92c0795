# SPDX-License-Identifier: Apache-2.0
"""Deleting episodes and splitting datasets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ulna.core.errors import DatasetError
from ulna.data.editing.builder import DatasetBuilder
from ulna.data.editing.marks import Marks, read_marks, write_marks
from ulna.data.editing.places import Place, new_place, open_source, place_for
from ulna.data.editing.plans import EditPlan
from ulna.data.editing.selection import Splits, check_episodes, check_readable, episodes_of_splits, kept
from ulna.data.editing.sources import blocks
from ulna.data.metadata import LeRobotDatasetMetadata

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = ["carry_out_split", "delete_episodes", "plan_deletion", "plan_split", "split_dataset"]


def delete_episodes(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    episode_indices: Iterable[int],
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> LeRobotDataset:
    """Delete episodes; those that are left move up.

    Args:
        dataset: The dataset: opened, or its folder or name.
        episode_indices: Episodes that go.
        output_dir: Folder of the result. None edits in place, unless `repo_id` names another dataset.
        repo_id: Name of the result.

    Returns:
        The result, opened.

    Raises:
        DatasetError: An episode does not exist, none would be left, the target is taken, or the disk is full.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    return plan_deletion(dataset, episode_indices, output_dir, repo_id).carry_out()


def plan_deletion(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    episode_indices: Iterable[int],
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> EditPlan:
    """Check what `delete_episodes` is asked for. Writes nothing.

    Args:
        dataset: As there, like all that follow.
        episode_indices: Episodes that go.
        output_dir: Folder of the result.
        repo_id: Name of the result.

    Returns:
        What would be done.

    Raises:
        DatasetError: It cannot be done as asked for.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    meta = open_source(dataset)
    gone = check_episodes(meta, episode_indices)
    episodes = kept(meta, gone)
    check_readable(meta, episodes)
    place = place_for(meta, output_dir, repo_id)
    frames = int(meta.episodes.lengths[gone].sum())
    what = f"deletes {len(gone)} of {meta.total_episodes} episodes ({frames} of {meta.total_frames} frames)"
    return _writing(meta, episodes, place, what)


def _writing(meta: LeRobotDatasetMetadata, episodes: Sequence[int], place: Place, what: str) -> EditPlan:
    return EditPlan(str(meta.root), place, what, lambda progress: _write_episodes(meta, episodes, place))


def _write_episodes(meta: LeRobotDatasetMetadata, episodes: Sequence[int], place: Place) -> None:
    """Write some episodes of a dataset as a new one."""
    with place.writing() as target, DatasetBuilder(target, meta.info) as builder:
        for block in blocks(meta, episodes):
            builder.add_block(block)
        if place.in_place:
            builder.take_over(meta.root, renumbered=True)
            write_marks(builder.folder, _moved(read_marks(meta.root), episodes))
        builder.finish()


def _moved(marks: Marks, episodes: Sequence[int]) -> Marks:
    """Return marks under the new numbers of the episodes."""
    new = {old: number for number, old in enumerate(episodes)}
    return Marks(tuple(new[episode] for episode in marks.delete if episode in new), marks.tasks)


def split_dataset(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    splits: Splits,
    output_dir: str | os.PathLike[str] | None = None,
) -> dict[str, LeRobotDataset]:
    """Write parts of a dataset as datasets of their own. The original stays.

    Args:
        dataset: The dataset: opened, or its folder or name.
        splits: Name to a fraction of the episodes, or to a list of them. Fractions are taken in order and rounded down;
            when they add up to 1, the last split takes what is left over. Episodes in no split are in no result.
        output_dir: Folder for the results, one sub-folder a split. Beside the original when not given, as
            `<name>_<split>`.

    Returns:
        Split to the result, opened.

    Raises:
        DatasetError: A split is not possible, a target is taken, or the disk is full; nothing is left behind.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    return carry_out_split(plan_split(dataset, splits, output_dir))


def plan_split(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    splits: Splits,
    output_dir: str | os.PathLike[str] | None = None,
) -> dict[str, EditPlan]:
    """Check what `split_dataset` is asked for. Writes nothing.

    Args:
        dataset: As there, like all that follow.
        splits: Name to episodes.
        output_dir: Folder for the results.

    Returns:
        What would be done for each split.

    Raises:
        DatasetError: It cannot be done as asked for.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    meta = open_source(dataset)
    chosen = episodes_of_splits(meta, splits)
    check_readable(meta, (episode for episodes in chosen.values() for episode in episodes))
    places = {name: _split_place(meta, name, output_dir) for name in chosen}
    lengths = meta.episodes.lengths
    return {
        name: _writing(meta, e, places[name], f"{len(e)} episodes, {int(lengths[e].sum())} frames")
        for name, e in chosen.items()
    }


def carry_out_split(plans: Mapping[str, EditPlan]) -> dict[str, LeRobotDataset]:
    """Write all parts of a split, or none.

    Args:
        plans: What `plan_split` returned.

    Returns:
        Split to the result, opened.

    Raises:
        DatasetError: A target has been taken meanwhile, or the disk is full; nothing is left behind.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    parents = {plan.place.root.parent for plan in plans.values()}
    made = [parent for parent in parents if not parent.exists()]
    written: list[Path] = []
    results: dict[str, LeRobotDataset] = {}
    try:
        for name, plan in plans.items():
            results[name] = plan.carry_out()
            written.append(plan.place.root)
    except BaseException:
        for folder in written:
            shutil.rmtree(folder, ignore_errors=True)
        for parent in made:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
        raise
    return results


def _split_place(meta: LeRobotDatasetMetadata, name: str, output_dir: str | os.PathLike[str] | None) -> Place:
    root = meta.root.absolute()
    folder = Path(output_dir) / name if output_dir is not None else root.with_name(f"{root.name}_{name}")
    if folder.absolute() == root:
        raise DatasetError(f"The split {name!r} would take the place of the dataset itself.")
    repo_id = f"{meta.repo_id}_{name}"
    return new_place(repo_id, folder)
