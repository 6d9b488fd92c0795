# SPDX-License-Identifier: Apache-2.0
"""Decodes colour PNGs with FFmpeg, which takes less time than Pillow. Other pictures are left to the caller."""

from __future__ import annotations

from typing import Any, Final

import av
import numpy as np
import numpy.typing as npt

__all__ = ["decode_rgb_png"]

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_DEPTH_AND_COLOUR: Final = slice(24, 26)
_EIGHT_BIT_RGB: Final = b"\x08\x02"
_END: Final = b"IEND"


def decode_rgb_png(data: bytes) -> npt.NDArray[np.uint8] | None:
    """Return a PNG of three 8-bit channels as uint8 (3, H, W).

    Args:
        data: The encoded picture.

    Returns:
        The picture; None for any other kind of file, and for a damaged one, so that the caller can say what it is.
    """
    plain = data.startswith(_SIGNATURE) and data[_DEPTH_AND_COLOUR] == _EIGHT_BIT_RGB and _END in data[-12:]
    if not plain or b"tRNS" in data[:1024]:
        return None
    context: Any = av.codec.Codec("png", "r").create()  # a used one may return the picture before
    context.thread_count = 1
    context.options = {"err_detect": "crccheck+explode"}
    try:
        frames = context.decode(av.Packet(data))
    except av.FFmpegError:
        return None
    if len(frames) != 1 or frames[0].format.name != "rgb24":
        return None
    frame, plane = frames[0], frames[0].planes[0]
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
    pixels = rows[: frame.height, : 3 * frame.width].reshape(frame.height, frame.width, 3)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
