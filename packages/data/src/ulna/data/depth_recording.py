# SPDX-License-Identifier: Apache-2.0
"""Recording of depth maps, and which worker takes the pictures of which camera. The rule for codes is in `depth`."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from ulna.core.errors import DatasetError
from ulna.data.depth import DepthUnit
from ulna.data.features import Feature
from ulna.data.images import PictureSpool
from ulna.data.picture_stats import DepthStats
from ulna.data.picture_worker import Picture
from ulna.data.video_codecs import DepthEncoderConfig, VideoEncoderConfig
from ulna.data.video_encoding import VideoEncoder, try_encoder

__all__ = [
    "CameraWorker",
    "DepthSpool",
    "DepthVideoEncoder",
    "begin_camera",
    "encode_tiff",
    "recorded_depth_config",
    "try_cameras",
    "with_depth_unit",
]

CameraWorker = VideoEncoder | PictureSpool


def encode_tiff(depth: Picture) -> bytes:
    """Return a depth map as TIFF, as it is.

    Args:
        depth: uint16 or float32 (H, W, 1).
    """
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(depth[..., 0]).save(buffer, format="TIFF")
    return buffer.getvalue()


class DepthSpool(PictureSpool):
    """Keeps the depth maps of one camera for the table, as TIFF."""

    suffix: ClassVar[str] = "tiff"

    def _statistics(self) -> DepthStats:
        return DepthStats(*self._shape[:2])

    def _encode(self, picture: Picture) -> bytes:
        return encode_tiff(picture)


class DepthVideoEncoder(VideoEncoder):
    """Quantises the depth maps of one camera and encodes them without loss. Its settings are a `DepthEncoderConfig`."""

    dtype: ClassVar[type[np.generic]] = np.uint16

    def _statistics(self) -> DepthStats:
        return DepthStats(*self._shape[:2])

    def _frame(self, picture: Picture) -> Any:
        import av

        codes = cast(DepthEncoderConfig, self._config).codec().encode(picture[..., 0])
        return av.VideoFrame.from_ndarray(codes, format="gray12le")


def begin_camera(
    folder: Path, name: str, feature: Feature, fps: int, configs: Mapping[str, VideoEncoderConfig], queue_size: int
) -> CameraWorker:
    """Start what takes the pictures of a camera during one episode.

    Args:
        folder: Folder of the episode.
        name: The camera.
        feature: Its feature.
        fps: Frames per second.
        configs: Camera stored as video to settings.
        queue_size: Pictures that may wait.
    """
    if feature.dtype == "image":
        spool = DepthSpool if feature.is_depth else PictureSpool
        return spool(folder / f"{name}.pictures", feature.hwc, queue_size, name)
    kind = DepthVideoEncoder if feature.is_depth else VideoEncoder
    return kind(folder / f"{name}.mp4", configs[name], fps, feature.hwc, queue_size, name)


def try_cameras(
    folder: Path, features: Mapping[str, Feature], fps: int, configs: Mapping[str, VideoEncoderConfig]
) -> None:
    """Encode one frame of every camera stored as video, so that what cannot work is refused before recording.

    Args:
        folder: Where a file may be written; it is removed again.
        features: All features.
        fps: Frames per second.
        configs: Camera stored as video to settings.

    Raises:
        DatasetError: An encoder refuses the size or the settings.
    """
    for name, config in configs.items():
        kind = DepthVideoEncoder if features[name].is_depth else VideoEncoder
        try_encoder(folder / "try.mp4", config, fps, features[name].hwc, name, kind)


def recorded_depth_config(feature: Feature, given: DepthEncoderConfig | None) -> DepthEncoderConfig:
    """Return the settings for a depth camera: steps as its earlier episodes have them, the rest as given.

    Args:
        feature: A depth camera stored as video.
        given: Settings asked for; None asks for none.

    Returns:
        The settings.

    Raises:
        DatasetError: Other steps than the recorded ones were asked for.
    """
    config, info = given or DepthEncoderConfig(), feature.camera_info
    names = ("depth_min", "depth_max", "shift", "use_log")
    recorded = {name: info[f"video.{name}"] for name in names if info.get(f"video.{name}") is not None}
    differing = [name for name, value in recorded.items() if getattr(config, name) != value]
    if differing and given is not None:
        raise DatasetError(
            f"Depth camera {feature.name!r} is recorded with {recorded}, not with "
            f"{ {name: getattr(given, name) for name in differing} }: codes of one camera must mean the same.",
            hint="Leave depth_encoder out to go on as before.",
        )
    return config.model_copy(update=recorded) if differing else config


def with_depth_unit(feature: Feature, unit: DepthUnit) -> Feature:
    """Return a depth camera's feature with the unit it is recorded in.

    Args:
        feature: The feature.
        unit: The unit.
    """
    return replace(feature, extra={**feature.extra, "info": {**feature.camera_info, "depth_unit": unit}})
