# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures are whole whatever their width: cameras of 424 or 360 columns too."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from ulna.data.pyav_decoder import VideoDecoder
from ulna.data.video_encoding import RGBEncoderConfig, VideoEncoder


@pytest.mark.parametrize("width", [18, 24, 32, 40, 424])
def test_every_column_of_a_decoded_picture_is_right(tmp_path: Path, width: int) -> None:
    """FFmpeg's own conversion to interleaved colours is the reference."""
    shape, path = (16, width, 3), tmp_path / "video.mp4"
    encoder = VideoEncoder(path, RGBEncoderConfig(vcodec="h264", crf=10), 30, shape, 4, "camera")
    for frame in range(3):
        encoder.put(np.random.default_rng(frame).integers(0, 255, shape).astype(np.uint8))
    encoder.end()
    encoder.finish()
    with av.open(str(path)) as container:
        wanted = [frame.to_ndarray(format="rgb24").transpose(2, 0, 1) for frame in container.decode(video=0)]
    decoder = VideoDecoder(path)
    pictures = decoder.read([0.0, 1 / 30, 2 / 30], 1e-4)
    decoder.close()
    np.testing.assert_allclose(pictures.astype(int), np.stack(wanted).astype(int), atol=1)
