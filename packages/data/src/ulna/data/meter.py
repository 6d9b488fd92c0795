# SPDX-License-Identifier: Apache-2.0
"""Tells how much of the time goes into waiting for data. Needs neither torch nor a dataset."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["DataMeter"]

_Batch = TypeVar("_Batch")


class DataMeter(Generic[_Batch]):
    """Passes the batches of a loader on, and measures how long its consumer waited for them. For one thread.

    Iterating again goes on counting; `reset` begins anew, after the first batches for example, which take longer.

    Args:
        loader: Any iterable of batches.
        clock: Returns seconds; for tests.

    Example:
        >>> meter = DataMeter([1, 2, 3])
        >>> sum(meter)
        6
        >>> meter.batches
        3
    """

    def __init__(self, loader: Iterable[_Batch], clock: Callable[[], float] = time.perf_counter) -> None:
        self.loader = loader
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Begin counting anew."""
        self.batches = 0
        self.waited_s = 0.0
        self.used_s = 0.0

    @property
    def share(self) -> float:
        """Share of the time spent waiting, 0 to 1."""
        total = self.waited_s + self.used_s
        return self.waited_s / total if total > 0 else 0.0

    def __iter__(self) -> Iterator[_Batch]:
        before = self._clock()
        for batch in self.loader:
            ready = self._clock()
            self.waited_s += ready - before
            self.batches += 1
            yield batch
            before = self._clock()
            self.used_s += before - ready

    def __repr__(self) -> str:
        return (
            f"<DataMeter {self.batches} batches: waited {self.waited_s:.3f} s of "
            f"{self.waited_s + self.used_s:.3f} s, {100 * self.share:.0f} %>"
        )
