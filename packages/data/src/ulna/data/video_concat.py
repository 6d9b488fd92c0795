# SPDX-License-Identifier: Apache-2.0
"""Joins mp4 files of equal encoding by copying their packets; nothing is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from ulna.core.errors import DatasetError
from ulna.data.video_opening import open_video

__all__ = ["concatenate", "video_form"]


def concatenate(sources: Sequence[Path], target: Path, fps: int) -> int:
    """Join videos, each beginning exactly where the frames before it end.

    Args:
        sources: Files of the same codec, size and pixel format, whose frames are 1 / fps apart from 0 on.
        target: The file to write.
        fps: Frames per second.

    Returns:
        Number of frames.

    Raises:
        DatasetError: The files do not fit together.
    """
    import av

    try:
        return _concatenate(sources, target, fps)
    except av.FFmpegError as error:
        raise DatasetError(f"Joining {len(sources)} videos to {target} failed: {error}") from error


def video_form(path: Path) -> tuple[Any, ...]:
    """Return what two videos must have in common to be joined: codec, size, pixel format, headers, time base.

    Args:
        path: A video.

    Raises:
        DatasetError: It cannot be read.
    """
    import av

    try:
        with open_video(path) as container:
            return _form(container.streams.video[0])
    except av.FFmpegError as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error


def _form(stream: Any) -> tuple[Any, ...]:
    context = stream.codec_context
    return (
        context.name,
        context.width,
        context.height,
        context.pix_fmt,
        bytes(context.extradata or b""),
        stream.time_base,
    )


def _concatenate(sources: Sequence[Path], target: Path, fps: int) -> int:
    import av

    frames, form = 0, video_form(sources[0])
    with av.open(str(target), "w", format="mp4", options={"movflags": "faststart"}) as output:
        stream: Any = None
        last_dts = None
        for source in sources:
            with open_video(source) as container:
                old: Any = container.streams.video[0]
                if stream is None:
                    stream = output.add_stream_from_template(old, opaque=True)
                    stream.time_base = old.time_base
                elif (found := _form(old)) != form:
                    raise DatasetError(
                        f"{source} is {found[:4]} and cannot be joined to {sources[0]}, which is {form[:4]}."
                    )
                tick = Fraction(1, fps) / Fraction(old.time_base)
                offset = round(frames * tick)
                packet: Any
                for packet in container.demux(old):
                    if packet.size == 0:
                        continue
                    packet.pts += offset
                    packet.dts = packet.dts + offset if last_dts is None else max(packet.dts + offset, last_dts + 1)
                    if packet.dts > packet.pts:
                        raise DatasetError(f"{source} decodes its frames too late to be joined to what comes before.")
                    last_dts = packet.dts
                    packet.stream = stream
                    output.mux(packet)
                    frames += 1
    return frames
