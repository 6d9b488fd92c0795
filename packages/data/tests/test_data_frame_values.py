# SPDX-License-Identifier: Apache-2.0
"""What a value of a frame may be, one by one: kinds of numbers, limits of types, and every level of a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ulna.core.errors import FeatureError
from ulna.data.features import parse_features
from ulna.data.frames import FrameChecker

KINDS = {"f": ["float32", "float64"], "i": ["int8", "int64", "uint8"], "b": ["bool"]}
FITTING = {("f", "f"), ("i", "i"), ("i", "f"), ("b", "b")}


def checked(dtype: str, value: Any, shape: tuple[int, ...] = (2,)) -> np.ndarray:
    features = parse_features({"x": {"dtype": dtype, "shape": shape}})
    found: np.ndarray = FrameChecker(features).check({"x": value, "task": "t"}).values["x"]
    return found


@pytest.mark.parametrize(("given", "to"), [(g, t) for g in KINDS for t in KINDS])
def test_kinds_of_numbers_are_kept(given: str, to: str) -> None:
    """A bool is no number and a number no bool; floats never become integers."""
    for kind in KINDS[given]:
        for dtype in KINDS[to]:
            value = np.array([1, 0], kind)
            if (given, to) in FITTING:
                assert checked(dtype, value).dtype == np.dtype(dtype)
                assert checked(dtype, value).tolist() == [1, 0]
            else:
                with pytest.raises(FeatureError, match=f"expected dtype {dtype}, got {kind}"):
                    checked(dtype, value)


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("uint8", [0, 255], [0, 256]),
        ("uint8", [0, 255], [-1, 0]),
        ("int8", [-128, 127], [0, 128]),
        ("int8", [-128, 127], [-129, 0]),
        ("float32", [-3e38, 3e38], [0.0, 4e38]),
        ("float16", [-6e4, 6e4], [0.0, -7e4]),
    ],
)
def test_limits_of_a_type(dtype: str, good: list[float], bad: list[float]) -> None:
    np.testing.assert_allclose(checked(dtype, np.array(good)), good, rtol=1e-3)
    with pytest.raises(FeatureError, match=f"fit {dtype}"):
        checked(dtype, np.array(bad))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_finite_number(value: float) -> None:
    with pytest.raises(FeatureError, match="not a finite number at element 1"):
        checked("float32", np.array([0.0, value]))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_level_of_a_float_picture(dtype: str) -> None:
    """What was read as level / 255 is recorded as that level again; levels between go to the nearer one."""
    features = parse_features({"cam": {"dtype": "image", "shape": (16, 16, 3)}})
    levels = np.arange(256).reshape(16, 16, 1).repeat(3, axis=2)
    for shift in (-0.3, 0.0, 0.3):
        given = (np.clip(levels + shift, 0, 255) / 255).astype(dtype)
        frame = FrameChecker(features).check({"cam": given, "task": "t"})
        np.testing.assert_array_equal(frame.pictures["cam"], levels)


@pytest.mark.parametrize("wrong", [-1e-3, 1.001, 255.0, float("nan")])
def test_float_pictures_lie_between_0_and_1(wrong: float) -> None:
    features = parse_features({"cam": {"dtype": "image", "shape": (16, 16, 3)}})
    given = np.full((16, 16, 3), 0.5, np.float32)
    given[3, 4, 1] = wrong
    with pytest.raises(FeatureError, match=r"must lie in \[0, 1\]"):
        FrameChecker(features).check({"cam": given, "task": "t"})
