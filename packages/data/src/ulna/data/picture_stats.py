# SPDX-License-Identifier: Apache-2.0
"""Statistics of the pictures and depth maps of one camera and episode, collected while they are recorded or decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ulna.data.moments import QUANTILES, FeatureStats, combine_moments
from ulna.data.quantiles import POINTS, FeatureSketch

__all__ = ["PICTURE_LEVELS", "DepthStats", "PictureStats", "picture_step", "sample_indices"]

_LEVELS: Final = 256
_THIN_FROM, _THIN_TO, _MIN_SAMPLES, _MAX_SAMPLES = 300, 150, 100, 10_000
_DEPTH_POINTS: Final = 8 * POINTS

PICTURE_LEVELS: Final = (np.arange(_LEVELS) / 255.0)[None]
"""The values of every picture sketch, shape (1, 256)."""
PICTURE_LEVELS.flags.writeable = False


def sample_indices(frames: int, seed: int | None = None) -> list[int]:
    """Return the frames whose pictures enter the statistics of an episode.

    All of an episode of up to 100 frames; of longer ones `frames ** 0.75`, at least 100 and at most 10,000, which is
    LeRobot's rule. Evenly spaced by default: the same frames every time.

    Args:
        frames: Length of the episode.
        seed: Draw as many frames by chance instead, the same for the same seed: for scenes that repeat in step with
            the even spacing.
    """
    count = max(min(_MIN_SAMPLES, frames), min(int(frames**0.75), _MAX_SAMPLES))
    if seed is not None:
        chosen = np.random.default_rng(seed).choice(frames, count, replace=False)
        return [int(i) for i in np.sort(chosen)]
    return [int(i) for i in np.round(np.linspace(0, frames - 1, count))]


def _chosen(frames: int, seed: int | None, *, every: bool) -> Sequence[int]:
    return range(frames) if every else sample_indices(frames, seed)


def picture_step(height: int, width: int) -> int:
    """Return the step by which large pictures are thinned before counting.

    Args:
        height: Rows.
        width: Columns.
    """
    longest = max(height, width)
    return 1 if longest < _THIN_FROM else longest // _THIN_TO


class PictureStats:
    """Counts the colour levels of every frame of one camera and episode while it is recorded.

    A uint8 picture's histogram holds everything its statistics need, so the sample, which depends on the final
    length of the episode, can be chosen afterwards. Created per camera and episode; used by one thread.

    Args:
        height: Rows.
        width: Columns.
        channels: Channels.
        seed: See `sample_indices`.
        every: Whether every frame enters the statistics, because those that come are a sample already.
    """

    def __init__(self, height: int, width: int, channels: int, seed: int | None = None, *, every: bool = False) -> None:
        self._step = picture_step(height, width)
        self._channels, self._seed, self._every = channels, seed, every
        self._offsets = (np.arange(channels) * _LEVELS).astype(np.int16)
        self._pixels = len(range(0, height, self._step)) * len(range(0, width, self._step))
        self._dtype: type[np.unsignedinteger[Any]] = np.uint16 if self._pixels < 2**16 else np.uint32
        self._histograms: list[npt.NDArray[np.unsignedinteger[Any]]] = []

    def add(self, picture: npt.NDArray[np.uint8]) -> None:
        """Count one frame.

        Args:
            picture: uint8 (H, W, C).
        """
        thin = picture[:: self._step, :: self._step].reshape(-1, self._channels)
        flat = (thin + self._offsets).reshape(-1)
        self._histograms.append(np.bincount(flat, minlength=_LEVELS * self._channels).astype(self._dtype))

    def keep(self, frames: int) -> None:
        """Forget what came behind the first frames.

        Args:
            frames: How many stay.
        """
        del self._histograms[frames:]

    def _counts(self) -> tuple[npt.NDArray[np.int64], int]:
        """Return the levels of the sampled frames, (channels, 256), and the number of these frames."""
        chosen = _chosen(len(self._histograms), self._seed, every=self._every)
        total = np.zeros(_LEVELS * self._channels, np.int64)
        for i in chosen:
            total += self._histograms[i]
        return total.reshape(self._channels, _LEVELS), len(chosen)

    def sketch(self) -> FeatureSketch:
        """Return the histogram of the sampled frames: their exact distribution."""
        counts = self._counts()[0]
        return FeatureSketch(PICTURE_LEVELS, counts).with_moments(*_histogram_moments(counts))

    def result(self) -> FeatureStats:
        """Return the statistics of the sampled frames, in [0, 1] and of shape (C, 1, 1); `count` is their number."""
        counts, frames = self._counts()
        mean, std = _histogram_moments(counts)
        sketch = FeatureSketch(PICTURE_LEVELS, counts)
        low, high = sketch.extremes
        stats = {"min": low, "max": high, "mean": mean, "std": std}
        stats.update(zip(QUANTILES, sketch.quantiles(list(QUANTILES.values())), strict=True))
        return _picture_shaped(stats, frames)


class DepthStats:
    """The same for depth maps: numbers in the recorded unit, integer or float, one channel.

    Moments are exact. The distribution of each frame is reduced to 960 values, which adds 0.07 % to the rank error of
    the episode. Created per camera and episode; used by one thread.

    Args:
        height: Rows.
        width: Columns.
        seed: See `sample_indices`.
        every: As for `PictureStats`.
    """

    def __init__(self, height: int, width: int, seed: int | None = None, *, every: bool = False) -> None:
        self._step, self._seed, self._every = picture_step(height, width), seed, every
        self._frames: list[tuple[FeatureStats, FeatureSketch]] = []

    def add(self, picture: npt.NDArray[Any]) -> None:
        """Take one frame.

        Args:
            picture: Depth map (H, W, 1) or (H, W).
        """
        flat = np.sort(picture[:: self._step, :: self._step], axis=None)
        exact = flat.astype(np.float64)
        moments = {
            "min": exact[:1],
            "max": exact[-1:],
            "mean": exact.mean(keepdims=True),
            "std": exact.std(keepdims=True),
            "count": np.array([1], dtype=np.int64),
        }
        self._frames.append((moments, FeatureSketch.of(flat[None], _DEPTH_POINTS)))

    def keep(self, frames: int) -> None:
        """Forget what came behind the first frames.

        Args:
            frames: How many stay.
        """
        del self._frames[frames:]

    def _chosen(self) -> list[tuple[FeatureStats, FeatureSketch]]:
        return [self._frames[i] for i in _chosen(len(self._frames), self._seed, every=self._every)]

    def sketch(self) -> FeatureSketch:
        """Return a summary of the distribution over the sampled frames."""
        chosen = self._chosen()
        moments = combine_moments([stats for stats, _ in chosen])
        reduced = FeatureSketch.merged([sketch for _, sketch in chosen]).reduced(POINTS)
        return reduced.with_moments(moments["mean"], moments["std"])

    def result(self) -> FeatureStats:
        """Return the statistics of the sampled frames in the recorded unit, (1, 1, 1); `count` is their number."""
        chosen = self._chosen()
        moments = combine_moments([stats for stats, _ in chosen])
        everything = FeatureSketch.merged([sketch for _, sketch in chosen])
        quantiles = zip(QUANTILES, everything.quantiles(list(QUANTILES.values())), strict=True)
        return _picture_shaped({**{k: v for k, v in moments.items() if k != "count"}, **dict(quantiles)}, len(chosen))


def _histogram_moments(counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return mean and deviation of each channel of a histogram (channels, 256)."""
    pixels = counts.sum(axis=1)
    mean = (counts * PICTURE_LEVELS).sum(axis=1) / pixels
    variance = (counts * np.square(PICTURE_LEVELS - mean[:, None])).sum(axis=1) / pixels
    return mean, np.sqrt(variance)


def _picture_shaped(stats: FeatureStats, frames: int) -> FeatureStats:
    shaped: FeatureStats = {key: value.reshape(-1, 1, 1) for key, value in stats.items()}
    return {**shaped, "count": np.array([frames], dtype=np.int64)}
