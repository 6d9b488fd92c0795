# SPDX-License-Identifier: Apache-2.0
"""Which library decodes videos: what a decoder offers, and the choice between PyAV and torchcodec by a real probe."""

from __future__ import annotations

import functools
import importlib
import io
import logging
import os
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetError, DatasetFormatError, nearest

__all__ = [
    "BACKENDS",
    "BackendName",
    "Decoder",
    "PictureLayout",
    "Pictures",
    "Targets",
    "backend_or_fallback",
    "choose_backend",
    "file_identity",
    "torchcodec_problem",
]

logger = logging.getLogger(__name__)

Pictures = npt.NDArray[Any]
Targets = Pictures | Sequence[Pictures]
PictureLayout = Literal["rgb", "gray16"]
BackendName = Literal["pyav", "torchcodec"]

BACKENDS: Final[tuple[BackendName, ...]] = ("pyav", "torchcodec")
PREFERENCE: Final = "ULNA_VIDEO_BACKEND"
"""Environment variable that names the backend to use where a program does not ask for one."""

_REMEDY: Final = (
    "Install a torchcodec that fits your torch and the FFmpeg libraries (4 to 8) it loads: pip install "
    "'ulna-data[torchcodec]' and, for example, apt install ffmpeg. Or use video_backend='pyav', which needs neither."
)


class Decoder(Protocol):
    """An open video: what a `DecoderPool` asks of a backend. Used by one thread at a time.

    Attributes:
        lock: Held while it is used.
        closed: Whether it may no longer be used.
        identity: The content it was opened on, see `file_identity`.
    """

    lock: threading.Lock
    closed: bool
    identity: tuple[int, int, int]

    @property
    def nbytes(self) -> int:
        """Memory it takes, estimated."""
        ...

    def size(self) -> tuple[int, int]:
        """Return height and width of the pictures."""
        ...

    def read(self, times_s: Sequence[float], tolerance_s: float, out: Targets | None = None) -> Targets:
        """Decode the frames at some times.

        Args:
            times_s: Times in the file, in any order, repeats allowed.
            tolerance_s: Allowed deviation.
            out: Where the pictures go, one array for each time: uint8, or float32 to get values in [0, 1].
        """
        ...

    def close(self) -> None:
        """Close the file; waits for a read in another thread. Idempotent."""
        ...


def file_identity(path: Path) -> tuple[int, int, int]:
    """Tell one content of a path from another.

    Args:
        path: A video.

    Raises:
        DatasetFormatError: It cannot be found.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise DatasetFormatError(f"The video {path} cannot be opened: {error}") from error
    return status.st_ino, status.st_size, status.st_mtime_ns


def choose_backend(asked: str | None = None) -> BackendName:
    """Return the backend to decode with.

    Args:
        asked: `pyav`, `torchcodec`, or `video_reader` (an old name of `pyav`). None takes what the environment
            variable `ULNA_VIDEO_BACKEND` names, else PyAV.

    Raises:
        DatasetError: The name is unknown, or that backend was asked for and does not work here; cause and remedy.
    """
    if asked is None:
        return backend_or_fallback(os.environ.get(PREFERENCE) or None)
    name = _known(asked)
    problem = torchcodec_problem() if name == "torchcodec" else None
    if problem:
        raise DatasetError(f"Videos cannot be decoded with torchcodec here: {problem}.", hint=_REMEDY)
    return name


def backend_or_fallback(preferred: str | None) -> BackendName:
    """Return a backend that works: the preferred one, else PyAV after one warning.

    Args:
        preferred: Name of the preferred backend; None prefers PyAV.

    Raises:
        DatasetError: The name is unknown.
    """
    name = _known(preferred) if preferred else "pyav"
    problem = torchcodec_problem() if name == "torchcodec" else None
    if problem is None:
        return name
    _warn_once(problem)
    return "pyav"


@functools.lru_cache(maxsize=1)
def _warn_once(problem: str) -> None:
    logger.warning(
        "Videos are decoded with PyAV, because torchcodec does not work here: %s. The pictures are the same. %s",
        problem,
        _REMEDY,
    )


def _known(name: str) -> BackendName:
    if name == "video_reader":
        warnings.warn("video_backend='video_reader' is an old name; use 'pyav'.", DeprecationWarning, stacklevel=4)
        return "pyav"
    for known in BACKENDS:
        if name == known:
            return known
    near = nearest(name, list(BACKENDS))
    raise DatasetError(
        f"Unknown video backend {name!r}; there are {', '.join(map(repr, BACKENDS))}.",
        hint=f"Did you mean {near!r}?" if near else None,
    )


@functools.lru_cache(maxsize=1)
def torchcodec_problem() -> str | None:
    """Say why torchcodec cannot be used, None when it can: it is imported and must decode one small frame.

    That a package is installed proves nothing: its libraries may be missing, or may not fit torch or FFmpeg.
    """
    try:
        decoders = importlib.import_module("torchcodec.decoders")
        frame = decoders.VideoDecoder(_small_video(), num_ffmpeg_threads=1)[0]
        if tuple(frame.shape) != (3, 16, 16) or abs(float(frame.float().mean()) - 128) > 8:
            return "it decodes wrong pictures"
    except ModuleNotFoundError as error:
        return f"the package {error.name!r} is not installed"
    except (ImportError, OSError, RuntimeError, AttributeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {_first_line(error)}"
    return None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else "no reason was given"


def _small_video() -> bytes:
    """Return an mp4 with one grey frame of 16x16, made with FFmpeg's own MPEG-4 encoder."""
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = 16, 16, "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.full((16, 16, 3), 128, np.uint8), format="rgb24")
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)
    return buffer.getvalue()
