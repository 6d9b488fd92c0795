# SPDX-License-Identifier: Apache-2.0
"""Depth maps: how distances become 12-bit codes in a video, and which unit they are recorded and read in. Numpy only.

A map is recorded in metres (floats) or in millimetres (integers); `depth_unit` in the feature's `info` says which. In a
video it is quantised to 4096 steps, finer near the camera, and stored losslessly; in a table it is stored as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetError, DatasetFormatError
from ulna.data.features import Feature
from ulna.data.stats import FeatureStats, Stats

__all__ = ["DEPTH_CODES", "DepthCodec", "DepthUnit", "check_depth_unit", "convert_stats", "depth_codecs", "unit_of"]

DepthUnit = Literal["mm", "m"]
Codes = npt.NDArray[np.uint16]

DEPTH_CODES: Final = 4096
_UNITS: Final = ("mm", "m")
_MM_PER_M: Final = 1000.0
_NOT_DISTANCES: Final = frozenset({"count"})


def check_depth_unit(unit: str) -> DepthUnit:
    """Return a unit, or refuse it.

    Args:
        unit: `mm` or `m`.

    Raises:
        DatasetError: It is another one.
    """
    if unit not in _UNITS:
        raise DatasetError(f"Depth is read in 'mm' or 'm', not in {unit!r}.")
    return "mm" if unit == "mm" else "m"


def unit_of(depth: npt.NDArray[Any]) -> DepthUnit:
    """Return the unit in which a map is recorded: floats are metres, integers millimetres.

    Args:
        depth: The map.
    """
    return "m" if depth.dtype.kind == "f" else "mm"


@dataclass(frozen=True)
class DepthCodec:
    """The rule that maps the distances of one camera to codes and back.

    Attributes:
        unit: Unit of what was recorded; None where the dataset does not say.
        quantised: Whether maps are stored as codes (in a video), else as they are.
        depth_min: Distance of code 0, in metres; nearer ones become it.
        depth_max: Distance of code 4095, in metres; farther ones become it.
        shift: Added to a distance before the logarithm, in metres: smaller gives finer steps near the camera.
        use_log: Whether steps grow with the distance, else all are equal.
    """

    unit: DepthUnit | None = None
    quantised: bool = True
    depth_min: float = 0.01
    depth_max: float = 10.0
    shift: float = 3.5
    use_log: bool = True

    def __post_init__(self) -> None:
        if not self.depth_min < self.depth_max or (self.use_log and self.depth_min + self.shift <= 0):
            raise DatasetFormatError(
                f"Depth from {self.depth_min} to {self.depth_max} m with shift {self.shift} cannot be quantised.",
                hint="depth_min must be below depth_max, and depth_min + shift above 0.",
            )

    @classmethod
    def from_feature(cls, feature: Feature) -> DepthCodec:
        """Return the rule that a feature's `info` describes, defaults where it is silent.

        Args:
            feature: A camera with depth maps.

        Raises:
            DatasetFormatError: A value of `info` makes no sense.
        """
        info = feature.camera_info
        unit = info.get("depth_unit")
        if unit is not None and unit not in _UNITS:
            raise DatasetFormatError(f"Camera {feature.name!r}: depth_unit is {unit!r}; expected 'mm' or 'm'.")
        given = {key: info.get(f"video.{key}", info.get(key)) for key in ("depth_min", "depth_max", "shift", "use_log")}
        try:
            chosen: dict[str, Any] = {
                key: bool(value) if key == "use_log" else float(value)
                for key, value in given.items()
                if value is not None
            }
            return cls(unit=unit, quantised=feature.dtype == "video", **chosen)
        except (TypeError, ValueError) as error:
            raise DatasetFormatError(f"Camera {feature.name!r}: {error}") from error

    def encode(self, depth: npt.NDArray[Any]) -> Codes:
        """Quantise a map.

        Args:
            depth: Floats in metres or integers in millimetres, any shape.

        Returns:
            Codes from 0 to 4095, same shape. Distances out of range get the nearest code.
        """
        # In float32 and in the unit of the map: any other order of these steps rounds some distances to the next code.
        scale = 1.0 if unit_of(depth) == "m" else _MM_PER_M
        low, span = self._range(scale)
        scaled = depth.astype(np.float32)
        if self.use_log:
            scaled = np.log(scaled + np.float32(self.shift * scale))
        share = (scaled - np.float32(low)) / np.float32(span)
        codes: Codes = np.rint(share * np.float32(DEPTH_CODES - 1)).clip(0, DEPTH_CODES - 1).astype(np.uint16)
        return codes

    def decode(self, stored: npt.NDArray[Any], unit: DepthUnit) -> npt.NDArray[np.float32]:
        """Turn what is stored into distances.

        Args:
            stored: Codes of a video, or the values of a picture in the table; any shape.
            unit: Unit of the result. Values of a picture whose unit is not known are returned as they are.

        Returns:
            Distances, same shape. Those of a video in millimetres are whole ones: its steps are no finer.
        """
        if self.quantised:
            distances: npt.NDArray[np.float32] = self._table(unit)[np.minimum(stored, DEPTH_CODES - 1)]
            return distances
        if self.unit is None or self.unit == unit:
            return stored.astype(np.float32)
        converted: npt.NDArray[np.float32] = (stored.astype(np.float64) * self.factor(unit)).astype(np.float32)
        return converted

    def factor(self, unit: DepthUnit) -> float:
        """Return what recorded values are multiplied with to be in a unit; 1 where the recorded one is not known.

        Args:
            unit: The wanted unit.
        """
        if self.unit is None or self.unit == unit:
            return 1.0
        return _MM_PER_M if unit == "mm" else 1 / _MM_PER_M

    def _range(self, scale: float = 1.0) -> tuple[float, float]:
        """Return where the scale of codes begins and how long it is, in units of 1 / scale metres."""
        low, high = self.depth_min * scale, self.depth_max * scale
        if self.use_log:
            low, high = math.log(low + self.shift * scale), math.log(high + self.shift * scale)
        return low, high - low

    def _table(self, unit: DepthUnit) -> npt.NDArray[np.float32]:
        """Return the distance of every code."""
        key = (self, unit)
        table = _TABLES.get(key)
        if table is None:
            low, span = self._range()
            # The argument is rounded to float32, as LeRobot has it, so that both read the same whole millimetres.
            steps = np.arange(DEPTH_CODES, dtype=np.float32) * np.float32(span / (DEPTH_CODES - 1)) + np.float32(low)
            metres = np.exp(steps.astype(np.float64)).astype(np.float32) - np.float32(self.shift)
            table = metres if self.use_log else steps
            if unit == "mm":
                table = np.rint(table * np.float32(_MM_PER_M))
            _TABLES[key] = table
        return table

    def described(self) -> dict[str, Any]:
        """Return the settings under the names they have in `info.json`."""
        return {
            "video.depth_min": self.depth_min,
            "video.depth_max": self.depth_max,
            "video.shift": self.shift,
            "video.use_log": self.use_log,
        }


_TABLES: dict[tuple[DepthCodec, DepthUnit], npt.NDArray[np.float32]] = {}


def depth_codecs(features: Mapping[str, Feature]) -> dict[str, DepthCodec]:
    """Return the rule of every depth camera.

    Args:
        features: All features.

    Raises:
        DatasetFormatError: A feature's `info` makes no sense.
    """
    return {name: DepthCodec.from_feature(feature) for name, feature in features.items() if feature.is_depth}


def convert_stats(stats: Stats, codecs: Mapping[str, DepthCodec], unit: DepthUnit) -> Stats:
    """Return statistics with those of depth cameras in another unit than the recorded one.

    Args:
        stats: Feature to statistics in the recorded unit; not changed.
        codecs: Depth camera to rule.
        unit: The wanted unit.
    """
    factors = {name: codec.factor(unit) for name, codec in codecs.items()}
    return {
        name: values if factors.get(name, 1.0) == 1.0 else _scaled(values, factors[name])
        for name, values in stats.items()
    }


def _scaled(values: FeatureStats, factor: float) -> FeatureStats:
    return {key: value if key in _NOT_DISTANCES else value * factor for key, value in values.items()}
