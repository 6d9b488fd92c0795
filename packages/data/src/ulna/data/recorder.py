# SPDX-License-Identifier: Apache-2.0
"""Records episodes: takes frames, has pictures encoded meanwhile, and hands finished episodes to the store."""

from __future__ import annotations

import logging
import shutil
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ulna.core.errors import DatasetError
from ulna.data.episode_store import EpisodeData, EpisodeStore
from ulna.data.episodes import drop_rows
from ulna.data.frames import FrameChecker
from ulna.data.images import PictureSpool
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.video_encoding import RGBEncoderConfig, VideoEncoder, try_encoder
from ulna.data.workspace import Workspace

__all__ = ["Recorder", "RecorderSettings"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecorderSettings:
    """How to record.

    Attributes:
        encoder: Video settings.
        queue_size: Frames that may wait for each camera's encoder.
        when_full: `block` slows the caller until there is room; `drop` refuses the whole frame, row and pictures.
    """

    encoder: RGBEncoderConfig = field(default_factory=RGBEncoderConfig)
    queue_size: int = 30
    when_full: Literal["block", "drop"] = "block"


@dataclass
class _Episode:
    """An episode between its first frame and its storing."""

    index: int
    folder: Path
    workers: dict[str, VideoEncoder | PictureSpool]
    tasks: list[str] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)

    def end(self) -> None:
        for worker in self.workers.values():
            worker.end()

    def finished(self) -> EpisodeData:
        cameras = {name: worker.finish() for name, worker in self.workers.items()}
        return EpisodeData(self.index, self.tasks, self.values, cameras)

    def discard(self) -> None:
        for worker in self.workers.values():
            worker.abort()
        shutil.rmtree(self.folder, ignore_errors=True)


class Recorder:
    """Writes one dataset. Created by `LeRobotDataset.create` or `resume`, ended by `close`; used by one thread.

    Args:
        meta: Metadata of the dataset; the recorder keeps it up to date.
        settings: How to record.

    Raises:
        DatasetError: Another process is recording into the dataset, or a camera cannot be encoded with these settings.
    """

    def __init__(self, meta: LeRobotDatasetMetadata, settings: RecorderSettings) -> None:
        self.meta = meta
        self.settings = settings
        self.dropped_frames = 0
        self.closed = False
        self.workspace = Workspace(meta.root)
        if not self.workspace.lock():
            raise DatasetError(
                f"Another recorder has {meta.root} open.", hint="Finish or stop that recording first, then try again."
            )
        try:
            self._prepare()
        except BaseException:
            self.workspace.unlock()
            raise
        self._checker = FrameChecker(meta.parsed_features)
        self._current: _Episode | None = None
        self._storing: deque[threading.Thread] = deque()
        self._failure: tuple[int, BaseException] | None = None

    def _prepare(self) -> None:
        meta, workspace = self.meta, self.workspace
        workspace.replay()
        workspace.clear_staging()
        mark = workspace.mark()
        self.next_episode = meta.total_episodes
        if meta.left_out or meta.broken:
            _forget(meta, mark.first_episode if mark else meta.total_episodes + len(meta.left_out))
        self.first_episode = min(mark.first_episode, self.next_episode) if mark else self.next_episode
        self._store = EpisodeStore(meta, self.settings.encoder)
        workspace.set_mark(self.first_episode)
        workspace.staging.mkdir(parents=True, exist_ok=True)
        for name, feature in meta.parsed_features.items():
            if feature.dtype == "video":
                try_encoder(workspace.staging / "try.mp4", self.settings.encoder, meta.fps, feature.hwc, name)

    @property
    def has_pending_frames(self) -> bool:
        """Whether frames were added since the last episode was saved or discarded."""
        return self._current is not None

    @property
    def frames_waiting(self) -> int:
        """Length of the longest encoder queue."""
        return max((w.waiting for w in self._current.workers.values()), default=0) if self._current else 0

    def add(self, frame: Mapping[str, Any]) -> bool:
        """Take one frame.

        Args:
            frame: Feature name to value, and `task`.

        Returns:
            False when the frame was dropped because an encoder's queue was full.

        Raises:
            FeatureError: The frame does not fit the features; nothing of it is stored.
            DatasetError: The recording is closed, or storing something failed.
        """
        self._check()
        checked = self._checker.check(frame)
        if self._current is None:
            self._current = self._begin()
        episode = self._current
        for worker in episode.workers.values():
            worker.check()
        if self.settings.when_full == "drop" and not all(w.has_room for w in episode.workers.values()):
            self.dropped_frames += 1
            logger.warning("A frame was dropped (%d so far): encoding is slower than recording.", self.dropped_frames)
            return False
        for name, worker in episode.workers.items():
            worker.put(checked.pictures[name])
        episode.values.append(checked.values)
        episode.tasks.append(checked.task)
        return True

    def _begin(self) -> _Episode:
        folder = self.workspace.episode_folder(self.next_episode)
        size, fps, config = self.settings.queue_size, self.meta.fps, self.settings.encoder
        workers: dict[str, VideoEncoder | PictureSpool] = {}
        for name, feature in self.meta.parsed_features.items():
            if feature.dtype == "video":
                workers[name] = VideoEncoder(folder / f"{name}.mp4", config, fps, feature.hwc, size, name)
            elif feature.dtype == "image":
                workers[name] = PictureSpool(folder / f"{name}.pictures", feature.hwc, size, name)
        return _Episode(self.next_episode, folder, workers)

    def save(self, *, wait: bool = True) -> None:
        """End the episode and store it.

        Args:
            wait: Whether to return only when it is durable. Else it is stored in the background, in order, and
                the next episode can begin at once; a failure is raised by the next call.

        Raises:
            DatasetError: There is no frame, or storing failed; the episode is discarded then.
        """
        self._check()
        episode = self._current
        if episode is None or not episode.values:
            raise DatasetError("There is no frame to save; add_frame() must come first.")
        self._current = None
        self.next_episode += 1
        episode.end()
        before = self._storing[-1] if self._storing else None
        thread = threading.Thread(
            target=self._store_in_turn, args=(episode, before), name=f"store episode {episode.index}"
        )
        self._storing.append(thread)
        thread.start()
        if wait:
            self.flush()

    def flush(self) -> None:
        """Wait until every saved episode is durable.

        Raises:
            DatasetError: Storing one failed; it and those after it are discarded.
        """
        while self._storing:
            self._storing.popleft().join()
        self._raise_failure()

    def _check(self) -> None:
        if self.closed:
            raise DatasetError(
                "This recording is closed.", hint="Open the dataset with LeRobotDataset.resume() to add to it."
            )
        while self._storing and not self._storing[0].is_alive():
            self._storing.popleft()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        while self._storing:
            self._storing.popleft().join()
        (episode, cause), self._failure = self._failure, None
        self.discard()
        self.next_episode = episode
        if isinstance(cause, DatasetError):
            raise cause
        raise DatasetError(
            f"Episode {episode} could not be stored: {cause}",
            hint=f"The {episode} episodes before it are safe; recording goes on with a new episode {episode}.",
        ) from cause

    def _store_in_turn(self, episode: _Episode, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        if self._failure is not None:
            episode.discard()
            return
        try:
            self._store.store(episode.finished())
        except Exception as error:  # noqa: BLE001 - kept and raised in the caller's thread
            self._failure = (episode.index, error)
            episode.discard()
        else:
            shutil.rmtree(episode.folder, ignore_errors=True)

    def discard(self) -> None:
        """Forget the frames since the last saved episode. Leaves nothing on disk; safe at any time."""
        if self._current is not None:
            episode, self._current = self._current, None
            episode.discard()

    def close(self, compact: Callable[[Recorder], None] | None = None) -> None:
        """Discard what was not saved, wait for what was, and give the folder free. Idempotent.

        Args:
            compact: Called when everything is durable, to join the files of single episodes.

        Raises:
            DatasetError: Storing an episode, or compacting, failed; the dataset stays marked as not finalized.
        """
        if self.closed:
            return
        self.discard()
        try:
            self.flush()
            self._store.remove_leftovers()
            self._store.write_totals()
            if compact is not None and self.meta.total_episodes > self.first_episode:
                compact(self)
        except BaseException:
            self.closed = True
            self.workspace.clear_staging()
            self.workspace.unlock()
            raise
        self.closed = True
        self.workspace.remove()


def _forget(meta: LeRobotDatasetMetadata, first_of_recording: int) -> None:
    """Drop last episodes without whole files, if the interrupted recording made them; never those of a finished one."""
    affected = sorted([*meta.broken, *meta.left_out])
    first = affected[0]
    if meta.broken or first < first_of_recording:
        reason = meta.broken.get(first) or meta.findings[0].message
        raise DatasetError(
            f"Episodes {first} to {affected[-1]} of {meta.root} have missing or broken files, and adding to "
            f"the dataset would lose them: {reason}.",
            hint="Restore the files first.",
        )
    logger.warning("%s: recording goes on with a new episode %d in place of the broken one.", meta.repo_id, first)
    drop_rows(meta.root, first)
    meta.left_out = []
