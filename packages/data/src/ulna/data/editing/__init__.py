# SPDX-License-Identifier: Apache-2.0
"""Changing recorded datasets: every change is written beside the original and takes its place in one instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.data.editing.applying import apply_marks as apply_marks
    from ulna.data.editing.builder import DatasetBuilder as DatasetBuilder
    from ulna.data.editing.builder import NewEpisode as NewEpisode
    from ulna.data.editing.builder import VideoPiece as VideoPiece
    from ulna.data.editing.builder import replace_dataset as replace_dataset
    from ulna.data.editing.episodes import delete_episodes as delete_episodes
    from ulna.data.editing.episodes import split_dataset as split_dataset
    from ulna.data.editing.features import add_features as add_features
    from ulna.data.editing.features import modify_features as modify_features
    from ulna.data.editing.features import remove_feature as remove_feature
    from ulna.data.editing.marks import Marks as Marks
    from ulna.data.editing.marks import read_marks as read_marks
    from ulna.data.editing.marks import write_marks as write_marks
    from ulna.data.editing.merging import merge_datasets as merge_datasets
    from ulna.data.editing.tasks import modify_tasks as modify_tasks

_HOME = {
    "DatasetBuilder": "builder",
    "Marks": "marks",
    "NewEpisode": "builder",
    "VideoPiece": "builder",
    "add_features": "features",
    "apply_marks": "applying",
    "delete_episodes": "episodes",
    "merge_datasets": "merging",
    "modify_features": "features",
    "modify_tasks": "tasks",
    "read_marks": "marks",
    "remove_feature": "features",
    "replace_dataset": "builder",
    "split_dataset": "episodes",
    "write_marks": "marks",
}

__all__ = [
    "DatasetBuilder",
    "Marks",
    "NewEpisode",
    "VideoPiece",
    "add_features",
    "apply_marks",
    "delete_episodes",
    "merge_datasets",
    "modify_features",
    "modify_tasks",
    "read_marks",
    "remove_feature",
    "replace_dataset",
    "split_dataset",
    "write_marks",
]

__getattr__, __dir__ = lazy_names(globals(), _HOME)
