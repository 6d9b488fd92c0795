# SPDX-License-Identifier: Apache-2.0
"""Robot features become dataset features, robot values become frames, and declarations are checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ulna.core.errors import FeatureError
from ulna.core.features import FeatureSpecs
from ulna.data import build_dataset_frame, hw_features_to_dataset_features
from ulna.data.features import parse_features

ROBOT: dict[str, Any] = {"shoulder.pos": float, "front": (480, 640, 3), "elbow.pos": float}


@pytest.mark.parametrize("features", [ROBOT, FeatureSpecs.of(ROBOT)], ids=["plain", "specs"])
@pytest.mark.parametrize("use_videos", [True, False])
def test_robot_features_become_dataset_features(features: Any, use_videos: bool) -> None:
    found = hw_features_to_dataset_features(features, {"shoulder.pos": float, "elbow.pos": float}, use_videos)
    assert found == {
        "observation.state": {"dtype": "float32", "shape": (2,), "names": ["shoulder.pos", "elbow.pos"]},
        "observation.images.front": {
            "dtype": "video" if use_videos else "image",
            "shape": (480, 640, 3),
            "names": ["height", "width", "channels"],
            "info": {"is_depth_map": False},
        },
        "action": {"dtype": "float32", "shape": (2,), "names": ["shoulder.pos", "elbow.pos"]},
    }
    parse_features(found, add_defaults=True)


def test_robot_values_become_a_frame() -> None:
    """Values are picked by name, never by order."""
    features = hw_features_to_dataset_features(ROBOT, {"elbow.pos": float, "shoulder.pos": float})
    picture = np.zeros((480, 640, 3), np.uint8)
    observation = {"elbow.pos": 2.0, "front": picture, "shoulder.pos": 1.0, "more": 3}
    frame = build_dataset_frame(features, observation, "observation")
    assert set(frame) == {"observation.state", "observation.images.front"}
    assert frame["observation.state"].tolist() == [1.0, 2.0]
    assert frame["observation.images.front"] is picture
    action = build_dataset_frame(features, {"shoulder.pos": 1.0, "elbow.pos": 2.0}, "action")
    assert action["action"].tolist() == [2.0, 1.0]
    assert action["action"].dtype == np.float32


def test_missing_robot_value_is_named() -> None:
    features = hw_features_to_dataset_features(ROBOT, {})
    with pytest.raises(FeatureError, match=r"(?s)needs the value 'shoulder.pos'.*Did you mean 'shoulder.po'"):
        build_dataset_frame(features, {"shoulder.po": 1.0, "elbow.pos": 2.0, "front": 0}, "observation")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"a/b": {"dtype": "float32", "shape": (1,)}}, "must not be empty or contain '/'"),
        ({"a": {"shape": (1,)}}, "lacks dtype"),
        ({"a": {"dtype": "float23", "shape": (1,)}}, r"(?s)unknown dtype 'float23'.*'float32'"),
        ({"a": {"dtype": "complex64", "shape": (1,)}}, "cannot be stored"),
        ({"a": {"dtype": "float32", "shape": 3}}, "sequence of integers"),
        ({"a": {"dtype": "float32", "shape": (0,)}}, "each at least 1"),
        ({"a": {"dtype": "float32", "shape": (1,) * 6}}, "at most 5 axes"),
        ({"a": {"dtype": "video", "shape": (4, 4)}}, "height, width, channels"),
    ],
)
def test_bad_declarations_are_named(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(FeatureError, match=message):
        parse_features(declared)


def test_bad_robot_features_are_named() -> None:
    with pytest.raises(FeatureError, match=r"'front': expected .*height, width, 1 or 3"):
        hw_features_to_dataset_features({"front": (4, 4, 2)}, {})
    with pytest.raises(FeatureError, match="'x': expected `float` or"):
        hw_features_to_dataset_features({"x": int}, {})


def test_lists_and_tuples_are_the_same() -> None:
    """A shape that went through JSON is a list and equals the tuple."""
    from_json = parse_features({"x": {"dtype": "float32", "shape": [2, 3], "names": None}})
    assert from_json == parse_features({"x": {"dtype": "float32", "shape": (2, 3), "names": None}})
    assert from_json["x"].to_json()["shape"] == [2, 3]
    assert from_json["x"].to_dict()["shape"] == (2, 3)
