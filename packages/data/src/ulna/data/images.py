# SPDX-License-Identifier: Apache-2.0
"""Pictures inside the table: PNG encoding while recording, the spool that keeps them out of memory, and decoding."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ulna.core.errors import DatasetFormatError
from ulna.data.arrow_schema import PICTURE_TYPE
from ulna.data.picture_worker import Picture, PictureWorker
from ulna.data.stats import FeatureStats, PictureStats

__all__ = ["PictureSpool", "SpooledPictures", "decode_depth", "decode_picture", "encode_png"]

_COMPRESSION = 1


def encode_png(picture: Picture) -> bytes:
    """Return a picture as PNG, losslessly.

    Args:
        picture: uint8 (H, W, 3).
    """
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="PNG", compress_level=_COMPRESSION)
    return buffer.getvalue()


def decode_picture(data: Any, where: str) -> Picture:
    """Return an encoded picture as uint8 (3, H, W).

    Args:
        data: PNG or JPEG bytes (any buffer).
        where: Feature and row, for messages.

    Raises:
        DatasetFormatError: The bytes are not a picture.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            pixels = np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
    except OSError as error:
        raise DatasetFormatError(f"{where} does not hold a readable picture: {error}") from error
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def decode_depth(data: Any, where: str) -> npt.NDArray[Any]:
    """Return an encoded depth map as it was recorded: uint16 or float32, (1, H, W).

    Args:
        data: TIFF or PNG bytes (any buffer).
        where: Feature and row, for messages.

    Raises:
        DatasetFormatError: The bytes are not a picture of one channel.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            mode, pixels = image.mode, np.asarray(image)
    except OSError as error:
        raise DatasetFormatError(f"{where} does not hold a readable depth map: {error}") from error
    if pixels.ndim != 2:
        raise DatasetFormatError(f"{where} should be a depth map of one channel, it is a picture of mode {mode}.")
    return pixels[None].astype(np.float32 if pixels.dtype.kind == "f" else np.uint16)


@dataclass(frozen=True)
class SpooledPictures:
    """The encoded pictures of one camera and episode, in one file.

    Attributes:
        path: The file.
        offsets: Where each picture starts, and the end of the last.
        stats: Statistics of the pictures.
    """

    path: Path
    offsets: list[int]
    stats: FeatureStats

    @property
    def frames(self) -> int:
        """Number of pictures."""
        return len(self.offsets) - 1

    def chunks(self, max_bytes: int) -> list[tuple[int, int]]:
        """Split the frames into ranges of at most `max_bytes` each (or one frame).

        Args:
            max_bytes: Size of a range.
        """
        ranges, first = [], 0
        for frame in range(1, self.frames + 1):
            if frame == self.frames or self.offsets[frame + 1] - self.offsets[first] > max_bytes:
                ranges.append((first, frame))
                first = frame
        return ranges

    def column(self) -> pa.ChunkedArray:
        """Return the table column; its bytes are mapped from the file, not copied."""
        source = pa.memory_map(str(self.path))
        chunks = [self._chunk(source, first, stop) for first, stop in self.chunks(2**30)]
        return pa.chunked_array(chunks, type=PICTURE_TYPE)

    def _chunk(self, source: Any, first: int, stop: int) -> pa.StructArray:
        start = self.offsets[first]
        source.seek(start)
        data = source.read_buffer(self.offsets[stop] - start)
        offsets = pa.py_buffer((np.asarray(self.offsets[first : stop + 1], np.int64) - start).astype(np.int32))
        encoded = pa.Array.from_buffers(pa.binary(), stop - first, [None, offsets, data])
        paths = pa.array([f"frame-{i:06d}.png" for i in range(first, stop)], pa.string())
        return pa.StructArray.from_arrays([encoded, paths], fields=list(PICTURE_TYPE))


class PictureSpool(PictureWorker[SpooledPictures]):
    """Encodes the pictures of one camera and appends them to a file.

    Args:
        path: The file to write.
        shape: Height, width, channels.
        queue_size: Pictures that may wait.
        name: The camera, for messages.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int], queue_size: int, name: str) -> None:
        self._path, self._shape = path, shape
        super().__init__(name, queue_size)

    def _work(self) -> SpooledPictures:
        stats, offsets = PictureStats(*self._shape), [0]
        with self._path.open("wb") as file:
            for picture in self._pictures():
                file.write(encode_png(picture))
                offsets.append(file.tell())
                stats.add(picture)
        return SpooledPictures(self._path, offsets, stats.result() if len(offsets) > 1 else {})
