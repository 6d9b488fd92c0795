# SPDX-License-Identifier: Apache-2.0
"""Temporal ensembling: blending what several chunks predict for one moment (arXiv:2304.13705, section IV-B)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["TemporalEnsembler"]


class TemporalEnsembler:
    """Weights the i-th oldest prediction of a moment by exp(-coefficient * i), online. Holds the state of one rollout.

    Args:
        coefficient: 0 weights all alike; positive values favour older predictions.
        chunk_size: Actions in a chunk.
    """

    def __init__(self, coefficient: float, chunk_size: int) -> None:
        self.chunk_size = chunk_size
        self._weights = torch.exp(-coefficient * torch.arange(chunk_size))
        self._sums = torch.cumsum(self._weights, dim=0)
        self.reset()

    def reset(self) -> None:
        """Forget all predictions."""
        self._blended: Tensor | None = None
        self._count: Tensor | None = None

    def update(self, chunk: Tensor) -> Tensor:
        """Take a new chunk in and return the action for now.

        Args:
            chunk: Actions (B, C, A), the first one for now.

        Returns:
            The blended action (B, A).
        """
        weights, sums = self._weights.to(chunk.device), self._sums.to(chunk.device)
        if self._blended is None or self._count is None:
            blended = chunk.clone()
            count = torch.ones(self.chunk_size, 1, dtype=torch.long, device=chunk.device)
        else:
            count = self._count
            blended = self._blended * sums[count - 1] + chunk[:, :-1] * weights[count]
            blended = blended / sums[count]
            blended = torch.cat((blended, chunk[:, -1:]), dim=1)
            count = torch.cat((torch.clamp(count + 1, max=self.chunk_size), torch.ones_like(count[:1])))
        self._blended, self._count = blended[:, 1:], count[1:]
        return blended[:, 0]
