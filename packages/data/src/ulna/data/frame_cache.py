# SPDX-License-Identifier: Apache-2.0
"""Keeps decoded pictures, so that a frame is decoded once and not once an epoch. Shared by all processes that read.

A cache is one file of fixed layout: a byte for each camera and frame that says whether it is there, then the pictures.
In memory it is an anonymous file that vanishes with its processes; on disk it lies in Ulna's home. Every access is a
read or a write at an offset, so no lock is needed: two processes that store the same frame write the same bytes.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetError
from ulna.core.paths import ulna_home
from ulna.data.cache_folders import mark_used, prune

__all__ = ["DEFAULT_CACHE_BYTES", "CacheKind", "CameraFrames", "FrameCache", "content_identity"]

logger = logging.getLogger(__name__)

CacheKind = Literal["ram", "disk"]

DEFAULT_CACHE_BYTES: Final = 4_000_000_000
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class CameraFrames:
    """What is kept of one camera.

    Attributes:
        shape: Shape of one picture, channels first.
        dtype: `uint8` for colours, `uint16` for depth codes.
    """

    shape: tuple[int, int, int]
    dtype: Literal["uint8", "uint16"] = "uint8"

    @property
    def nbytes(self) -> int:
        """Bytes of one picture."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class FrameCache:
    """Decoded pictures of an opened dataset. Fills until its budget is used up, then stays as it is.

    Frames are kept for the first positions of the dataset, all cameras of a position together, as many as fit: while
    training, every frame is as likely as any other, so that no order of eviction is better, and none needs bookkeeping.
    Created by `LeRobotDataset`; safe for threads and processes; a pickled copy opens the same frames.

    Args:
        kind: `ram` or `disk`.
        cameras: Camera to what is kept of it.
        positions: Length of the opened dataset.
        max_bytes: Most memory, or disk space, it may take.
        identity: Names the content for a cache on disk, so that a later run finds it again.

    Raises:
        DatasetError: The budget does not hold one frame, or the kind is unknown.
        OSError: The file cannot be created.
    """

    def __init__(
        self,
        kind: CacheKind,
        cameras: Mapping[str, CameraFrames],
        positions: int,
        max_bytes: int = DEFAULT_CACHE_BYTES,
        identity: str = "",
    ) -> None:
        if kind not in ("ram", "disk"):
            raise DatasetError(f"A frame cache is in 'ram' or on 'disk', not {kind!r}.")
        each = sum(camera.nbytes + 1 for camera in cameras.values())
        if not each or max_bytes < each:
            raise DatasetError(
                f"A frame cache of {max_bytes} bytes does not hold one frame, which takes {each} bytes here.",
                hint="Raise frame_cache_bytes, or leave frame_cache out.",
            )
        self.kind: CacheKind = kind
        self.slots = min(positions, max_bytes // each)
        self.max_bytes = max_bytes
        self._cameras = dict(cameras)
        self._flags = {key: n * self.slots for n, key in enumerate(self._cameras)}
        self._starts, end = {}, len(self._cameras) * self.slots
        for key, camera in self._cameras.items():
            self._starts[key] = end
            end += camera.nbytes * self.slots
        self._bytes = end
        self._identity = identity
        self._full = False
        self._file = _File.in_memory(end) if kind == "ram" else self._open_on_disk()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": self._file.address}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        try:
            self._file = _File(state["_file"])
        except OSError as error:
            # The process that owned it is gone: begin with an empty one.
            logger.info("The frame cache %s is not there any more (%s); a new one begins", state["_file"], error)
            self._file = _File.in_memory(self._bytes) if self.kind == "ram" else self._open_on_disk()

    def _open_on_disk(self) -> _File:
        """Open or begin the file of this content.

        Its name holds the number of the boot: what is written survives its process, but a power failure may leave a
        mark without its picture.
        """
        described = f"{self._identity}|{_boot()}|{self.slots}|{self._cameras}"
        path = ulna_home() / "cache" / "frames" / f"{hashlib.sha256(described.encode()).hexdigest()[:32]}.frames"
        path.parent.mkdir(parents=True, exist_ok=True)
        prune(path.parent, max(self.max_bytes - self._bytes, 0), keep={path})
        file = _File.on_disk(path, self._bytes)
        mark_used(file.descriptor)
        return file

    @property
    def nbytes(self) -> int:
        """Bytes it takes when it is full."""
        return self._bytes

    def count(self) -> int:
        """Return how many pictures are there."""
        marks = np.zeros(len(self._cameras) * self.slots, np.uint8)
        self._file.read(marks, 0)
        return int(marks.sum())

    def fetch(self, camera: str, position: int) -> npt.NDArray[Any] | None:
        """Return a picture, None if it is not there.

        Args:
            camera: Its camera.
            position: Position in the opened dataset.
        """
        declared = self._cameras.get(camera)
        if declared is None or position >= self.slots:
            return None
        mark = np.zeros(1, np.uint8)
        self._file.read(mark, self._flags[camera] + position)
        if not mark[0]:
            return None
        picture = np.empty(declared.shape, declared.dtype)
        self._file.read(picture, self._place(camera, position))
        return picture

    def store(self, camera: str, position: int, picture: npt.NDArray[Any]) -> None:
        """Keep a picture. Without effect beyond the budget, or for one that is not of the declared shape and dtype.

        Args:
            camera: Its camera.
            position: Position in the opened dataset.
            picture: The picture.
        """
        declared = self._cameras.get(camera)
        if declared is None or position >= self.slots or self._full:
            return
        if picture.shape != declared.shape or picture.dtype != declared.dtype:
            return
        try:
            self._file.write(np.ascontiguousarray(picture), self._place(camera, position))
            self._file.write(np.ones(1, np.uint8), self._flags[camera] + position)
        except OSError as error:
            self._full = True
            logger.warning("The frame cache takes no more pictures: %s", error)

    def _place(self, camera: str, position: int) -> int:
        return self._starts[camera] + position * self._cameras[camera].nbytes


class _File:
    """An open file that is read and written at offsets, by several threads and processes."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.descriptor = os.open(address, os.O_RDWR | getattr(os, "O_BINARY", 0))
        self._lock = threading.Lock()
        weakref.finalize(self, os.close, self.descriptor)

    @classmethod
    def in_memory(cls, size: int) -> _File:
        if hasattr(os, "memfd_create"):
            anonymous = os.memfd_create("ulna-frames")
            os.ftruncate(anonymous, size)
            file = cls(f"/proc/{os.getpid()}/fd/{anonymous}")
            weakref.finalize(file, os.close, anonymous)
            return file
        handle, name = tempfile.mkstemp(prefix="ulna-frames-")
        os.ftruncate(handle, size)
        os.close(handle)
        file = cls(name)
        weakref.finalize(file, _remove_if_ours, os.getpid(), name)
        return file

    @classmethod
    def on_disk(cls, path: Path, size: int) -> _File:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        file = cls(str(path))
        if os.fstat(file.descriptor).st_size != size:
            os.ftruncate(file.descriptor, size)  # sparse: space is taken by what is written
        os.utime(path)
        return file

    def read(self, out: npt.NDArray[Any], offset: int) -> None:
        view = memoryview(out.data).cast("B")
        done = 0
        while done < len(view):
            count = self._read_some(view[done:], offset + done)
            if not count:
                raise OSError(f"The frame cache {self.address} is shorter than it was made.")
            done += count

    def write(self, data: npt.NDArray[Any], offset: int) -> None:
        view = memoryview(data.data).cast("B")
        done = 0
        while done < len(view):
            done += self._write_some(view[done:], offset + done)

    def _read_some(self, view: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self.descriptor, [view], offset)
        with self._lock:
            os.lseek(self.descriptor, offset, os.SEEK_SET)
            part = os.read(self.descriptor, len(view))
        view[: len(part)] = part
        return len(part)

    def _write_some(self, view: memoryview, offset: int) -> int:
        if hasattr(os, "pwrite"):
            return os.pwrite(self.descriptor, view, offset)
        with self._lock:
            os.lseek(self.descriptor, offset, os.SEEK_SET)
            return os.write(self.descriptor, view)


def _remove_if_ours(owner: int, name: str) -> None:
    if os.getpid() == owner:
        Path(name).unlink(missing_ok=True)


def _boot() -> str:
    """Return a name of this boot; where the system has none, one of this process, which later ones do not find."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return f"process-{os.getpid()}"


def content_identity(files: Sequence[Path]) -> str:
    """Return a name for the content of some files that changes when one of them is replaced.

    Args:
        files: The files.
    """
    marks = hashlib.sha256()
    for path in files:
        status = path.stat()
        marks.update(f"{path}|{status.st_ino}|{status.st_size}|{status.st_mtime_ns}\n".encode())
    return marks.hexdigest()
