# SPDX-License-Identifier: Apache-2.0
"""Settings of video encoders, and what each encoder of FFmpeg calls them. Encodes nothing and imports PyAV only to ask.

Settings are checked when they are made, against what the FFmpeg that PyAV brings says of itself: whether it has the
encoder, whether that takes the pixel format, and whether it knows the options.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from ulna.core.config import Config
from ulna.core.errors import nearest
from ulna.data.depth import DEPTH_CODES, DepthCodec

__all__ = [
    "HARDWARE_ENCODERS",
    "DepthEncoderConfig",
    "RGBEncoderConfig",
    "VideoEncoderConfig",
    "encoder_options",
    "first_working_encoder",
]

HARDWARE_ENCODERS: Final = (
    "h264_videotoolbox",
    "hevc_videotoolbox",
    "h264_nvenc",
    "hevc_nvenc",
    "h264_vaapi",
    "h264_qsv",
)
"""What `auto` tries, in this order, before it falls back to SVT-AV1."""

_SOFTWARE: Final = "libsvtav1"
_ALIASES: Final = {"h264": "libx264", "hevc": "libx265", "h265": "libx265", "av1": _SOFTWARE}
_SVT_PRESET: Final = 12
_MOST_THREADS: Final = 4
_QUALITY_UNIT: Final = 118  # FFmpeg's FF_QP2LAMBDA: the unit of `global_quality`
_PROBE_SIZE: Final = (256, 256)  # hardware encoders refuse very small pictures

Options = dict[str, Any]


class VideoEncoderConfig(Config):
    """Settings of one encoder. Base of those for colours and for depth.

    Attributes:
        vcodec: `libsvtav1`, `h264`, `hevc`, `auto` (the first hardware encoder that works, else SVT-AV1), or the name
            of any encoder of the installed FFmpeg.
        pix_fmt: Pixel format.
        g: Frames from one key frame to the next; small values make random access cheap.
        crf: Quality, smaller is better; None leaves it to the encoder. Hardware encoders get their own counterpart.
        preset: Speed preset of the encoder; 12 for SVT-AV1 when not given.
        fast_decode: 0 to 2; helps weak decoders at the cost of size.
        threads: Threads of one encoder; None gives each camera of a recording its share of the processors, 4 at most.
        extra_options: Further encoder options. They never override the fields above.
    """

    vcodec: str = _SOFTWARE
    pix_fmt: str = "yuv420p"
    g: int | None = Field(default=2, ge=1)
    crf: float | None = Field(default=30, ge=0)
    preset: int | str | None = None
    fast_decode: int = Field(default=0, ge=0, le=2)
    threads: int | None = Field(default=None, ge=1)
    extra_options: dict[str, Any] = Field(default_factory=dict)

    channels: ClassVar[int] = 3

    @model_validator(mode="before")
    @classmethod
    def _fill_preset(cls, values: Any) -> Any:
        if isinstance(values, dict):
            values = {k: v for k, v in values.items() if k != "video_backend"}
            codec = values.get("vcodec", cls.model_fields["vcodec"].default)
            if values.get("preset") is None and isinstance(codec, str) and _resolved(codec) == _SOFTWARE:
                values["preset"] = _SVT_PRESET
        return values

    @model_validator(mode="after")
    def _check_with_ffmpeg(self) -> Self:
        _refuse_unknown_encoder(self.encoder)
        _refuse_pixel_format(self.encoder, self.pix_fmt, self.channels)
        _refuse_options(self.encoder, {**self.extra_options, **self.options()})
        return self

    @property
    def encoder(self) -> str:
        """Name of the FFmpeg encoder."""
        return _resolved(self.vcodec)

    def shared(self, cameras: int) -> Self:
        """Return the settings for one of several cameras that are encoded at the same time.

        One thread does 10 to 20 % less work a frame than several do, so there are only as many as there are processors
        to run them. SVT-AV1 gives the same bytes with any number.

        Args:
            cameras: How many.
        """
        if self.threads is not None:
            return self
        share = _processors() // max(cameras, 1)
        return self.model_copy(update={"threads": min(max(share, 1), _MOST_THREADS)})

    def options(self) -> dict[str, str]:
        """Return the encoder's options as FFmpeg takes them."""
        return encoder_options(self)

    def described(self) -> dict[str, Any]:
        """Return the settings under the names they have in `info.json`."""
        return {
            "video.g": self.g,
            "video.crf": _short(self.crf),
            "video.preset": self.preset,
            "video.fast_decode": self.fast_decode,
            "video.video_backend": "pyav",
            "video.extra_options": dict(self.extra_options),
            "is_depth_map": False,
        }


class RGBEncoderConfig(VideoEncoderConfig):
    """How colour video is encoded. Defaults are LeRobot's: SVT-AV1, a key frame every second frame, crf 30."""


class DepthEncoderConfig(VideoEncoderConfig):
    """How depth video is encoded: 4096 steps, without loss.

    Attributes:
        vcodec: The encoder; it must take a gray pixel format of 12 bits.
        pix_fmt: Pixel format.
        depth_min: Nearest distance that is kept apart, in metres.
        depth_max: Farthest distance that is kept apart, in metres.
        shift: Added to a distance before the logarithm, in metres: smaller gives finer steps near the camera.
        use_log: Whether steps grow with the distance, else all are equal.
    """

    vcodec: str = "hevc"
    pix_fmt: str = "gray12le"
    extra_options: dict[str, Any] = Field(default_factory=lambda: {"x265-params": "lossless=1"})
    depth_min: float = Field(default=0.01, ge=0)
    depth_max: float = Field(default=10.0, gt=0)
    shift: float = Field(default=3.5, ge=0)
    use_log: bool = True

    channels: ClassVar[int] = 1

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if not self.depth_min < self.depth_max:
            raise ValueError(f"depth_min ({self.depth_min} m) must be below depth_max ({self.depth_max} m)")
        if self.use_log and self.depth_min + self.shift <= 0:
            raise ValueError("depth_min + shift must be above 0 for logarithmic steps")
        if _bits(self.pix_fmt) < DEPTH_CODES.bit_length() - 1:
            raise ValueError(f"pix_fmt {self.pix_fmt!r} has less than 12 bits, which {DEPTH_CODES} depth steps need")
        return self

    def codec(self) -> DepthCodec:
        """Return the rule that maps distances to codes."""
        return DepthCodec(depth_min=self.depth_min, depth_max=self.depth_max, shift=self.shift, use_log=self.use_log)

    def described(self) -> dict[str, Any]:
        """Return the settings under the names they have in `info.json`."""
        return {**super().described(), **self.codec().described(), "is_depth_map": True}


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _resolved(vcodec: str) -> str:
    return first_working_encoder() if vcodec == "auto" else _ALIASES.get(vcodec, vcodec)


def encoder_options(config: VideoEncoderConfig) -> dict[str, str]:
    """Translate settings to the options of their encoder.

    Args:
        config: The settings.

    Returns:
        Option to value, as FFmpeg takes them.
    """
    chosen: Options = dict(config.extra_options)
    if config.g is not None:
        chosen["g"] = config.g
    if config.preset is not None:
        chosen["preset"] = config.preset
    family = next((rule for end, rule in _FAMILIES.items() if config.encoder.endswith(end)), _software)
    family(config, chosen)
    return {key: str(value) for key, value in chosen.items()}


def _short(number: float | None) -> float | int | None:
    return int(number) if number is not None and float(number).is_integer() else number


def _software(config: VideoEncoderConfig, chosen: Options) -> None:
    if config.crf is not None:
        chosen["crf"] = _short(config.crf)
    if config.threads:
        chosen["threads"] = config.threads


def _x26(config: VideoEncoderConfig, chosen: Options) -> None:
    _software(config, chosen)
    # Without B-frames every frame leaves at once and decode order is display order, which makes
    # episodes of one frame and concatenation safe. Key frames every 2 frames leave no room for them anyway.
    chosen.setdefault("bf", 0)
    if config.fast_decode:
        chosen["tune"] = "fastdecode"
    if config.encoder == "libx265":
        # Looking ahead changes nothing across key frames this close, but would hold two dozen frames back, and each
        # further frame thread one more: they would be lost when the process is killed.
        defaults = {"log-level": "error", **({"rc-lookahead": 0, "frame-threads": 1} if _close_keys(config) else {})}
        chosen["x265-params"] = _joined(chosen.get("x265-params", ""), defaults, {})


def _close_keys(config: VideoEncoderConfig) -> bool:
    return config.g is not None and config.g <= 4


def _svt(config: VideoEncoderConfig, chosen: Options) -> None:
    if config.crf is not None:
        chosen["crf"] = _short(config.crf)
    fields = {"fast-decode": config.fast_decode, "lp": config.threads}
    # No look-ahead: same bytes at constant quality, but fewer frames wait in the encoder when an episode ends.
    defaults = {"lookahead": 0}
    if _close_keys(config) and config.g != 1:
        # Key frames this close leave no room for more layers; the encoder would only hold its frames back for longer.
        defaults["hierarchical-levels"] = 2
    given = chosen.get("svtav1-params", "")
    chosen["svtav1-params"] = _joined(given, defaults, {k: v for k, v in fields.items() if v})


def _joined(given: object, defaults: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """Merge `key=value:key=value` texts: what was given over the defaults, the fields over both."""
    parsed = dict(part.partition("=")[::2] for part in str(given).split(":") if part)
    merged = {**parsed, **{k: v for k, v in defaults.items() if k not in parsed}, **fields}
    return ":".join(f"{key}={value}" if value != "" else key for key, value in merged.items())


def _videotoolbox(config: VideoEncoderConfig, chosen: Options) -> None:
    if config.crf is not None:
        # The `-q:v` of the ffmpeg command, where larger is better: the library takes it in these two parts.
        quality = min(max(round(100 - 2 * config.crf), 1), 100)
        chosen["flags"], chosen["global_quality"] = "+qscale", quality * _QUALITY_UNIT


def _nvenc(config: VideoEncoderConfig, chosen: Options) -> None:
    if config.crf is not None:
        chosen["rc"], chosen["qp"] = 0, round(config.crf)  # rc 0 is constant quantisation


def _vaapi(config: VideoEncoderConfig, chosen: Options) -> None:
    if config.crf is not None:
        chosen["qp"] = round(config.crf)


def _qsv(config: VideoEncoderConfig, chosen: Options) -> None:
    if config.crf is not None:
        chosen["global_quality"] = round(config.crf)


_FAMILIES: Final[Mapping[str, Callable[[VideoEncoderConfig, Options], None]]] = {
    "libx264": _x26,
    "libx265": _x26,
    _SOFTWARE: _svt,
    "_videotoolbox": _videotoolbox,
    "_nvenc": _nvenc,
    "_vaapi": _vaapi,
    "_qsv": _qsv,
}


@cache
def first_working_encoder() -> str:
    """Return the first hardware encoder that can be opened on this machine, else SVT-AV1. Tried once a process."""
    return next((name for name in HARDWARE_ENCODERS if _opens(name)), _SOFTWARE)


def _opens(name: str) -> bool:
    import av

    try:
        context: Any = av.CodecContext.create(name, "w")
        context.width, context.height = _PROBE_SIZE
        context.pix_fmt, context.framerate = "yuv420p", 30
        context.open()
    except (av.FFmpegError, ValueError, OSError):
        return False
    return True


@cache
def _codec(name: str) -> Any:
    """Return what FFmpeg says of an encoder; None when it has none of that name."""
    import av

    try:
        return av.codec.Codec(name, "w")
    except ValueError:
        return None


@cache
def _known_options(name: str) -> Mapping[str, Any]:
    """Return the options that FFmpeg publishes for an encoder; empty when this PyAV does not tell."""
    import av

    published = getattr(av.CodecContext.create(name, "w"), "supported_options", None)
    if published is None:
        return {}
    return {option.name: option for option in (*published.generic, *published.private)}


def _refuse_unknown_encoder(name: str) -> None:
    codec = _codec(name)
    if codec is not None and codec.type != "video":
        raise ValueError(f"vcodec: {name!r} does not encode video")
    if codec is not None:
        return
    import av

    video = sorted(n for n in av.codec.codecs_available if (c := _codec(n)) is not None and c.type == "video")
    near = nearest(name, video)
    hint = f"; nearest: {near}" if near else ""
    raise ValueError(f"vcodec: FFmpeg {'.'.join(map(str, av.library_versions['libavcodec']))} has no {name!r}{hint}")


def _bits(pix_fmt: str) -> int:
    import av

    return int(av.VideoFormat(pix_fmt).components[0].bits)


def _refuse_pixel_format(encoder: str, pix_fmt: str, channels: int) -> None:
    import av

    formats = [f.name for f in _codec(encoder).video_formats or ()]
    if formats and pix_fmt not in formats:
        raise ValueError(f"pix_fmt: {encoder} does not take {pix_fmt!r}; it takes {', '.join(formats)}")
    try:
        found = len(av.VideoFormat(pix_fmt).components)
    except ValueError as error:
        raise ValueError(f"pix_fmt: FFmpeg knows no {pix_fmt!r}") from error
    if found != channels:
        what = "depth maps have 1" if channels == 1 else "colour pictures need 3"
        raise ValueError(f"pix_fmt: {pix_fmt!r} has {found} channels; {what}")


def _refuse_options(encoder: str, options: Mapping[str, Any]) -> None:
    known = _known_options(encoder)
    if not known:
        return
    for name, value in options.items():
        option = known.get(name)
        if option is None:
            near = nearest(name, list(known))
            raise ValueError(f"{encoder} has no option {name!r}" + (f"; nearest: {near}" if near else ""))
        _refuse_value(encoder, option, value)


def _refuse_value(encoder: str, option: Any, value: Any) -> None:
    """Refuse a number out of range. Texts may be names of choices or flags, which only the encoder can judge."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return
    if option.min < option.max and not option.min <= number <= option.max and not option.choices:
        raise ValueError(f"{encoder}: {option.name} must lie in {option.min:g} to {option.max:g}, got {value}")
