# SPDX-License-Identifier: Apache-2.0
"""What a dataset declares about its columns, and how robot features become dataset features. No file access."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ulna.core.constants import OBS_IMAGES, OBS_STATE, OBS_STR
from ulna.core.errors import FeatureError, nearest

__all__ = [
    "DEFAULT_FEATURES",
    "Feature",
    "build_dataset_frame",
    "hw_features_to_dataset_features",
    "parse_features",
]

DEFAULT_FEATURES: Final[dict[str, dict[str, Any]]] = {
    "timestamp": {"dtype": "float32", "shape": (1,), "names": None},
    "frame_index": {"dtype": "int64", "shape": (1,), "names": None},
    "episode_index": {"dtype": "int64", "shape": (1,), "names": None},
    "index": {"dtype": "int64", "shape": (1,), "names": None},
    "task_index": {"dtype": "int64", "shape": (1,), "names": None},
}
"""Columns that every dataset has; they are filled by the recorder and read as scalars."""

_SPECIAL: Final = frozenset({"string", "image", "video", "language"})
_SCALAR_MARK: Final = "ulna.scalar"
_MOST_VALUES: Final = 2**31


@dataclass(frozen=True)
class Feature:
    """One declared column or camera.

    Attributes:
        name: Its key, without "/".
        dtype: A numpy dtype name, or `string`, `image`, `video`, `language`.
        shape: Shape of one value; () for a scalar.
        names: Names of its elements or axes, as declared.
        extra: All other declared keys (`info`, `fps`, ...), kept as they are.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    names: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_camera(self) -> bool:
        """Whether values are pictures, in the table or in a video."""
        return self.dtype in {"image", "video"}

    @property
    def is_numeric(self) -> bool:
        """Whether values are numbers or booleans in the table."""
        return self.dtype not in _SPECIAL

    @property
    def is_default(self) -> bool:
        """Whether this is one of the five columns that the recorder fills."""
        return self.name in DEFAULT_FEATURES

    @property
    def camera_info(self) -> Mapping[str, Any]:
        """What is declared about the pictures of a camera; older datasets call it `video_info`."""
        info: Mapping[str, Any] = self.extra.get("info") or self.extra.get("video_info") or {}
        return info

    @property
    def is_depth(self) -> bool:
        """Whether this camera holds depth maps."""
        places = (self.extra.get("info") or {}, self.extra.get("video_info") or {})
        marks = ("is_depth_map", "video.is_depth_map")
        return self.is_camera and any(bool(place.get(mark)) for place in places for mark in marks)

    @property
    def hwc(self) -> tuple[int, int, int]:
        """Height, width and channels of a camera, whichever layout is declared."""
        height, width, channels = self.shape if not self.is_channel_first else (*self.shape[1:], self.shape[0])
        return height, width, channels

    @property
    def is_channel_first(self) -> bool:
        """Whether a camera is declared as (C, H, W)."""
        if isinstance(self.names, Sequence) and not isinstance(self.names, str) and len(self.names) == 3:
            return str(self.names[0]).startswith("channel")
        return self.shape[0] in {1, 3} and self.shape[-1] not in {1, 3}

    @property
    def item_shape(self) -> tuple[int, ...]:
        """Shape of the value in an item that was read."""
        if self.is_default:
            return ()
        height, width, channels = self.hwc if self.is_camera else (0, 0, 0)
        return (channels, height, width) if self.is_camera else self.shape

    @property
    def item_dtype(self) -> np.dtype[Any]:
        """Dtype of a number in an item that was read: float32, int64 or bool, as LeRobot reads it."""
        kind = np.dtype(self.dtype).kind
        return np.dtype({"f": "float32", "b": "bool"}.get(kind, "int64"))

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form with a tuple as shape."""
        return {"dtype": self.dtype, "shape": self.shape, "names": self.names, **self.extra}

    def to_json(self) -> dict[str, Any]:
        """Return the form that stands in `info.json`, where a scalar has the shape [1] and a mark."""
        mark = {_SCALAR_MARK: True} if self.shape == () else {}
        return {"dtype": self.dtype, "shape": list(self.shape or (1,)), "names": self.names, **self.extra, **mark}


def parse_features(features: Mapping[str, Mapping[str, Any]], *, add_defaults: bool = False) -> dict[str, Feature]:
    """Check and normalise declared features.

    Args:
        features: Name to a mapping with `dtype`, `shape` and optionally `names` and more. Shapes may be lists.
        add_defaults: Whether the five default columns are appended (and may not be declared differently).

    Returns:
        Name to feature, in order.

    Raises:
        FeatureError: A name, dtype or shape is not allowed; the feature is named.
    """
    parsed = {name: _parse(name, declared) for name, declared in features.items()}
    if add_defaults:
        for name, declared in DEFAULT_FEATURES.items():
            given = parsed.pop(name, None)
            parsed[name] = _parse(name, declared)
            if given is not None and (given.dtype, given.shape or (1,)) != (declared["dtype"], (1,)):
                raise FeatureError(
                    f"Feature {name!r} is counted by the recorder as {declared['dtype']}, it cannot be "
                    f"{given.dtype} {given.shape}.",
                    hint="Choose another name for your values.",
                )
        if "task" in parsed:
            raise FeatureError("Feature 'task' is not allowed: that is where a frame says what the robot does.")
    return parsed


def _parse(name: str, declared: Mapping[str, Any]) -> Feature:
    if "/" in name or not name:
        raise FeatureError(f"Feature name {name!r} is not allowed: it must not be empty or contain '/'.")
    if name in {".", ".."} or "\0" in name:
        raise FeatureError(f"Feature name {name!r} is not allowed: no folder can be called so.")
    missing = [key for key in ("dtype", "shape") if key not in declared]
    if missing:
        raise FeatureError(f"Feature {name!r} lacks {' and '.join(missing)}; declared was {dict(declared)!r}.")
    dtype, shape = str(declared["dtype"]), declared["shape"]
    if dtype not in _SPECIAL:
        dtype = _numeric_dtype(name, dtype)
    try:
        shape = tuple(operator.index(n) for n in shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise FeatureError(f"Feature {name!r}: shape must be a sequence of integers, got {shape!r}.") from error
    if any(not 0 < n < _MOST_VALUES for n in shape) or len(shape) > 5:
        raise FeatureError(f"Feature {name!r}: shape {shape} must have at most 5 axes, each at least 1.")
    if dtype in {"image", "video"} and len(shape) != 3:
        raise FeatureError(f"Camera {name!r}: shape must be (height, width, channels), got {shape}.")
    if shape == (1,) and declared.get(_SCALAR_MARK):
        shape = ()
    extra = {k: v for k, v in declared.items() if k not in {"dtype", "shape", "names", _SCALAR_MARK}}
    return Feature(name, dtype, shape, declared.get("names"), extra)


def _numeric_dtype(name: str, dtype: str) -> str:
    try:
        parsed = np.dtype(dtype)
    except TypeError as error:
        near = nearest(dtype, ["float32", "float64", "int64", "int32", "bool", "string", "image", "video"])
        hint = f"Did you mean {near!r}?" if near else None
        raise FeatureError(f"Feature {name!r}: unknown dtype {dtype!r}.", hint=hint) from error
    if parsed.kind not in "fiub" or parsed.itemsize > 8:
        raise FeatureError(f"Feature {name!r}: dtype {dtype!r} cannot be stored; use a float, integer or bool.")
    return parsed.name


def hw_features_to_dataset_features(
    obs_features: Mapping[str, Any], action_features: Mapping[str, Any] | None = None, use_videos: bool = True
) -> dict[str, dict[str, Any]]:
    """Map plain robot features to dataset features.

    All numbers become one vector, `observation.state` or `action`, named by their keys in order; a camera
    (H, W, C) becomes `observation.images.<camera>`.

    Args:
        obs_features: Observation features, `{"shoulder_pan.pos": float, "front": (480, 640, 3)}` or specs.
        action_features: Action features, likewise.
        use_videos: Whether cameras are stored as video, else as pictures in the table.

    Returns:
        Features as `LeRobotDataset.create` takes them.

    Raises:
        FeatureError: A camera without 1 or 3 channels, or a feature of another form.
    """
    features = _vector(OBS_STATE, obs_features)
    for key, shape in _cameras(obs_features).items():
        features[f"{OBS_IMAGES}.{key}"] = _camera(key, shape, use_videos)
    if action_features is not None:
        features.update(_vector("action", action_features))
    return features


def _plain(value: Any) -> Any:
    return getattr(value, "plain", value)


def _vector(name: str, features: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    names = [key for key, value in features.items() if _plain(value) is float]
    return {name: {"dtype": "float32", "shape": (len(names),), "names": names}} if names else {}


def _cameras(features: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    found = {}
    for key, value in features.items():
        plain = _plain(value)
        if plain is float:
            continue
        if not isinstance(plain, (tuple, list)) or len(plain) != 3:
            raise FeatureError(f"Feature {key!r}: expected `float` or (height, width, channels), got {plain!r}.")
        found[key] = tuple(plain)
    return found


def _camera(key: str, shape: tuple[int, ...], use_videos: bool) -> dict[str, Any]:
    if shape[2] not in {1, 3}:
        raise FeatureError(f"Camera {key!r}: expected (height, width, 1 or 3), got {shape}.")
    return {
        "dtype": "video" if use_videos else "image",
        "shape": shape,
        "names": ["height", "width", "channels"],
        "info": {"is_depth_map": shape[2] == 1},
    }


def build_dataset_frame(
    features: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any], prefix: str
) -> dict[str, Any]:
    """Turn a robot's observation or action into the part of a dataset frame that starts with `prefix`.

    Args:
        features: Dataset features.
        values: Robot key to number or picture.
        prefix: `observation` or `action`.

    Returns:
        Dataset key to array; pictures are passed on as they are.

    Raises:
        FeatureError: A value that the features name is missing; the nearest given key is suggested.
    """
    frame: dict[str, Any] = {}
    for key, feature in features.items():
        if key in DEFAULT_FEATURES or not (key == prefix or key.startswith(f"{prefix}.")):
            continue
        if feature["dtype"] in {"image", "video"}:
            frame[key] = _take(values, key.removeprefix(f"{OBS_IMAGES}."), key)
        elif feature["dtype"] == "float32" and len(feature["shape"]) == 1 and isinstance(feature["names"], list):
            frame[key] = np.array([_take(values, name, key) for name in feature["names"]], dtype=np.float32)
    return frame


def _take(values: Mapping[str, Any], name: str, key: str) -> Any:
    if name in values:
        return values[name]
    near = nearest(name, list(values))
    raise FeatureError(
        f"{key!r} needs the value {name!r}, which is missing; given were {', '.join(map(repr, values)) or 'none'}.",
        hint=f"Did you mean {near!r}?"
        if near
        else f"Check that the robot returns what its {OBS_STR} features declare.",
    )
