# SPDX-License-Identifier: Apache-2.0
"""What an author gives to the checks of policies, and how these build and run a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from ulna.core.policy_config import PreTrainedConfig
from ulna.testing import batches
from ulna.testing.checks import Suite, expect
from ulna.testing.seeding import seeded

if TYPE_CHECKING:
    from torch import Tensor

    from ulna.core.policies import PreTrainedPolicy

__all__ = ["PolicySubject"]


class PolicySubject(Suite):
    """The fixture and the hooks of `PolicySuite`, whose docstring describes them."""

    subject: ClassVar[str] = "policy_config"
    vendor_modules: ClassVar[tuple[str, ...]] = ()
    masks_padding: ClassVar[bool] = True
    padding_key: ClassVar[str] = "action_is_pad"
    tolerance: ClassVar[float] = 1e-5

    @pytest.fixture
    def policy_config(self) -> PreTrainedConfig:
        """Give settings of a tiny policy. The one thing an author overrides."""
        made: PreTrainedConfig = self.missing_fixture()
        return made

    def make(self, config: PreTrainedConfig) -> PreTrainedPolicy:
        """Build a policy with fresh weights.

        Args:
            config: Settings of its own.

        Returns:
            The policy.
        """
        made: PreTrainedPolicy = config.load_implementation()(config, pretrained_backbones=False)
        return made

    def batch(self, config: PreTrainedConfig, size: int, seed: int = 0) -> dict[str, Any]:
        """Make a preprocessed observation, as `select_action` takes it.

        Args:
            config: Settings.
            size: Batch size.
            seed: Same seed, same values.

        Returns:
            Key to tensor (size, ...).
        """
        return batches.observation(config, size, seed)

    def training_batch(self, config: PreTrainedConfig, size: int, seed: int = 0) -> dict[str, Any]:
        """Make a preprocessed batch with actions, as `forward` takes it; nothing in it is padded.

        Args:
            config: Settings.
            size: Batch size.
            seed: Same seed, same values.

        Returns:
            Key to tensor (size, ...).
        """
        return batches.training(config, size, seed, self.batch(config, size, seed))

    def action_loss(self, loss: Tensor, figures: Mapping[str, Any] | None) -> float:
        """Return the part of the loss that is the error of the actions.

        Args:
            loss: What `forward` returned first.
            figures: What it returned second.

        Returns:
            The figure; default: the whole loss.
        """
        return float(loss.detach())

    def stats(self, config: PreTrainedConfig) -> dict[str, dict[str, Any]]:
        """Return statistics of a dataset that suits the policy.

        Args:
            config: Settings.

        Returns:
            Key to statistic to tensor.
        """
        return batches.statistics(config)

    # How checks build and run

    def _make(self, config: PreTrainedConfig) -> PreTrainedPolicy:
        """Build the policy; the same weights each time, in evaluation mode, reset."""
        with seeded(0):
            policy = self.make(config.model_copy(deep=True))
        policy.eval()
        policy.reset()
        return policy

    def _select(self, policy: PreTrainedPolicy, batch: dict[str, Any], times: int = 1) -> list[Tensor]:
        with seeded(1):
            return [policy.select_action(batches.copied(batch)).detach().clone() for _ in range(times)]

    def _chunk(self, policy: PreTrainedPolicy, batch: dict[str, Any]) -> Tensor:
        with seeded(1):
            return policy.predict_action_chunk(batches.copied(batch)).detach().clone()

    def _loss(self, policy: PreTrainedPolicy, batch: dict[str, Any], **named: Any) -> tuple[Tensor, Any]:
        with seeded(2):
            return policy.forward(batches.copied(batch), **named)

    def _same(self, one: Tensor, other: Tensor) -> bool:
        import torch

        return one.shape == other.shape and bool(torch.allclose(one, other, rtol=1e-4, atol=self.tolerance))

    def _action_shape(self, config: PreTrainedConfig) -> tuple[int, ...]:
        expect(config.action_feature is not None, "the settings have no action feature")
        return config.action_feature.shape if config.action_feature else ()

    def _steps(self, config: PreTrainedConfig) -> int:
        return int(getattr(config, "n_action_steps", 1))
