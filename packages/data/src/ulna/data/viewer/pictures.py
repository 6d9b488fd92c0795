# SPDX-License-Identifier: Apache-2.0
"""Single pictures for the page, encoded: those of tables as they are stored, those of videos decoded by our reader."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ulna.data.depth import DepthCodec
from ulna.data.features import Feature
from ulna.data.images import decode_depth, decode_picture
from ulna.data.video_decoding import decoder_pool
from ulna.data.viewer.content import Content

__all__ = ["EncodedPicture", "picture"]

_MAGIC: Final = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg"}
_QUALITY: Final = 92
_TOLERANCE_S: Final = 1e-2
_PALETTE: Final = np.array(
    [(253, 231, 37), (94, 201, 98), (33, 145, 140), (59, 82, 139), (68, 1, 84)], dtype=np.float64
)  # viridis, the near end first


@dataclass(frozen=True)
class EncodedPicture:
    """A picture a browser can show.

    Attributes:
        data: The file's bytes.
        media_type: `image/png` or `image/jpeg`.
    """

    data: bytes
    media_type: str


def picture(content: Content, episode: int, camera: str, frame: int) -> EncodedPicture:
    """Return a picture of a camera; a depth map in colours, from yellow (near) to violet (far), black without a value.

    Args:
        content: The dataset.
        episode: Number of the episode.
        camera: Name of the camera.
        frame: Number of the frame in the episode.

    Raises:
        DatasetError: There is no such episode, camera or frame.
        DatasetFormatError: A file contradicts the metadata.
    """
    feature = content.camera(camera)
    if feature.dtype == "image":
        return _stored(content, feature, episode, frame)
    content.row(episode, frame)
    span = content.meta.episodes.row(episode).videos[camera]
    path = content.video(camera, span.file)
    times = [span.start_s + frame / content.meta.fps]
    tolerance = min(_TOLERANCE_S, 0.5 / content.meta.fps)
    if not feature.is_depth:
        return _encoded(decoder_pool().read(path, times, tolerance)[0].transpose(1, 2, 0))
    return _coloured(content, feature, decoder_pool().read(path, times, tolerance, layout="gray16")[0])


def _stored(content: Content, feature: Feature, episode: int, frame: int) -> EncodedPicture:
    table, row = content.row(episode, frame)
    where = f"{table.path}: {feature.name!r} in row {row}"
    data = table.others[feature.name][row].as_buffer()
    if feature.is_depth:
        return _coloured(content, feature, decode_depth(data, where))
    data = bytes(data)
    for magic, media_type in _MAGIC.items():
        if data.startswith(magic):
            return EncodedPicture(data, media_type)
    return _encoded(decode_picture(data, where).transpose(1, 2, 0))


def _coloured(content: Content, feature: Feature, stored: npt.NDArray[Any]) -> EncodedPicture:
    codec = DepthCodec.from_feature(feature)
    metres = codec.decode(stored, "m").squeeze()
    near, far = _range(content, feature, codec)
    share = np.clip((np.nan_to_num(metres, nan=0.0) - near) / max(far - near, 1e-9), 0.0, 1.0)
    channels = [np.interp(share, np.linspace(0, 1, len(_PALETTE)), _PALETTE[:, channel]) for channel in range(3)]
    pixels = np.stack(channels, axis=2).astype(np.uint8)
    pixels[~(metres > 0)] = 0
    return _encoded(pixels)


def _range(content: Content, feature: Feature, codec: DepthCodec) -> tuple[float, float]:
    """Return the distances between which colours change: the same for all frames, those that occur where known."""
    measured = (content.meta.stats or {}).get(feature.name, {})
    if "min" not in measured or "max" not in measured:
        return codec.depth_min, codec.depth_max
    low, high = (np.asarray(measured[key], np.float64).reshape(-1)[0] * codec.factor("m") for key in ("min", "max"))
    return float(low), float(high)


def _encoded(pixels: npt.NDArray[Any]) -> EncodedPicture:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels.squeeze())).save(buffer, format="JPEG", quality=_QUALITY)
    return EncodedPicture(buffer.getvalue(), "image/jpeg")
