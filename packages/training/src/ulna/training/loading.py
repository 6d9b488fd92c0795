# SPDX-License-Identifier: Apache-2.0
"""From positions to batches: from memory at once, or through torch's DataLoader with a random generator of its own."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ulna.data import collate_items
from ulna.training.config import TrainPipelineConfig
from ulna.training.datasets import BatchDataset, TrainingDataset
from ulna.training.sampling import RankBatches
from ulna.training.streams import EndlessReader, StreamBatches, TrainingStream

__all__ = ["Batch", "batch_stream", "ordered_batches", "pictures_as_float", "useful_workers"]

_log = logging.getLogger(__name__)

Batch = dict[str, Any]


def useful_workers(asked: int, cameras: Sequence[str]) -> int:
    """Return how many reading processes are worth starting.

    Without pictures to decode, passing samples between processes takes longer than reading them.

    Args:
        asked: How many the settings allow.
        cameras: Cameras of the dataset.
    """
    return asked if cameras else 0


def batch_stream(
    dataset: TrainingDataset, batches: RankBatches | StreamBatches, config: TrainPipelineConfig
) -> Iterator[Batch]:
    """Return batches without end.

    Args:
        dataset: Where samples come from.
        batches: Their positions, batch by batch.
        config: Settings of the reading processes.

    Returns:
        An iterator; its reading processes end when it is dropped.
    """
    if isinstance(dataset, BatchDataset) and isinstance(batches, RankBatches):
        return (dataset.batch(positions) for positions in batches)
    options = {
        "generator": torch.Generator().manual_seed(config.seed or 0),
        "pin_memory": torch.cuda.is_available(),
        **_processes(dataset, config),
    }
    loader: DataLoader[Any]
    if isinstance(dataset, TrainingStream) and isinstance(batches, StreamBatches):
        reader = EndlessReader(dataset.dataset, batches.batch_size, batches.batches_done)
        loader = DataLoader(reader, batch_size=batches.batch_size, **options)
    else:
        loader = DataLoader(
            dataset,  # type: ignore[arg-type]  # a map-style dataset by protocol
            batch_sampler=batches,  # type: ignore[arg-type]
            collate_fn=collate_items,
            **options,
        )
    with _interrupts_held():
        return iter(loader)


def _processes(dataset: TrainingDataset, config: TrainPipelineConfig) -> dict[str, Any]:
    """Return a loader's settings of reading processes."""
    workers = useful_workers(config.num_workers, dataset.meta.camera_keys)
    if workers < config.num_workers:
        _log.info("The dataset has no pictures: it is read in this process, which is faster.")
    elif workers > (cores := os.cpu_count() or 1):
        _log.warning("num_workers=%d is more than the %d cores of this machine.", workers, cores)
    if isinstance(dataset, TrainingStream):
        workers = min(workers, len(dataset))
    if not workers:
        return {}
    return {
        "num_workers": workers,
        "prefetch_factor": config.prefetch_factor,
        "multiprocessing_context": config.dataloader_multiprocessing_context,
        "worker_init_fn": _leave_interrupts_to_the_parent,
    }


def ordered_batches(dataset: TrainingDataset, positions: Sequence[int], batch_size: int) -> Iterator[Batch]:
    """Yield the samples at some positions once, in order, read in this process.

    Args:
        dataset: Where samples come from.
        positions: Which.
        batch_size: Samples of one batch; the last may have fewer.

    Yields:
        Batches.
    """
    parts = [list(positions[i : i + batch_size]) for i in range(0, len(positions), batch_size)]
    if isinstance(dataset, BatchDataset):
        yield from (dataset.batch(part) for part in parts)
    else:
        own = torch.Generator().manual_seed(0)
        yield from DataLoader(
            dataset,  # type: ignore[arg-type]  # a map-style dataset by protocol
            batch_sampler=parts,
            collate_fn=collate_items,
            generator=own,
        )


def pictures_as_float(batch: Batch, cameras: Sequence[str], device: str) -> Batch:
    """Move pictures to the device as uint8, a quarter of the bytes, and make them float32 in [0, 1] there.

    Args:
        batch: Not changed.
        cameras: Keys of the pictures.
        device: Where the policy is.

    Returns:
        The batch with float pictures; those that are float already stay.
    """
    changed = dict(batch)
    for key in cameras:
        picture = batch.get(key)
        if isinstance(picture, Tensor) and picture.dtype == torch.uint8:
            changed[key] = picture.to(device, non_blocking=True).to(torch.float32).div_(255)
    return changed


def _leave_interrupts_to_the_parent(_: int) -> None:
    """Let a reading process survive Ctrl-C, which reaches the whole process group: the parent ends it in order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Keep Ctrl-C back for a moment; processes started meanwhile never see one, which also covers their slow start."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
