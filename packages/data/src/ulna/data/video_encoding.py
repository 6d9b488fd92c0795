# SPDX-License-Identifier: Apache-2.0
"""Encodes the video of one camera while it is recorded, and describes it for `info.json`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from ulna.core.config import Config
from ulna.core.errors import DatasetError
from ulna.data.picture_worker import PictureWorker
from ulna.data.stats import FeatureStats, PictureStats

__all__ = ["EncodedVideo", "RGBEncoderConfig", "VideoEncoder", "probe_video", "try_encoder"]

_ALIASES = {"h264": "libx264", "hevc": "libx265", "av1": "libsvtav1"}


class RGBEncoderConfig(Config):
    """How colour video is encoded. Defaults are LeRobot's.

    Attributes:
        vcodec: `libsvtav1`, `h264`, `hevc`, or the name of any encoder of the installed FFmpeg.
        pix_fmt: Pixel format.
        g: Frames from one key frame to the next; small values make random access cheap.
        crf: Quality, smaller is better; None leaves it to the encoder.
        preset: Speed preset of the encoder; 12 for SVT-AV1 when not given.
        fast_decode: 0 to 2; helps weak decoders at the cost of size.
        threads: Threads of one encoder; None leaves it to the encoder.
        extra_options: Further encoder options. They never override the fields above.
    """

    vcodec: str = "libsvtav1"
    pix_fmt: str = "yuv420p"
    g: int | None = Field(default=2, ge=1)
    crf: float | None = Field(default=30, ge=0)
    preset: int | str | None = None
    fast_decode: int = Field(default=0, ge=0, le=2)
    threads: int | None = Field(default=None, ge=1)
    extra_options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _fill_preset(cls, values: Any) -> Any:
        if isinstance(values, dict):
            values = {k: v for k, v in values.items() if k != "video_backend"}
            codec = values.get("vcodec", "libsvtav1")
            if values.get("preset") is None and _ALIASES.get(codec, codec) == "libsvtav1":
                values["preset"] = 12
        return values

    @property
    def encoder(self) -> str:
        """Name of the FFmpeg encoder."""
        return _ALIASES.get(self.vcodec, self.vcodec)

    def options(self) -> dict[str, str]:
        """Return the encoder's options as FFmpeg takes them."""
        chosen: dict[str, Any] = dict(self.extra_options)
        chosen.update({k: v for k, v in {"g": self.g, "crf": self.crf, "preset": self.preset}.items() if v is not None})
        if isinstance(chosen.get("crf"), float) and float(chosen["crf"]).is_integer():
            chosen["crf"] = int(chosen["crf"])
        if self.encoder == "libsvtav1":
            chosen["svtav1-params"] = self._svt_params(str(chosen.get("svtav1-params", "")))
        elif self.encoder in {"libx264", "libx265"}:
            # Without B-frames every frame leaves at once and decode order is display order, which makes
            # episodes of one frame and concatenation safe. Key frames every 2 frames leave no room for them anyway.
            chosen.setdefault("bf", 0)
            if self.fast_decode:
                chosen["tune"] = "fastdecode"
            if self.threads:
                chosen["threads"] = self.threads
        return {key: str(value) for key, value in chosen.items()}

    def _svt_params(self, given: str) -> str:
        params = dict(part.partition("=")[::2] for part in given.split(":") if part)
        # No look-ahead: same bytes at constant quality, but fewer frames wait in the encoder when an episode ends.
        params.setdefault("lookahead", "0")
        if self.fast_decode:
            params["fast-decode"] = str(self.fast_decode)
        if self.threads:
            params["lp"] = str(self.threads)
        return ":".join(f"{key}={value}" for key, value in params.items())

    def described(self) -> dict[str, Any]:
        """Return the settings under the names they have in `info.json`."""
        crf = int(self.crf) if self.crf is not None and float(self.crf).is_integer() else self.crf
        return {
            "video.g": self.g,
            "video.crf": crf,
            "video.preset": self.preset,
            "video.fast_decode": self.fast_decode,
            "video.video_backend": "pyav",
            "video.extra_options": dict(self.extra_options),
        }


@dataclass(frozen=True)
class EncodedVideo:
    """A finished video file.

    Attributes:
        path: Where it lies.
        frames: Frames in it.
        stats: Statistics of the pictures.
    """

    path: Path
    frames: int
    stats: FeatureStats


class VideoEncoder(PictureWorker[EncodedVideo]):
    """Encodes one episode of one camera.

    Args:
        path: The mp4 to write.
        config: Settings.
        fps: Frames per second.
        shape: Height, width, channels.
        queue_size: Frames that may wait.
        name: The camera, for messages.
    """

    def __init__(
        self, path: Path, config: RGBEncoderConfig, fps: int, shape: tuple[int, int, int], queue_size: int, name: str
    ) -> None:
        self._path, self._config, self._fps, self._shape = path, config, fps, shape
        super().__init__(name, queue_size)

    def _work(self) -> EncodedVideo:
        import av

        height, width, channels = self._shape
        stats, frames, packets = PictureStats(height, width, channels), 0, 0
        with av.open(str(self._path), "w", format="mp4") as container:
            stream = add_stream(container, self._config, self._fps, height, width)
            for picture in self._pictures():
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                frame.pts, frame.time_base = frames, Fraction(1, self._fps)
                packets += _mux(container, stream.encode(frame))
                stats.add(picture)
                frames += 1
            packets += _mux(container, stream.encode())
        if packets != frames:
            raise DatasetError(f"{frames} frames went into the encoder and {packets} came out.")
        return EncodedVideo(self._path, frames, stats.result() if frames else {})


def _mux(container: Any, packets: Any) -> int:
    count = 0
    for packet in packets:
        container.mux(packet)
        count += 1
    return count


def add_stream(container: Any, config: RGBEncoderConfig, fps: int, height: int, width: int) -> Any:
    """Add an encoding stream to an open container.

    Args:
        container: A PyAV output container.
        config: Settings.
        fps: Frames per second.
        height: Rows.
        width: Columns.

    Returns:
        The PyAV stream.
    """
    # SVT-AV1 prints its settings to stderr for every file unless this is set before it starts.
    os.environ.setdefault("SVT_LOG", "1")
    stream = container.add_stream(config.encoder, rate=fps, options=config.options())
    stream.width, stream.height, stream.pix_fmt = width, height, config.pix_fmt
    return stream


def try_encoder(path: Path, config: RGBEncoderConfig, fps: int, shape: tuple[int, int, int], name: str) -> None:
    """Encode one black frame, so that a setting that cannot work is refused before anything is recorded.

    Args:
        path: A file that may be written; it is removed again.
        config: Settings.
        fps: Frames per second.
        shape: Height, width, channels.
        name: The camera, for messages.

    Raises:
        DatasetError: The encoder refuses the size or the settings.
    """
    encoder = VideoEncoder(path, config, fps, shape, 1, name)
    try:
        encoder.put(np.zeros(shape, np.uint8))
        encoder.end()
        encoder.finish()
    except DatasetError as error:
        cause = error.__cause__ or error
        odd = config.pix_fmt.startswith("yuv420") and (shape[0] % 2 or shape[1] % 2)
        raise DatasetError(
            f"Camera {name!r} with shape {shape} cannot be encoded with {config.encoder} {config.options()}: {cause}",
            hint=f"{config.pix_fmt} needs an even height and width." if odd else "Choose another RGBEncoderConfig.",
        ) from error
    finally:
        path.unlink(missing_ok=True)


def probe_video(path: Path, config: RGBEncoderConfig) -> dict[str, Any]:
    """Describe a video file the way `info.json` does.

    Args:
        path: An mp4.
        config: How it was encoded.

    Returns:
        The `info` of a video feature.
    """
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        found = {
            "video.height": context.height,
            "video.width": context.width,
            "video.codec": {"libdav1d": "av1"}.get(context.codec.name, context.codec.canonical_name),
            "video.pix_fmt": context.pix_fmt,
            "video.fps": int(Fraction(stream.average_rate or 0)),
            "video.channels": 3,
            "has_audio": bool(container.streams.audio),
        }
    return {**found, **config.described(), "is_depth_map": False}
