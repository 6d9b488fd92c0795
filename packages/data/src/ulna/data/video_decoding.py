# SPDX-License-Identifier: Apache-2.0
"""Decodes frames at given times: one open decoder a file, a bounded pool of them in each process."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from ulna.data.process_limits import open_files_limit
from ulna.data.pyav_decoder import VideoDecoder
from ulna.data.video_backends import BackendName, Decoder, PictureLayout, Pictures, Targets, file_identity

__all__ = ["DecoderPool", "PictureLayout", "VideoDecoder", "decoder_pool", "pool_limits"]

_DEFAULT_OPEN: Final = 100
_DEFAULT_BYTES: Final = 2**29
_SHARE_OF_FILES: Final = 4
"""One out of this many open files that the process may have can be a video."""

_Key = tuple[Path, PictureLayout, BackendName]
_Found = TypeVar("_Found")


class DecoderPool:
    """Keeps the most recently used decoders of this process open. Thread-safe.

    Args:
        max_open: Decoders that may be open at once.
        max_bytes: Memory they may take together, estimated; None sets no bound. The last one used stays in any case.
    """

    def __init__(self, max_open: int, max_bytes: int | None = None) -> None:
        self._max_open = max(max_open, 1)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._open: OrderedDict[_Key, Decoder] = OrderedDict()
        self.opened = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def nbytes(self) -> int:
        """Memory of the open decoders, estimated."""
        with self._lock:
            return self._nbytes()

    def _nbytes(self) -> int:
        return sum(decoder.nbytes for decoder in self._open.values())

    def read(
        self,
        path: Path,
        times_s: Sequence[float],
        tolerance_s: float,
        layout: PictureLayout = "rgb",
        backend: BackendName = "pyav",
    ) -> Pictures:
        """Decode frames of a file.

        Args:
            path: The file.
            times_s: Times in it.
            tolerance_s: Allowed deviation.
            layout: `rgb` for colours, `gray16` for the codes of a depth video.
            backend: What decodes colours; depth codes are always decoded with PyAV.

        Returns:
            uint8 (times, 3, H, W), or uint16 (times, 1, H, W) with the layout `gray16`.

        Raises:
            FrameTimestampError: No frame is near enough to a time.
            DatasetFormatError: The file cannot be opened or decoded.
        """
        found: Any = self._using(path, layout, backend, lambda decoder: decoder.read(times_s, tolerance_s))
        pictures: Pictures = found
        return pictures

    def read_into(
        self, path: Path, times_s: Sequence[float], tolerance_s: float, out: Targets, backend: BackendName = "pyav"
    ) -> None:
        """Decode colour frames of a file into arrays.

        Args:
            path: The file.
            times_s: Times in it, in any order, repeats allowed; each frame is decoded once.
            tolerance_s: Allowed deviation.
            out: One array (3, H, W) for each time: uint8, or float32 to get values in [0, 1].
            backend: What decodes.

        Raises:
            FrameTimestampError: No frame is near enough to a time.
            DatasetFormatError: The file cannot be opened or decoded, or has pictures of another size.
        """
        self._using(path, "rgb", backend, lambda decoder: decoder.read(times_s, tolerance_s, out))

    def size(self, path: Path, backend: BackendName = "pyav") -> tuple[int, int]:
        """Return height and width of a video.

        Args:
            path: The file.
            backend: What decodes.

        Raises:
            DatasetFormatError: The file cannot be opened.
        """
        return self._using(path, "rgb", backend, lambda decoder: decoder.size())

    def _using(
        self, path: Path, layout: PictureLayout, backend: BackendName, do: Callable[[Decoder], _Found]
    ) -> _Found:
        key: _Key = (path, layout, "pyav" if layout == "gray16" else backend)
        while True:
            decoder = self._get(key)
            with decoder.lock:
                if not decoder.closed:
                    return do(decoder)

    def _get(self, key: _Key) -> Decoder:
        surplus: list[Decoder] = []
        try:
            with self._lock:
                decoder = self._open.get(key)
                if decoder is not None and decoder.identity == file_identity(key[0]):
                    self._open.move_to_end(key)
                    return decoder
                if decoder is not None:
                    # The file was replaced, by a recording that was finalized for example.
                    surplus.append(self._open.pop(key))
                return self._add(key, surplus)
        finally:
            for old in surplus:
                old.close()

    def _add(self, key: _Key, surplus: list[Decoder]) -> Decoder:
        while len(self._open) >= self._max_open:
            surplus.append(self._open.popitem(last=False)[1])
        decoder = self._open[key] = _new_decoder(*key)
        self.opened += 1
        while len(self._open) > 1 and self._max_bytes is not None and self._nbytes() > self._max_bytes:
            surplus.append(self._open.popitem(last=False)[1])
        return decoder

    def forget(self, path: Path) -> None:
        """Close the decoders of a file that is about to be removed, or of all files in a folder.

        Args:
            path: The file or folder.
        """
        with self._lock:
            gone = [key for key in self._open if key[0] == path or path in key[0].parents]
            decoders = [self._open.pop(key) for key in gone]
        for decoder in decoders:
            decoder.close()

    def close(self) -> None:
        """Close every decoder."""
        with self._lock:
            decoders, self._open = list(self._open.values()), OrderedDict()
        for decoder in decoders:
            decoder.close()


def _new_decoder(path: Path, layout: PictureLayout, backend: BackendName) -> Decoder:
    if backend == "pyav":
        return VideoDecoder(path, layout)
    from ulna.data.torchcodec_decoder import TorchcodecDecoder

    return TorchcodecDecoder(path)


def pool_limits(setting: str = "") -> tuple[int, int | None]:
    """Return how many decoders may be open, and how many bytes they may take.

    Args:
        setting: A number of decoders, `none` for as many as open files allow, or empty for the default.

    Returns:
        Decoders, never more than a quarter of the files this process may open; and bytes, None without a bound.
    """
    unbounded = setting.strip().lower() == "none"
    files = open_files_limit()
    wanted = files if unbounded else int(setting) if setting.strip().isdigit() else _DEFAULT_OPEN
    return max(1, min(wanted, files // _SHARE_OF_FILES)), None if unbounded else _DEFAULT_BYTES


_pools: dict[int, DecoderPool] = {}
_inherited: list[DecoderPool] = []


def decoder_pool() -> DecoderPool:
    """Return the pool of this process.

    A process that was forked gets a pool of its own: open files share their position with the parent's, so decoders
    that were inherited must never be used. `LEROBOT_VIDEO_DECODER_CACHE_SIZE` sets how many decoders may be open (100
    if unset, `none` for no bound but that of open files); together they take at most 512 MiB.
    """
    process = os.getpid()
    pool = _pools.get(process)
    if pool is None:
        _inherited.extend(_pools.values())
        _pools.clear()
        pool = _pools[process] = DecoderPool(*pool_limits(os.environ.get("LEROBOT_VIDEO_DECODER_CACHE_SIZE", "")))
    return pool
