# SPDX-License-Identifier: Apache-2.0
"""Turns what an interrupted recording left of a camera into finished pictures, statistics counted anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ulna.data.depth import DepthCodec
from ulna.data.features import Feature
from ulna.data.images import SpooledPictures, decode_depth, decode_picture, read_spool
from ulna.data.picture_stats import DepthStats, PictureStats
from ulna.data.unfinished import spool_path, video_path
from ulna.data.video_codecs import DepthEncoderConfig, VideoEncoderConfig
from ulna.data.video_encoding import EncodedVideo, live_path
from ulna.data.video_fragments import copy_packets

__all__ = ["recovered_camera"]


def recovered_camera(
    folder: Path, camera: Feature, fps: int, frames: int, encoder: VideoEncoderConfig | None
) -> EncodedVideo | SpooledPictures:
    """Return the first pictures of a camera of an unfinished episode.

    Args:
        folder: Folder of the episode.
        camera: The camera.
        fps: Frames per second.
        frames: How many.
        encoder: How it was being encoded; None for a camera in the table.

    Raises:
        DatasetError: They are not there, or the disk is full.
        DatasetFormatError: A picture cannot be decoded.
    """
    stats = DepthStats(*camera.hwc[:2]) if camera.is_depth else PictureStats(*camera.hwc)
    if camera.dtype == "video":
        path = video_path(folder, camera.name)
        copy_packets(live_path(path), path, fps, frames)
        for picture in _decoded(path, camera, encoder):
            stats.add(picture)
        return EncodedVideo(path, frames, stats.result(), stats.sketch())
    path = spool_path(folder, camera.name)
    offsets = read_spool(path)[: frames + 1]
    decode = decode_depth if camera.is_depth else decode_picture
    with path.open("rb") as file:
        for number in range(frames):
            data = file.read(offsets[number + 1] - offsets[number])
            stats.add(decode(data, f"{path}, picture {number},").transpose(1, 2, 0))
    suffix = "tiff" if camera.is_depth else "png"
    return SpooledPictures(path, offsets, stats.result(), stats.sketch(), suffix)


def _decoded(path: Path, camera: Feature, encoder: VideoEncoderConfig | None) -> Iterator[Any]:
    """Yield the pictures of a video: colours, or distances in the recorded unit."""
    import av

    unit = DepthCodec.from_feature(camera).unit if camera.is_depth else None
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            if isinstance(encoder, DepthEncoderConfig):
                yield encoder.codec().decode(frame.to_ndarray(format="gray12le"), unit or "mm")
            else:
                yield frame.to_ndarray(format="rgb24")
