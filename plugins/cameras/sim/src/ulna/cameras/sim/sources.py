# SPDX-License-Identifier: Apache-2.0
"""Where a simulated camera gets the scene from: a world of this process, or one that another process serves."""

from __future__ import annotations

import time
from typing import Protocol

from ulna.core.clock import Clock, MonotonicClock
from ulna.sim.clock import VirtualClock
from ulna.sim.scene import SceneState
from ulna.sim.sharing import WorldReader
from ulna.sim.simulation import Simulation

__all__ = ["Source", "open_source", "waiting_is_free"]

_HUNG_S = 0.5


class Source(Protocol):
    """A world as a camera needs it."""

    clock: Clock

    @property
    def there(self) -> bool:
        """Whether the world still runs."""
        ...

    @property
    def hung(self) -> bool:
        """Whether the world runs but its time stands still although it should not."""
        ...

    def state(self) -> SceneState:
        """Return the newest state."""
        ...

    def close(self) -> None:
        """Let go of the world."""
        ...


class _Here:
    """A world in this process."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self.clock = sim.clock

    @property
    def there(self) -> bool:
        return Simulation.find(self._sim.name) is self._sim

    @property
    def hung(self) -> bool:
        return False

    def state(self) -> SceneState:
        return self._sim.state

    def close(self) -> None:
        """Nothing is held."""


class _Elsewhere:
    """A world that another process serves in real time; both read the machine's monotonic clock."""

    def __init__(self, reader: WorldReader) -> None:
        self._reader = reader
        self.clock: Clock = MonotonicClock()

    @property
    def there(self) -> bool:
        return self._reader.alive

    @property
    def hung(self) -> bool:
        return time.perf_counter() - self._reader.read().time_s > _HUNG_S

    def state(self) -> SceneState:
        return self._reader.read()

    def close(self) -> None:
        self._reader.close()


def open_source(world: str) -> Source:
    """Return the world of a name: of this process if there is one, else a served one.

    Args:
        world: Its name.

    Raises:
        DeviceConnectError: There is none.
    """
    sim = Simulation.find(world)
    return _Elsewhere(WorldReader(world)) if sim is None else _Here(sim)


def waiting_is_free(clock: Clock) -> bool:
    """Return whether waiting on a clock takes no time, because it moves when somebody sleeps on it.

    Args:
        clock: The world's clock.
    """
    return isinstance(clock, VirtualClock)
