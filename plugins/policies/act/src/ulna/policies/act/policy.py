# SPDX-License-Identifier: Apache-2.0
"""ACT as a policy: loss, chunks, queue and ensembling around the network."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import torch
from torch import Tensor

from ulna.core.constants import ACTION, OBS_STATE
from ulna.core.policies import PreTrainedPolicy
from ulna.policies.act.config import ACTConfig
from ulna.policies.act.ensemble import TemporalEnsembler
from ulna.policies.act.network import ACT, backbone_parameters

__all__ = ["ACTPolicy"]


class ACTPolicy(PreTrainedPolicy):
    """The action chunking transformer (arXiv:2304.13705).

    Args:
        config: Settings with features filled in.
        pretrained_backbones: Whether the backbone may load the torchvision weights the settings name.
        **kwargs: Ignored; accepted so that all policies are made alike.
    """

    config_class = ACTConfig
    name: ClassVar[str] = "act"
    config: ACTConfig
    _fsdp_wrap_modules: ClassVar[list[str] | None] = ["ACTEncoderLayer", "ACTDecoderLayer"]

    def __init__(self, config: ACTConfig, *, pretrained_backbones: bool = True, **kwargs: Any) -> None:
        config.validate_features()
        super().__init__(config, pretrained_backbones=pretrained_backbones, **kwargs)
        self.model = ACT(config, pretrained_backbones=pretrained_backbones)
        self._ensembler = (
            None
            if config.temporal_ensemble_coeff is None
            else TemporalEnsembler(config.temporal_ensemble_coeff, config.chunk_size)
        )
        self._action_queue: deque[Tensor] = deque(maxlen=config.n_action_steps)

    def get_optim_params(self) -> list[dict[str, Any]]:
        """Return two groups: everything else, and the backbone at its own learning rate."""
        backbone = list(backbone_parameters(self.model)) if self.config.image_features else []
        in_backbone = {id(p) for p in backbone}
        rest = [p for p in self.parameters() if p.requires_grad and id(p) not in in_backbone]
        return [{"params": rest}, {"params": backbone, "lr": self.config.optimizer_lr_backbone}]

    def reset(self) -> None:
        """Forget queued actions and past predictions."""
        self._action_queue.clear()
        if self._ensembler is not None:
            self._ensembler.reset()

    def drop_queued_actions(self) -> None:
        """Forget queued actions and past predictions; ACT has no observation history."""
        self.reset()

    def _inputs(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what the network takes; a scalar state (B,) becomes (B, 1)."""
        keys = [*(self.config.input_features or {}), ACTION, "action_is_pad"]
        inputs = {k: batch[k] for k in keys if batch.get(k) is not None}
        missing = [k for k in self.config.input_features or {} if k not in inputs]
        if missing:
            raise KeyError(f"The batch lacks {', '.join(missing)}; it has {', '.join(batch)}.")
        if OBS_STATE in inputs and inputs[OBS_STATE].dim() == 1:
            inputs[OBS_STATE] = inputs[OBS_STATE][:, None]
        if ACTION in inputs and inputs[ACTION].dim() == 2 and self.config.action_feature is not None:
            inputs[ACTION] = inputs[ACTION][..., None] if self.config.action_feature.shape == (1,) else inputs[ACTION]
        return inputs

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> tuple[Tensor, dict[str, Any]]:
        """Compute the loss: L1 over actions that are not padding, plus the KL divergence of the latent in training.

        Args:
            batch: Inputs, `action` (B, C, A) and `action_is_pad` (B, C).
            reduction: `mean` gives a scalar, `none` a loss for each sample (B,).

        Returns:
            The loss, and `l1_loss` and `kld_loss`.

        Raises:
            KeyError: An input, the actions or their padding mask is missing.
            ValueError: Unknown reduction.
        """
        if reduction not in ("mean", "none"):
            raise ValueError(f"reduction is 'mean' or 'none', not {reduction!r}.")
        inputs = self._inputs(batch)
        for key in (ACTION, "action_is_pad"):
            if key not in inputs:
                raise KeyError(f"The batch lacks {key!r}, without which padding would count in the loss.")
        predicted, latent_of = self.model(inputs)
        valid = ~inputs["action_is_pad"]
        error = (inputs[ACTION] - predicted).abs() * valid[..., None]
        per_sample = error.sum(dim=(1, 2)) / (valid.sum(dim=1) * error.shape[-1]).clamp(min=1)
        l1 = error.sum() / (valid.sum() * error.shape[-1]).clamp(min=1)
        figures: dict[str, Any] = {"l1_loss": l1.item()}
        loss = per_sample if reduction == "none" else l1
        if latent_of is not None:
            mean, log_variance = latent_of
            divergence = (-0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp())).sum(dim=-1)
            figures["kld_loss"] = divergence.mean().item()
            loss = loss + (divergence if reduction == "none" else divergence.mean()) * self.config.kl_weight
        return loss, figures

    @torch.no_grad()
    def _chunk(self, batch: dict[str, Tensor]) -> Tensor:
        inputs = self._inputs(batch)
        if not self.training:
            actions, _ = self.model(inputs)
            return actions  # type: ignore[no-any-return]
        self.eval()
        try:
            actions, _ = self.model(inputs)
            return actions  # type: ignore[no-any-return]
        finally:
            self.train()

    def predict_action_chunk(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """Predict a chunk from one preprocessed observation; dropout is off whatever the mode.

        Args:
            batch: Inputs (B, ...). Not changed.
            **kwargs: None are known.

        Returns:
            Normalized actions (B, C, A).

        Raises:
            NotImplementedError: Temporal ensembling is on, which needs the actions one by one.
        """
        if self._ensembler is not None:
            raise NotImplementedError(
                "With temporal_ensemble_coeff, ask for single actions (select_action): chunks leave ensembling out."
            )
        return self._chunk(batch)

    def select_action(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """Return the next action; the network runs when the queue is empty, or at every step when ensembling.

        Args:
            batch: Inputs (B, ...). Not changed.
            **kwargs: None are known.

        Returns:
            A normalized action (B, A).
        """
        if self._ensembler is not None:
            return self._ensembler.update(self._chunk(batch))
        if not self._action_queue:
            chunk = self._chunk(batch)[:, : self.config.n_action_steps]
            self._action_queue.extend(chunk.unbind(dim=1))
        return self._action_queue.popleft()
