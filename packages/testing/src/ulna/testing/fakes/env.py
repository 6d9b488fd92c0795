# SPDX-License-Identifier: Apache-2.0
"""A fake vector environment with Gymnasium's interface, without Gymnasium: walk to a goal; done when near."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ulna.testing.fakes.faults import FaultPlan

__all__ = ["FakeEnv", "FakeSpace"]

_NEAR = 0.1
_STEP = 0.2


class FakeSpace:
    """A box of numbers, or a mapping of boxes.

    Args:
        low: Smallest value.
        high: Largest value.
        shape: Shape of one value, batch axis included.
        spaces: Name to box, for a mapping; then the others are ignored.
    """

    dtype = np.dtype(np.float32)

    def __init__(
        self, low: float = 0, high: float = 0, shape: tuple[int, ...] = (), spaces: dict[str, FakeSpace] | None = None
    ) -> None:
        self.low, self.high, self.shape, self.spaces = low, high, shape, spaces
        self._random = np.random.default_rng(0)

    def seed(self, seed: int) -> None:
        """Seed `sample`."""
        self._random = np.random.default_rng(seed)
        for space in (self.spaces or {}).values():
            space.seed(seed)

    def sample(self) -> Any:
        """Return a value inside."""
        if self.spaces is not None:
            return {name: space.sample() for name, space in self.spaces.items()}
        return self._random.uniform(self.low, self.high, self.shape).astype(self.dtype)

    def contains(self, value: Any) -> bool:
        """Tell whether a value fits."""
        if self.spaces is not None:
            same = isinstance(value, dict) and set(value) == set(self.spaces)
            return same and all(space.contains(value[name]) for name, space in self.spaces.items())
        array = np.asarray(value)
        fits = array.shape == self.shape and array.dtype == self.dtype
        return bool(fits and (array >= self.low).all() and (array <= self.high).all())


class FakeEnv:
    """Points that walk to goals; an observation holds both. Finished copies start over by themselves.

    Args:
        num_envs: Number of copies.
        size: Number of coordinates.
        episode_length: Steps after which an episode is cut off.

    Attributes:
        faults: What goes wrong, and a log of the calls.
    """

    metadata = {"render_fps": 30, "autoreset_mode": "same_step"}

    def __init__(self, num_envs: int = 1, size: int = 2, episode_length: int = 20) -> None:
        self.num_envs, self.size, self.episode_length = num_envs, size, episode_length
        self.faults = FaultPlan()
        self.single_action_space = FakeSpace(-1, 1, (size,))
        self.action_space = FakeSpace(-1, 1, (num_envs, size))
        self.single_observation_space = FakeSpace(spaces={"agent_pos": FakeSpace(-10, 10, (2 * size,))})
        self.observation_space = FakeSpace(spaces={"agent_pos": FakeSpace(-10, 10, (num_envs, 2 * size))})
        self._random = [np.random.default_rng(i) for i in range(num_envs)]
        self._place = np.zeros((num_envs, size))
        self._goal = np.zeros((num_envs, size))
        self._steps = np.zeros(num_envs, dtype=int)

    def _start(self, index: int) -> None:
        self._place[index] = 0
        self._goal[index] = self._random[index].uniform(-1, 1, self.size)
        self._steps[index] = 0

    def _observation(self) -> dict[str, NDArray[np.float32]]:
        return {"agent_pos": np.concatenate([self._place, self._goal], axis=1).astype(np.float32)}

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start every copy.

        Args:
            seed: One for the first copy, the others count on; or one for each.
            options: Ignored.

        Returns:
            Observation and info.
        """
        self.faults.called("reset", seed)
        if seed is not None:
            seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
            self._random = [np.random.default_rng(s) for s in seeds]
        for index in range(self.num_envs):
            self._start(index)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Move every point.

        Args:
            action: float32 (num_envs, size), in [-1, 1].

        Returns:
            Observation, reward, terminated, truncated and info; that has `is_success`, and `final_info` at an end.
        """
        self.faults.called("step")
        self._place = np.clip(self._place + _STEP * np.asarray(action, dtype=float), -5, 5)
        self._steps += 1
        distance = np.linalg.norm(self._place - self._goal, axis=1)
        terminated = distance < _NEAR
        truncated = (self._steps >= self.episode_length) & ~terminated
        info: dict[str, Any] = {"is_success": terminated.copy()}
        if (terminated | truncated).any():
            info["final_info"] = {"is_success": terminated.copy()}
        for index in np.flatnonzero(terminated | truncated):
            self._start(int(index))
        return self._observation(), -distance, terminated, truncated, info

    def render(self) -> Any:
        """Return one grey picture for each copy, uint8 (H, W, 3)."""
        return tuple(np.full((8, 8, 3), 128, np.uint8) for _ in range(self.num_envs))

    def close(self) -> None:
        """Do nothing: it holds nothing."""
        self.faults.called("close")
