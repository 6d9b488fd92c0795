# SPDX-License-Identifier: Apache-2.0
"""Decodes frames at given times: one open decoder a file, a bounded pool of them in each process."""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import av
import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetFormatError, FrameTimestampError

__all__ = ["DecoderPool", "PictureLayout", "VideoDecoder", "decoder_pool"]

Pictures = npt.NDArray[Any]
PictureLayout = Literal["rgb", "gray16"]

_DEFAULT_OPEN: Final = 64
_GRAY16: Final = frozenset({"gray10le", "gray12le", "gray14le", "gray16le"})


class VideoDecoder:
    """An open video. Created and closed by a `DecoderPool`; used by one thread at a time, only in its process.

    Args:
        path: An mp4.
        layout: `rgb` gives uint8 with 3 channels, `gray16` the unchanged codes of a depth video as uint16 with one.

    Raises:
        DatasetFormatError: It cannot be opened, or does not hold what the layout needs.
    """

    def __init__(self, path: Path, layout: PictureLayout = "rgb") -> None:
        self.path = path
        self.layout = layout
        self.lock = threading.Lock()
        self.closed = False
        self.identity = _identity(path)
        try:
            self._container = av.open(str(path))
            self._stream = self._container.streams.video[0]
        except (av.FFmpegError, OSError, IndexError) as error:
            raise DatasetFormatError(f"The video {path} cannot be opened: {error}") from error
        if layout == "gray16":
            self._refuse_colour()
        # One thread: with key frames every few pictures, threads only decode pictures nobody asked for.
        self._stream.codec_context.thread_count = 1
        self._base = float(self._stream.time_base or 1)
        self._spacing_s = 1 / float(self._stream.average_rate or 1)
        self._convert = av.video.reformatter.VideoReformatter()
        self._frames: Any = None
        self._time = -np.inf
        self._picture: Pictures | None = None

    def _refuse_colour(self) -> None:
        found = self._stream.codec_context.pix_fmt
        if found not in _GRAY16:
            self._container.close()
            raise DatasetFormatError(
                f"{self.path} should hold depth codes, but its pixel format is {found}.",
                hint=f"Depth videos have one of {', '.join(sorted(_GRAY16))}.",
            )

    def close(self) -> None:
        """Close the file; waits for a read in another thread. Idempotent."""
        with self.lock:
            self._container.close()
            self.closed = True
            self._picture = self._frames = None

    def read(self, times_s: Sequence[float], tolerance_s: float) -> Pictures:
        """Decode the frames at some times; each frame is decoded once, neighbours in one go.

        Args:
            times_s: Times in the file, in any order, repeats allowed.
            tolerance_s: Allowed deviation.

        Returns:
            uint8 (times, 3, H, W), or uint16 (times, 1, H, W) with the layout `gray16`.

        Raises:
            FrameTimestampError: No frame is near enough to a time.
            DatasetFormatError: Decoding failed.
        """
        found: dict[float, Pictures] = {}
        try:
            for time_s in sorted(set(times_s)):
                found[time_s] = self._at(time_s, tolerance_s)
        except av.FFmpegError as error:
            self._frames, self._time = None, -np.inf
            raise DatasetFormatError(f"Decoding {self.path} failed: {error}") from error
        if len(times_s) == 1:
            return found[times_s[0]][None]
        return np.stack([found[time_s] for time_s in times_s])

    def _at(self, time_s: float, tolerance_s: float) -> Pictures:
        if self._picture is not None and abs(self._time - time_s) <= tolerance_s:
            return self._picture
        if self._frames is None or not self._is_just_ahead(time_s):
            self._seek(time_s, tolerance_s)
        for frame in self._frames:
            now = float(frame.pts * self._base)
            if now >= time_s - tolerance_s:
                self._time, self._picture = now, self._to_array(frame)
                if now - time_s <= tolerance_s:
                    return self._picture
                raise FrameTimestampError(f"no frame at {time_s:.6f} s: the next one is at {now:.6f} s in {self.path}")
        self._frames, self._time = None, -np.inf
        raise FrameTimestampError(f"no frame at {time_s:.6f} s: {self.path} ends before")

    def _to_array(self, frame: Any) -> Pictures:
        """Convert to planes, which are channel-first already, and copy them out of FFmpeg's padded memory."""
        if self.layout == "gray16":
            return _codes(frame)
        planar = self._convert.reformat(frame, format="gbrp")
        height, width = frame.height, frame.width
        picture = np.empty((3, height, width), dtype=np.uint8)
        for channel, plane in zip((1, 2, 0), planar.planes, strict=True):
            rows = np.frombuffer(memoryview(plane), dtype=np.uint8).reshape(-1, plane.line_size)
            picture[channel] = rows[:height, :width]
        return picture

    def _seek(self, time_s: float, tolerance_s: float) -> None:
        """Start decoding at the key frame before a time.

        The file's index is in decoding order. Where that is not the order of display, the key frame it finds may come
        after the time; then the one before it is taken.
        """
        target = round(time_s / self._base)
        self._time, self._picture = -np.inf, None
        while True:
            self._container.seek(max(target, 0), stream=self._stream, backward=True, any_frame=False)
            frames = self._container.decode(self._stream)
            first = next(frames, None)
            self._frames = frames if first is None else itertools.chain([first], frames)
            if first is None or first.pts * self._base <= time_s + tolerance_s or target <= 0:
                return
            entries = self._stream.index_entries
            key = entries.search_timestamp(target, backward=True, any_frame=False)
            target = entries[key].timestamp - 1 if key > 0 else 0

    def _is_just_ahead(self, time_s: float) -> bool:
        """Whether going on decoding is not more work than jumping to the key frame before."""
        if time_s <= self._time:
            return False
        entries = self._stream.index_entries
        key = entries.search_timestamp(round(time_s / self._base), backward=True, any_frame=False)
        return key < 0 or entries[key].timestamp * self._base <= self._time + 1.5 * self._spacing_s


def _codes(frame: Any) -> npt.NDArray[np.uint16]:
    """Copy the codes of a depth frame; no conversion, which would round them."""
    plane = frame.planes[0]
    rows = np.frombuffer(memoryview(plane), dtype="<u2").reshape(-1, plane.line_size // 2)
    return rows[None, : frame.height, : frame.width].astype(np.uint16)


def _identity(path: Path) -> tuple[int, int, int]:
    """Tell one content of a path from another."""
    try:
        status = path.stat()
    except OSError as error:
        raise DatasetFormatError(f"The video {path} cannot be opened: {error}") from error
    return status.st_ino, status.st_size, status.st_mtime_ns


class DecoderPool:
    """Keeps the most recently used decoders of this process open. Thread-safe.

    Args:
        max_open: Decoders that may be open at once.
    """

    def __init__(self, max_open: int) -> None:
        self._max_open = max(max_open, 1)
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[Path, PictureLayout], VideoDecoder] = OrderedDict()
        self.opened = 0

    def __len__(self) -> int:
        return len(self._open)

    def read(self, path: Path, times_s: Sequence[float], tolerance_s: float, layout: PictureLayout = "rgb") -> Pictures:
        """Decode frames of a file.

        Args:
            path: The file.
            times_s: Times in it.
            tolerance_s: Allowed deviation.
            layout: `rgb` for colours, `gray16` for the codes of a depth video.

        Returns:
            uint8 (times, 3, H, W), or uint16 (times, 1, H, W) with the layout `gray16`.

        Raises:
            FrameTimestampError: No frame is near enough to a time.
            DatasetFormatError: The file cannot be opened or decoded.
        """
        while True:
            decoder = self._get(path, layout)
            with decoder.lock:
                if not decoder.closed:
                    return decoder.read(times_s, tolerance_s)

    def _get(self, path: Path, layout: PictureLayout) -> VideoDecoder:
        surplus, key = [], (path, layout)
        with self._lock:
            decoder = self._open.get(key)
            if decoder is not None and decoder.identity != _identity(path):
                # The file was replaced, by a recording that was finalized for example.
                surplus.append(self._open.pop(key))
                decoder = None
            if decoder is None:
                decoder = self._open[key] = VideoDecoder(path, layout)
                self.opened += 1
                if len(self._open) > self._max_open:
                    surplus.append(self._open.popitem(last=False)[1])
            else:
                self._open.move_to_end(key)
        for old in surplus:
            old.close()
        return decoder

    def close(self) -> None:
        """Close every decoder."""
        with self._lock:
            decoders, self._open = list(self._open.values()), OrderedDict()
        for decoder in decoders:
            decoder.close()


_pools: dict[int, DecoderPool] = {}
_inherited: list[DecoderPool] = []


def decoder_pool() -> DecoderPool:
    """Return the pool of this process.

    A process that was forked gets a pool of its own: open files share their position with the parent's, so decoders
    that were inherited must never be used. Their number is bounded by `LEROBOT_VIDEO_DECODER_CACHE_SIZE` (64 if unset).
    """
    process = os.getpid()
    pool = _pools.get(process)
    if pool is None:
        _inherited.extend(_pools.values())
        _pools.clear()
        size = os.environ.get("LEROBOT_VIDEO_DECODER_CACHE_SIZE", "")
        pool = _pools[process] = DecoderPool(int(size) if size.isdigit() else _DEFAULT_OPEN)
    return pool
