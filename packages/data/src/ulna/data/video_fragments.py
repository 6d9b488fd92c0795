# SPDX-License-Identifier: Apache-2.0
"""Videos that survive a kill while they are written: fragmented mp4, one fragment a frame, and their plain form.

While an episode is recorded its videos are fragmented, readable up to the last frame that left the encoder. When it
ends the packets are copied, not encoded again, into a plain mp4 with its index in front.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ulna.core.errors import DatasetError

__all__ = ["FRAGMENTED", "copy_packets", "whole_lengths"]

FRAGMENTED: Final = {"movflags": "frag_every_frame+empty_moov+default_base_moof", "flush_packets": "1"}
"""Options of the muxer for a video that is being recorded."""


def whole_lengths(path: Path, fps: int) -> list[int]:
    """Return the numbers of frames to which a video, possibly cut off, can be shortened by dropping packets.

    Args:
        path: A fragmented mp4.
        fps: Frames per second.

    Returns:
        Ascending; the last is the number of whole frames. Encoders that reorder frames leave gaps. Empty
        where nothing is readable.
    """
    import av

    lengths, highest = [], -1
    try:
        with _WholeBoxes(path) as file, av.open(file, format="mp4") as container:
            for count, (frame, _) in enumerate(_packets(container, fps), 1):
                highest = max(highest, frame)
                if highest + 1 == count:
                    lengths.append(count)
    except (av.FFmpegError, OSError):  # the file ends within its header, or within a fragment
        pass
    return lengths


def copy_packets(source: Path, target: Path, fps: int, frames: int) -> None:
    """Write the first frames of a video as a plain mp4 with its index in front, without encoding.

    Args:
        source: A fragmented mp4.
        target: The file to write.
        fps: Frames per second.
        frames: How many; one of `whole_lengths`.

    Raises:
        DatasetError: It has less frames, or the disk is full.
    """
    import av

    try:
        copied = _copy(source, target, fps, frames)
    except (av.FFmpegError, OSError) as error:
        raise DatasetError(f"{target} could not be written: {error}") from error
    if copied != frames:
        raise DatasetError(f"{source} has {copied} whole frames, {frames} were expected.")


def _copy(source: Path, target: Path, fps: int, frames: int) -> int:
    import av

    copied = 0
    with (
        _WholeBoxes(source) as file,
        av.open(file, format="mp4") as container,
        av.open(str(target), "w", format="mp4", options={"movflags": "faststart"}) as output,
    ):
        old: Any = container.streams.video[0]
        stream: Any = output.add_stream_from_template(old, opaque=True)
        stream.time_base = old.time_base
        for _, packet in _packets(container, fps):
            if copied == frames:
                break
            packet.stream = stream
            output.mux(packet)
            copied += 1
    return copied


class _WholeBoxes(io.RawIOBase):
    """The part of an mp4 in front of a box that is cut off, which FFmpeg would not open.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._end = self._measure(path.stat().st_size)

    def _measure(self, size: int) -> int:
        end, position = 0, 0
        while position + 8 <= size:
            self._file.seek(position)
            header = self._file.read(8)
            length = int.from_bytes(header[:4], "big")
            if length < 8 or position + length > size:
                break
            position += length
            if header[4:] != b"moof":  # a fragment is whole when the box with its frame is
                end = position
        self._file.seek(0)
        return end

    def read(self, size: int = -1) -> bytes:
        left = max(self._end - self._file.tell(), 0)
        return self._file.read(left if size < 0 else min(size, left))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(self._end + offset) if whence == io.SEEK_END else self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


def _packets(container: Any, fps: int) -> Iterator[tuple[int, Any]]:
    """Yield the number of the frame and the packet, in decoding order.

    Fragments have no edit list: where an encoder reorders frames, all of them are late by as much as it looks ahead.
    The first packet is the key frame that is shown first, so it tells by how much.
    """
    stream = container.streams.video[0]
    tick = Fraction(1, fps) / Fraction(stream.time_base)
    late = None
    for packet in container.demux(stream):
        if packet.size:
            late = packet.pts if late is None else late
            packet.pts -= late
            packet.dts -= late
            yield round(packet.pts / tick), packet
