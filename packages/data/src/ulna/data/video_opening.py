# SPDX-License-Identifier: Apache-2.0
"""Opens videos that may be damaged. What is read from them is the business of whoever opened them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import av.container

__all__ = ["open_video"]


def open_video(path: Path) -> av.container.InputContainer:
    """Open a video; whatever is wrong with it is told as FFmpeg's own errors are, also where PyAV trips over it.

    Args:
        path: A file with at least one video stream.

    Returns:
        A container whose first video stream can be decoded; to be closed, or used in a `with` block.

    Raises:
        av.FFmpegError: It is missing or damaged, or holds no video that can be decoded.
    """
    import av

    container = av.open(str(path), metadata_errors="replace")  # damaged texts beside the pictures do no harm
    video = container.streams.video
    if not video or video[0].codec_context is None:  # which PyAV leaves out where the header names no known codec
        container.close()
        raise av.InvalidDataError(0, "it holds no video that can be decoded", str(path))
    return container
