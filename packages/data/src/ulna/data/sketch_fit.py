# SPDX-License-Identifier: Apache-2.0
"""Whether sketches belong to the statistics beside them: one rule, for one episode and for thousands at once.

A sketch carries mean and deviation of the rows that it was made of. Software that changes values without knowing of
sketches leaves one that tells another count, minimum, maximum, mean or deviation than the row of the episode table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["SketchFacts", "fitting"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_ROUNDED: Final = 1e-6
_FLOAT32: Final = 2.0**-24
_SPARE: Final = 8
_SMALLEST: Final = 2.0**-126


@dataclass(frozen=True)
class SketchFacts:
    """What the sketches of one feature in some episodes say of the rows that they were made of.

    Attributes:
        counts: How many rows, (episodes,).
        low: Smallest values, (episodes, channels).
        high: Largest values, likewise.
        moments: Mean and deviation, (episodes, 2, channels); NaN where a sketch does not say.
    """

    counts: Ints
    low: Floats
    high: Floats
    moments: Floats


def fitting(facts: SketchFacts, stated: Mapping[str, Floats], counts: Ints, *, camera: bool) -> Bools:
    """Tell of each episode whether its sketch was made of the rows that its statistics describe.

    The count has to be equal (that of the sketch a multiple where a frame holds several values), minimum and maximum
    up to float32. Mean and deviation may be as far apart as a sum of n values in float32 can lead, since LeRobot
    computes them so: by n * 2**-24 of the largest value, or by what is too small for float32. For cameras n is the
    number of frames, not of their million pixels: whoever made a sketch of pictures made the statistics, too.

    Args:
        facts: What the sketches say.
        stated: `min`, `max`, `mean` and `std` of each episode, (episodes, channels); the last two may be missing, or
            not finite where float32 did not suffice.
        counts: The counts of the statistics, (episodes,).
        camera: Whether it is that of pictures.
    """
    fits: Bools = (facts.counts > 0) & (facts.counts % np.maximum(counts, 1) == 0)
    with np.errstate(all="ignore"):
        fits &= _near(facts.low, stated["min"]) & _near(facts.high, stated["max"])
        largest = np.maximum(np.abs(stated["min"]), np.abs(stated["max"]))
        share = _FLOAT32 * ((counts if camera else facts.counts)[:, None] + _SPARE)
        if "mean" in stated:
            fits &= _within(facts.moments[:, 0] / largest, stated["mean"] / largest, share + _SMALLEST / largest)
        if "std" in stated:
            found, wanted = (np.square(std / largest) for std in (facts.moments[:, 1], stated["std"]))
            # A mean of squares less the square of a mean.
            fits &= _within(found, wanted, 3 * share + _SMALLEST / np.square(largest))
    return fits


def _near(found: Floats, stated: Floats) -> Bools:
    near: Bools = np.all(np.abs(found - stated) <= _ROUNDED * np.abs(stated), axis=1)
    return near


def _within(found: Floats, stated: Floats, slack: Floats) -> Bools:
    """Tell where two values agree; a value that is not finite, as of a channel of zeros alone, contradicts nothing."""
    off = np.abs(found - stated)
    within: Bools = np.all(~np.isfinite(off) | (off <= slack), axis=1)
    return within
