# SPDX-License-Identifier: Apache-2.0
"""Pictures inside the table: PNG encoding while recording, the spool that keeps them out of memory, and decoding."""

from __future__ import annotations

import io
import struct
import zlib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ulna.core.errors import DatasetFormatError
from ulna.data.append_file import AppendFile
from ulna.data.arrow_schema import PICTURE_TYPE
from ulna.data.picture_stats import DepthStats, PictureStats
from ulna.data.picture_worker import Picture, PictureWorker
from ulna.data.png import encode_png
from ulna.data.png_decoding import decode_rgb_png
from ulna.data.quantiles import FeatureSketch
from ulna.data.stats import FeatureStats

__all__ = ["PictureSpool", "SpooledPictures", "decode_depth", "decode_picture", "encode_png", "read_spool"]

_INDEX = struct.Struct("<QI")


def decode_picture(data: Any, where: str) -> Picture:
    """Return an encoded picture as uint8 (3, H, W).

    Args:
        data: PNG or JPEG bytes (any buffer).
        where: Feature and row, for messages.

    Raises:
        DatasetFormatError: The bytes are not a picture.
    """
    encoded = bytes(data)
    picture = decode_rgb_png(encoded)
    if picture is not None:
        return picture
    from PIL import Image

    try:
        with Image.open(io.BytesIO(encoded)) as image:
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
        sketch: Their distribution; None without a picture.
        suffix: How the names of the pictures end.
    """

    path: Path
    offsets: list[int]
    stats: FeatureStats
    sketch: FeatureSketch | None = None
    suffix: str = "png"

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
        paths = pa.array([f"frame-{i:06d}.{self.suffix}" for i in range(first, stop)], pa.string())
        return pa.StructArray.from_arrays([encoded, paths], fields=list(PICTURE_TYPE))


class PictureSpool(PictureWorker[SpooledPictures]):
    """Encodes the pictures of one camera and appends them to a file, and to another where each one ends.

    Args:
        path: The file to write; the other one has `.index` appended to its name.
        shape: Height, width, channels.
        queue_size: Pictures that may wait.
        name: The camera, for messages.

    Attributes:
        suffix: How the names of such pictures end.
    """

    suffix: ClassVar[str] = "png"

    def __init__(self, path: Path, shape: tuple[int, int, int], queue_size: int, name: str) -> None:
        self._path, self._shape = path, shape
        super().__init__(name, queue_size)

    def _statistics(self) -> PictureStats | DepthStats:
        """Return what collects the statistics of the pictures."""
        return PictureStats(*self._shape)

    def _encode(self, picture: Picture) -> bytes:
        """Return a picture as it is stored."""
        return encode_png(picture)

    def _work(self) -> SpooledPictures:
        stats, offsets = self._statistics(), [0]
        with closing(AppendFile(self._path)) as pictures, closing(AppendFile(_index_path(self._path))) as index:
            for picture in self._pictures():
                encoded = self._encode(picture)
                offsets.append(pictures.append(encoded))
                index.append(_INDEX.pack(offsets[-1], zlib.crc32(encoded)))
                stats.add(picture)
        kept = self._kept(len(offsets) - 1)
        stats.keep(kept)
        known, sketch = (stats.result(), stats.sketch()) if kept else ({}, None)
        return SpooledPictures(self._path, offsets[: kept + 1], known, sketch, self.suffix)


def read_spool(path: Path) -> list[int]:
    """Return the offsets of the whole pictures of a spool that may be cut off.

    Args:
        path: The file.

    Returns:
        Where each picture starts, and the end of the last.
    """
    offsets = [0]
    try:
        index, pictures = _index_path(path).read_bytes(), path.open("rb")
    except (FileNotFoundError, IsADirectoryError):
        return offsets
    size = path.stat().st_size
    with pictures:
        for end, checksum in _INDEX.iter_unpack(index[: len(index) // _INDEX.size * _INDEX.size]):
            encoded = pictures.read(end - offsets[-1]) if offsets[-1] < end <= size else b""
            if not encoded or zlib.crc32(encoded) != checksum:
                break
            offsets.append(end)
    return offsets


def _index_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.index")
