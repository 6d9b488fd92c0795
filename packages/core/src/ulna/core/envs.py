# SPDX-License-Identifier: Apache-2.0
"""The environment contract: simulated tasks as Gymnasium vector environments. Readable without gymnasium or torch."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Protocol, runtime_checkable

from pydantic import Field

from ulna.core.config import PluginConfig
from ulna.core.features import PolicyFeature

__all__ = ["Env", "EnvConfig", "make_env", "make_env_config"]


@runtime_checkable
class Env(Protocol):
    """What Ulna asks of an environment: Gymnasium's interface."""

    observation_space: Any
    action_space: Any

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; returns the observation and info."""
        ...

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Act; returns observation, reward, terminated, truncated, info."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class EnvConfig(PluginConfig):
    """Base of every environment's settings."""

    plugin_kind: ClassVar[str] = "envs"
    plugin_base: ClassVar[bool] = True

    task: str | None = Field(None, description="Which task of the suite.")
    fps: int = Field(30, gt=0, description="Steps per second.")
    features: dict[str, PolicyFeature] = Field(default_factory=dict, description="Environment key to feature.")
    features_map: dict[str, str] = Field(default_factory=dict, description="Environment key to policy key.")
    max_parallel_tasks: int = Field(1, ge=1, description="Tasks evaluated at once.")
    disable_env_checker: bool = Field(True, description="Skip Gymnasium's checker.")

    @property
    @abstractmethod
    def gym_kwargs(self) -> dict[str, Any]:
        """Arguments of the Gymnasium constructor."""

    @abstractmethod
    def create_envs(self, n_envs: int, use_async_envs: bool = False) -> dict[str, dict[int, Any]]:
        """Make vector environments.

        Args:
            n_envs: Copies in each vector environment.
            use_async_envs: Whether copies run in processes of their own.

        Returns:
            Suite to task number to vector environment.
        """


def make_env_config(type: str, **settings: Any) -> EnvConfig:
    """Make environment settings by type.

    Args:
        type: Type string, `pusht`.
        **settings: Its fields.

    Returns:
        The settings.

    Raises:
        ConfigError: Unknown type or wrong settings.
    """
    return EnvConfig.choose({"type": type, **settings})


def make_env(config: EnvConfig, n_envs: int = 1, use_async_envs: bool = False) -> dict[str, dict[int, Any]]:
    """Make the vector environments of a suite.

    Args:
        config: Settings.
        n_envs: Copies in each, at least 1.
        use_async_envs: Whether copies run in processes of their own.

    Returns:
        Suite to task number to vector environment.

    Raises:
        ValueError: `n_envs` is below 1.
    """
    if n_envs < 1:
        raise ValueError(f"n_envs must be at least 1, got {n_envs}.")
    return config.create_envs(n_envs, use_async_envs)
