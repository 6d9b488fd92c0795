# SPDX-License-Identifier: Apache-2.0
"""The loss on held-out episodes. Evaluating changes neither the policy's mode nor any random generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn

from ulna.core.policies import PreTrainedPolicy
from ulna.training.datasets import TrainingDataset, episode_spans
from ulna.training.loading import Batch, ordered_batches
from ulna.training.metrics import RunningMeans, is_number
from ulna.training.rng import preserved_rng

__all__ = ["evaluation_mode", "evaluation_positions", "held_out_loss"]


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode; every part gets its own mode back, also after an error.

    Args:
        module: The module.
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def evaluation_positions(dataset: TrainingDataset, most: int) -> list[int]:
    """Return the samples of an evaluation: all, or the first ones of every episode in equal parts.

    Args:
        dataset: The held-out episodes.
        most: How many at most; 0 for all.
    """
    spans = episode_spans(dataset)
    if not most or most >= len(dataset):
        return list(range(len(dataset)))
    chosen: list[int] = []
    left = most
    for count, (start, stop) in zip(range(len(spans), 0, -1), sorted(spans, key=lambda s: s[1] - s[0]), strict=True):
        share = min(stop - start, left // count)
        chosen += range(start, start + share)
        left -= share
    return sorted(chosen)


def held_out_loss(
    policy: PreTrainedPolicy,
    prepare: Callable[[Batch], Batch],
    dataset: TrainingDataset,
    positions: Sequence[int],
    batch_size: int,
    autocast: Callable[[], AbstractContextManager[None]],
) -> dict[str, float]:
    """Compute the mean loss over samples.

    Args:
        policy: The policy.
        prepare: Turns a batch of the dataset into one for the policy.
        dataset: Where samples come from.
        positions: Which.
        batch_size: Samples at once.
        autocast: Makes the context of mixed precision.

    Returns:
        `eval_loss` and the policy's own figures as `eval_<name>`, each sample counted once.
    """
    sums: dict[str, float] = {}
    with evaluation_mode(policy), preserved_rng(), torch.no_grad():
        for part, batch in zip(
            range(0, len(positions), batch_size), ordered_batches(dataset, positions, batch_size), strict=True
        ):
            size = min(batch_size, len(positions) - part)
            with autocast():
                loss, outputs = policy(prepare(batch))
            figures = RunningMeans()
            figures.add({"loss": loss, **{k: v for k, v in (outputs or {}).items() if is_number(v) and k != "loss"}})
            for name, value in figures.means().items():
                sums[name] = sums.get(name, 0.0) + value * size
    return {f"eval_{name}": total / len(positions) for name, total in sums.items()}
