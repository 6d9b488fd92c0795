# SPDX-License-Identifier: Apache-2.0
"""Specs equal their plain form, validate, generate, and refuse wrong actions by name."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.core.errors import ActionError, FeatureError
from ulna.core.features import FeatureSpec, FeatureSpecs, image_spec, scalar_spec

PLAIN = {"pan.pos": float, "lift.pos": float, "front": (48, 64, 3)}
names = st.text(st.characters(categories=("Ll", "Nd")), min_size=1, max_size=6)


def test_plain_form_and_specs_are_equal_both_ways() -> None:
    specs = FeatureSpecs.of(PLAIN)
    assert specs == PLAIN
    assert specs.plain == PLAIN
    assert FeatureSpecs.of(specs) is specs
    assert FeatureSpecs.of({**PLAIN, "front": image_spec("front", 48, 64)}) == specs
    assert specs != {**PLAIN, "front": (64, 48, 3)}
    assert list(specs.only("scalar")) == ["pan.pos", "lift.pos"]


@settings(deadline=None)
@given(st.dictionaries(names, st.sampled_from([float, (4, 6, 3), (4, 6, 1), (5,)]), max_size=5), st.integers(0, 9))
def test_generated_values_are_valid_and_repeatable(plain: dict[str, object], seed: int) -> None:
    specs = FeatureSpecs.of(plain)
    values = specs.generate(seed)
    for name, spec in specs.items():
        spec.validate(values[name])
    again = specs.generate(seed)
    assert all(np.array_equal(values[name], again[name]) for name in specs)


@pytest.mark.parametrize("wrong", ["abc", math.nan, math.inf, None])
def test_a_scalar_refuses_what_is_no_finite_number(wrong: object) -> None:
    with pytest.raises(FeatureError, match="pan"):
        scalar_spec("pan").validate(wrong)


def test_bounds_shapes_and_dtypes_are_checked() -> None:
    with pytest.raises(FeatureError, match=r"outside \[0.0, 1.0\]"):
        scalar_spec("x", low=0.0, high=1.0).validate(2)
    image = image_spec("front", 4, 6)
    with pytest.raises(FeatureError, match=r"shape \(4, 6, 3\), got \(6, 4, 3\)"):
        image.validate(np.zeros((6, 4, 3), np.uint8))
    with pytest.raises(FeatureError, match="dtype uint8, got float32"):
        image.validate(np.zeros((4, 6, 3), np.float32))


def test_something_that_is_no_feature_is_refused() -> None:
    with pytest.raises(FeatureError, match="pan"):
        FeatureSpecs.of({"pan": "float"})


def test_an_action_is_refused_naming_every_offender() -> None:
    specs = FeatureSpecs.of({"pan.pos": float, "lift.pos": float})
    with pytest.raises(ActionError) as caught:
        specs.check_action({"pan.pos": math.nan, "lft.pos": 1.0}, owner="arm")
    error = caught.value
    assert (error.missing, error.unknown, error.not_finite) == (("lift.pos",), ("lft.pos",), ("pan.pos",))
    assert "nearest: 'lift.pos'" in str(error)
    assert "Nothing was sent" in str(error)
    specs.check_action({"pan.pos": 1}, partial=True)


def test_vectors_have_specs_too() -> None:
    spec = FeatureSpecs.of({"v": (3,)})["v"]
    assert isinstance(spec, FeatureSpec)
    assert (spec.kind, spec.plain) == ("vector", (3,))
