# SPDX-License-Identifier: Apache-2.0
"""Checks what an edit names: episodes, features, tasks, splits. Complaints say what was named and what there is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ulna.core.errors import DatasetError, DatasetFormatError, FeatureError, nearest
from ulna.data.features import DEFAULT_FEATURES, Feature
from ulna.data.metadata import LeRobotDatasetMetadata

__all__ = ["check_episodes", "check_names", "check_readable", "check_task", "check_text", "episodes_of_splits", "kept"]

Splits = Mapping[str, float | Sequence[int]]


def check_episodes(meta: LeRobotDatasetMetadata, episodes: Iterable[Any], what: str = "") -> list[int]:
    """Return episode numbers, ascending and each once.

    Args:
        meta: The dataset.
        episodes: Their numbers.
        what: Where they were named, for messages.

    Raises:
        DatasetError: One does not exist; it and the range are named.
    """
    found = set()
    total = meta.total_episodes
    for episode in episodes:
        number = _whole(episode)
        if number is None or not 0 <= number < total:
            given = f"{episode!r} is not a number of an episode" if number is None else f"There is no episode {number}"
            there_are = f"the dataset has the episodes 0 to {total - 1}" if total else "the dataset has no episodes"
            raise DatasetError(f"{what + ': ' if what else ''}{given}; {there_are}. Nothing was changed.")
        found.add(number)
    return sorted(found)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return int(value) if int(value) == value else None
    except (TypeError, ValueError):
        return None


def kept(meta: LeRobotDatasetMetadata, deleted: Sequence[int]) -> list[int]:
    """Return the episodes that are left.

    Args:
        meta: The dataset.
        deleted: Episodes that go.

    Raises:
        DatasetError: None is left, or none goes.
    """
    if not deleted:
        raise DatasetError("No episode was named that shall be deleted.")
    gone = set(deleted)
    left = [episode for episode in range(meta.total_episodes) if episode not in gone]
    if not left:
        raise DatasetError(
            f"Deleting all {meta.total_episodes} episodes would leave nothing. Nothing was changed.",
            hint=f"To get rid of the whole dataset remove its folder: {meta.root}",
        )
    return left


def check_readable(meta: LeRobotDatasetMetadata, episodes: Iterable[int]) -> None:
    """Refuse episodes whose files are missing or cut off.

    Args:
        meta: The dataset.
        episodes: Episodes that shall be in the result.

    Raises:
        DatasetFormatError: One is broken.
    """
    broken = sorted(set(episodes) & meta.broken.keys())
    if broken:
        raise DatasetFormatError(
            f"Episode {broken[0]} cannot be read: {meta.broken[broken[0]]}. Nothing was changed.",
            hint=f"Restore the file, or leave out the episodes {broken}: ulna dataset edit delete {meta.root} "
            f"{' '.join(map(str, broken))} --in-place",
        )


def check_names(features: Mapping[str, Feature], names: str | Iterable[str]) -> list[str]:
    """Return the names of features that may be removed.

    Args:
        features: All features.
        names: One name or several.

    Raises:
        FeatureError: One does not exist, or every dataset must have it.
    """
    chosen = list(dict.fromkeys([names] if isinstance(names, str) else names))
    removable = [name for name in features if name not in DEFAULT_FEATURES]
    if not chosen:
        raise FeatureError("No feature was named that shall be removed.", hint=f"There are {removable}.")
    for name in chosen:
        if name in DEFAULT_FEATURES:
            raise FeatureError(f"{name!r} cannot be removed: every dataset has it. Nothing was changed.")
        if name not in features:
            near = nearest(str(name), removable)
            raise FeatureError(
                f"There is no feature {name!r}; the dataset has {removable}. Nothing was changed.",
                hint=f"Did you mean {near!r}?" if near else None,
            )
    return chosen


def check_task(meta: LeRobotDatasetMetadata, task: str) -> str:
    """Return a task that the dataset has.

    Args:
        meta: The dataset.
        task: Its text.

    Raises:
        DatasetError: There is no such task; the nearest one is suggested.
    """
    if task not in meta.tasks:
        near = nearest(str(task), list(meta.tasks))
        raise DatasetError(
            f"There is no task {task!r}; the dataset has {list(meta.tasks)}. Nothing was changed.",
            hint=f"Did you mean {near!r}?" if near else None,
        )
    return task


def check_text(text: Any) -> str:
    """Return the text of a new task.

    Args:
        text: What was given.

    Raises:
        DatasetError: It is not a text, or empty.
    """
    if not isinstance(text, str) or not text.strip():
        raise DatasetError(f"A task must be a text that says what the robot does, got {text!r}. Nothing was changed.")
    return text


def episodes_of_splits(meta: LeRobotDatasetMetadata, splits: Splits) -> dict[str, list[int]]:
    """Return the episodes of each split.

    Fractions are taken in order, each rounded down; when they add up to 1, the last split takes what is left over.

    Args:
        meta: The dataset.
        splits: Name to a fraction, or to a list of episodes; all of one kind.

    Raises:
        DatasetError: A name is not a folder name, an episode does not exist or is named twice, a split is empty, or
            fractions are not positive or add up to more than 1.
    """
    if not splits:
        raise DatasetError("No split was named.", hint='For example {"train": 0.8, "val": 0.2}.')
    for name in splits:
        if not name or name in {".", ".."} or "/" in name or "\\" in name:
            raise DatasetError(f"{name!r} cannot be the name of a split: it becomes part of the name of a folder.")
    fractions = {name: share for name, share in splits.items() if isinstance(share, (int, float))}
    if fractions and len(fractions) < len(splits):
        raise DatasetError(f"Splits must be all fractions or all lists of episodes, got {dict(splits)!r}.")
    chosen = _by_fraction(meta.total_episodes, fractions) if fractions else _by_list(meta, splits)
    empty = [name for name, episodes in chosen.items() if not episodes]
    if empty:
        raise DatasetError(
            f"The split {empty[0]!r} ({splits[empty[0]]!r} of {meta.total_episodes} episodes) would have no episodes. "
            "Nothing was written."
        )
    return chosen


def _by_fraction(total: int, fractions: Mapping[str, float]) -> dict[str, list[int]]:
    for name, share in fractions.items():
        if isinstance(share, bool) or not 0 < share <= 1:
            raise DatasetError(f"The split {name!r} must be a fraction above 0 and up to 1, got {share!r}.")
    whole = math.fsum(fractions.values())
    if whole > 1 + 1e-6:
        raise DatasetError(f"The fractions {dict(fractions)} add up to {whole:g}, which is more than 1.")
    chosen, first = {}, 0
    for name, share in fractions.items():
        stop = first + math.floor(share * total + 1e-6)
        chosen[name] = list(range(first, stop))
        first = stop
    if whole > 1 - 1e-6:
        last = list(fractions)[-1]
        chosen[last] += range(first, total)
    return chosen


def _by_list(meta: LeRobotDatasetMetadata, splits: Splits) -> dict[str, list[int]]:
    chosen: dict[str, list[int]] = {}
    owner: dict[int, str] = {}
    for name, episodes in splits.items():
        assert not isinstance(episodes, (int, float))
        chosen[name] = check_episodes(meta, episodes, f"split {name!r}")
        for episode in chosen[name]:
            if episode in owner:
                raise DatasetError(
                    f"Episode {episode} is in the splits {owner[episode]!r} and {name!r}. Nothing was written."
                )
            owner[episode] = name
    return chosen
