# SPDX-License-Identifier: Apache-2.0
"""One open video, decoded with torchcodec: the same pictures as from PyAV. Imported only when it was chosen."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetFormatError, FrameTimestampError
from ulna.data.video_backends import Pictures, Targets, file_identity

__all__ = ["TorchcodecDecoder"]

_BASE_BYTES: Final = 2 * 2**20
_FRAMES_HELD: Final = 8
_ROUNDING_S: Final = 1e-6
_AT_ONCE: Final = 16
"""Pictures decoded in one call: what torchcodec holds beside those that are asked for."""


class TorchcodecDecoder:
    """An open video. Created and closed by a `DecoderPool`; used by one thread at a time, only in its process.

    Frame times are first taken from the header, which opens a file fast. The times of what was decoded are compared
    with what was asked for; where they differ, the file is opened again and its packets are scanned.

    Args:
        path: An mp4.

    Raises:
        DatasetFormatError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.closed = False
        self.identity = file_identity(path)
        self._scanned = False
        self._decoder = self._open("approximate")

    def _open(self, seek_mode: Literal["approximate", "exact"]) -> Any:
        decoders = importlib.import_module("torchcodec.decoders")
        try:
            return decoders.VideoDecoder(str(self.path), seek_mode=seek_mode, num_ffmpeg_threads=1)
        except (RuntimeError, ValueError, OSError) as error:
            raise DatasetFormatError(f"The video {self.path} cannot be opened: {error}") from error

    @property
    def nbytes(self) -> int:
        """Memory it takes, estimated from the size and the number of its pictures."""
        found = self._decoder.metadata
        pictures = int(1.5 * found.width * found.height * _FRAMES_HELD)
        return _BASE_BYTES + pictures + 64 * (found.num_frames or 0)

    def size(self) -> tuple[int, int]:
        """Return height and width of the pictures."""
        return int(self._decoder.metadata.height), int(self._decoder.metadata.width)

    def close(self) -> None:
        """Close the file; waits for a read in another thread. Idempotent."""
        with self.lock:
            self.closed = True
            self._decoder = None

    def read(self, times_s: Sequence[float], tolerance_s: float, out: Targets | None = None) -> Targets:
        """Decode the frames at some times; each frame is decoded once, neighbours in one go.

        Args:
            times_s: Times in the file, in any order, repeats allowed.
            tolerance_s: Allowed deviation.
            out: Where the pictures go, one array for each time: uint8, or float32 to get values in [0, 1].

        Returns:
            `out`; when not given uint8 (times, 3, H, W).

        Raises:
            FrameTimestampError: No frame is near enough to a time.
            DatasetFormatError: Decoding failed, or a picture has another size than `out`.
        """
        wanted, inverse = np.unique(np.asarray(times_s, dtype=np.float64), return_inverse=True)
        slots: list[list[int]] = [[] for _ in wanted]
        for slot, row in enumerate(inverse.tolist()):
            slots[row].append(slot)
        for first in range(0, len(wanted), _AT_ONCE):
            pictures = self._frames(wanted[first : first + _AT_ONCE], tolerance_s)
            if out is None:
                out = np.empty((len(times_s), *pictures.shape[1:]), np.uint8)
            for row, picture in enumerate(pictures, first):
                for slot in slots[row]:
                    self._write(picture, out[slot])
        assert out is not None, "at least one time is asked for"
        return out

    def _write(self, picture: Pictures, out: npt.NDArray[Any]) -> None:
        if out.shape != picture.shape:
            raise DatasetFormatError(
                f"{self.path} holds pictures of {picture.shape[1]}x{picture.shape[2]}; others are {out.shape[1:]}."
            )
        if out.dtype == np.uint8:
            np.copyto(out, picture)
        else:
            np.divide(picture, np.float32(255), out=out, dtype=np.float32)

    def _frames(self, wanted: npt.NDArray[np.float64], tolerance_s: float) -> Pictures:
        # The frame that is shown half a frame later is the nearest; one of less tolerance is surely inside, too.
        inside = wanted + min(tolerance_s, 0.5 / float(self._decoder.metadata.average_fps or 1))
        try:
            batch = self._decoder.get_frames_played_at(inside.tolist())
        except (RuntimeError, IndexError, ValueError) as error:
            self._explain(wanted, error)
            return self._frames(wanted, tolerance_s)
        wrong = np.flatnonzero(np.abs(batch.pts_seconds.numpy() - wanted) > tolerance_s + _ROUNDING_S)
        if not wrong.size:
            found: Pictures = batch.data.numpy()
            return found
        if self._scanned:
            time_s, near_s = wanted[wrong[0]], float(batch.pts_seconds[int(wrong[0])])
            raise FrameTimestampError(
                f"no frame at {time_s:.6f} s: the one shown then is of {near_s:.6f} s in {self.path}"
            )
        self._scan()
        return self._frames(wanted, tolerance_s)

    def _explain(self, wanted: npt.NDArray[np.float64], error: Exception) -> None:
        """Scan the file if that was not done; then raise what is wrong."""
        if not self._scanned:
            self._scan()
            return
        found = self._decoder.metadata
        outside = wanted[(wanted < found.begin_stream_seconds) | (wanted >= found.end_stream_seconds)]
        if outside.size:
            raise FrameTimestampError(
                f"no frame at {outside[0]:.6f} s: {self.path} goes from {found.begin_stream_seconds:.6f} s to "
                f"{found.end_stream_seconds:.6f} s"
            ) from error
        raise DatasetFormatError(f"Decoding {self.path} failed: {error}") from error

    def _scan(self) -> None:
        self._decoder, self._scanned = self._open("exact"), True
