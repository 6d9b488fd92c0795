# SPDX-License-Identifier: Apache-2.0
"""What a new dataset is built from: episodes as Arrow rows and pieces of videos. Nothing here opens a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ulna.core.errors import DatasetError
from ulna.data.features import Feature
from ulna.data.stats import Stats

__all__ = ["EpisodeBlock", "NewEpisode", "VideoPiece"]


@dataclass(frozen=True)
class VideoPiece:
    """The frames of one episode in a video file.

    Attributes:
        path: The file.
        start_s: Time of the first frame.
        frames: How many.
    """

    path: Path
    start_s: float
    frames: int


@dataclass(frozen=True)
class NewEpisode:
    """One episode for a new dataset.

    Attributes:
        table: Its rows with every column of the table. `index`, `episode_index`, `frame_index` and `task_index` may be
            missing and are written anew in any case; `timestamp` is kept where it is given.
        tasks: Task of each row.
        videos: Camera to its pictures, for cameras stored as video.
        stats: Statistics; what is missing is computed from the rows and a sample of the pictures.
        sketches: Sketches of the distributions, if they are known.
    """

    table: pa.Table
    tasks: Sequence[str]
    videos: Mapping[str, VideoPiece] = field(default_factory=dict)
    stats: Stats | None = None
    sketches: Any = None

    def block(self, features: Mapping[str, Feature]) -> EpisodeBlock:
        """Return the episode as a block of one.

        Args:
            features: Features of the new dataset.

        Raises:
            DatasetError: There is not one task for each row.
        """
        from ulna.data.editing.stats_columns import stats_table

        if len(self.tasks) != len(self.table):
            raise DatasetError(f"An episode of {len(self.table)} rows was given {len(self.tasks)} tasks.")
        numbers = {task: i for i, task in enumerate(dict.fromkeys(self.tasks))}
        return EpisodeBlock(
            self.table,
            np.array([len(self.table)], dtype=np.int64),
            np.array([numbers[task] for task in self.tasks], dtype=np.int64),
            tuple(numbers),
            {key: (piece,) for key, piece in self.videos.items()},
            stats_table([self.stats or {}], features),
            (self.sketches,),
        )


@dataclass(frozen=True)
class EpisodeBlock:
    """Episodes whose rows lie in one table, one behind the other.

    Attributes:
        table: The rows.
        lengths: Rows of each episode.
        task_numbers: Position in `tasks` of the task of each row.
        tasks: Texts; not all need be used.
        videos: Camera to the pictures of each episode.
        rows: For each episode its row of the episode table: statistics and whatever else is to be kept.
        sketches: Sketches of each episode, None where unknown.
        episodes: Number of each episode where it comes from; empty for new ones.
        source: The table file that the rows come from.
        logs: What was logged while each episode was recorded, None where nothing was.
    """

    table: pa.Table
    lengths: npt.NDArray[np.int64]
    task_numbers: npt.NDArray[np.int64]
    tasks: Sequence[str]
    videos: Mapping[str, Sequence[VideoPiece]]
    rows: pa.Table
    sketches: Sequence[Any] = ()
    episodes: Sequence[int] = ()
    source: Path | None = None
    logs: Sequence[Mapping[str, Any] | None] = ()

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """First row of each episode."""
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)
