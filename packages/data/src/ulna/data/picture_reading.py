# SPDX-License-Identifier: Apache-2.0
"""Gets the pictures of many frames at once: each is decoded once, file by file, in the order of time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetError, FrameTimestampError
from ulna.core.paths import ulna_home
from ulna.data.depth import DepthUnit, depth_codecs
from ulna.data.features import Feature
from ulna.data.frame_cache import CacheKind, CameraFrames, FrameCache, content_identity
from ulna.data.images import decode_depth, decode_picture
from ulna.data.index import FrameIndex
from ulna.data.layout import FileId
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.shared_rooms import shared_room
from ulna.data.table_store import TableFile
from ulna.data.video_backends import BackendName
from ulna.data.video_decoding import decoder_pool

__all__ = ["PictureReader", "Pictures", "Place", "cached_cameras", "open_frame_cache"]

Array = npt.NDArray[Any]
Pictures = Array | list[Array]
"""One picture for each place: stacked, or a list where their sizes differ."""
_Job = Callable[[], None]


class Place(NamedTuple):
    """A frame whose pictures are wanted.

    Attributes:
        episode: Its episode.
        frame: Its number inside the episode.
        position: Its position in the opened dataset.
        table: The table that holds its row.
        row: That row.
    """

    episode: int
    frame: int
    position: int
    table: TableFile
    row: int


class PictureReader:
    """Reads the pictures of one dataset. Created by a `DatasetReader`; immutable; may be pickled.

    Args:
        meta: Metadata of the dataset.
        tolerance_s: Allowed deviation of times.
        depth_unit: Unit of depth maps.
        backend: What decodes colour videos.
        cache: Where decoded frames are kept, if anywhere.
    """

    def __init__(
        self,
        meta: LeRobotDatasetMetadata,
        tolerance_s: float,
        depth_unit: DepthUnit,
        backend: BackendName,
        cache: FrameCache | None = None,
    ) -> None:
        table = meta.episodes
        self.cache = cache
        self._tolerance_s, self._fps = tolerance_s, meta.fps
        self._root, self._template = meta.root, meta.info.video_template
        self._files: dict[str, list[FileId]] = table.video_files
        self._starts = {key: starts.tolist() for key, starts in table.video_starts.items()}
        self._features = {name: f for name, f in meta.parsed_features.items() if f.is_camera}
        self._depth, self._unit = depth_codecs(meta.parsed_features), depth_unit
        self._backend: BackendName = backend

    def read(
        self, wanted: Mapping[str, Sequence[Place]], *, as_float: bool, to_send: bool = False
    ) -> dict[str, Pictures]:
        """Read pictures of several cameras.

        Args:
            wanted: Camera to the frames that are wanted, in any order, repeats allowed.
            as_float: Whether colours are float32 in [0, 1], else uint8. Depth maps are float32 always.
            to_send: Whether a worker of a torch DataLoader will send them to its parent.

        Returns:
            Camera to one picture for each place, channels first.

        Raises:
            FrameTimestampError: A video has no frame at the time; episode, frame and file are named.
            DatasetFormatError: A file cannot be decoded.
        """
        room = partial(shared_room, most=2 * len(wanted)) if to_send and _in_worker() else np.empty
        requests = [_Request(self, key, places, as_float, room) for key, places in wanted.items()]
        _run([job for request in requests for job in request.jobs()])
        return {request.key: request.result() for request in requests}

    def feature(self, key: str) -> Feature:
        """Return what is declared of a camera.

        Args:
            key: The camera.
        """
        return self._features[key]

    def path(self, key: str, episode: int) -> Path:
        """Return the video of an episode.

        Args:
            key: The camera.
            episode: The episode.
        """
        return self._files[key][episode].path(self._root, self._template, key)

    def time_s(self, key: str, place: Place) -> float:
        """Return the time of a frame in its video.

        Args:
            key: The camera.
            place: The frame.
        """
        start: float = self._starts[key][place.episode]
        return start + place.frame / self._fps

    def video(self, key: str, path: Path, places: Sequence[Place], out: Sequence[Array] | None) -> Array | None:
        """Decode frames of one file.

        Args:
            key: The camera.
            path: The file.
            places: The frames.
            out: Where colours go; None for depth codes, which are returned.

        Raises:
            FrameTimestampError: There is no frame at the time; episode, frame and file are named.
            DatasetFormatError: The file cannot be decoded.
        """
        times = [self.time_s(key, place) for place in places]
        try:
            if out is None:
                return decoder_pool().read(path, times, self._tolerance_s, "gray16")
            decoder_pool().read_into(path, times, self._tolerance_s, out, self._backend)
        except FrameTimestampError as error:
            if len(places) > 1:  # find out which one it is
                for n, place in enumerate(places):
                    self.video(key, path, [place], None if out is None else [out[n]])
            place = places[0]
            raise FrameTimestampError(
                f"Episode {place.episode}, frame {place.frame}, camera {key!r}: "
                f"{error.message} (tolerance {self._tolerance_s} s)."
            ) from error
        return None

    def size(self, path: Path) -> tuple[int, int]:
        """Return height and width of a video.

        Args:
            path: The file.
        """
        return decoder_pool().size(path, self._backend)

    def encoded(self, key: str, place: Place) -> Array:
        """Decode a picture that stands in the table: a colour picture, or a depth map as it was recorded.

        Args:
            key: The camera.
            place: The frame.

        Raises:
            DatasetFormatError: It is not a picture.
        """
        value = place.table.others[key][place.row].as_buffer()
        where = f"{place.table.path}: {key!r} in row {place.row}"
        return decode_depth(value, where) if key in self._depth else decode_picture(value, where)

    def finished(self, key: str, pictures: Array, as_float: bool) -> Array:
        """Turn what was decoded into what is given out.

        Args:
            key: The camera.
            pictures: One picture or several.
            as_float: Whether colours are wanted as float32.
        """
        codec = self._depth.get(key)
        if codec is not None:
            return codec.decode(pictures, self._unit)
        if as_float and pictures.dtype == np.uint8:
            return np.divide(pictures, np.float32(255), dtype=np.float32)
        return pictures

    def is_depth(self, key: str) -> bool:
        """Return whether a camera holds depth maps.

        Args:
            key: The camera.
        """
        return key in self._depth


class _Request:
    """The pictures of one camera: what is in the cache is copied at once, the rest is left to jobs."""

    def __init__(
        self, reader: PictureReader, key: str, places: Sequence[Place], as_float: bool, room: Callable[..., Array]
    ) -> None:
        self.key = key
        self._reader, self._as_float, self._size, self._room = reader, as_float, len(places), room
        self._slots: dict[int, list[int]] = {}
        self._stacked: Array | None = None
        self._cells: dict[int, Array] = {}
        firsts: list[tuple[int, Place]] = []
        for slot, place in enumerate(places):
            same = self._slots.setdefault(place.position, [])
            if not same:
                firsts.append((slot, place))
            same.append(slot)
        self._firsts = [slot for slot, _ in firsts]
        self._missing = [found for found in firsts if not self._load(*found)]

    def jobs(self) -> list[_Job]:
        """Return what is left to do. Not kept: it would keep this object, and its pictures, alive."""
        if self._reader.feature(self.key).dtype == "image":
            return [partial(self._decode, *found) for found in self._missing]
        by_file: dict[Path, list[tuple[int, Place]]] = {}
        for slot, place in self._missing:
            by_file.setdefault(self._reader.path(self.key, place.episode), []).append((slot, place))
        if by_file and not self._reader.is_depth(self.key):
            self._allocate(by_file)
        return [partial(self._decode_file, path, part) for path, part in by_file.items()]

    def _load(self, slot: int, place: Place) -> bool:
        cache = self._reader.cache
        picture = None if cache is None else cache.fetch(self.key, place.position)
        if picture is None:
            return False
        self._cells[slot] = self._reader.finished(self.key, picture, self._as_float)
        return True

    def _decode(self, slot: int, place: Place) -> None:
        self._keep(slot, place, self._reader.encoded(self.key, place))

    def _keep(self, slot: int, place: Place, picture: Array) -> None:
        if self._reader.cache is not None:
            self._reader.cache.store(self.key, place.position, picture)
        self._cells[slot] = self._reader.finished(self.key, picture, self._as_float)

    def _allocate(self, by_file: Mapping[Path, list[tuple[int, Place]]]) -> None:
        """Make room for colours, all of it in one piece where the files have pictures of one size."""
        sizes = {path: self._reader.size(path) for path in by_file}
        cached = self._reader.cache is not None
        dtype = np.dtype(np.float32 if self._as_float and not cached else np.uint8)
        alone = len(set(sizes.values())) == 1 and not self._cells and not cached
        if alone:
            self._stacked = self._room((self._size, 3, *next(iter(sizes.values()))), dtype)
        for path, part in by_file.items():
            for slot, _ in part:
                room = self._stacked[slot] if self._stacked is not None else np.empty((3, *sizes[path]), dtype)
                self._cells[slot] = room

    def _decode_file(self, path: Path, part: list[tuple[int, Place]]) -> None:
        places = [place for _, place in part]
        if self._reader.is_depth(self.key):
            codes = self._reader.video(self.key, path, places, None)
            assert codes is not None, "depth codes are returned"
            pictures: Sequence[Array] = list(codes)
        else:
            pictures = [self._cells[slot] for slot, _ in part]
            self._reader.video(self.key, path, places, pictures)
            if self._reader.cache is None:
                return
        for (slot, place), picture in zip(part, pictures, strict=True):
            self._keep(slot, place, picture)

    def result(self) -> Pictures:
        """Return one picture for each place, those of repeated places copied."""
        if self._stacked is not None:
            for first, same in zip(self._firsts, self._slots.values(), strict=True):
                for slot in same[1:]:
                    self._stacked[slot] = self._stacked[first]
            return self._stacked
        cells: list[Array | None] = [None] * self._size
        for first, same in zip(self._firsts, self._slots.values(), strict=True):
            for slot in same:
                cells[slot] = self._cells[first]
        found = [cell for cell in cells if cell is not None]
        if len({cell.shape for cell in found}) == 1:
            if len(found) == 1:
                return found[0][None]
            return np.stack(found, out=self._room((len(found), *found[0].shape), found[0].dtype))
        return [cell.copy() for cell in found]


def open_frame_cache(
    kind: CacheKind | None, max_bytes: int, meta: LeRobotDatasetMetadata, index: FrameIndex
) -> FrameCache | None:
    """Open the cache of decoded frames of an opened dataset.

    Args:
        kind: `ram` or `disk`; None opens none.
        max_bytes: Most memory or disk space.
        meta: Metadata of the dataset.
        index: The opened frames.

    Returns:
        The cache; None for a dataset without pictures.

    Raises:
        DatasetError: The budget does not hold one frame, or the cache cannot be created.
    """
    cameras = cached_cameras(meta)
    if kind is None or not cameras:
        return None
    identity = f"{index.episodes}|{content_identity(sorted(_files(meta, index)))}" if kind == "disk" else ""
    try:
        return FrameCache(kind, cameras, len(index), max_bytes, identity)
    except OSError as error:
        raise DatasetError(
            f"The frame cache ({kind}) cannot be created: {error}.",
            hint=f"Caches on disk lie in {ulna_home() / 'cache'}; ULNA_HOME names another place.",
        ) from error


def _files(meta: LeRobotDatasetMetadata, index: FrameIndex) -> set[Path]:
    table, info, chosen = meta.episodes, meta.info, index.episodes
    found = {file.path(meta.root, info.data_path) for file in {table.data_files[e] for e in chosen}}
    for key in meta.video_keys:
        files = {table.video_files[key][e] for e in chosen}
        found |= {file.path(meta.root, info.video_template, key) for file in files}
    return found


def cached_cameras(meta: LeRobotDatasetMetadata) -> dict[str, CameraFrames]:
    """Return what a frame cache keeps of each camera: colours, and the codes of depth videos.

    Args:
        meta: Metadata of the dataset.
    """
    found = {}
    for key, feature in meta.parsed_features.items():
        height, width, channels = feature.hwc if feature.is_camera else (0, 0, 0)
        if feature.is_depth:
            if feature.dtype == "video":
                found[key] = CameraFrames((1, height, width), "uint16")
        elif feature.is_camera:
            found[key] = CameraFrames((channels, height, width))
    return found


_pool: tuple[int, ThreadPoolExecutor] | None = None


def _run(jobs: Sequence[_Job]) -> None:
    """Do some jobs, in threads where that helps."""
    if len(jobs) > 1 and not _in_worker():
        list(_threads().map(lambda job: job(), jobs))
    else:
        for job in jobs:
            job()


def _threads() -> ThreadPoolExecutor:
    """Return the decoding threads of this process; a forked one makes its own."""
    global _pool
    if _pool is None or _pool[0] != os.getpid():
        _pool = (os.getpid(), ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="decode"))
    return _pool[1]


def _in_worker() -> bool:
    """Whether this process is a worker of a torch DataLoader, whose siblings use the other cores."""
    torch_data = sys.modules.get("torch.utils.data")
    return torch_data is not None and torch_data.get_worker_info() is not None
