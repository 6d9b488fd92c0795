# SPDX-License-Identifier: Apache-2.0
"""A fake algorithm: regression of the policy's first action on the actions of the batch. Needs torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer

from ulna.core.algorithm_config import TrainingStats
from ulna.core.algorithms import RLAlgorithm
from ulna.testing.fakes.faults import FaultPlan
from ulna.testing.fakes.learning_configs import FakeAlgorithmConfig
from ulna.testing.fakes.policy import FakePolicy

__all__ = ["FakeAlgorithm"]


class FakeAlgorithm(RLAlgorithm):
    """Teaches a fake policy the actions of its batches, and keeps one number of its own.

    Args:
        policy: The policy being trained.
        config: Settings.

    Attributes:
        faults: What goes wrong, and a log of the calls.
    """

    config_class = FakeAlgorithmConfig
    name = "fake_algorithm"
    policy: FakePolicy
    config: FakeAlgorithmConfig

    def __init__(self, policy: FakePolicy, config: FakeAlgorithmConfig) -> None:
        super().__init__(policy, config)
        self.faults = FaultPlan()
        self.log_scale = torch.zeros(1, requires_grad=True)
        self._optimizers: dict[str, Optimizer] = {}

    def make_optimizers_and_scheduler(self) -> dict[str, Optimizer]:
        """Make one optimizer for the policy and the number."""
        parameters = [*self.policy.parameters(), self.log_scale]
        self._optimizers = {"policy": Adam(parameters, lr=self.config.lr)}
        return self._optimizers

    def get_optimizers(self) -> dict[str, Optimizer]:
        """Return what `make_optimizers_and_scheduler` made."""
        return self._optimizers

    def update(self, batch_iterator: Iterator[Any]) -> TrainingStats:
        """Do one step; see `RLAlgorithm.update`."""
        self.faults.called("update")
        batch = next(batch_iterator)
        action = self.policy._chunk(batch["state"])[:, 0]
        error = (action - batch["action"]).square().mean() + (self.log_scale - 1).square().mean()
        optimizer = self._optimizers["policy"]
        optimizer.zero_grad()
        error.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 10.0)
        optimizer.step()
        self._optimization_step += 1
        self._weights_version += 1
        return TrainingStats(losses={"loss": float(error.detach())}, grad_norms={"policy": float(norm)})

    def get_weights(self) -> dict[str, Any]:
        """Return the policy's tensors."""
        return {"policy": {k: v.detach().clone() for k, v in self.policy.state_dict().items()}}

    def load_weights(self, weights: Mapping[str, Any], device: str = "cpu") -> None:
        """Take the policy's tensors; see `RLAlgorithm.load_weights`."""
        self.policy.load_state_dict({k: v.to(device) for k, v in weights["policy"].items()})

    def state_dict(self) -> dict[str, Tensor]:
        """Return the number."""
        return {"log_scale": self.log_scale.detach().clone()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor], device: str = "cpu") -> None:
        """Take the number back in place; see `RLAlgorithm.load_state_dict`."""
        with torch.no_grad():
            self.log_scale.copy_(state_dict["log_scale"])
