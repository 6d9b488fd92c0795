# SPDX-License-Identifier: Apache-2.0
"""What data looks like: policy features, and the specs of robot observations and actions.

A spec knows its kind, dtype, shape, names and unit, and can validate and generate a value. The plain form
`{"shoulder_pan.pos": float, "front": (480, 640, 3)}` is equal to its specs and may be used in their place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ulna.core.errors import ActionError, FeatureError, nearest

__all__ = [
    "FeatureSpec",
    "FeatureSpecs",
    "FeatureType",
    "NormalizationMode",
    "PipelineFeatureType",
    "PlainFeature",
    "PolicyFeature",
    "image_spec",
    "scalar_spec",
]

PlainFeature = type[float] | tuple[int, ...]


class FeatureType(str, Enum):
    """The role a feature has for a policy."""

    STATE = "STATE"
    VISUAL = "VISUAL"
    ENV = "ENV"
    ACTION = "ACTION"
    REWARD = "REWARD"
    LANGUAGE = "LANGUAGE"


class PipelineFeatureType(str, Enum):
    """The side of a transition a feature belongs to."""

    ACTION = "ACTION"
    OBSERVATION = "OBSERVATION"


class NormalizationMode(str, Enum):
    """How values of a feature type are normalized."""

    MIN_MAX = "MIN_MAX"
    MEAN_STD = "MEAN_STD"
    IDENTITY = "IDENTITY"
    QUANTILES = "QUANTILES"
    QUANTILE10 = "QUANTILE10"


@dataclass(frozen=True)
class PolicyFeature:
    """Type and shape of one input or output of a policy, without the batch axis.

    Attributes:
        type: Role of the feature.
        shape: Shape of one value; pictures are (C, H, W).
    """

    type: FeatureType
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", FeatureType(self.type))
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))


@dataclass(frozen=True)
class FeatureSpec:
    """One value of an observation or action.

    Attributes:
        name: Its key, `shoulder_pan.pos`.
        kind: `scalar`, `vector` or `image`.
        dtype: Numpy dtype name of the value.
        shape: () for a scalar, (H, W, C) for a picture.
        unit: Unit of the value (`deg`, `percent`, `m/s`), if known.
        names: Names of the elements of a vector.
        low: Smallest allowed value, if bounded.
        high: Largest allowed value, if bounded.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...] = ()
    unit: str | None = None
    names: tuple[str, ...] | None = None
    low: float | None = None
    high: float | None = None

    @property
    def plain(self) -> PlainFeature:
        """The plain form: `float` for a scalar, else the shape."""
        return float if self.kind == "scalar" else self.shape

    def validate(self, value: Any) -> None:
        """Check one value.

        Args:
            value: A number for a scalar, an array of `shape` else.

        Raises:
            FeatureError: Wrong shape or dtype, not a number, not finite, or out of bounds.
        """
        if self.kind == "scalar":
            try:
                number = float(value)
            except (TypeError, ValueError) as error:
                raise FeatureError(f"{self.name}: expected a number, got {value!r}.") from error
            if not math.isfinite(number):
                raise FeatureError(f"{self.name}: expected a finite number, got {number}.")
            if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
                raise FeatureError(f"{self.name}: {number} lies outside [{self.low}, {self.high}].")
            return
        shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", type(value).__name__))
        if shape is None or tuple(shape) != self.shape:
            raise FeatureError(f"{self.name}: expected an array of shape {self.shape}, got {shape}.")
        if dtype != self.dtype:
            raise FeatureError(f"{self.name}: expected dtype {self.dtype}, got {dtype}.")

    def generate(self, seed: int = 0) -> Any:
        """Make a valid value.

        Args:
            seed: Same seed, same value.

        Returns:
            A float for a scalar, else a numpy array.
        """
        import numpy as np

        rng = np.random.default_rng([seed, *self.name.encode()])
        low = self.low if self.low is not None else -1.0
        high = self.high if self.high is not None else 1.0
        if self.kind == "scalar":
            return float(rng.uniform(low, high))
        if np.dtype(self.dtype).kind in "iu":
            info = np.iinfo(self.dtype)
            return rng.integers(info.min, info.max, self.shape, dtype=self.dtype, endpoint=True)
        return rng.uniform(low, high, self.shape).astype(self.dtype)


def scalar_spec(
    name: str, *, unit: str | None = None, low: float | None = None, high: float | None = None
) -> FeatureSpec:
    """Describe one number.

    Args:
        name: Its key.
        unit: Its unit.
        low: Smallest allowed value.
        high: Largest allowed value.

    Returns:
        The spec.
    """
    return FeatureSpec(name, "scalar", "float32", (), unit, None, low, high)


def image_spec(name: str, height: int, width: int, channels: int = 3) -> FeatureSpec:
    """Describe one picture: uint8 (H, W, 3), or uint16 (H, W, 1) for depth.

    Args:
        name: Its key.
        height: Rows.
        width: Columns.
        channels: 3 for colour, 1 for depth.

    Returns:
        The spec.
    """
    return FeatureSpec(name, "image", "uint16" if channels == 1 else "uint8", (height, width, channels))


def _spec_of(name: str, plain: Any) -> FeatureSpec:
    if isinstance(plain, FeatureSpec):
        return plain
    if plain is float:
        return scalar_spec(name)
    if isinstance(plain, (tuple, list)) and all(isinstance(n, int) for n in plain):
        shape = tuple(plain)
        if len(shape) == 3:
            return image_spec(name, *shape)
        return FeatureSpec(name, "vector", "float32", shape)
    raise FeatureError(f"{name}: a feature is `float`, a shape or a FeatureSpec, not {plain!r}.")


@dataclass(frozen=True, eq=False)
class FeatureSpecs(Mapping[str, FeatureSpec]):
    """An ordered collection of specs, equal to its plain form."""

    specs: Mapping[str, FeatureSpec] = field(default_factory=dict)

    @classmethod
    def of(cls, features: Mapping[str, Any]) -> FeatureSpecs:
        """Build from specs, from the plain form, or from a mixture.

        Args:
            features: Key to `float`, shape or spec.

        Returns:
            The collection, in the same order.

        Raises:
            FeatureError: A value is none of these.
        """
        if isinstance(features, FeatureSpecs):
            return features
        return cls({name: _spec_of(name, plain) for name, plain in features.items()})

    def __getitem__(self, name: str) -> FeatureSpec:
        return self.specs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        try:
            return self.plain == FeatureSpecs.of(other).plain
        except FeatureError:
            return False

    __hash__ = None  # type: ignore[assignment]

    @property
    def plain(self) -> dict[str, PlainFeature]:
        """The plain form."""
        return {name: spec.plain for name, spec in self.specs.items()}

    def only(self, kind: str) -> FeatureSpecs:
        """Return the specs of one kind.

        Args:
            kind: `scalar`, `vector` or `image`.
        """
        return FeatureSpecs({n: s for n, s in self.specs.items() if s.kind == kind})

    def generate(self, seed: int = 0) -> dict[str, Any]:
        """Make a valid value for every spec.

        Args:
            seed: Same seed, same values.
        """
        return {name: spec.generate(seed) for name, spec in self.specs.items()}

    def check_action(self, action: Mapping[str, Any], *, partial: bool = False, owner: str = "the robot") -> None:
        """Refuse an action that does not fit these specs.

        Args:
            action: Key to value.
            partial: Whether declared keys may be absent.
            owner: Who declares the specs, for the message.

        Raises:
            ActionError: Missing or unknown keys, wrong shapes, NaN or infinite values; every offender is named.
        """
        unknown = [k for k in action if k not in self.specs]
        missing = [] if partial else [k for k in self.specs if k not in action]
        not_finite = [k for k, v in action.items() if k in self.specs and not _finite(v)]
        if not (unknown or missing or not_finite):
            return
        parts = []
        if unknown:
            near = {k: nearest(k, list(self.specs)) for k in unknown}
            parts.append(
                "unknown " + ", ".join(f"{k!r}" + (f" (nearest: {n!r})" if n else "") for k, n in near.items())
            )
        if missing:
            parts.append("missing " + ", ".join(map(repr, missing)))
        if not_finite:
            parts.append("not finite " + ", ".join(f"{k!r} = {action[k]!r}" for k in not_finite))
        raise ActionError(
            f"Action refused by {owner}: {'; '.join(parts)}. Nothing was sent.",
            missing=missing,
            unknown=unknown,
            not_finite=not_finite,
            hint=f"{owner} takes: {', '.join(self.specs)}.",
        )


def _finite(value: Any) -> bool:
    if hasattr(value, "shape") and getattr(value, "shape", ()) != ():
        import numpy as np

        return bool(np.isfinite(np.asarray(value, dtype=float)).all())
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False
