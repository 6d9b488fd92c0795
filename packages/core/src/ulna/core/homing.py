# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of homing and of range recording on an encoder that wraps at a seam. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ulna.core.errors import CalibrationError

__all__ = ["RangeRecorder", "outside_register", "shortest_offset"]

_NEAR_FULL_TURN = 0.95
_STILL = 0.01


def shortest_offset(ticks: int, resolution: int, limit: int) -> int:
    """Return the offset of least size that moves a reading by `ticks`, modulo a turn.

    Args:
        ticks: Distance wanted, any number of turns included.
        resolution: Ticks of one turn.
        limit: Largest magnitude the register holds.

    Returns:
        A value in [-limit, limit]; one tick off where half a turn does not fit the register.

    Example:
        >>> [shortest_offset(ticks, 4096, 2047) for ticks in (-2047, 2048, 5000)]
        [-2047, -2047, 904]
    """
    half = resolution // 2
    offset = (ticks + half) % resolution - half
    return max(-limit, min(limit, offset))


class RangeRecorder:
    """Lowest and highest position of joints while they are moved, followed across the seam. One for each recording.

    Positions count on through the seam: 3900 -> 4095 -> 0 -> 300 is a travel of 496 ticks, from 3900 to 4396. Two
    readings must lie less than half a turn apart.

    Args:
        first: Joint to its reading at the start, ticks.
        resolution: Joint to ticks of one turn.
    """

    def __init__(self, first: Mapping[str, int], resolution: Mapping[str, int]) -> None:
        self._resolution = dict(resolution)
        self._reading = dict(first)
        self.low, self.now, self.high = dict(first), dict(first), dict(first)

    def add(self, readings: Mapping[str, int]) -> None:
        """Take in one reading of every joint.

        Args:
            readings: Joint to ticks.
        """
        for name, reading in readings.items():
            turn = self._resolution[name]
            step = (reading - self._reading[name] + turn // 2) % turn - turn // 2
            self._reading[name] = reading
            now = self.now[name] = self.now[name] + step
            self.low[name], self.high[name] = min(self.low[name], now), max(self.high[name], now)

    @property
    def table(self) -> dict[str, tuple[int, int, int]]:
        """Joint to (lowest, now, highest), ticks."""
        return {name: (self.low[name], self.now[name], self.high[name]) for name in self.low}

    @property
    def near_full_turn(self) -> list[str]:
        """Joints that moved through nearly a whole turn or more: their range says little."""
        return [n for n in self.low if self.high[n] - self.low[n] >= _NEAR_FULL_TURN * self._resolution[n]]

    def ranges(self) -> dict[str, tuple[int, int]]:
        """Return what was recorded.

        Returns:
            Joint to (lowest, highest). A range over the seam exceeds the register: see `outside_register`. One of a
            whole turn or more is given as the whole register.

        Raises:
            CalibrationError: Some joints hardly moved; they are named.
        """
        still = [n for n in self.low if self.high[n] - self.low[n] < _STILL * self._resolution[n]]
        if still:
            spans = ", ".join(f"{n} ({self.high[n] - self.low[n]} ticks)" for n in still)
            raise CalibrationError(
                f"These joints hardly moved while their range was recorded: {spans}.",
                motors=tuple(still),
                hint="Calibrate again and move every joint from stop to stop.",
            )
        return {n: self._range(n) for n in self.low}

    def _range(self, name: str) -> tuple[int, int]:
        low, high, turn = self.low[name], self.high[name], self._resolution[name]
        return (0, turn - 1) if high - low >= turn else (low, high)


def outside_register(ranges: Mapping[str, tuple[int, int]], resolution: Mapping[str, int]) -> Iterable[str]:
    """Yield the joints whose range runs over the seam, so that it does not fit the position register.

    Args:
        ranges: Joint to (lowest, highest), ticks.
        resolution: Joint to ticks of one turn.

    Yields:
        Their names.
    """
    for name, (low, high) in ranges.items():
        if low < 0 or high >= resolution[name]:
            yield name
