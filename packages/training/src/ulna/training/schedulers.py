# SPDX-License-Identifier: Apache-2.0
"""The learning-rate schedules: settings readable without torch, each a factor as a function of the step."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ulna.core.optim import LRSchedulerConfig

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

__all__ = [
    "ConstantWithWarmupSchedulerConfig",
    "CosineAnnealingWithWarmupSchedulerConfig",
    "CosineDecayWithWarmupSchedulerConfig",
    "DiffuserSchedulerConfig",
    "FactorSchedulerConfig",
    "VQBeTSchedulerConfig",
]

_log = logging.getLogger(__name__)
_POLYNOMIAL_END_LR = 1e-7


class FactorSchedulerConfig(LRSchedulerConfig):
    """Base of schedules that multiply every group's base rate by one factor of the step."""

    plugin_base = False

    @abstractmethod
    def factor(self, step: int, num_training_steps: int, base_lr: float) -> float:
        """Return what the base rate is multiplied by.

        Args:
            step: Optimizer steps taken.
            num_training_steps: Length of the training.
            base_lr: Base rate of the optimizer's settings.

        Returns:
            The factor.
        """

    def make(self, optimizer: Optimizer, num_training_steps: int) -> LRScheduler:
        """Make the schedule.

        Args:
            optimizer: What it drives.
            num_training_steps: Length of the training.

        Returns:
            A torch LambdaLR.
        """
        from torch.optim.lr_scheduler import LambdaLR

        base_lr = float(optimizer.defaults["lr"])

        def factor(step: int) -> float:
            return self.factor(step, num_training_steps, base_lr)

        # A plain function, since torch saves the attributes of any other callable, and LeRobot expects none.
        return LambdaLR(optimizer, factor)


def _warmup(step: int, warmup: int) -> float | None:
    """Return the factor during a linear warm-up from 0, None after it."""
    return step / max(1, warmup) if step < warmup else None


def _progress(step: int, warmup: int, total: int) -> float:
    """Return how much of the time after the warm-up has passed."""
    return (step - warmup) / max(1, total - warmup)


def _half_cosine(progress: float, cycles: float = 0.5) -> float:
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * cycles * 2.0 * progress)))


class ConstantWithWarmupSchedulerConfig(FactorSchedulerConfig):
    """Linear warm-up, then the base rate."""

    type: str = "constant_with_warmup"

    num_warmup_steps: int = Field(1000, ge=0, description="Steps of the warm-up.")

    def factor(self, step: int, num_training_steps: int, base_lr: float) -> float:
        """Return what the base rate is multiplied by; see the base class."""
        warm = _warmup(step, self.num_warmup_steps)
        return 1.0 if warm is None else warm


class CosineAnnealingWithWarmupSchedulerConfig(FactorSchedulerConfig):
    """Linear warm-up, then half a cosine down to zero at the end of the training."""

    type: str = "cosine_annealing_with_warmup"

    num_warmup_steps: int = Field(ge=0, description="Steps of the warm-up.")

    def factor(self, step: int, num_training_steps: int, base_lr: float) -> float:
        """Return what the base rate is multiplied by; see the base class."""
        warm = _warmup(step, self.num_warmup_steps)
        if warm is not None:
            return warm
        return _half_cosine(_progress(step, self.num_warmup_steps, num_training_steps))


class CosineDecayWithWarmupSchedulerConfig(FactorSchedulerConfig):
    """Linear warm-up, then half a cosine from the peak rate to the decay rate, which is kept.

    A training shorter than `num_decay_steps` scales warm-up and decay down to its length.
    """

    type: str = "cosine_decay_with_warmup"

    num_warmup_steps: int = Field(ge=0, description="Steps of the warm-up.")
    num_decay_steps: int = Field(gt=0, description="Step at which the decay rate is reached.")
    peak_lr: float = Field(gt=0, description="Highest learning rate.")
    decay_lr: float = Field(ge=0, description="Lowest learning rate.")

    def make(self, optimizer: Optimizer, num_training_steps: int) -> LRScheduler:
        """Make the schedule, telling when it is scaled down.

        Args:
            optimizer: What it drives.
            num_training_steps: Length of the training.

        Returns:
            A torch LambdaLR.
        """
        warmup, decay = self._lengths(num_training_steps)
        if decay != self.num_decay_steps:
            text = "The training has %d steps: the warm-up is scaled from %d to %d steps, the decay from %d to %d."
            _log.info(text, num_training_steps, self.num_warmup_steps, warmup, self.num_decay_steps, decay)
        return super().make(optimizer, num_training_steps)

    def _lengths(self, num_training_steps: int) -> tuple[int, int]:
        if num_training_steps >= self.num_decay_steps:
            return self.num_warmup_steps, self.num_decay_steps
        scale = num_training_steps / self.num_decay_steps
        return int(self.num_warmup_steps * scale), num_training_steps

    def factor(self, step: int, num_training_steps: int, base_lr: float) -> float:
        """Return what the base rate is multiplied by; see the base class."""
        warmup, decay = self._lengths(num_training_steps)
        if step < warmup:
            first = 1 / (warmup + 1)
            return first + (1 - first) * step / warmup
        lowest = self.decay_lr / self.peak_lr
        cosine = 0.5 * (1 + math.cos(math.pi * min(step, decay) / decay))
        return (1 - lowest) * cosine + lowest


class DiffuserSchedulerConfig(FactorSchedulerConfig):
    """The schedules that diffusion policies are trained with, by name."""

    type: str = "diffuser"

    num_warmup_steps: int | None = Field(None, ge=0, description="Steps of the warm-up; default: none.")
    name: Literal["cosine", "linear", "constant", "constant_with_warmup", "polynomial", "cosine_with_restarts"] = Field(
        "cosine", description="Shape after the warm-up."
    )

    def factor(self, step: int, num_training_steps: int, base_lr: float) -> float:
        """Return what the base rate is multiplied by; see the base class."""
        warmup = 0 if self.name == "constant" else self.num_warmup_steps or 0
        warm = _warmup(step, warmup)
        if warm is not None:
            return warm
        return _DIFFUSER_SHAPES[self.name](_progress(step, warmup, num_training_steps), base_lr)


def _polynomial(progress: float, base_lr: float) -> float:
    """Fall linearly to 1e-7, and stay there."""
    left = 1 - min(progress, 1.0)
    return ((base_lr - _POLYNOMIAL_END_LR) * left + _POLYNOMIAL_END_LR) / base_lr


def _restarting(progress: float, base_lr: float) -> float:
    """Half a cosine, and zero from the end on: one cycle has no restart in between."""
    return 0.0 if progress >= 1.0 else max(0.0, 0.5 * (1.0 + math.cos(math.pi * (progress % 1.0))))


_DIFFUSER_SHAPES: dict[str, Callable[[float, float], float]] = {
    "cosine": lambda progress, _: _half_cosine(progress),
    "linear": lambda progress, _: max(0.0, 1.0 - progress),
    "constant": lambda _, __: 1.0,
    "constant_with_warmup": lambda _, __: 1.0,
    "polynomial": _polynomial,
    "cosine_with_restarts": _restarting,
}


class VQBeTSchedulerConfig(FactorSchedulerConfig):
    """Constant while the codebook is trained, then a linear warm-up and a cosine (Lee et al., 2024)."""

    type: str = "vqbet"

    num_warmup_steps: int = Field(ge=0, description="Steps of the warm-up after the codebook.")
    num_vqvae_training_steps: int = Field(ge=0, description="Steps in which the codebook is trained.")
    num_cycles: float = Field(0.5, gt=0, description="Cycles of the cosine; 0.5 falls to zero once.")

    def factor(self, step: int, num_training_steps: int, base_lr: float) -> float:
        """Return what the base rate is multiplied by; see the base class."""
        if step < self.num_vqvae_training_steps:
            return 1.0
        step -= self.num_vqvae_training_steps
        warm = _warmup(step, self.num_warmup_steps)
        if warm is not None:
            return warm
        return _half_cosine(_progress(step, self.num_warmup_steps, num_training_steps), self.num_cycles)
