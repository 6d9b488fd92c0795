# SPDX-License-Identifier: Apache-2.0
"""Settings of the fakes that learn. Readable without torch. Nothing is registered here: see `fake_plugins`."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import Field

from ulna.core.algorithm_config import RLAlgorithmConfig
from ulna.core.errors import ConfigError, ConfigProblem
from ulna.core.features import FeatureType, NormalizationMode
from ulna.core.optim import LRSchedulerConfig, OptimizerConfig
from ulna.core.policy_config import PreTrainedConfig

__all__ = ["FakeAlgorithmConfig", "FakeOptimizerConfig", "FakePolicyConfig"]


class FakeOptimizerConfig(OptimizerConfig):
    """Settings of the fakes' optimizer: torch's Adam."""

    type: str = "fake_adam"

    def make(self, params: Any) -> Any:
        """Make the optimizer.

        Args:
            params: Parameters, or parameter groups.

        Returns:
            The optimizer.
        """
        import torch

        return torch.optim.Adam(params, lr=self.lr, weight_decay=self.weight_decay)


class FakePolicyConfig(PreTrainedConfig):
    """Settings of a fake policy: two linear layers from the state to a chunk of actions."""

    implementation: ClassVar[str] = "ulna.testing.fakes.policy:FakePolicy"
    processors: ClassVar[str] = "ulna.testing.fakes.processing:make_fake_processors"

    type: str = "fake_policy"
    chunk_size: int = Field(4, gt=0, description="Actions predicted at once.")
    n_action_steps: int = Field(3, gt=0, description="Of these, actions executed before the next prediction.")
    hidden: int = Field(8, gt=0, description="Width of the hidden layer.")
    noise: float = Field(0.0, ge=0, description="Standard deviation of noise on predicted actions.")
    normalization_mapping: dict[FeatureType, NormalizationMode] = Field(
        default_factory=lambda: {
            FeatureType.STATE: NormalizationMode.MEAN_STD,
            FeatureType.ACTION: NormalizationMode.MEAN_STD,
        },
        description="Feature type to how it is normalized.",
    )

    @property
    def observation_delta_indices(self) -> None:
        """Now alone."""
        return

    @property
    def action_delta_indices(self) -> list[int]:
        """The chunk, from now on."""
        return list(range(self.chunk_size))

    def get_optimizer_preset(self) -> OptimizerConfig:
        """Return Adam."""
        return FakeOptimizerConfig()

    def get_scheduler_preset(self) -> LRSchedulerConfig | None:
        """Return None: the rate stays."""
        return None

    def validate_features(self) -> None:
        """Check that there are a state and an action.

        Raises:
            ConfigError: One is missing.
        """
        wanted = {"input_features": self.robot_state_feature, "output_features": self.action_feature}
        problems = [ConfigProblem(k, None, "needs a state or an action") for k, v in wanted.items() if v is None]
        if problems:
            raise ConfigError(problems, title="fake policy features")


class FakeAlgorithmConfig(RLAlgorithmConfig):
    """Settings of a fake algorithm: regression on the actions of the batch."""

    implementation: ClassVar[str] = "ulna.testing.fakes.algorithm:FakeAlgorithm"

    type: str = "fake_algorithm"
    lr: float = Field(1e-2, gt=0, description="Learning rate.")

    @classmethod
    def from_policy_config(cls, policy_config: PreTrainedConfig) -> Self:
        """Make settings that suit a policy.

        Args:
            policy_config: The policy's settings.

        Returns:
            The algorithm's settings.
        """
        return cls(policy_config=policy_config)
