# SPDX-License-Identifier: Apache-2.0
"""Records episodes: takes frames, has pictures encoded meanwhile, and hands finished episodes to the store."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from ulna.core.errors import DatasetError
from ulna.data.depth_recording import CameraWorker, begin_camera, recorded_depth_config, try_cameras, with_depth_unit
from ulna.data.episode_store import EpisodeStore
from ulna.data.features import Feature
from ulna.data.frames import FrameChecker, to_seconds
from ulna.data.interrupts import uninterrupted
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.open_episode import EndedEpisode, OpenEpisode
from ulna.data.recovery import claim, recover_unfinished, remove_unfinished
from ulna.data.row_journal import RowJournal
from ulna.data.timing import Clock
from ulna.data.unfinished import ROWS_FILE
from ulna.data.video_codecs import DepthEncoderConfig, RGBEncoderConfig, VideoEncoderConfig
from ulna.data.workspace import Workspace

__all__ = ["Recorder", "RecorderSettings"]

logger = logging.getLogger(__name__)

WhenFull = Literal["block", "drop"]
Compact = Callable[[LeRobotDatasetMetadata, Workspace, int], None]

_TELL_EVERY_S = 30.0


@dataclass(frozen=True)
class RecorderSettings:
    """How to record.

    Attributes:
        encoder: Settings for colour video.
        depth_encoder: Settings for depth video; None goes on as the dataset was begun.
        queue_size: Frames that may wait for each camera's encoder.
        when_full: `block` slows the caller until there is room; `drop` refuses the whole frame, row and pictures.
        recover: Whether unfinished episodes of an interrupted recording are stored first; else they are removed.
    """

    encoder: RGBEncoderConfig = field(default_factory=RGBEncoderConfig)
    queue_size: int = 30
    when_full: WhenFull = "block"
    depth_encoder: DepthEncoderConfig | None = None
    recover: bool = False

    def __post_init__(self) -> None:
        """Check values that would otherwise mean something else."""
        size: object = self.queue_size
        if not isinstance(size, int) or size < 1:
            raise DatasetError(
                f"encoder_queue_maxsize must be a whole number of 1 or more, got {self.queue_size!r}: without a limit "
                "a slow encoder would fill the memory."
            )
        if self.when_full not in get_args(WhenFull):
            raise DatasetError(f"when_full must be 'block' or 'drop', got {self.when_full!r}.")


class _Failure(NamedTuple):
    """Why an episode could not be stored, and whether frames are lost by it. Nobody has been told yet."""

    error: DatasetError
    is_loss: bool


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
        self._next_told = 0.0
        self.workspace = Workspace(meta.root)
        try:
            self._open()
        except OSError as error:
            raise DatasetError(
                f"{meta.root} cannot be recorded into: {error}. What it holds is as it was.",
                hint="Free some space, or choose a folder that can be written.",
            ) from error
        self._checker = FrameChecker(meta.parsed_features)
        self._current: OpenEpisode | None = None
        self._storing: deque[threading.Event] = deque()
        self._unsaved: deque[EndedEpisode] = deque()
        self._failures: deque[_Failure] = deque()

    def _open(self) -> None:
        if not self.workspace.lock():
            raise DatasetError(
                f"Another recorder has {self.meta.root} open.",
                hint="Finish or stop that recording first, then try again.",
            )
        try:
            self._prepare()
        except BaseException:
            self.workspace.unlock()
            raise

    def _prepare(self) -> None:
        meta, workspace = self.meta, self.workspace
        self.first_episode = claim(meta, workspace)
        if self.settings.recover:
            recover_unfinished(meta, workspace)
        else:
            remove_unfinished(meta, workspace)
        self.next_episode = meta.total_episodes
        self._encoders = _encoders(meta.parsed_features, self.settings)
        self._store = EpisodeStore(meta, self._encoders)
        workspace.staging.mkdir(parents=True, exist_ok=True)
        try_cameras(workspace.staging, meta.parsed_features, meta.fps, self._encoders)

    @property
    def has_pending_frames(self) -> bool:
        """Whether frames were added since the last episode was saved or discarded."""
        return self._current is not None

    @property
    def frames_waiting(self) -> int:
        """Length of the longest encoder queue."""
        return max((w.waiting for w in self._current.workers.values()), default=0) if self._current else 0

    def add(self, frame: Mapping[str, Any], time_s: float | None = None) -> bool:
        """Take one frame.

        Args:
            frame: Feature name to value, and `task`.
            time_s: When it was taken, on any steady clock; None takes the time of this call.

        Returns:
            False when the frame was dropped because an encoder's queue was full.

        Raises:
            FeatureError: The frame does not fit the features; nothing of it is stored.
            DatasetError: The recording is closed, storing something failed, or the disk is full.
        """
        self._check()
        checked = self._checker.check(frame)
        time_s = None if time_s is None else to_seconds(time_s)
        episode = self._current or self._begin("arrival" if time_s is None else "caller")
        for worker in episode.workers.values():
            worker.check()
        if episode.torn:
            raise DatasetError(
                f"Episode {episode.index} was interrupted in the middle of a frame; no frame can follow.",
                hint="Keep the frames before it with save_episode(), or drop them with clear_episode_buffer().",
            )
        if not self._has_room(episode):
            return False
        try:
            episode.put(checked, time.monotonic() if time_s is None else time_s)
        except OSError as error:
            raise DatasetError(
                f"Frame {len(episode.tasks)} of episode {episode.index} could not be stored: {error}",
                hint="Nothing of it was stored. Free some space and go on, or save or discard the episode.",
            ) from error
        return True

    def _has_room(self, episode: OpenEpisode) -> bool:
        """Wait until every encoder can take a picture, or count the frame as dropped."""
        for name, worker in episode.workers.items():
            if worker.has_room:
                continue
            drop = self.settings.when_full == "drop"
            self.dropped_frames += drop
            episode.dropped += drop
            self._tell_slow(name, drop=drop)
            if drop:
                return False
            worker.wait_for_room()
        return True

    def _tell_slow(self, camera: str, *, drop: bool) -> None:
        now = time.monotonic()
        if now < self._next_told:
            return
        self._next_told = now + _TELL_EVERY_S
        what = f"frames are dropped ({self.dropped_frames} so far)" if drop else "add_frame() waits for it"
        logger.warning(
            "Camera %r is encoded slower than it is recorded, %d pictures wait, and %s. A faster encoder helps: "
            "vcodec h264 with preset veryfast, a hardware encoder (vcodec auto), or smaller pictures.",
            camera,
            self.settings.queue_size,
            what,
        )

    def _keep_depth_units(self) -> None:
        """Write down the units of depth cameras, which the first frame decides, before anything relies on them."""
        info, changed = self.meta.info, False
        for name, unit in self._checker.depth_units.items():
            if info.features[name].camera_info.get("depth_unit") != unit:
                info.features[name] = with_depth_unit(info.features[name], unit)
                changed = True
        if changed:
            info.save(self.meta.root)

    def _begin(self, clock: Clock) -> OpenEpisode:
        """Start an episode; whatever fails, nothing is left of it."""
        if not (self._storing or self._unsaved):
            self.next_episode = self.meta.total_episodes
        folder, features = self.workspace.folder_of(self.next_episode), self.meta.parsed_features
        encoders = {name: config.model_dump(mode="json") for name, config in self._encoders.items()}
        header = {"encoders": encoders, "clock": clock}
        workers: dict[str, CameraWorker] = {}
        try:
            self._keep_depth_units()
            self.workspace.episode_folder(self.next_episode)
            journal = RowJournal(folder / ROWS_FILE, features, header)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise DatasetError(
                f"Episode {self.next_episode} could not be begun: {error}",
                hint="Finished episodes are safe. Free some space and go on.",
            ) from error
        for name, feature in features.items():
            if feature.is_camera:
                workers[name] = begin_camera(
                    folder, name, feature, self.meta.fps, self._encoders, self.settings.queue_size
                )
        self._current = OpenEpisode(self.next_episode, folder, clock, journal, workers)
        return self._current

    def save(self, *, wait: bool = True) -> None:
        """End the episode and store it, after those that could not be stored before.

        Args:
            wait: Whether to return only when it is durable. Else it is stored in the background, in order, and
                the next episode can begin at once; a failure is raised by the next call.

        Raises:
            DatasetError: There is no frame, or storing failed. The episode has ended all the same, and the next frame
                begins another one. If there was no room for it, it is kept.
        """
        self._check_open()
        episode = self._current
        if episode is None or not episode.values:
            if self._retry():
                return
            raise DatasetError("There is no frame to save; add_frame() must come first.")
        uninterrupted(lambda: self._hand_over(episode), f"episode {episode.index} is being stored")
        if wait or self._failures or self._unsaved:
            self._retry()

    def _hand_over(self, episode: OpenEpisode) -> None:
        """End an episode and have it stored in the background, in order."""
        before = self._storing[-1] if self._storing else None
        stored = threading.Event()
        thread = threading.Thread(
            target=self._store_in_turn, args=(episode, before, stored), name=f"store episode {episode.index}"
        )
        episode.end()
        self._current = None
        self.next_episode += 1
        self._storing.append(stored)
        thread.start()

    def flush(self) -> None:
        """Wait until every saved episode is durable. After Ctrl-C storing goes on; call it again.

        Raises:
            DatasetError: Storing one failed.
        """
        self._retry()

    def _retry(self) -> bool:
        """Wait for what is being stored, and try once more what did not fit; return whether there was such."""
        self._await_storing()
        self._raise_failure()
        waiting = bool(self._unsaved)
        if waiting:
            uninterrupted(self._try_unsaved, "episodes that did not fit before are being stored")
        return waiting

    def _await_storing(self) -> None:
        while self._storing:
            self._storing[0].wait()  # not Thread.join(), which forgets the thread when Ctrl-C interrupts it
            self._storing.popleft()

    def _check_open(self) -> None:
        if self.closed:
            raise DatasetError(
                "This recording is closed.", hint="Open the dataset with LeRobotDataset.resume() to add to it."
            )

    def _check(self) -> None:
        self._check_open()
        while self._storing and self._storing[0].is_set():
            self._storing.popleft()
        self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise what failed first, and is not told yet."""
        if self._failures:
            self._await_storing()  # whatever follows the one that failed is kept by then
            raise self._failures.popleft().error

    def _store_in_turn(self, episode: OpenEpisode, before: threading.Event | None, stored: threading.Event) -> None:
        if before is not None:
            before.wait()
        try:
            self._store_now(episode)
        finally:
            stored.set()

    def _store_now(self, episode: OpenEpisode) -> None:
        """Store an episode that has ended, or keep it if that fails, or if one before it is kept."""
        try:
            ended = episode.ended(self.meta)
        except Exception as error:  # noqa: BLE001 - kept and raised in the caller's thread
            self._failures.append(_Failure(self._told(self.meta.total_episodes, error), is_loss=True))
            episode.discard()
            return
        if ended.failure is not None:
            self._failures.append(_Failure(ended.failure, is_loss=True))
        if self._failures or self._unsaved:
            self._unsaved.append(ended)
            return
        failure, kept = self._try(ended)
        if failure is not None:  # noted before it is kept: who finds one kept has been told why, or is told at once
            self._failures.append(_Failure(failure, is_loss=not kept))
        self._unsaved.extend(kept)

    def _try_unsaved(self) -> None:
        while self._unsaved:
            failure, kept = self._try(self._unsaved.popleft())
            self._unsaved.extendleft(kept)
            if failure is not None:
                raise failure

    def _try(self, ended: EndedEpisode) -> tuple[DatasetError | None, list[EndedEpisode]]:
        """Store an episode as the next one; return what failed, and what is to be kept then."""
        number = self.meta.total_episodes
        folder = self.workspace.folder_of(number)
        try:
            ended = ended.moved(folder)
            self._store.store(ended.data(self.meta, number))
        except Exception as error:  # noqa: BLE001 - raised in the caller's thread
            if _is_disk_failure(error) and self.meta.total_episodes == number:
                return self._told(number, error, kept=True), [ended]
            shutil.rmtree(ended.folder, ignore_errors=True)
            return self._told(number, error), []
        shutil.rmtree(folder, ignore_errors=True)
        return None, []

    def _told(self, episode: int, cause: Exception, *, kept: bool = False) -> DatasetError:
        """Return the error that says what became of an episode."""
        safe = f"The {episode} episodes before it are safe" if episode else "Nothing else was recorded"
        if self.meta.total_episodes > episode:
            text = f"Episode {episode} is stored, but its statistics could not be added to the others: {cause!r}"
            hint = f"End the recording, then: ulna dataset repair {self.meta.root}"
        elif kept:
            reason = cause.message if isinstance(cause, DatasetError) else cause
            text = f"Episode {episode} could not be stored: {reason}. It is kept."
            hint = f"{safe}. Free some space, then call save_episode(), flush() or finalize()."
        elif isinstance(cause, DatasetError):
            return cause
        else:
            text = f"Episode {episode} could not be stored: {cause!r}"
            hint = f"{safe}; recording goes on with a new episode {episode}."
        error = DatasetError(text, hint=hint)
        error.__cause__ = cause
        return error

    def discard(self, *, unsaved: bool = False) -> None:
        """Forget the frames since the last saved episode. Leaves nothing of them on disk; safe at any time.

        Args:
            unsaved: Whether episodes that are kept because they could not be stored are forgotten, too.
        """
        if self._current is not None:
            episode, self._current = self._current, None
            episode.discard()
            if self.next_episode == 0:
                self._checker.depth_units.clear()  # nothing is recorded yet: the next first frame decides
        if unsaved:
            self._await_storing()
            self._failures.clear()
            while self._unsaved:
                shutil.rmtree(self._unsaved.popleft().folder, ignore_errors=True)

    def close(self, compact: Compact | None = None) -> None:
        """Discard what was not saved, wait for what was, and give the folder free. Idempotent.

        Ctrl-C meanwhile takes effect when this is done.

        Args:
            compact: Called when everything is durable, to join the files of single episodes.

        Raises:
            DatasetError: Storing an episode, or compacting, failed; the dataset stays marked as not finalized.
            KeyboardInterrupt: Ctrl-C was pressed meanwhile.
        """
        if not self.closed:
            uninterrupted(lambda: self._close(compact), f"{self.meta.repo_id} is being finished")

    def _close(self, compact: Compact | None) -> None:
        self.discard()
        try:
            self._store_what_was_saved()
            self._store.remove_leftovers()
            self._store.write_totals()
            if compact is not None and self.meta.total_episodes > self.first_episode:
                compact(self.meta, self.workspace, self.first_episode)
        except BaseException as error:
            self.closed = True
            if not self._unsaved:
                self.workspace.clear_staging()
            self.workspace.unlock()
            if isinstance(error, OSError):
                raise DatasetError(
                    f"{self.meta.root} could not be finalized: {error}. Every saved episode is safe.",
                    hint=f"Free some space, then: ulna dataset repair {self.meta.root}",
                ) from error
            raise
        self.closed = True
        self.workspace.remove()

    def _store_what_was_saved(self) -> None:
        """Wait for what is being stored and try once more what did not fit.

        Raises:
            DatasetError: Something could not be stored; what did not fit stays in its folder, as after a kill.
        """
        self._await_storing()
        count, losses = len(self._unsaved), [failure.error for failure in self._failures if failure.is_loss]
        self._failures.clear()
        try:
            if losses:
                raise losses[0]  # nobody has been told
            self._try_unsaved()
        except DatasetError as error:
            if not self._unsaved:
                raise
            raise DatasetError(
                f"{error.message} The recording ends without it.",
                hint=f"Free some space, then: ulna dataset repair {self.meta.root} --recover",
            ) from error
        if count:
            text = "%s: %d episodes are stored now for which there was no room before."
            logger.warning(text, self.meta.repo_id, count)


def _is_disk_failure(error: Exception) -> bool:
    return isinstance(error, OSError) or isinstance(error.__cause__, OSError)


def _encoders(features: Mapping[str, Feature], settings: RecorderSettings) -> dict[str, VideoEncoderConfig]:
    """Return the settings of every camera that is stored as video."""
    cameras = {name: feature for name, feature in features.items() if feature.dtype == "video"}
    chosen: dict[str, VideoEncoderConfig] = {
        name: recorded_depth_config(feature, settings.depth_encoder) if feature.is_depth else settings.encoder
        for name, feature in cameras.items()
    }
    return {name: config.shared(len(cameras)) for name, config in chosen.items()}
