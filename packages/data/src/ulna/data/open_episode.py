# SPDX-License-Identifier: Apache-2.0
"""The episode that is being recorded, and one that has ended and waits to be stored; not how it is stored."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ulna.core.errors import DatasetError
from ulna.data.depth_recording import CameraWorker
from ulna.data.episode_store import EpisodeData
from ulna.data.frames import CheckedFrame
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.recovery import recovered_episode
from ulna.data.row_journal import RowJournal
from ulna.data.timing import Clock, EpisodeTiming
from ulna.data.unfinished import scan_episode

__all__ = ["EndedEpisode", "OpenEpisode"]


@dataclass(frozen=True)
class EndedEpisode:
    """An episode that has ended. All of it is in its folder, as after a kill.

    Attributes:
        folder: Where its files lie.
        frames: How many frames it has.
        finished: What is stored; None if its pictures could not be finished, and must be read from the folder.
        failure: Why frames behind these are lost; None when it is whole.
    """

    folder: Path
    frames: int
    finished: EpisodeData | None
    failure: DatasetError | None = None

    def moved(self, folder: Path) -> EndedEpisode:
        """Return it in another folder; a kill must find an episode under the number that it gets.

        Args:
            folder: Takes the place of what is there.

        Raises:
            OSError: The folder cannot be renamed.
        """
        if folder == self.folder:
            return self
        shutil.rmtree(folder, ignore_errors=True)
        self.folder.rename(folder)
        data = self.finished
        if data is not None:
            cameras = {name: replace(c, path=folder / c.path.name) for name, c in data.cameras.items()}
            data = replace(data, cameras=cameras)
        return replace(self, folder=folder, finished=data)

    def data(self, meta: LeRobotDatasetMetadata, number: int) -> EpisodeData:
        """Return what is stored.

        Args:
            meta: Metadata of the dataset.
            number: The number it gets.

        Raises:
            DatasetError: Its pictures are not there.
            OSError: The disk is full or does not answer.
        """
        if self.finished is not None:
            return replace(self.finished, index=number)
        return recovered_episode(meta, self.folder, number, self.frames)[0]


@dataclass
class OpenEpisode:
    """An episode between its first frame and its storing. Made by a recorder, which ends it.

    Attributes:
        index: Number of its folder.
        folder: Where its files lie.
        clock: Which clock the times are from.
        journal: Takes the rows.
        workers: Camera to what takes its pictures.
        tasks: Task of each frame.
        values: Numbers and texts of each frame.
        times: When each frame was taken, seconds.
        dropped: Frames that were refused as an encoder's queue was full.
        torn: Whether a frame was interrupted half way; none may follow.
    """

    index: int
    folder: Path
    clock: Clock
    journal: RowJournal
    workers: dict[str, CameraWorker]
    tasks: list[str] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    dropped: int = 0
    torn: bool = False

    def put(self, frame: CheckedFrame, time_s: float) -> None:
        """Take a frame; the row counts only when its pictures are all on their way.

        Args:
            frame: The frame.
            time_s: When it was taken.

        Raises:
            OSError: The disk is full; nothing of the frame counts.
            DatasetError: A camera's pictures cannot be stored.
        """
        self.journal.append(frame.task, frame.values, time_s)
        self.torn = True
        for name, worker in self.workers.items():
            worker.put(frame.pictures[name])
        self.values.append(frame.values)
        self.times.append(time_s)
        self.tasks.append(frame.task)
        self.torn = False

    def end(self) -> None:
        """Say that no frame follows, without waiting for anything."""
        self.journal.close()
        for worker in self.workers.values():
            worker.end(len(self.tasks))

    def ended(self, meta: LeRobotDatasetMetadata) -> EndedEpisode:
        """Wait for the pictures; `end` must have been called.

        Args:
            meta: Metadata of the dataset.

        Raises:
            DatasetError: Pictures could not be stored, and not one frame is whole.
        """
        frames, cameras = len(self.tasks), {}
        failures: list[DatasetError] = []
        for name, worker in self.workers.items():
            try:
                cameras[name] = worker.finish()
            except DatasetError as error:
                failures.append(error)
        if failures:
            whole = scan_episode(self.index, self.folder, meta.parsed_features, meta.fps).frames
            if not whole:
                raise failures[0]
            return EndedEpisode(self.folder, whole, None, self._lost(whole, failures[0]) if whole < frames else None)
        timing = EpisodeTiming.of(self.times[:frames], self.clock, self.dropped)
        data = EpisodeData(self.index, self.tasks, self.values[:frames], cameras, timing)
        return EndedEpisode(self.folder, frames, data)

    def _lost(self, whole: int, failure: DatasetError) -> DatasetError:
        count = f"The first {whole} of {len(self.tasks)} frames of episode {self.index} are whole and are kept."
        error = DatasetError(
            f"{failure.message}. {count}",
            hint="save_episode() and flush() store them; clear_episode_buffer(unsaved=True) gives them up.",
        )
        error.__cause__ = failure
        return error

    def discard(self) -> None:
        """Leave nothing of it. Safe at any time."""
        self.journal.close()
        for worker in self.workers.values():
            worker.abort()
        shutil.rmtree(self.folder, ignore_errors=True)
