# SPDX-License-Identifier: Apache-2.0
"""Statistics and sketches of recorded episodes, from their rows and from a sample of their pictures. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ulna.data.arrow_schema import numeric_column
from ulna.data.depth import DepthCodec
from ulna.data.editing.blocks import VideoPiece
from ulna.data.editing.pictures import table_pictures, video_pictures
from ulna.data.features import Feature
from ulna.data.moments import QUANTILES, FeatureStats
from ulna.data.picture_stats import PICTURE_LEVELS, DepthStats, PictureStats, sample_indices
from ulna.data.quantiles import FeatureSketch
from ulna.data.sketches import EpisodeSketches, episode_summary
from ulna.data.stats import Stats

__all__ = ["camera_summary", "number_summary", "with_quantiles"]

_LEVELS = PICTURE_LEVELS.shape[1]


def number_summary(table: pa.Table, features: Mapping[str, Feature], where: str) -> tuple[Stats, EpisodeSketches]:
    """Compute the statistics of the number columns of one episode. Texts, language and pictures have none.

    Args:
        table: Its rows.
        features: All features.
        where: The episode, for messages.

    Raises:
        DatasetFormatError: A column does not hold what is declared.
    """
    numeric = [f for f in features.values() if f.is_numeric]
    columns = {f.name: numeric_column(f, table[f.name], where) for f in numeric}
    return episode_summary({n: v.reshape(len(table), *(features[n].shape or (1,))) for n, v in columns.items()})


def camera_summary(
    pictures: VideoPiece | pa.ChunkedArray, feature: Feature, fps: int, where: str
) -> tuple[FeatureStats, FeatureSketch]:
    """Decode a sample of the pictures of one camera and episode and compute their statistics.

    Args:
        pictures: Where they are: a piece of a video, or a column of the table.
        feature: The camera.
        fps: Frames per second.
        where: Episode and camera, for messages.

    Returns:
        Statistics of shape (C, 1, 1), colours in [0, 1] and depth in the recorded unit, and the sketch.

    Raises:
        DatasetFormatError: A picture cannot be decoded, or has another size than declared.
    """
    if isinstance(pictures, VideoPiece):
        sample = sample_indices(pictures.frames)
        decoded = video_pictures(pictures, feature, fps, where, sample)
    else:
        sample = sample_indices(len(pictures))
        decoded = table_pictures(pictures.take(pa.array(sample)), feature, where)
    height, width, channels = feature.hwc
    if not feature.is_depth:
        colours = PictureStats(height, width, channels, every=True)
        for picture in decoded:
            colours.add(picture)
        return colours.result(), colours.sketch()
    depths, codec = DepthStats(height, width, every=True), DepthCodec.from_feature(feature)
    for picture in decoded:
        depths.add(codec.decode(picture, codec.unit or "mm") if codec.quantised else picture)
    return depths.result(), depths.sketch()


def with_quantiles(stats: FeatureStats, sketch: FeatureSketch) -> tuple[FeatureStats, FeatureSketch]:
    """Add quantiles from decoded pictures to statistics that were made of the pictures before they were encoded.

    Encoding moves single pixels beyond the recorded minimum and maximum, or away from them. In the sketch that is
    returned they are moved back, so that it belongs to the statistics.

    Args:
        stats: `min`, `max`, `mean`, `std` and `count` of an RGB camera.
        sketch: Histogram of its decoded pictures.
    """
    weights = np.broadcast_to(sketch.weights, (sketch.channels, _LEVELS)).copy()
    bounds = np.rint(np.stack([np.ravel(stats["min"]), np.ravel(stats["max"])], axis=1) * (_LEVELS - 1)).astype(int)
    for counts, (low, high) in zip(weights, bounds.tolist(), strict=True):
        below, above = counts[:low].sum(), counts[high + 1 :].sum()
        counts[:low], counts[high + 1 :] = 0, 0
        counts[low] += below
        counts[high] += above
        for bound in (low, high):
            if counts[bound] == 0:
                counts[counts.argmax()] -= 1
                counts[bound] = 1
    fitting = FeatureSketch(PICTURE_LEVELS, weights).with_moments(stats["mean"], stats["std"])
    shape = np.shape(stats["mean"])
    found = zip(QUANTILES, fitting.quantiles(list(QUANTILES.values())), strict=True)
    return {**stats, **{name: value.reshape(shape) for name, value in found}}, fitting
