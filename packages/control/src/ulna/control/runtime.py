# SPDX-License-Identifier: Apache-2.0
"""What every loop of this package is given from outside: time, keys, a way to stop it, and somebody to watch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ulna.control.interrupts import Interrupts, StopRequest
from ulna.core.clock import Clock, MonotonicClock

__all__ = ["KeySource", "NoKeys", "Phase", "Runtime", "Tick"]


class KeySource(Protocol):
    """Somewhere that key presses come from."""

    @property
    def description(self) -> str:
        """Which backend is active, or why keys are off; one line."""
        ...

    def poll(self) -> str | None:
        """Return the next key pressed (`right`, `esc`, `n`), or None at once. Never blocks."""
        ...


class NoKeys:
    """A key source without keys.

    Args:
        reason: Why there are none.
    """

    def __init__(self, reason: str = "keys are off: none were asked for") -> None:
        self.description = reason

    def poll(self) -> str | None:
        """Return None."""
        return None


@dataclass(frozen=True, slots=True)
class Tick:
    """What happened in one turn of a loop.

    Attributes:
        phase: `teleoperate`, `approach`, `record`, `reset`, `replay` or `rollout`.
        index: Number of the tick in its phase, from 0.
        time_s: When it began, seconds since the phase began.
        observation: What the robot reported; empty in phases that do not look.
        action: What was asked of the robot.
        sent: What the robot says it really sent to its motors.
        stale: Names of cameras whose picture is older than it should be.
    """

    phase: str
    index: int
    time_s: float
    observation: Mapping[str, Any]
    action: Mapping[str, Any]
    sent: Mapping[str, Any]
    stale: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """The beginning of a part of a session.

    Attributes:
        name: `connect`, `approach`, `record`, `save`, `reset`, `rollout`, `replay`, `teleoperate`, `rest` or
            `finalize`.
        episode: Number of the episode it belongs to; None outside episodes.
        text: One line for the operator.
    """

    name: str
    episode: int | None = None
    text: str = ""


@dataclass(frozen=True)
class Runtime:
    """Time, keys, stop and observers of a loop. All have a default; tests and simulators give their own.

    Attributes:
        clock: Time; a virtual clock makes a simulation run as fast as it can compute.
        keys: Key presses.
        stop: Looked at once a tick. None means that signals are handled while the function runs.
        on_tick: Called after every tick, in the loop: it must be quick.
        on_phase: Called when a phase begins, in the loop.
    """

    clock: Clock = field(default_factory=MonotonicClock)
    keys: KeySource = field(default_factory=NoKeys)
    stop: StopRequest | None = None
    on_tick: Callable[[Tick], object] | None = None
    on_phase: Callable[[Phase], object] | None = None

    def phase(self, name: str, episode: int | None = None, text: str = "") -> None:
        """Tell the observer that a phase begins.

        Args:
            name: Which.
            episode: Number of the episode.
            text: One line for the operator.
        """
        if self.on_phase is not None:
            self.on_phase(Phase(name, episode, text))

    @contextmanager
    def stoppable(self) -> Iterator[tuple[Runtime, StopRequest]]:
        """Give a runtime that certainly has a stop request: the one at hand, or one made by signals for the block.

        Yields:
            The runtime and its stop request.
        """
        if self.stop is not None:
            yield self, self.stop
            return
        with Interrupts() as interrupts:
            yield replace(self, stop=interrupts), interrupts
