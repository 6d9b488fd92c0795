# SPDX-License-Identifier: Apache-2.0
"""A short film of a rollout, written as H.264."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from ulna.core.files import atomic_path

__all__ = ["write_film"]


def write_film(path: Path, frames: list[npt.NDArray[np.uint8]], fps: int) -> Path:
    """Write frames as a film that browsers play.

    Args:
        path: The file, `.mp4`.
        frames: RGB pictures (H, W, 3), all of one even size.
        fps: Frames a second.

    Returns:
        `path`.

    Raises:
        ValueError: There are no frames.
    """
    if not frames:
        raise ValueError("A film needs at least one frame.")
    with atomic_path(path) as temporary, av.open(str(temporary), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": "20"})
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt, stream.time_base = "yuv420p", Fraction(1, fps)
        for picture in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path
