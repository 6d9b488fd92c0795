# SPDX-License-Identifier: Apache-2.0
"""The pictures of one episode and camera, one after the other: decoded from a table or a video, and encoded again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ulna.core.errors import DatasetFormatError, FrameTimestampError
from ulna.data.editing.blocks import VideoPiece
from ulna.data.features import Feature
from ulna.data.images import decode_depth, decode_picture
from ulna.data.picture_worker import PictureWorker
from ulna.data.video_decoding import PictureLayout, decoder_pool

__all__ = ["consume", "table_pictures", "video_pictures"]

Picture = npt.NDArray[Any]
Result = TypeVar("Result")

_AT_ONCE = 16
_TOLERANCE_S = 1e-4


def video_pictures(
    piece: VideoPiece, feature: Feature, fps: int, where: str, frames: Sequence[int] | None = None
) -> Iterator[Picture]:
    """Decode an episode from a video.

    Args:
        piece: Its frames in the file.
        feature: The camera.
        fps: Frames per second.
        where: Episode and camera, for messages.
        frames: The frames to decode, ascending; None for all.

    Yields:
        uint8 (H, W, 3), or the codes of a depth map, uint16 (H, W, 1).

    Raises:
        DatasetFormatError: The video lacks a frame, cannot be decoded, or has pictures of another size than declared.
    """
    layout: PictureLayout = "gray16" if feature.is_depth else "rgb"
    chosen = range(piece.frames) if frames is None else frames
    for first in range(0, len(chosen), _AT_ONCE):
        times = [piece.start_s + frame / fps for frame in chosen[first : first + _AT_ONCE]]
        try:
            pictures = decoder_pool().read(piece.path, times, _TOLERANCE_S, layout)
        except FrameTimestampError as error:
            raise DatasetFormatError(f"{where}: {error.message}", hint=error.hint) from error
        for picture in pictures:
            yield _checked(picture, feature, where)


def table_pictures(column: pa.ChunkedArray | pa.Array, feature: Feature, where: str) -> Iterator[Picture]:
    """Decode an episode from its column of the table.

    Args:
        column: Encoded pictures, `struct<bytes, path>`.
        feature: The camera.
        where: Episode and camera, for messages.

    Yields:
        uint8 (H, W, 3), or a depth map as it was recorded, uint16 or float32 (H, W, 1).

    Raises:
        DatasetFormatError: A value is not a picture, or has another size than declared.
    """
    decode: Callable[[Any, str], Picture] = decode_depth if feature.is_depth else decode_picture
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    frame = 0
    for chunk in chunks:
        for value in chunk.field("bytes"):
            here = f"{where}, frame {frame}"
            if not value.is_valid:
                raise DatasetFormatError(f"{here}: there is no picture in the table.")
            yield _checked(decode(value.as_buffer(), here), feature, where)
            frame += 1


def _checked(picture: Picture, feature: Feature, where: str) -> Picture:
    """Return a picture (C, H, W) as (H, W, C) of its own memory."""
    turned = np.ascontiguousarray(picture.transpose(1, 2, 0))
    if turned.shape != feature.hwc:
        raise DatasetFormatError(f"{where}: a picture has the shape {turned.shape}, declared is {feature.hwc}.")
    return turned


def consume(worker: PictureWorker[Result], pictures: Iterable[Picture]) -> Result:
    """Hand pictures to an encoder, in order, and wait for what becomes of them.

    Args:
        worker: The encoder; it is ended in any case.
        pictures: The pictures.

    Returns:
        Its result.

    Raises:
        DatasetError: Encoding failed.
    """
    try:
        for picture in pictures:
            worker.put(picture)
    except BaseException:
        worker.abort()
        raise
    worker.end()
    return worker.finish()
