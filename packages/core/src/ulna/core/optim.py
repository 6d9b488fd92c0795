# SPDX-License-Identifier: Apache-2.0
"""Settings of optimizers and learning-rate schedules; the implementations are plugins. Readable without torch."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from ulna.core.config import PluginConfig

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

__all__ = ["LRSchedulerConfig", "OptimizerConfig", "make_optimizer_config", "make_scheduler_config"]


class OptimizerConfig(PluginConfig):
    """Base of every optimizer's settings."""

    plugin_kind: ClassVar[str] = "optimizers"
    plugin_base: ClassVar[bool] = True

    lr: float = Field(1e-3, gt=0, description="Learning rate.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay.")
    grad_clip_norm: float = Field(10.0, ge=0, description="Largest gradient norm; 0 turns clipping off.")

    @abstractmethod
    def make(self, params: Any) -> Optimizer | dict[str, Optimizer]:
        """Make the optimizer.

        Args:
            params: Parameters, or parameter groups (dicts with `params`).

        Returns:
            One optimizer, or several by name.
        """


class LRSchedulerConfig(PluginConfig):
    """Base of every schedule's settings."""

    plugin_kind: ClassVar[str] = "schedulers"
    plugin_base: ClassVar[bool] = True

    @abstractmethod
    def make(self, optimizer: Optimizer, num_training_steps: int) -> LRScheduler:
        """Make the schedule.

        Args:
            optimizer: What it drives.
            num_training_steps: Length of the training.

        Returns:
            The schedule.
        """


def make_optimizer_config(type: str, **settings: Any) -> OptimizerConfig:
    """Make optimizer settings by type.

    Args:
        type: Type string, `adamw`.
        **settings: Its fields.

    Returns:
        The settings.

    Raises:
        ConfigError: Unknown type or wrong settings.
    """
    return OptimizerConfig.choose({"type": type, **settings})


def make_scheduler_config(type: str, **settings: Any) -> LRSchedulerConfig:
    """Make schedule settings by type.

    Args:
        type: Type string, `cosine_decay_with_warmup`.
        **settings: Its fields.

    Returns:
        The settings.

    Raises:
        ConfigError: Unknown type or wrong settings.
    """
    return LRSchedulerConfig.choose({"type": type, **settings})
