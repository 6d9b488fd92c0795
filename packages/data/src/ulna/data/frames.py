# SPDX-License-Identifier: Apache-2.0
"""Checks one frame against the declared features before anything of it is stored. Never changes what it is given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ulna.core.errors import FeatureError, nearest
from ulna.data.depth import DepthUnit, depth_codecs, unit_of
from ulna.data.features import DEFAULT_FEATURES, Feature
from ulna.data.language import check_language

__all__ = ["CheckedFrame", "FrameChecker", "to_depth", "to_picture", "to_seconds"]

Picture = npt.NDArray[np.uint8]

# No camera measures that far: floats beyond it are millimetres that were taken for metres.
_FARTHEST_M = 200.0


_MOST_TEXTS: Final = 1000


@dataclass(frozen=True, slots=True)
class CheckedFrame:
    """A frame that fits.

    Attributes:
        task: What the robot is doing.
        values: Name to array (numbers, own copy), text, or rows of a language column.
        pictures: Camera to uint8 (H, W, C), depth camera to uint16 (millimetres) or float32 (metres) (H, W, 1); own
            copy, contiguous.
    """

    task: str
    values: dict[str, Any]
    pictures: dict[str, npt.NDArray[Any]]


class FrameChecker:
    """Validates frames for one dataset. Remembers the units of its depth cameras; used by one thread.

    Args:
        features: All features of the dataset.

    Attributes:
        depth_units: Depth camera to the unit it is recorded in, as soon as that is known: from the dataset, or from
            the first frame.
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self._features = {name: f for name, f in features.items() if name not in DEFAULT_FEATURES}
        self._needed = [name for name, f in self._features.items() if f.dtype != "language"]
        self._cameras = [name for name, f in self._features.items() if f.is_camera]
        self._accepted = {*self._features, *DEFAULT_FEATURES, "task"}
        units = {name: codec.unit for name, codec in depth_codecs(self._features).items()}
        self._depth = frozenset(units)
        self._known_texts: set[str] = set()
        self.depth_units: dict[str, DepthUnit] = {name: unit for name, unit in units.items() if unit is not None}

    def check(self, frame: Mapping[str, Any]) -> CheckedFrame:
        """Validate and copy one frame.

        Columns that the recorder fills itself (`timestamp`, `index`, ...) and padding masks may be present, as in an
        item that was read, and are ignored.

        Args:
            frame: Feature name to value, and `task`. Pictures are (H, W, C) or (C, H, W), uint8 or float in [0, 1].
                Depth maps are floats in metres or integers in millimetres. Language columns may be left out.

        Returns:
            The checked frame.

        Raises:
            FeatureError: Missing or unknown names, wrong dtype or shape, values that are not finite or out of range.
        """
        if not isinstance(frame, Mapping):
            raise FeatureError(f"A frame maps names of features to values, got {frame!r:.200}.")
        self._check_names(frame)
        task = frame["task"]
        if not isinstance(task, str) or not task.strip():
            raise FeatureError(f"'task' must be a text that says what the robot does, got {task!r}.")
        self._check_text("task", task)
        values: dict[str, Any] = {}
        pictures: dict[str, npt.NDArray[Any]] = {}
        for name, feature in self._features.items():
            if name in self._depth:
                pictures[name] = to_depth(feature, frame[name], self.depth_units.get(name))
            elif feature.is_camera:
                pictures[name] = to_picture(feature, frame[name])
            elif feature.dtype == "language":
                values[name] = check_language(name, frame.get(name), self._cameras)
            elif feature.dtype == "string":
                values[name] = _text(feature, frame[name])
                self._check_text(name, values[name])
            else:
                values[name] = _numbers(feature, frame[name])
        for name in self._depth - self.depth_units.keys():
            self.depth_units[name] = unit_of(pictures[name])
        return CheckedFrame(task, values, pictures)

    def _check_text(self, name: str, text: str) -> None:
        """Refuse what cannot be stored as UTF-8, before the frame is taken; texts that were seen are not looked at."""
        if text in self._known_texts:
            return
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise FeatureError(f"{name!r}: the text {text!r:.200} cannot be stored: {error}") from error
        if len(self._known_texts) < _MOST_TEXTS:
            self._known_texts.add(text)

    def _check_names(self, frame: Mapping[str, Any]) -> None:
        if len(frame) == len(self._features) + 1 and "task" in frame and all(n in frame for n in self._features):
            return
        missing = [n for n in (*self._needed, "task") if n not in frame]
        unknown = [n for n in frame if n not in self._accepted and not str(n).endswith("_is_pad")]
        if not missing and not unknown:
            return
        parts = []
        if missing:
            parts.append("missing " + ", ".join(map(repr, missing)))
        if unknown:
            near = {n: nearest(str(n), [*self._features, "task"]) for n in unknown}
            parts.append(
                "unknown " + ", ".join(f"{n!r}" + (f" (nearest: {m!r})" if m else "") for n, m in near.items())
            )
        raise FeatureError(
            f"The frame does not fit the dataset: {'; '.join(parts)}. Nothing of it was stored.",
            hint=f"A frame has: {', '.join([*self._features, 'task'])}.",
        )


def to_seconds(value: Any) -> float:
    """Return the time of a frame as a plain number, which JSON and the journal can hold.

    Args:
        value: A number, or an array or tensor of one.

    Raises:
        FeatureError: It is none, or not finite.
    """
    try:
        seconds = float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise FeatureError(f"The time of a frame must be a number of seconds, got {value!r:.200}.") from error
    if not math.isfinite(seconds):
        raise FeatureError(f"The time of a frame must be a finite number of seconds, got {seconds}.")
    return seconds


def _array(feature: Feature, value: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError) as error:  # bfloat16, sparse or meta tensors; lists of odd lengths
        raise FeatureError(
            f"{feature.name!r}: a {type(value).__name__} that numpy cannot hold: {error}",
            hint="Convert it yourself, for example with tensor.float() or numpy.asarray(value, dtype='float32').",
        ) from error


def _text(feature: Feature, value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(()).item()
    if not isinstance(value, str):
        raise FeatureError(f"{feature.name!r}: expected a text, got {type(value).__name__} {value!r}.")
    return value


def _numbers(feature: Feature, value: Any) -> npt.NDArray[Any]:
    """Return a copy with the declared dtype and shape, or refuse."""
    given, wanted = _array(feature, value), np.dtype(feature.dtype)
    if given.shape != feature.shape and not (given.size == 1 and feature.shape in {(1,), ()} and given.ndim <= 1):
        raise FeatureError(
            f"{feature.name!r}: expected shape {feature.shape}, got {given.shape}.",
            hint=f"Its elements are {feature.names}." if feature.names else None,
        )
    if given.dtype != wanted:
        given = _convert(feature, given, wanted)
    if wanted.kind == "f" and not np.isfinite(given).all():
        bad = np.flatnonzero(~np.isfinite(given.reshape(-1)))
        names = feature.names if isinstance(feature.names, list) and len(feature.names) == given.size else None
        where = ", ".join(str(names[i]) if names else f"element {i}" for i in bad[:5])
        raise FeatureError(f"{feature.name!r}: not a finite number at {where}: {given.reshape(-1)[bad[0]]}.")
    return np.array(given, dtype=wanted).reshape(feature.shape)


def _convert(feature: Feature, given: npt.NDArray[Any], wanted: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert without losing meaning: floats among floats, integers among integers and to floats, bool to bool."""
    from_kind = {"u": "i"}.get(given.dtype.kind, given.dtype.kind)
    to_kind = {"u": "i"}.get(wanted.kind, wanted.kind)
    if (from_kind, to_kind) not in {("f", "f"), ("i", "i"), ("i", "f"), ("b", "b")}:
        raise FeatureError(
            f"{feature.name!r}: expected dtype {feature.dtype}, got {given.dtype}.",
            hint=f"Convert it yourself, for example with numpy.asarray(value, dtype={feature.dtype!r}).",
        )
    if to_kind == "i" and given.size:
        limits = np.iinfo(wanted)
        if int(given.min()) < limits.min or int(given.max()) > limits.max:
            raise FeatureError(
                f"{feature.name!r}: {given} does not fit {feature.dtype} ({limits.min} to {limits.max})."
            )
    with np.errstate(over="ignore"):
        converted = given.astype(wanted)
    if to_kind == "f" and np.isfinite(given).all() and not np.isfinite(converted).all():
        raise FeatureError(f"{feature.name!r}: {given} does not fit {feature.dtype}.")
    return converted


def to_picture(feature: Feature, value: Any) -> Picture:
    """Return a picture as uint8 (H, W, C) of its own memory.

    Args:
        feature: A camera.
        value: Array, tensor or PIL image; (H, W, C) or (C, H, W); uint8, or float in [0, 1].

    Returns:
        A contiguous copy.

    Raises:
        FeatureError: Another shape or dtype, or floats outside [0, 1] or not finite.
    """
    given = _array(feature, value)
    height, width, channels = feature.hwc
    hwc, chw = (height, width, channels), (channels, height, width)
    if given.shape not in {hwc, chw}:
        raise FeatureError(f"Camera {feature.name!r}: expected shape {hwc} or {chw}, got {given.shape}.")
    if given.dtype.kind == "f":
        low, high = float(given.min()), float(given.max())
        if not (low >= 0.0 and high <= 1.0):
            raise FeatureError(
                f"Camera {feature.name!r}: a float picture must lie in [0, 1], got values from {low:g} to {high:g}.",
                hint="Divide it by 255, or give it as uint8.",
            )
        given = np.rint(given * 255.0)
    elif given.dtype != np.uint8:
        raise FeatureError(f"Camera {feature.name!r}: expected dtype uint8 or float in [0, 1], got {given.dtype}.")
    is_chw = given.shape == chw and (hwc != chw or feature.is_channel_first)
    return np.array(given.transpose(1, 2, 0) if is_chw else given, dtype=np.uint8, order="C")


def to_depth(feature: Feature, value: Any, unit: DepthUnit | None) -> npt.NDArray[Any]:
    """Return a depth map as it is recorded, (H, W, 1) of its own memory.

    Args:
        feature: A depth camera.
        value: Array or tensor (H, W), (H, W, 1) or (1, H, W): floats in metres, or integers in millimetres.
        unit: Unit of the maps recorded before; None when this is the first.

    Returns:
        A contiguous copy: float32 in metres or uint16 in millimetres.

    Raises:
        FeatureError: Another shape or dtype, a distance that is not finite, negative or too far, or not the unit of the
            maps before.
    """
    given, (height, width, _) = _array(feature, value), feature.hwc
    if given.shape not in {(height, width), (height, width, 1), (1, height, width)}:
        raise FeatureError(
            f"Depth camera {feature.name!r}: expected shape {(height, width, 1)} or {(1, height, width)}, "
            f"got {given.shape}."
        )
    dtype = np.float32 if _check_distances(feature, given) == "f" else np.uint16
    depth = np.array(given.reshape(height, width, 1), dtype=dtype, order="C")
    if unit is not None and unit_of(depth) != unit:
        raise FeatureError(
            f"Depth camera {feature.name!r} is recorded in {unit!r} since its first frame, got {given.dtype}.",
            hint="Floats are metres, integers are millimetres; a camera keeps to one of them.",
        )
    return depth


def _check_distances(feature: Feature, given: npt.NDArray[Any]) -> str:
    """Refuse what cannot be distances; return "f" for floats, "i" for integers."""
    kind = {"f": "f", "i": "i", "u": "i"}.get(given.dtype.kind)
    if kind is None or given.dtype.itemsize < 2:
        raise FeatureError(
            f"Depth camera {feature.name!r}: dtype {given.dtype} cannot hold distances.",
            hint="Give floats in metres, or integers of 16 bits or more in millimetres.",
        )
    low, high = float(given.min()), float(given.max())
    limit = _FARTHEST_M if kind == "f" else float(np.iinfo(np.uint16).max)
    if not (low >= 0.0 and high <= limit):
        raise FeatureError(
            f"Depth camera {feature.name!r}: {'metres (floats)' if kind == 'f' else 'millimetres (integers)'} must lie "
            f"in 0 to {limit:g}, got values from {low:g} to {high:g}.",
            hint="Give millimetres as integers; a map read with depth_output_unit='mm' is float, read it in 'm'. "
            "Pixels without a distance are 0.",
        )
    return kind
