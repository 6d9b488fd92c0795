# SPDX-License-Identifier: Apache-2.0
"""`StreamingLeRobotDataset`: frames one after the other, from local files or from the Hub, in bounded memory.

Items are read by the same reader as those of `LeRobotDataset`. In which order, `streaming_order` decides.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from ulna.core.errors import DatasetError, UlnaError
from ulna.data.depth import DepthUnit, check_depth_unit
from ulna.data.frame_source import FrameSource
from ulna.data.index import FrameIndex, episode_numbers, share, windows
from ulna.data.layout import FileId
from ulna.data.location import find_root, snapshot_commit
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.owned_folders import OwnedFolder, remove_orphans
from ulna.data.remote import RemoteFiles
from ulna.data.streaming_order import Segment, generator, part_of, segments
from ulna.data.tensors import finish
from ulna.data.video_backends import BackendName, choose_backend

__all__ = ["StreamingLeRobotDataset"]

logger = logging.getLogger(__name__)

Item = dict[str, Any]
_MOST_READERS: Final = 4096
_HEAD: Final = 2
"""What readers share, workers that live on included, begins with the epoch and the frames of it that each leaves out;
how many passes each reader has begun since follows."""
_PREFIX: Final = "ulna-stream-"


class StreamingLeRobotDataset(IterableDataset[Item]):
    """The frames of a dataset one after the other; no frame is reached by its position.

    A dataset on this machine is read where it is, without the network. One that is not comes from the Hub (or any
    fsspec file system): its metadata first, then the files of a few episodes at a time, into a temporary folder of
    bounded size that is removed.

    Items equal those of `LeRobotDataset`, windows and padding masks included. With `shuffle` off they come in order.
    Each iteration is the next epoch, with another order. Workers of a DataLoader, and processes of a distributed
    run, share the frames: every frame comes once, and their shares differ by one frame at most. Numbers of batches may
    differ by one; all have those of the smallest share, `part_length(0, readers)`.

    Args:
        repo_id: `user/name`.
        root: Its folder, if it lies elsewhere on this machine.
        episodes: Episodes to read, as a set; None reads all.
        image_transforms: Called with each colour picture (or window of pictures) that is read.
        delta_timestamps: Feature to time differences in seconds, see `LeRobotDataset`.
        tolerance_s: Allowed deviation of times.
        revision: Branch, tag or commit on the Hub.
        force_cache_sync: Take the dataset from the Hub although it is on this machine.
        streaming: When False, a dataset that is not on this machine is refused.
        buffer_size: Frames among which the next one is drawn.
        max_num_shards: Files of each kind, and episodes, that are open at once.
        seed: Seed of the order, the same in all processes.
        rng: Gives the seed instead.
        shuffle: Whether the order is random.
        return_uint8: Whether pictures are uint8 instead of float32 in [0, 1].
        depth_output_unit: Unit of depth maps: `mm` or `m`.
        video_backend: Video decoder, see `LeRobotDataset`.
        repo_type: Kind of Hub repository, `dataset` or `bucket`.
        token: Token of the Hub, if it is not the one that is logged in.
        files: Where the dataset is, if neither on this machine nor on the Hub.
        rank: Number of this process among those that share the data; when not given, from torch.distributed or the
            environment (RANK, WORLD_SIZE), whenever an iteration begins.
        world_size: How many there are.
        on_error: `raise`, or `skip` frames that cannot be read; they are counted in `skipped`, and each is logged.
        drop_n_last_frames: Frames left out at the end of each episode.
        buffer_bytes: Most memory for the frames that wait in the buffer of one reader.
        disk_bytes: Most disk space for copies of remote files of one reader, unless a single episode needs more.

    Attributes:
        meta: Metadata of the dataset.
        skipped: Frames left out so far in this process, because they could not be read.

    Raises:
        DatasetError: It is nowhere, an argument is not allowed, or an unknown episode or feature is named.
        DatasetFormatError: Files contradict the format.
    """

    # Of a stream that was pickled: rank and world size where that was, and the process that got it.
    _sender: tuple[int, int] | None = None
    _receiver: int | None = None

    def __init__(
        self,
        repo_id: str,
        root: str | Path | None = None,
        episodes: Iterable[int] | None = None,
        image_transforms: Callable[[Any], Any] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = 1e-4,
        revision: str | None = None,
        force_cache_sync: bool = False,
        streaming: bool = True,
        buffer_size: int = 1000,
        max_num_shards: int = 16,
        seed: int = 42,
        rng: np.random.Generator | None = None,
        shuffle: bool = True,
        *,
        return_uint8: bool = False,
        depth_output_unit: DepthUnit = "mm",
        video_backend: str | None = None,
        repo_type: Literal["dataset", "bucket"] = "dataset",
        token: str | bool | None = None,
        files: RemoteFiles | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        drop_n_last_frames: int = 0,
        buffer_bytes: int = 512 * 2**20,
        disk_bytes: int = 4 * 10**9,
    ) -> None:
        super().__init__()
        least = {"buffer_size": buffer_size, "max_num_shards": max_num_shards}
        _refuse_values(least, on_error, rank, world_size)
        self.repo_id, self.revision = repo_id, revision
        self.image_transforms = image_transforms
        self.tolerance_s, self.return_uint8, self.shuffle = tolerance_s, return_uint8, shuffle
        self.depth_output_unit = check_depth_unit(depth_output_unit)
        self._decoding: BackendName = choose_backend(video_backend)
        self.buffer_size, self.max_num_shards = buffer_size, max_num_shards
        self.seed = seed if rng is None else int(rng.integers(2**63))
        self.on_error = on_error
        self.skipped = 0
        self._buffer_bytes, self._disk_bytes = buffer_bytes, disk_bytes
        self._place = rank, world_size
        self._files: RemoteFiles | None = None
        self._folder = Path()
        self.episodes = None if episodes is None else episode_numbers(episodes)
        here = None if files or force_cache_sync else self._find_here(root, must=not streaming)
        if here is None:
            self._files = files or RemoteFiles.on_hub(repo_id, revision=revision, repo_type=repo_type, token=token)
        self.meta = here or self._fetch_metadata(self._files)
        self._cameras = frozenset(self.meta.camera_keys) - frozenset(self.meta.depth_keys)
        self.set_delta_timestamps(delta_timestamps)
        self._index = FrameIndex(self.meta.episodes.starts, self.meta.episodes.lengths, self.episodes)
        self._segments = self._all_segments(drop_n_last_frames)
        self._progress = _shared(torch.zeros(_HEAD + _MOST_READERS, dtype=torch.int64))
        self._owner = os.getpid()
        self._next: tuple[int, int] | None = None
        self._now = (0, 0)

    def _find_here(self, root: str | Path | None, *, must: bool) -> LeRobotDatasetMetadata | None:
        """Open the dataset if all that is wanted of it is on this machine."""
        try:
            folder = find_root(self.repo_id, root, self.revision)
        except DatasetError:
            if must or root is not None:
                raise
            return None
        meta = LeRobotDatasetMetadata(self.repo_id, folder, self.revision, self.depth_output_unit)
        is_pulled = snapshot_commit(folder) is not None
        return meta if must or not is_pulled or _is_whole(meta, self.episodes) else None

    def _fetch_metadata(self, files: RemoteFiles | None) -> LeRobotDatasetMetadata:
        assert files is not None
        parent = Path(tempfile.gettempdir())
        remove_orphans(parent, _PREFIX)
        owned = OwnedFolder(_PREFIX, parent)
        self._folder = owned.path
        weakref.finalize(self, _remove, owned, os.getpid())
        for path in files.sizes():
            if path.startswith("meta/") and not path.startswith("meta/sketches/"):
                files.fetch(path, self._folder / path)
        return LeRobotDatasetMetadata(
            self.repo_id, self._folder, self.revision, self.depth_output_unit, check_files=False
        )

    def _all_segments(self, drop_last: int) -> list[Segment]:
        table, index = self.meta.episodes, self._index
        kinds: list[list[FileId]] = [table.data_files, *table.video_files.values()]
        found = segments(
            (episode, range(span.start, max(span.start, span.stop - drop_last)), tuple(kind[episode] for kind in kinds))
            for episode, span in ((episode, index.positions(episode)) for episode in index.episodes)
        )
        if not found:
            raise DatasetError(f"No frame is left after drop_n_last_frames={drop_last}: every episode is too short.")
        return found

    @property
    def root(self) -> Path:
        """Folder of the dataset, or of its metadata when it is not on this machine."""
        return self.meta.root

    @property
    def is_remote(self) -> bool:
        """Whether files are fetched when they are needed."""
        return self._files is not None

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
        """Frames of one epoch, over all readers."""
        return sum(s.stop - s.start for s in self._segments)

    @property
    def num_episodes(self) -> int:
        """Episodes that are read."""
        return len(self._index.episodes)

    @property
    def episode_lengths(self) -> list[int]:
        """Frames of each episode that is read, without those left out at its end."""
        return [segment.stop - segment.start for segment in self._segments]

    def set_delta_timestamps(self, delta_timestamps: Mapping[str, Sequence[float]] | None) -> None:
        """Choose the windows of the iterations that begin from now on.

        Args:
            delta_timestamps: Feature to time differences in seconds; None for single values.

        Raises:
            DatasetError: An unknown feature, or a time between two frames.
        """
        self._windows = windows(delta_timestamps, self.meta.parsed_features, self.meta.fps, self.tolerance_s)
        self.delta_timestamps = dict(delta_timestamps) if delta_timestamps else None

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration, also in workers that are running.

        Args:
            epoch: Number of the pass, from 0.
        """
        self._start_at(epoch, 0)

    def _start_at(self, epoch: int, taken: int) -> None:
        """Let the next pass of every reader begin somewhere."""
        self._own_progress()
        self._progress.zero_()
        self._progress[0], self._progress[1] = epoch, taken
        self._next, self._now = None, (epoch, taken)

    def _own_progress(self) -> None:
        """Count apart from the process that made this stream: only workers count together with their loader."""
        if get_worker_info() is None and self._owner != os.getpid():
            self._progress, self._owner = _shared(self._progress.clone()), os.getpid()

    def state_dict(self) -> dict[str, int]:
        """Return where this reader is: the epoch, and how many of its frames it has given. One per worker."""
        epoch, taken = self._now if self._next is None else self._next
        return {"epoch": epoch, "taken": taken}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where a reader was, exactly. Called outside of workers, it holds for each worker of the next loader.

        Args:
            state: What `state_dict` returned.
        """
        place = int(state["epoch"]), int(state["taken"])
        if get_worker_info() is None:
            self._start_at(*place)
        else:
            self._next = place

    def __iter__(self) -> Iterator[Item]:
        part, parts = self._reader()
        epoch, taken = self._begin(part)
        self._now = (epoch, taken)
        for item in self.read_part(part, parts, epoch=epoch, start=taken):
            taken += 1
            self._now = (epoch, taken)
            yield item
        self._now = (epoch + 1, 0)

    def _begin(self, part: int) -> tuple[int, int]:
        self._own_progress()
        progress, slot = self._progress, _HEAD + part % _MOST_READERS
        if self._next is not None:
            (epoch, taken), self._next = self._next, None
            progress[slot] = epoch + 1 - progress[0]
            return epoch, taken
        begun = int(progress[slot])
        progress[slot] += 1
        return int(progress[0]) + begun, 0 if begun else int(progress[1])

    def _reader(self) -> tuple[int, int]:
        rank, world_size = self._processes()
        worker = get_worker_info()
        if worker is None:
            return rank, world_size
        return rank * worker.num_workers + worker.id, world_size * worker.num_workers

    def _processes(self) -> tuple[int, int]:
        rank, world_size = self._place
        if rank is not None and world_size is not None:
            return rank, world_size
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        is_sent_by_loader = self._receiver == os.getpid() and get_worker_info() is not None
        if self._sender is not None and (is_sent_by_loader or "RANK" not in os.environ):
            return self._sender
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

    def __getstate__(self) -> dict[str, Any]:
        self._own_progress()
        # A worker that is started afresh knows nothing of torch.distributed; a rank that gets a copy knows better.
        return {**self.__dict__, "_sender": self._processes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._receiver = os.getpid()
        self._progress = _shared(self._progress)

    def part_length(self, part: int, parts: int) -> int:
        """Return how many frames one of several readers gives in an epoch.

        Args:
            part: Which reader, from 0.
            parts: How many there are.
        """
        return len(share(self.num_frames, part, parts))

    def read_part(self, part: int, parts: int, *, epoch: int = 0, start: int = 0) -> Iterator[Item]:
        """Read the frames of one of several readers in one epoch: a pure function of seed and arguments.

        Iterating the dataset calls this with what DataLoader and torch.distributed say.

        Args:
            part: Which reader, from 0.
            parts: How many there are.
            epoch: Number of the pass.
            start: Frames at the beginning that are left out; they are not read.

        Yields:
            Items as tensors.

        Raises:
            DatasetError: A frame cannot be read (unless `on_error` is `skip`), or files cannot be fetched. Episode and
                frame are named.
        """
        with closing(self._numpy_items(part, parts, epoch, start)) as items:
            for item in items:
                yield finish(item, self._cameras, as_uint8=self.return_uint8, image_transforms=self.image_transforms)

    def _numpy_items(self, part: int, parts: int, epoch: int, start: int) -> Generator[Item, None, None]:
        shared = generator(self.seed, epoch) if self.shuffle else None
        own = generator(self.seed, epoch, part, parts) if self.shuffle else None
        mine = part_of(self._segments, part, parts, shared)
        with self._source(part) as source:
            yield from source.frames(mine, self.buffer_capacity, own, start)

    @contextmanager
    def _source(self, part: int) -> Iterator[FrameSource]:
        meta = self.meta
        if self._files is not None:
            meta = copy.copy(meta)
            meta.root = Path(tempfile.mkdtemp(prefix=f"reader-{part}-", dir=self._folder))
        source = FrameSource(
            meta,
            self.episodes,
            self.delta_timestamps,
            self.tolerance_s,
            self.depth_output_unit,
            lanes=self.max_num_shards,
            backend=self._decoding,
            on_failure=self._on_failure,
        )
        try:
            if self._files is not None:
                source.fetch_from(self._files, self._disk_bytes)
            yield source
        finally:
            source.close()
            if self._files is not None:
                shutil.rmtree(meta.root, ignore_errors=True)

    @property
    def buffer_capacity(self) -> int:
        """Frames that wait in the buffer of one reader: `buffer_size`, or what fits into `buffer_bytes`."""
        frame = sum(
            math.prod(feature.item_shape) * (4 if feature.is_depth else 1) * len(self._windows.get(name, " "))
            for name, feature in self.meta.parsed_features.items()
            if feature.is_camera
        )
        return max(1, min(self.buffer_size, self._buffer_bytes // max(frame, 1)))

    def _on_failure(self, error: UlnaError) -> None:
        if self.on_error == "raise":
            raise error
        self.skipped += 1
        logger.warning("%s: left out a frame: %s", self.repo_id, error)

    def __repr__(self) -> str:
        size = f"{self.num_episodes} episodes, {self.num_frames} frames"
        return f"<StreamingLeRobotDataset {self.repo_id} {'from elsewhere' if self.is_remote else self.root}: {size}>"


def _shared(numbers: torch.Tensor) -> torch.Tensor:
    """Move numbers to memory that forked processes share, if they are not there: copies of them are not."""
    shared: torch.Tensor = numbers.share_memory_()  # type: ignore[no-untyped-call]
    return shared


def _refuse_values(counts: Mapping[str, int], on_error: str, rank: int | None, world_size: int | None) -> None:
    for name, value in counts.items():
        given: object = value
        if not isinstance(given, int) or given < 1:
            raise DatasetError(f"{name} must be 1 or more, it is {value!r}.")
    if on_error not in {"raise", "skip"}:
        raise DatasetError(f"on_error must be 'raise' or 'skip', it is {on_error!r}.")
    if (rank is None) != (world_size is None):
        raise DatasetError("rank and world_size belong together: give both or neither.")
    if rank is not None and world_size is not None and not 0 <= rank < world_size:
        raise DatasetError(f"rank {rank} is not one of {world_size} processes, numbered from 0.")


def _is_whole(meta: LeRobotDatasetMetadata, episodes: Sequence[int] | None) -> bool:
    """Whether the files of some episodes are here. Of what was pulled from the Hub, some may not be."""
    chosen = range(meta.total_episodes) if episodes is None else episodes
    paths = {meta.get_data_file_path(episode) for episode in chosen if 0 <= episode < meta.total_episodes}
    for key in meta.video_keys:
        paths |= {meta.get_video_file_path(episode, key) for episode in chosen if 0 <= episode < meta.total_episodes}
    return all(path.is_file() for path in paths)


def _remove(folder: OwnedFolder, process: int) -> None:
    """Remove the temporary folder of a stream; a forked copy of it has no right to."""
    if os.getpid() == process:
        folder.remove()
