# SPDX-License-Identifier: Apache-2.0
"""Takes runs of frames out of video files.

Packets are copied where a run can be decoded on its own; else its frames are encoded again with the settings of the
file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ulna.core.errors import DatasetError, DatasetFormatError
from ulna.data.editing.blocks import VideoPiece
from ulna.data.video_opening import open_video

__all__ = ["VideoFacts", "can_copy", "copy_cuts", "encode_cut", "probe"]

_MOST_REORDERED: Final = 16
_ENCODERS: Final = {"h264": "libx264", "hevc": "libx265", "av1": "libsvtav1", "libdav1d": "libsvtav1"}


@dataclass(frozen=True)
class VideoFacts:
    """What decides whether files can be joined, and whether a file is used whole.

    Attributes:
        frames: Frames in the file.
        size: Bytes of the file.
        signature: Codec, picture size, pixel format, time base and decoder settings; equal ones can share a file.
    """

    frames: int
    size: int
    signature: tuple[Any, ...]


def probe(path: Path) -> VideoFacts:
    """Look at the header of a video.

    Args:
        path: An mp4.

    Raises:
        DatasetFormatError: It cannot be opened.
    """
    import av

    try:
        with open_video(path) as container:
            stream: Any = container.streams.video[0]
            context = stream.codec_context
            entries = stream.index_entries
            signature = (
                context.name,
                context.width,
                context.height,
                context.pix_fmt,
                Fraction(stream.time_base),
                bytes(context.extradata or b""),
                _delay(container, stream),
            )
            return VideoFacts(stream.frames or len(entries), path.stat().st_size, signature)
    except (av.FFmpegError, OSError, IndexError) as error:
        raise DatasetFormatError(f"The video {path} cannot be opened: {error}") from error


def _delay(container: Any, stream: Any) -> int:
    """Return by how many ticks frames are decoded ahead; it must be the same everywhere in a file."""
    for packet in container.demux(stream):
        if packet.size:
            return int((packet.pts or 0) - (packet.dts or 0))
    return 0


def _packets(container: Any, stream: Any, cut: VideoPiece, fps: int) -> Iterator[Any]:
    """Yield the packets of a cut in decoding order, nothing when it cannot be decoded on its own."""
    base, tick = Fraction(stream.time_base), _tick(stream, fps)
    start = round(Fraction(cut.start_s) / base)
    _seek(container, stream, start, tick)
    found = 0
    for packet in container.demux(stream):
        if packet.size == 0 or packet.pts is None:
            continue
        position = (packet.pts - start) / tick
        if not found and not (packet.is_keyframe and abs(position) < 0.5):
            if position > 0.5:
                return
            continue
        if not -0.5 < position < cut.frames - 0.5:
            return
        yield packet
        found += 1
        if found == cut.frames:
            return


def _seek(container: Any, stream: Any, start: int, tick: Fraction) -> None:
    """Go to a key frame that is shown at a time or before it. Files are searched by the times of decoding."""
    container.seek(max(round(start - _MOST_REORDERED * tick), 0), stream=stream, backward=True, any_frame=False)


def _tick(stream: Any, fps: int) -> Fraction:
    return Fraction(1, fps) / Fraction(stream.time_base)


def can_copy(cut: VideoPiece, fps: int) -> bool:
    """Say whether the frames of a cut can be taken as packets: it begins at a key frame and needs no other frame.

    Args:
        cut: Any cut.
        fps: Frames per second.
    """
    with open_video(cut.path) as container:
        stream = container.streams.video[0]
        return sum(1 for _ in _packets(container, stream, cut, fps)) == cut.frames


def copy_cuts(cuts: Sequence[VideoPiece], target: Path, fps: int) -> None:
    """Write cuts one behind the other into a new file by copying packets.

    Args:
        cuts: Cuts of files of equal signature.
        target: The file to write.
        fps: Frames per second.

    Raises:
        DatasetError: A cut is not whole.
    """
    import av

    written: Any = None
    last_dts: int | None = None
    before = 0
    with av.open(str(target), "w", format="mp4", options={"movflags": "faststart"}) as output:
        for cut in cuts:
            with open_video(cut.path) as container:
                stream: Any = container.streams.video[0]
                if written is None:
                    written = output.add_stream_from_template(stream, opaque=True)
                    written.time_base = stream.time_base
                tick, count, first = _tick(stream, fps), 0, None
                for packet in _packets(container, stream, cut, fps):
                    first = packet.pts if first is None else first
                    offset = round(before * tick) - first
                    packet.pts += offset
                    wanted = packet.dts + offset
                    packet.dts = wanted if last_dts is None else max(wanted, last_dts + 1)
                    if packet.dts > packet.pts:
                        raise DatasetError(f"{cut.path} decodes its frames too late to be joined to what comes before.")
                    last_dts = packet.dts
                    packet.stream = written
                    output.mux(packet)
                    count += 1
                if count != cut.frames:
                    raise DatasetError(f"{cut.path} gave {count} of {cut.frames} frames from {cut.start_s:.6f} s on.")
                before += count


def encode_cut(cut: VideoPiece, target: Path, fps: int, described: Mapping[str, Any]) -> None:
    """Encode the frames of a cut again, as they are decoded, without a change of colours.

    Args:
        cut: The cut.
        target: The file to write.
        fps: Frames per second.
        described: The `info` of the camera.

    Raises:
        DatasetError: The frames are not there, or the codec cannot be written on this machine.
    """
    import av

    from ulna.data.video_encoding import mux_packets

    try:
        with open_video(cut.path) as container, av.open(str(target), "w", format="mp4") as output:
            stream: Any = container.streams.video[0]
            encoder = _encoder(output, stream, fps, described)
            count = 0
            for frame in _frames(container, stream, cut, fps):
                frame.pts, frame.time_base, frame.pict_type = count, Fraction(1, fps), 0
                mux_packets(output, encoder.encode(frame))
                count += 1
            mux_packets(output, encoder.encode())
    except av.FFmpegError as error:
        raise DatasetError(f"Encoding {cut.frames} frames of {cut.path} again failed: {error}") from error
    if count != cut.frames:
        raise DatasetError(f"{cut.path} gave {count} of {cut.frames} frames from {cut.start_s:.6f} s on.")


def _frames(container: Any, stream: Any, cut: VideoPiece, fps: int) -> Iterator[Any]:
    tick = _tick(stream, fps)
    start = round(Fraction(cut.start_s) / Fraction(stream.time_base))
    _seek(container, stream, start, tick)
    for frame in container.decode(stream):
        position = (frame.pts - start) / tick
        if position >= cut.frames - 0.5:
            return
        if position > -0.5:
            yield frame


def _encoder(output: Any, stream: Any, fps: int, described: Mapping[str, Any]) -> Any:
    from ulna.data.video_codecs import DepthEncoderConfig, RGBEncoderConfig, VideoEncoderConfig
    from ulna.data.video_encoding import add_stream

    context = stream.codec_context
    config: VideoEncoderConfig = DepthEncoderConfig()  # without a loss
    if not context.pix_fmt.startswith("gray"):
        name = _ENCODERS.get(context.name, _ENCODERS.get(context.codec.canonical_name, context.name))
        chosen = {key: described.get(f"video.{key}") for key in ("g", "crf", "preset", "fast_decode", "extra_options")}
        known = {key: value for key, value in chosen.items() if value is not None}
        config = RGBEncoderConfig.build({"vcodec": name, "pix_fmt": context.pix_fmt, **known}, title=str(output.name))
    return add_stream(output, config, fps, context.height, context.width)
