# SPDX-License-Identifier: Apache-2.0
"""From devices to datasets and back, by name: frames to be recorded, and recorded actions to be sent again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ulna.core.constants import ACTION, OBS_STR, TASK
from ulna.core.errors import DatasetError

__all__ = ["FrameBuilder", "element_names", "read_actions"]


class FrameBuilder:
    """Turns observations and sent actions into frames of a dataset.

    Args:
        features: Features of the dataset.
        task: What the robot does, in words.
    """

    def __init__(self, features: Mapping[str, Mapping[str, Any]], task: str) -> None:
        from ulna.data import build_dataset_frame

        self._build, self._features, self._task = build_dataset_frame, features, task

    def build(self, observation: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
        """Make a frame.

        Args:
            observation: What the robot reported.
            sent: What it really sent to its motors.

        Returns:
            Dataset key to value, and `task`.

        Raises:
            FeatureError: A value that the dataset declares is missing.
        """
        frame = self._build(self._features, observation, prefix=OBS_STR)
        frame.update(self._build(self._features, sent, prefix=ACTION))
        frame[TASK] = self._task
        return frame


def element_names(feature: Mapping[str, Any]) -> list[str]:
    """Return the names of a vector's elements, from either form found in datasets.

    Args:
        feature: A feature with `names` as a list, or as a mapping with one list in it (older recordings).

    Returns:
        The names in order; empty when it has none.
    """
    names = feature.get("names")
    if isinstance(names, Mapping):
        lists = [value for value in names.values() if isinstance(value, list)]
        names = lists[0] if len(lists) == 1 else None
    return [str(name) for name in names] if names else []


def read_actions(repo_id: str, episode: int, root: Path | None = None) -> tuple[list[dict[str, float]], float]:
    """Read the actions of one episode; pictures are not touched and torch is not needed.

    Args:
        repo_id: `user/name`.
        episode: Number of the episode.
        root: Folder of the dataset.

    Returns:
        One mapping of action name to value a frame, and the dataset's frames a second.

    Raises:
        DatasetError: No such dataset or episode, or its actions have no names.
    """
    from ulna.data import LeRobotDataset

    dataset = LeRobotDataset(repo_id, root, episodes=[episode])
    feature = dataset.features.get(ACTION)
    names = [] if feature is None else element_names(feature)
    if feature is None or len(names) != feature["shape"][0]:
        raise DatasetError(f"{repo_id} has no named actions, so they cannot be given to a robot by name.")
    rows = (dataset.reader.raw_item(position)[ACTION] for position in range(len(dataset)))
    return [dict(zip(names, map(float, row), strict=True)) for row in rows], float(dataset.fps)
