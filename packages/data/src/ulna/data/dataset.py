# SPDX-License-Identifier: Apache-2.0
# length: the one class that users work with; most of it says what its arguments mean.
"""`LeRobotDataset`: the class users work with. Reading is done by the reader, recording by the recorder."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

from ulna.core.errors import DatasetError
from ulna.core.files import make_dirs
from ulna.data.column_view import ColumnView
from ulna.data.compaction import compact
from ulna.data.depth import DepthUnit, check_depth_unit
from ulna.data.features import parse_features
from ulna.data.frame_cache import DEFAULT_CACHE_BYTES, CacheKind, FrameCache
from ulna.data.index import episode_numbers
from ulna.data.info import DatasetInfo, check_fps, write_tasks
from ulna.data.location import new_root
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.picture_reading import open_frame_cache
from ulna.data.reader import DatasetReader
from ulna.data.recorder import Recorder, RecorderSettings
from ulna.data.tensors import batch_items, finish, to_torch
from ulna.data.video_backends import BackendName, choose_backend
from ulna.data.video_codecs import DepthEncoderConfig, RGBEncoderConfig
from ulna.data.workspace import Workspace
from ulna.data.write_options import LegacyWriteOptions, explain_write_options, refuse_unrecordable, with_threads

__all__ = ["LeRobotDataset"]

Item = dict[str, Any]


class LeRobotDataset:
    """A dataset of robot episodes in the v3.0 format.

    The constructor opens one for reading. `create` and `resume` open one for recording; `finalize` ends that, and a
    `with` block does so on every way out. Finished episodes can be read at any time. Reading is safe from several
    threads and processes; recording belongs to one thread.

    Args:
        repo_id: `user/name`. Looked up in Ulna's folder of datasets, in LeRobot's, then pulled from the Hub.
        root: Its folder, if it lies elsewhere.
        episodes: Episodes to read, as a set (frames stay in file order); None reads all.
        episode_filter: Takes a row of the episode table; episodes it refuses are left out.
        image_transforms: Called with each colour picture (or window of pictures) that is read.
        delta_timestamps: Feature to time differences in seconds, multiples of 1 / fps. The feature gets a leading time
            axis and a mask `<feature>_is_pad`; frames outside the episode repeat its first or last one.
        tolerance_s: Allowed deviation of times.
        revision: Branch, tag or commit of the Hub. Only what was pulled is looked at then.
        video_backend: `pyav` (the default) or `torchcodec`, see the guide on reading.
        return_uint8: Whether colour pictures are uint8 instead of float32 in [0, 1].
        depth_output_unit: Unit of depth maps, which are float32, and of their statistics: `mm` or `m`.
        frame_cache: `ram` or `disk` keeps decoded pictures, shared with workers; None keeps none.
        frame_cache_bytes: Most memory or disk space for that.
        force_cache_sync: Whether the Hub is asked again for what was pulled before.
        download_videos: Whether videos are pulled too.
        token: Token of the Hub, if it is not the one that is logged in.
        **legacy: Arguments of LeRobot for recording, which `create` and `resume` take; a warning says why.

    Raises:
        DatasetError: Neither on this machine nor on the Hub, an unknown episode, feature or backend, one that does not
            work here, a cache too small for one frame, or a time between frames.
        DatasetFormatError: Files contradict the format; the file, episode and values are named.
    """

    def __init__(
        self,
        repo_id: str,
        root: str | Path | None = None,
        episodes: Iterable[int] | None = None,
        *,
        episode_filter: Callable[[dict[str, Any]], bool] | None = None,
        image_transforms: Callable[[Any], Any] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = 1e-4,
        revision: str | None = None,
        video_backend: str | None = None,
        return_uint8: bool = False,
        depth_output_unit: DepthUnit = "mm",
        frame_cache: CacheKind | None = None,
        frame_cache_bytes: int = DEFAULT_CACHE_BYTES,
        force_cache_sync: bool = False,
        download_videos: bool = True,
        token: str | None = None,
        **legacy: Unpack[LegacyWriteOptions],
    ) -> None:
        explain_write_options(dict(legacy))
        self._decoding: BackendName = choose_backend(video_backend)
        self._caching = frame_cache, frame_cache_bytes
        self.meta = LeRobotDatasetMetadata(
            repo_id,
            root,
            revision,
            depth_output_unit=check_depth_unit(depth_output_unit),
            force_cache_sync=force_cache_sync,
            token=token,
        )
        chosen = None if episodes is None else episode_numbers(episodes)
        if episode_filter is not None:
            accepted = self.meta.filter_episodes(episode_filter)
            chosen = accepted if chosen is None else [e for e in chosen if e in set(accepted)]
        self.meta.pull_files(chosen, videos=download_videos, token=token)
        self._setup(image_transforms, delta_timestamps, tolerance_s, return_uint8, chosen)
        self._reader: DatasetReader | None = self._make_reader()

    def _setup(
        self,
        image_transforms: Callable[[Any], Any] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = 1e-4,
        return_uint8: bool = False,
        episodes: list[int] | None = None,
    ) -> None:
        self.image_transforms = image_transforms
        self.delta_timestamps = dict(delta_timestamps) if delta_timestamps else None
        self.tolerance_s = tolerance_s
        self.return_uint8 = return_uint8
        self.episodes = episodes
        self.depth_output_unit: DepthUnit = self.meta.depth_output_unit or "mm"
        self._cameras = frozenset(self.meta.camera_keys) - frozenset(self.meta.depth_keys)
        self._recorder: Recorder | None = None

    def _make_reader(self) -> DatasetReader:
        return DatasetReader(
            self.meta,
            self.episodes,
            self.delta_timestamps,
            self.tolerance_s,
            self.depth_output_unit,
            backend=self._decoding,
            make_cache=partial(open_frame_cache, *self._caching),
        )

    @classmethod
    def create(
        cls,
        repo_id: str,
        fps: int,
        features: Mapping[str, Mapping[str, Any]],
        root: str | Path | None = None,
        robot_type: str | None = None,
        use_videos: bool = True,
        *,
        tolerance_s: float = 1e-4,
        video_backend: str | None = None,
        rgb_encoder: RGBEncoderConfig | None = None,
        depth_encoder: DepthEncoderConfig | None = None,
        encoder_queue_maxsize: int = 30,
        encoder_threads: int | None = None,
        when_full: Literal["block", "drop"] = "block",
        chunks_size: int = 1000,
        data_files_size_in_mb: float | None = None,
        video_files_size_in_mb: float | None = None,
        **legacy: Unpack[LegacyWriteOptions],
    ) -> Self:
        """Begin a new dataset.

        Frames are encoded while they are recorded, by one thread a camera. Every saved episode is durable on its own.

        Args:
            repo_id: `user/name`.
            fps: Frames per second, a whole number.
            features: Feature name to `dtype`, `shape` and `names`. Cameras have dtype `video` or `image`.
            root: Its folder, new or empty; below Ulna's folder of datasets when not given.
            robot_type: Type string of the robot.
            use_videos: When False, cameras declared as `video` are stored as pictures.
            tolerance_s: Allowed deviation of times when reading.
            video_backend: What decodes videos when reading, `pyav` or `torchcodec`.
            rgb_encoder: Settings for colour video.
            depth_encoder: Settings for depth video.
            encoder_queue_maxsize: Frames that may wait for each encoder.
            encoder_threads: Threads of each encoder whose settings do not say it.
            when_full: What happens to a frame when an encoder's queue is full: `block` waits, which slows the caller;
                `drop` refuses the whole frame, so that rows and pictures always fit together.
            chunks_size: Files in a chunk folder.
            data_files_size_in_mb: Size limit of a table file, 100 if None.
            video_files_size_in_mb: Size limit of a video file, 200 if None.
            **legacy: Arguments of LeRobot that change nothing here; a warning says why.

        Returns:
            The dataset, open for recording.

        Raises:
            DatasetError: The folder is taken, fps is not whole, or a camera cannot be encoded so.
            FeatureError: A feature is not allowed.
        """
        explain_write_options(dict(legacy))
        declared = {n: dict(f) for n, f in features.items()}
        for feature in declared.values():
            if feature.get("dtype") == "video" and not use_videos:
                feature["dtype"] = "image"
        info = DatasetInfo(check_fps(fps), parse_features(declared, add_defaults=True), robot_type=robot_type)
        info.chunks_size = chunks_size
        info.data_files_size_in_mb = data_files_size_in_mb or info.data_files_size_in_mb
        info.video_files_size_in_mb = video_files_size_in_mb or info.video_files_size_in_mb
        refuse_unrecordable(info)
        colour, depth = with_threads(rgb_encoder, depth_encoder, encoder_threads)
        settings = RecorderSettings(colour, encoder_queue_maxsize, when_full, depth)
        backend = choose_backend(video_backend)
        folder = new_root(repo_id, root)
        try:
            try:
                make_dirs(folder)
                info.save(folder)
                write_tasks(folder, {})
            except (OSError, ValueError) as error:
                raise DatasetError(
                    f"The folder {str(folder)[:1000]!r} cannot be made: {error}", hint="Choose another root."
                ) from error
            return cls._record(LeRobotDatasetMetadata(repo_id, folder), settings, tolerance_s, backend)
        except BaseException:
            _undo_create(folder)
            raise

    @classmethod
    def resume(
        cls,
        repo_id: str,
        root: str | Path | None = None,
        *,
        tolerance_s: float = 1e-4,
        video_backend: str | None = None,
        rgb_encoder: RGBEncoderConfig | None = None,
        depth_encoder: DepthEncoderConfig | None = None,
        encoder_queue_maxsize: int = 30,
        encoder_threads: int | None = None,
        when_full: Literal["block", "drop"] = "block",
        recover: bool = False,
        **legacy: Unpack[LegacyWriteOptions],
    ) -> Self:
        """Continue a dataset, also one whose recording was interrupted.

        Args:
            repo_id: `user/name`.
            root: Its folder.
            tolerance_s: Allowed deviation of times when reading.
            video_backend: What decodes videos when reading, `pyav` or `torchcodec`.
            rgb_encoder: Settings for colour video.
            depth_encoder: Settings for depth video; None goes on as the dataset was begun.
            encoder_queue_maxsize: Frames that may wait for each encoder.
            encoder_threads: Threads of each encoder whose settings do not say it.
            when_full: `block` or `drop`, see `create`.
            recover: What becomes of an unfinished episode. True stores it, up to its last frame that has its row and
                all of its pictures. False removes it, and a warning says how many frames that were.
            **legacy: Arguments of LeRobot that change nothing here; a warning says why.

        Returns:
            The dataset, open for recording; the next episode follows the last whole one.

        Raises:
            DatasetError: Not on this machine, or being recorded by another process.
            DatasetFormatError: Files contradict the format.
        """
        explain_write_options(dict(legacy))
        meta = LeRobotDatasetMetadata(repo_id, root, local_only=True)
        refuse_unrecordable(meta.info)
        colour, depth = with_threads(rgb_encoder, depth_encoder, encoder_threads)
        settings = RecorderSettings(colour, encoder_queue_maxsize, when_full, depth, recover)
        return cls._record(meta, settings, tolerance_s, choose_backend(video_backend))

    @classmethod
    def _record(
        cls, meta: LeRobotDatasetMetadata, settings: RecorderSettings, tolerance_s: float, backend: BackendName
    ) -> Self:
        dataset = cls.__new__(cls)
        dataset.meta = meta
        dataset._decoding, dataset._caching = backend, (None, DEFAULT_CACHE_BYTES)
        dataset._setup(tolerance_s=tolerance_s)
        dataset._reader = None
        dataset._recorder = Recorder(meta, settings)
        return dataset

    @property
    def repo_id(self) -> str:
        """`user/name`."""
        return self.meta.repo_id

    @property
    def root(self) -> Path:
        """Folder of the dataset."""
        return self.meta.root

    @property
    def fps(self) -> int:
        """Frames per second."""
        return self.meta.fps

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """Every feature in plain form, shapes as tuples."""
        return self.meta.features

    @property
    def num_frames(self) -> int:
        """Frames of the opened episodes (durable ones, while recording)."""
        return self.meta.total_frames if self.episodes is None else len(self.reader)

    @property
    def num_episodes(self) -> int:
        """Opened episodes (durable ones, while recording)."""
        return self.meta.total_episodes if self.episodes is None else len(self.reader.index.episodes)

    @property
    def dropped_frames(self) -> int:
        """Frames refused so far because an encoder could not keep up."""
        return self._recorder.dropped_frames if self._recorder else 0

    @property
    def is_recording(self) -> bool:
        """Whether frames can be added."""
        return self._recorder is not None and not self._recorder.closed

    @property
    def has_pending_frames(self) -> bool:
        """Whether frames were added since the last episode was saved or discarded."""
        return self._recorder is not None and self._recorder.has_pending_frames

    @property
    def reader(self) -> DatasetReader:
        """What reads the items; new when episodes have been added."""
        if self._reader is None or (self.is_recording and len(self._reader) != self.meta.total_frames):
            self._reader = self._make_reader()
        return self._reader

    @property
    def frame_cache(self) -> FrameCache | None:
        """Where decoded pictures are kept, if anywhere."""
        return self.reader.cache

    def _writer(self) -> Recorder:
        if self._recorder is None:
            raise DatasetError(
                f"{self.repo_id} was opened for reading.",
                hint=f"Use LeRobotDataset.resume({self.repo_id!r}) to add episodes.",
            )
        return self._recorder

    def add_frame(self, frame: Mapping[str, Any], timestamp: float | None = None) -> bool:
        """Add one frame to the current episode. `frame` is not changed and may be reused.

        Args:
            frame: Every feature but the five defaults, and `task`. Pictures (H, W, C) or (C, H, W), uint8 or float in
                [0, 1]. An item that was read fits: `add_frame(other[i])`.
            timestamp: When it was taken, seconds on any steady clock. It does not change the `timestamp` column, which
                is the number of the frame divided by fps; the episode's true rate and its worst gap are stored beside
                it, and a warning tells if they differ from fps by more than 3 %. None takes the time of the call and
                never warns.

        Returns:
            False when the frame was dropped because an encoder's queue was full (`when_full="drop"`).

        Raises:
            FeatureError: The frame does not fit; nothing of it is stored and the episode can go on.
            DatasetError: Not recording, or storing failed.
        """
        return self._writer().add(frame, timestamp)

    def save_episode(self, episode_data: None = None, parallel_encoding: bool = True, *, wait: bool = True) -> None:
        """End the current episode and store it.

        Args:
            episode_data: Accepted for LeRobot's programs; must be None.
            parallel_encoding: Accepted for LeRobot's programs; cameras are always encoded in parallel, while recorded.
            wait: Whether to return only when it is durable: the default. With False the next episode can begin at once,
                while this one is stored in the background, in order; `flush` waits, a failure is raised by
                the next call.

        Raises:
            DatasetError: There is no frame, or storing failed. Earlier episodes are safe; if the disk is full this one
                is kept, and the next `save_episode`, `flush` or `finalize` stores it.
        """
        if episode_data is not None:
            raise DatasetError("save_episode() stores the frames that were added; it takes no others.")
        self._writer().save(wait=wait)

    def flush(self) -> None:
        """Wait until every saved episode is durable.

        Raises:
            DatasetError: Storing one failed; if the disk is full it is kept.
        """
        self._writer().flush()

    def clear_episode_buffer(self, *, unsaved: bool = False) -> None:
        """Discard the frames added since the last save, with everything they left on disk.

        Args:
            unsaved: Whether episodes that could not be saved, and are kept, are given up too.
        """
        self._writer().discard(unsaved=unsaved)

    def finalize(self) -> None:
        """End recording: discard unsaved frames, wait for saved ones, join the files of single episodes. Idempotent.

        Raises:
            DatasetError: Storing or joining failed; what was durable before still is. An episode for which there is
                no room stays recoverable (`ulna dataset repair --recover`).
        """
        if self._recorder is not None and not self._recorder.closed:
            try:
                self._recorder.close(compact)
            finally:
                self._reader = None

    def push_to_hub(
        self,
        branch: str | None = None,
        tags: Sequence[str] | None = None,
        license: str | None = "apache-2.0",
        tag_version: bool = True,
        push_videos: bool = True,
        private: bool | None = None,
        allow_patterns: Sequence[str] | str | None = None,
        *,
        token: str | bool | None = None,
    ) -> None:
        """Upload the finished dataset under its name; repeating it after a failure goes on where it stopped.

        Args:
            branch: Branch to write, created when missing; default: `main`.
            tags: Tags of the dataset card, besides `LeRobot`.
            license: License of the dataset card.
            tag_version: Whether the tag of the format, by which readers find the dataset, is moved to the result.
            push_videos: Whether videos are uploaded.
            private: Whether a new repository is private; None leaves it to the account.
            allow_patterns: Upload only files that match one of these.
            token: Token of the Hub, if it is not the one that is logged in.

        Raises:
            DatasetNotFinishedError: The recording is open, or episodes are not whole.
            DatasetError: The Hub refused; the error tells the command that goes on.
            MissingDependencyError: huggingface_hub is not installed.
        """
        from ulna.data.hub import push_dataset

        push_dataset(
            self.repo_id,
            root=self.root,
            branch=branch,
            tags=tags,
            license=license,
            tag_version=tag_version,
            push_videos=push_videos,
            private=private,
            allow_patterns=allow_patterns,
            token=token,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finalize()

    def __len__(self) -> int:
        return len(self.reader)

    @overload
    def __getitem__(self, key: int) -> Item: ...
    @overload
    def __getitem__(self, key: slice) -> list[Item]: ...
    def __getitem__(self, key: int | slice) -> Item | list[Item]:
        if isinstance(key, slice):
            return self.__getitems__(range(*key.indices(len(self))))
        item = self.reader.item(operator.index(key), as_float=not self.return_uint8)
        return finish(item, self._cameras, as_uint8=True, image_transforms=self.image_transforms)

    def __getitems__(self, positions: Sequence[int]) -> list[Item]:
        """Return several items at once: quicker, because pictures are decoded file by file, each frame once.

        Called by torch's DataLoader. The tensors of a feature are parts of one, see `collate_items`.

        Args:
            positions: Positions in the opened dataset, in any order, repeats allowed.

        Returns:
            One item for each position.

        Raises:
            IndexError: Beyond the end.
            DatasetFormatError: A file contradicts the metadata.
        """
        columns = self.reader.batch(positions, as_float=not self.return_uint8, to_send=True)
        return batch_items(columns, len(positions), self._cameras, self.image_transforms)

    def numpy_item(self, position: int) -> Item:
        """Return an item as numpy arrays; needs no torch. Picture transforms are not applied.

        Args:
            position: Position in the opened dataset.

        Returns:
            Feature to array or text.

        Raises:
            IndexError: Beyond the end.
            DatasetFormatError: A file contradicts the metadata.
        """
        return self.reader.item(position, as_float=not self.return_uint8)

    def get_raw_item(self, position: int) -> Item:
        """Return one row of the table as tensors: no videos, no windows, no task text.

        Args:
            position: Position in the opened dataset.

        Raises:
            IndexError: Beyond the end.
        """
        return to_torch(self.reader.raw_item(position), self._cameras, as_uint8=self.return_uint8)

    def select_columns(self, names: str | Sequence[str]) -> ColumnView:
        """Return a view of some columns of the table; videos are not columns.

        Args:
            names: One name or several.

        Raises:
            FeatureError: A name is not a column.
        """
        return ColumnView.of(self, names)

    def set_image_transforms(self, transforms: Callable[[Any], Any]) -> None:
        """Set what is called with each picture that is read.

        Args:
            transforms: Takes and returns a tensor.
        """
        self.image_transforms = transforms

    def clear_image_transforms(self) -> None:
        """Read pictures as they are."""
        self.image_transforms = None

    def __repr__(self) -> str:
        state = "recording" if self.is_recording else "reading"
        size = f"{self.num_episodes} episodes, {self.num_frames} frames"
        return f"<LeRobotDataset {self.repo_id} at {self.root}: {size}, {state}>"


def _undo_create(folder: Path) -> None:
    """Remove what `create` has written into a new folder."""
    with suppress(OSError, ValueError):
        _remove_what_was_written(folder)


def _remove_what_was_written(folder: Path) -> None:
    Workspace(folder).remove()
    for name in ("meta/info.json", "meta/tasks.parquet"):
        (folder / name).unlink(missing_ok=True)
    for path in (folder / "meta", folder):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
