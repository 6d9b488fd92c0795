# SPDX-License-Identifier: Apache-2.0
"""A fake policy: small enough to train in milliseconds, complete enough for every loop. Needs torch."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor, nn

from ulna.core.constants import ACTION, OBS_STATE
from ulna.core.policies import PreTrainedPolicy
from ulna.testing.fakes.faults import FaultPlan
from ulna.testing.fakes.learning_configs import FakePolicyConfig

__all__ = ["FakePolicy"]


class FakePolicy(PreTrainedPolicy):
    """A perceptron from the state to a chunk of actions, trained by the mean absolute error of the valid ones.

    Args:
        config: Its settings.
        **kwargs: As for every policy.

    Attributes:
        faults: What goes wrong, and a log of the calls.
    """

    config_class = FakePolicyConfig
    name = "fake_policy"
    config: FakePolicyConfig

    def __init__(self, config: FakePolicyConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        config.validate_features()
        size = config.robot_state_feature.shape[0] if config.robot_state_feature else 0
        self.action_size = config.action_feature.shape[0] if config.action_feature else 0
        self.body = nn.Sequential(
            nn.Linear(size, config.hidden), nn.Tanh(), nn.Linear(config.hidden, config.chunk_size * self.action_size)
        )
        self.faults = FaultPlan()
        self._action_queue: deque[Tensor] = deque()

    def get_optim_params(self) -> Any:
        """Return all parameters."""
        return self.parameters()

    def reset(self) -> None:
        """Forget the queued actions."""
        self._action_queue.clear()

    def _chunk(self, batch: dict[str, Tensor]) -> Tensor:
        flat: Tensor = self.body(batch[OBS_STATE])
        return flat.reshape(*flat.shape[:-1], self.config.chunk_size, self.action_size)  # (B, chunk, A)

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> tuple[Tensor, dict[str, Any]]:
        """Compute the mean absolute error of the actions that are not padding; see `PreTrainedPolicy.forward`."""
        self.faults.called("forward")
        error = (self._chunk(batch) - batch[ACTION]).abs()  # (B, chunk, A)
        valid = (~batch["action_is_pad"]).unsqueeze(-1).expand_as(error)
        if reduction == "none":
            loss = (error * valid).sum((1, 2)) / valid.sum((1, 2)).clamp(min=1)
        else:
            loss = (error * valid).sum() / valid.sum().clamp(min=1)
        return loss, {"l1_loss": float(loss.mean().detach())}

    @torch.no_grad()
    def predict_action_chunk(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """Predict a chunk; see `PreTrainedPolicy.predict_action_chunk`."""
        self.faults.called("predict_action_chunk")
        chunk = self._chunk(batch)
        return chunk + self.config.noise * torch.randn_like(chunk) if self.config.noise else chunk

    @torch.no_grad()
    def select_action(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """Return the next action of the queue; see `PreTrainedPolicy.select_action`."""
        self.faults.called("select_action")
        if not self._action_queue:
            chunk = self.predict_action_chunk(batch)[:, : self.config.n_action_steps]
            self._action_queue.extend(chunk.unbind(1))
        return self._action_queue.popleft()
