# SPDX-License-Identifier: Apache-2.0
"""One open video, decoded with PyAV: from times to frames, each decoded once. The pool that owns it lies elsewhere."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import av
import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetFormatError, FrameTimestampError
from ulna.data.video_backends import PictureLayout, Pictures, Targets, file_identity
from ulna.data.video_opening import open_video

__all__ = ["VideoDecoder"]

_GRAY16: Final = frozenset({"gray10le", "gray12le", "gray14le", "gray16le"})
_ONE_THREAD: Final[dict[str, Any]] = (
    {"threads": 1} if "threads" in (av.video.reformatter.VideoReformatter.reformat.__doc__ or "") else {}
)
"""Conversion of one picture takes a tenth of a millisecond: handing it to threads of its own takes longer."""
_BASE_BYTES: Final = 2**20
"""Memory of an open video without any picture: tables of FFmpeg and its input buffer."""
_INDEX_BYTES: Final = 48
_SURELY = 0.4  # of the distance of two frames: nearer than this there is only one
_FRAMES_HELD: Final = 8
_SCALER_STEP: Final = 16
"""Pictures a decoder keeps for reference and reuse, at 1.5 bytes a pixel."""


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
        self.identity = file_identity(path)
        try:
            self._container = open_video(path)
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
        self._frame: Any = None

    def _refuse_colour(self) -> None:
        found = self._stream.codec_context.pix_fmt
        if found not in _GRAY16:
            self._container.close()
            raise DatasetFormatError(
                f"{self.path} should hold depth codes, but its pixel format is {found}.",
                hint=f"Depth videos have one of {', '.join(sorted(_GRAY16))}.",
            )

    @property
    def nbytes(self) -> int:
        """Memory it takes, estimated from the size and the number of its pictures."""
        context = self._stream.codec_context
        pictures = int(1.5 * context.width * context.height * _FRAMES_HELD)
        return _BASE_BYTES + pictures + _INDEX_BYTES * max(self._stream.frames, 0)

    def close(self) -> None:
        """Close the file; waits for a read in another thread. Idempotent."""
        with self.lock:
            self._container.close()
            self.closed = True
            self._frame = self._frames = None

    def read(self, times_s: Sequence[float], tolerance_s: float, out: Targets | None = None) -> Targets:
        """Decode the frames at some times; each frame is decoded once, neighbours in one go.

        Args:
            times_s: Times in the file, in any order, repeats allowed.
            tolerance_s: Allowed deviation.
            out: Where the pictures go, one array for each time: uint8, or float32 to get values in [0, 1].

        Returns:
            `out`; when not given uint8 (times, 3, H, W), or uint16 (times, 1, H, W) with the layout `gray16`.

        Raises:
            FrameTimestampError: No frame is near enough to a time.
            DatasetFormatError: Decoding failed, or a picture has another size than `out`.
        """
        done: tuple[float, int] | None = None
        try:
            for slot in sorted(range(len(times_s)), key=times_s.__getitem__):
                if done is not None and out is not None and times_s[slot] == done[0]:
                    np.copyto(out[slot], out[done[1]])
                    continue
                frame = self._at(times_s[slot], tolerance_s)
                if out is None:
                    out = self._empty(len(times_s), frame)
                self._write(frame, out[slot])
                done = times_s[slot], slot
        except av.FFmpegError as error:
            self._forget()
            raise DatasetFormatError(f"Decoding {self.path} failed: {error}") from error
        assert out is not None, "at least one time is asked for"
        return out

    def size(self) -> tuple[int, int]:
        """Return height and width of the pictures."""
        return self._stream.codec_context.height, self._stream.codec_context.width

    def _empty(self, count: int, frame: Any) -> Pictures:
        gray = self.layout == "gray16"
        return np.empty((count, 1 if gray else 3, frame.height, frame.width), np.uint16 if gray else np.uint8)

    def _forget(self) -> None:
        self._frames, self._time, self._frame = None, -np.inf, None

    def _at(self, time_s: float, tolerance_s: float) -> Any:
        """Return the frame nearest to a time, however far the tolerance would reach."""
        surely_s = min(tolerance_s, _SURELY * self._spacing_s)
        try:
            return self._within(time_s, surely_s)
        except FrameTimestampError:
            if not tolerance_s > surely_s:
                raise
        return self._nearest(time_s, tolerance_s)

    def _nearest(self, time_s: float, tolerance_s: float) -> Any:
        self._seek(max(time_s - self._spacing_s, 0.0), 0.0)
        nearest: Any = None
        for frame in self._frames:
            now = float(frame.pts * self._base)
            if nearest is None or abs(now - time_s) < abs(nearest[0] - time_s):
                nearest = now, frame
            if now >= time_s:
                break
        self._forget()
        if nearest is None or abs(nearest[0] - time_s) > tolerance_s:
            near = "has no frame" if nearest is None else f"has the nearest at {nearest[0]:.6f} s"
            raise FrameTimestampError(f"no frame at {time_s:.6f} s: {self.path} {near}")
        return nearest[1]

    def _within(self, time_s: float, tolerance_s: float) -> Any:
        if self._frame is not None and abs(self._time - time_s) <= tolerance_s:
            return self._frame
        if self._frames is None or not self._is_just_ahead(time_s):
            self._seek(time_s, tolerance_s)
        for frame in self._frames:
            now = float(frame.pts * self._base)
            if now >= time_s - tolerance_s:
                self._time, self._frame = now, frame
                if now - time_s <= tolerance_s:
                    return frame
                raise FrameTimestampError(f"no frame at {time_s:.6f} s: the next one is at {now:.6f} s in {self.path}")
        self._forget()
        raise FrameTimestampError(f"no frame at {time_s:.6f} s: {self.path} ends before")

    def _write(self, frame: Any, out: npt.NDArray[Any]) -> None:
        """Convert to planes, which are channel-first already, and copy them out of FFmpeg's padded memory."""
        height, width = frame.height, frame.width
        if out.shape[1:] != (height, width):
            raise DatasetFormatError(f"{self.path} holds pictures of {height}x{width}; others are {out.shape[1:]}.")
        if self.layout == "gray16":
            plane = frame.planes[0]
            np.copyto(out[0], _rows(plane, "<u2")[:height, :width])
            return
        for channel, pixels in enumerate(self._colours(frame)):
            if out.dtype == np.uint8:
                out[channel] = pixels
            else:
                np.divide(pixels, np.float32(255), out=out[channel], dtype=np.float32)

    def _colours(self, frame: Any) -> list[npt.NDArray[np.uint8]]:
        """Return red, green and blue, each (H, W), in FFmpeg's memory."""
        height, width = frame.height, frame.width
        if width % _SCALER_STEP:
            # FFmpeg's conversion to planes leaves the columns behind the last whole step unwritten.
            packed = _rows(self._convert.reformat(frame, format="rgb24", **_ONE_THREAD).planes[0], np.uint8)[
                :height, : 3 * width
            ]
            return list(packed.reshape(height, width, 3).transpose(2, 0, 1))
        green, blue, red = self._convert.reformat(frame, format="gbrp", **_ONE_THREAD).planes
        return [_rows(plane, np.uint8)[:height, :width] for plane in (red, green, blue)]

    def _seek(self, time_s: float, tolerance_s: float) -> None:
        """Start decoding at the key frame before a time.

        The file's index is in decoding order. Where that is not the order of display, the key frame it finds may come
        after the time; then the one before it is taken.
        """
        target = round(time_s / self._base)
        self._time, self._frame = -np.inf, None
        while True:
            self._container.seek(max(target, 0), stream=self._stream, backward=True, any_frame=False)
            frames = self._container.decode(self._stream)
            first: Any = next(frames, None)
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


def _rows(plane: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.frombuffer(memoryview(plane), dtype=dtype).reshape(-1, plane.line_size // np.dtype(dtype).itemsize)
