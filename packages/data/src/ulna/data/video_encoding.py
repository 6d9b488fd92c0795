# SPDX-License-Identifier: Apache-2.0
"""Encodes the video of one camera while it is recorded, and describes it for `info.json`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ulna.core.errors import DatasetError
from ulna.data.picture_stats import DepthStats, PictureStats
from ulna.data.picture_worker import Picture, PictureWorker
from ulna.data.quantiles import FeatureSketch
from ulna.data.stats import FeatureStats
from ulna.data.video_codecs import RGBEncoderConfig, VideoEncoderConfig
from ulna.data.video_fragments import FRAGMENTED, copy_packets

__all__ = [
    "EncodedVideo",
    "RGBEncoderConfig",
    "VideoEncoder",
    "add_stream",
    "live_path",
    "mux_packets",
    "probe_video",
    "try_encoder",
]

_ALIGNED = 32
_MOST_AHEAD = 64
_OPENING = threading.Lock()


def live_path(path: Path) -> Path:
    """Return where a video lies while it is being recorded.

    Args:
        path: Where it will lie when the episode has ended.
    """
    return path.with_name(f"{path.stem}.live{path.suffix}")


@dataclass(frozen=True)
class EncodedVideo:
    """A finished video file.

    Attributes:
        path: Where it lies.
        frames: Frames in it.
        stats: Statistics of the pictures.
        sketch: Their distribution; None without a frame.
    """

    path: Path
    frames: int
    stats: FeatureStats
    sketch: FeatureSketch | None = None


class VideoEncoder(PictureWorker[EncodedVideo]):
    """Encodes one episode of one camera, into a fragmented file first that survives a kill.

    Args:
        path: The mp4 to write.
        config: Settings.
        fps: Frames per second.
        shape: Height, width, channels.
        queue_size: Frames that may wait.
        name: The camera, for messages.

    Attributes:
        dtype: Dtype of the pictures it takes.
    """

    dtype: ClassVar[type[np.generic]] = np.uint8

    def __init__(
        self, path: Path, config: VideoEncoderConfig, fps: int, shape: tuple[int, int, int], queue_size: int, name: str
    ) -> None:
        self._path, self._config, self._fps, self._shape = path, config, fps, shape
        super().__init__(name, queue_size)

    def _work(self) -> EncodedVideo:
        import av

        height, width, _ = self._shape
        live = live_path(self._path)
        stats, frames, packets = self._statistics(), 0, 0
        with av.open(str(live), "w", format="mp4", options=FRAGMENTED) as container:
            stream = add_stream(container, self._config, self._fps, height, width)
            for picture in self._pictures():
                frame = self._frame(picture)
                frame.pts, frame.time_base = frames, Fraction(1, self._fps)
                packets += mux_packets(container, stream.encode(frame))
                stats.add(picture)
                frames += 1
            packets += mux_packets(container, stream.encode())
        if packets != frames:
            raise DatasetError(f"{frames} frames went into the encoder and {packets} came out.")
        kept = self._kept(frames)
        if not kept:
            return EncodedVideo(self._path, 0, {})
        copy_packets(live, self._path, self._fps, kept)
        stats.keep(kept)
        return EncodedVideo(self._path, kept, stats.result(), stats.sketch())

    def _statistics(self) -> PictureStats | DepthStats:
        """Return what collects the statistics of the pictures."""
        return PictureStats(*self._shape)

    def _frame(self, picture: Picture) -> Any:
        """Return a picture as the frame that goes into the encoder."""
        import av

        if picture.shape[1] % _ALIGNED == 0:
            return av.VideoFrame.from_numpy_buffer(picture, format="rgb24")  # shares the memory
        return av.VideoFrame.from_ndarray(picture, format="rgb24")


def mux_packets(container: Any, packets: Any) -> int:
    """Write what came out of an encoder, and count it.

    Args:
        container: A PyAV output container.
        packets: Packets of an encoder whose time base is the distance of two frames.

    Returns:
        How many there were.
    """
    count = 0
    for packet in packets:
        # libx265 invents decoding times where a video is shorter than it looks ahead; nothing is reordered then.
        if packet.dts is None or not 0 <= packet.pts - packet.dts <= _MOST_AHEAD:
            packet.dts = packet.pts
        container.mux(packet)
        count += 1
    return count


def add_stream(container: Any, config: VideoEncoderConfig, fps: int, height: int, width: int) -> Any:
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
    stream = container.add_stream(config.encoder, rate=fps, options=config.options())
    stream.width, stream.height, stream.pix_fmt = width, height, config.pix_fmt
    with _quiet():
        stream.codec_context.open()
    return stream


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep SVT-AV1 from printing its settings for every file; it looks at the environment when an encoder opens."""
    with _OPENING:
        given = os.environ.get("SVT_LOG")
        os.environ["SVT_LOG"] = "1" if given is None else given
        try:
            yield
        finally:
            if given is None:
                del os.environ["SVT_LOG"]


def try_encoder(
    path: Path,
    config: VideoEncoderConfig,
    fps: int,
    shape: tuple[int, int, int],
    name: str,
    kind: type[VideoEncoder] = VideoEncoder,
) -> None:
    """Encode one black frame, so that a setting that cannot work is refused before anything is recorded.

    Args:
        path: A file that may be written; it is removed again.
        config: Settings.
        fps: Frames per second.
        shape: Height, width, channels.
        name: The camera, for messages.
        kind: What encodes it.

    Raises:
        DatasetError: The encoder refuses the size or the settings.
    """
    encoder = kind(path, config, fps, shape, 1, name)
    try:
        encoder.put(np.zeros(shape, kind.dtype))
        encoder.end()
        encoder.finish()
    except DatasetError as error:
        cause = error.__cause__ or error
        odd = config.pix_fmt.startswith("yuv420") and (shape[0] % 2 or shape[1] % 2)
        other = f"Choose another {type(config).__name__}."
        raise DatasetError(
            f"Camera {name!r} with shape {shape} cannot be encoded with {config.encoder} {config.options()}: {cause}",
            hint=f"{config.pix_fmt} needs an even height and width." if odd else other,
        ) from error
    finally:
        path.unlink(missing_ok=True)
        live_path(path).unlink(missing_ok=True)


def probe_video(path: Path, config: VideoEncoderConfig) -> dict[str, Any]:
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
            "video.channels": config.channels,
            "has_audio": bool(container.streams.audio),
        }
    return {**found, **config.described()}
