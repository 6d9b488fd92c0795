# SPDX-License-Identifier: Apache-2.0
"""Scripted faults, call logs and a clock that is moved by hand. What the faults do to a device is up to each fake."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ulna.core.clock import Clock

__all__ = ["Call", "FakeClock", "FaultPlan"]


class FakeClock:
    """A clock that stands still until it is told to move; sleeping moves it. Thread-safe.

    Args:
        start_s: First time it tells, seconds.
    """

    def __init__(self, start_s: float = 1000.0) -> None:
        self._now = start_s
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return the time in seconds."""
        return self._now

    def sleep_until(self, deadline: float) -> None:
        """Jump to `deadline` seconds; stays when it has passed.

        Args:
            deadline: A time on this clock.
        """
        with self._lock:
            self._now = max(self._now, deadline)

    def advance(self, duration_s: float) -> None:
        """Move on.

        Args:
            duration_s: By how much, seconds; not negative.

        Raises:
            ValueError: It is negative.
        """
        if duration_s < 0:
            raise ValueError(f"A clock does not go back: advance({duration_s}).")
        self.sleep_until(self._now + duration_s)


@dataclass(frozen=True)
class Call:
    """One call a fake received.

    Attributes:
        method: Name of the method.
        arguments: Its positional arguments.
    """

    method: str
    arguments: tuple[Any, ...] = ()


@dataclass
class _Failure:
    error: BaseException
    at: int
    times: int


class FaultPlan:
    """What goes wrong with a fake, and a log of its calls. Every fake has one as `faults`; change it at any time.

    The same plan does the same thing each time: losses by probability come from `seed`.

    Args:
        seed: Seed of the losses.
        clock: What slow calls take their time from.

    Attributes:
        calls: Every call of a logged method, in order.
        dead: Motors that never answer.
        frozen: Whether a camera delivers no new frame.
        unplugged: Whether the device is gone.
    """

    def __init__(self, *, seed: int = 0, clock: Clock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.calls: list[Call] = []
        self.dead: set[str] = set()
        self.frozen = self.unplugged = False
        self._random = random.Random(seed)
        self._lose_every = 0
        self._lose_probability = 0.0
        self._exchanges = 0
        self._counts: Counter[str] = Counter()
        self._failures: dict[str, _Failure] = {}
        self._slow: dict[str, float] = {}

    def lose(self, *, every: int = 0, probability: float = 0.0) -> None:
        """Lose replies from now on: each `every`-th exchange, or by chance.

        Args:
            every: 5 loses every fifth exchange; 0 loses none.
            probability: Chance of each exchange to be lost, 0 to 1.

        Raises:
            ValueError: A value is out of range.
        """
        if every < 0 or not 0 <= probability <= 1:
            raise ValueError(f"every must be 0 or more and probability in [0, 1], got {every} and {probability}.")
        self._lose_every, self._lose_probability, self._exchanges = every, probability, 0

    def kill(self, *motors: str) -> None:
        """Let motors never answer again.

        Args:
            *motors: Their names.
        """
        self.dead.update(motors)

    def revive(self, *motors: str) -> None:
        """Let motors answer again.

        Args:
            *motors: Their names; none means all.
        """
        self.dead -= set(motors or self.dead)

    def freeze(self) -> None:
        """Deliver no new frame until `thaw`."""
        self.frozen = True

    def thaw(self) -> None:
        """Deliver frames again."""
        self.frozen = False

    def unplug(self) -> None:
        """Take the device away until `replug`."""
        self.unplugged = True

    def replug(self) -> None:
        """Bring the device back."""
        self.unplugged = False

    def fail(self, method: str, error: BaseException, *, at: int = 1, times: int = 1) -> None:
        """Raise an error in a later call of a method.

        Args:
            method: Name of the method, `sync_read`.
            error: What it raises.
            at: Which call from now on, counted from 1.
            times: How many calls in a row fail.
        """
        self._failures[method] = _Failure(error, self._counts[method] + at, times)

    def slow(self, method: str, duration_s: float) -> None:
        """Let every call of a method take its time, on the plan's clock.

        Args:
            method: Name of the method.
            duration_s: Seconds; 0 makes it fast again.
        """
        self._slow[method] = duration_s

    def count(self, method: str) -> int:
        """Return how often a method was called.

        Args:
            method: Name of the method.
        """
        return self._counts[method]

    def called(self, method: str, *arguments: Any) -> None:
        """Note a call, take its time, and fail it if that is planned. Fakes call this first in every method.

        Args:
            method: Name of the method.
            *arguments: What it was called with.
        """
        self.calls.append(Call(method, arguments))
        self._counts[method] += 1
        if self._slow.get(method):
            self.clock.sleep_until(self.clock.now() + self._slow[method])
        planned = self._failures.get(method)
        if planned and planned.at <= self._counts[method] < planned.at + planned.times:
            raise planned.error

    def silent(self, motors: Iterable[str]) -> list[str]:
        """Tell who does not answer in one exchange; counts it.

        Args:
            motors: Who is asked.

        Returns:
            Names of those whose answer does not come.
        """
        names = list(motors)
        self._exchanges += 1
        by_count = self._lose_every and self._exchanges % self._lose_every == 0
        if self.unplugged:
            return names
        missing = [name for name in names if name in self.dead]
        if by_count or (self._lose_probability and self._random.random() < self._lose_probability):
            missing += [name for name in names[:1] if name not in missing]
        return missing
