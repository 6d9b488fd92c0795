# SPDX-License-Identifier: Apache-2.0
"""Video settings: what each encoder is told, what `auto` chooses, and what is refused when settings are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ulna.core.errors import ConfigError
from ulna.data import DepthEncoderConfig, RGBEncoderConfig, video_codecs
from ulna.data.video_codecs import HARDWARE_ENCODERS, encoder_options, first_working_encoder


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Make FFmpeg offer encoders that this machine lacks, and say which of them work."""

    def pretend(*names: str, working: tuple[str, ...] = ()) -> None:
        known = {name: SimpleNamespace(type="video", video_formats=None) for name in names}
        real = video_codecs._codec.__wrapped__
        monkeypatch.setattr(video_codecs, "_codec", lambda name: known.get(name) or real(name))
        monkeypatch.setattr(video_codecs, "_known_options", lambda name: {})
        monkeypatch.setattr(video_codecs, "_opens", lambda name: name in working)
        first_working_encoder.cache_clear()

    yield pretend
    first_working_encoder.cache_clear()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, {"g": "2", "crf": "30", "preset": "12", "svtav1-params": "lookahead=0:hierarchical-levels=2"}),
        (
            {"fast_decode": 1, "threads": 3},
            {
                "g": "2",
                "crf": "30",
                "preset": "12",
                "svtav1-params": "lookahead=0:hierarchical-levels=2:fast-decode=1:lp=3",
            },
        ),
        ({"vcodec": "h264"}, {"g": "2", "crf": "30", "bf": "0"}),
        (
            {"vcodec": "h264", "fast_decode": 2, "threads": 4, "crf": 18.5, "preset": "fast"},
            {"g": "2", "crf": "18.5", "bf": "0", "tune": "fastdecode", "threads": "4", "preset": "fast"},
        ),
        ({"vcodec": "hevc", "g": None, "crf": None}, {"bf": "0", "x265-params": "log-level=error"}),
        ({"vcodec": "h264_videotoolbox"}, {"g": "2", "flags": "+qscale", "global_quality": str(40 * 118)}),
        ({"vcodec": "hevc_videotoolbox", "crf": 60}, {"g": "2", "flags": "+qscale", "global_quality": "118"}),
        ({"vcodec": "h264_videotoolbox", "crf": 0}, {"g": "2", "flags": "+qscale", "global_quality": "11800"}),
        ({"vcodec": "hevc_nvenc", "crf": 23.4}, {"g": "2", "rc": "0", "qp": "23"}),
        ({"vcodec": "h264_vaapi"}, {"g": "2", "qp": "30"}),
        ({"vcodec": "h264_qsv", "preset": "veryfast"}, {"g": "2", "preset": "veryfast", "global_quality": "30"}),
        ({"vcodec": "h264_nvenc", "crf": None}, {"g": "2"}),
    ],
)
def test_each_encoder_is_told_in_its_own_words(
    offers: Callable[..., None], settings: dict[str, Any], told: dict[str, str]
) -> None:
    offers(*HARDWARE_ENCODERS)
    assert encoder_options(RGBEncoderConfig(**settings)) == told


def test_fields_win_over_extra_options() -> None:
    given = {"crf": "5", "g": 99, "svtav1-params": "tune=0:lookahead=8:hierarchical-levels=3:lp=7"}
    options = RGBEncoderConfig(threads=2, extra_options=given).options()
    assert (options["crf"], options["g"]) == ("30", "2")
    assert options["svtav1-params"] == "tune=0:lookahead=8:hierarchical-levels=3:lp=2"


@pytest.mark.parametrize(
    ("working", "chosen"),
    [
        ((), "libsvtav1"),
        (("h264_qsv",), "h264_qsv"),
        (("h264_qsv", "h264_vaapi", "hevc_nvenc"), "hevc_nvenc"),
        (HARDWARE_ENCODERS, "h264_videotoolbox"),
    ],
)
def test_auto_takes_the_first_encoder_that_works(
    offers: Callable[..., None], working: tuple[str, ...], chosen: str
) -> None:
    offers(*HARDWARE_ENCODERS, working=working)
    config = RGBEncoderConfig(vcodec="auto")
    assert config.encoder == chosen
    assert config.preset == (12 if chosen == "libsvtav1" else None)


def test_auto_works_on_this_machine(tmp_path: Any) -> None:
    """Whatever the machine has, the encoder that is chosen can encode."""
    import numpy as np

    from ulna.data.video_encoding import VideoEncoder

    config = RGBEncoderConfig(vcodec="auto")
    encoder = VideoEncoder(tmp_path / "a.mp4", config, 30, (256, 256, 3), 4, "cam")
    for level in range(3):
        encoder.put(np.full((256, 256, 3), 80 * level, np.uint8))
    encoder.end()
    assert encoder.finish().frames == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vcodec": "libx246"}, r"FFmpeg [\d.]+ has no 'libx246'; nearest: libx26"),
        ({"vcodec": "aac"}, "'aac' does not encode video"),
        ({"pix_fmt": "rgb24"}, "libsvtav1 does not take 'rgb24'; it takes yuv420p"),
        ({"vcodec": "h264", "pix_fmt": "gray"}, "'gray' has 1 channels; colour pictures need 3"),
        ({"vcodec": "h264", "extra_options": {"tunes": "film"}}, "libx264 has no option 'tunes'; nearest: tune"),
        ({"crf": 64}, "libsvtav1: crf must lie in 0 to 63, got 64"),
        ({"preset": 14}, "libsvtav1: preset must lie in -2 to 13, got 14"),
        ({"g": 0}, "g"),
        ({"fast_decode": 3}, "fast_decode"),
    ],
)
def test_settings_that_cannot_work_are_refused_when_they_are_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RGBEncoderConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pix_fmt": "gray"}, "has less than 12 bits"),
        ({"pix_fmt": "yuv420p12le"}, "has 3 channels; depth maps have 1"),
        ({"vcodec": "h264"}, "libx264 does not take 'gray12le'"),
        ({"depth_min": 2.0, "depth_max": 2.0}, "depth_min .2.0 m. must be below depth_max"),
        ({"depth_min": 0.0, "shift": 0.0}, r"depth_min \+ shift must be above 0"),
    ],
)
def test_depth_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DepthEncoderConfig(**settings)


def test_depth_without_a_logarithm_may_begin_at_zero() -> None:
    assert DepthEncoderConfig(depth_min=0.0, shift=0.0, use_log=False).codec().decode
    assert DepthEncoderConfig().options()["x265-params"] == "lossless=1:log-level=error:rc-lookahead=0:frame-threads=1"


def test_settings_written_by_lerobot_are_accepted() -> None:
    """LeRobot's settings name the library that encodes; there is only one here."""
    assert RGBEncoderConfig(video_backend="pyav") == RGBEncoderConfig()
    assert DepthEncoderConfig(video_backend="pyav").depth_max == 10.0
