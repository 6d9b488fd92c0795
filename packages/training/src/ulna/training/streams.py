# SPDX-License-Identifier: Apache-2.0
"""Training on a stream: the order of its batches without end, so that a run resumes exactly where it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from ulna.data import StreamingLeRobotDataset
from ulna.training.sampling import SamplerState

__all__ = ["EndlessReader", "StreamBatches", "StreamOrder", "TrainingStream"]


class TrainingStream:
    """A stream in the form in which training takes datasets.

    Args:
        dataset: The stream; its seed is set when the training starts.
    """

    def __init__(self, dataset: StreamingLeRobotDataset) -> None:
        self.dataset = dataset

    @property
    def meta(self) -> Any:
        """Metadata of the dataset."""
        return self.dataset.meta

    def __len__(self) -> int:
        return self.dataset.num_frames

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Refuse: a stream has no positions.

        Args:
            position: Any.

        Raises:
            TypeError: Always.
        """
        raise TypeError(f"Position {position} of a stream was asked for; its frames come one after the other.")

    def episode_spans(self) -> list[tuple[int, int]]:
        """Return one span for each episode, as long as the episode is in the stream."""
        lengths = self.dataset.episode_lengths
        ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
        return [(end - length, end) for end, length in zip(ends, lengths, strict=True)]

    def window(self, key: str) -> int | None:
        """Return how many values of a feature a sample has; None for a single one.

        Args:
            key: The feature.
        """
        windows = self.dataset.delta_timestamps or {}
        return len(windows[key]) if key in windows else None


class StreamOrder:
    """What checkpoints say about the order of samples.

    Args:
        frames: Samples of one pass.
        seed: Seed of the order.
    """

    def __init__(self, frames: int, seed: int) -> None:
        self._frames, self.seed = frames, seed

    def __len__(self) -> int:
        return self._frames


class StreamBatches:
    """Where in a stream a run is. Its batches are always full: passes follow one another without a break.

    Args:
        sampler: Length and seed of the stream.
        batch_size: Samples of one batch.
        state: Where to begin.
    """

    def __init__(self, sampler: StreamOrder, batch_size: int, state: SamplerState | None = None) -> None:
        self.sampler, self.batch_size = sampler, batch_size
        self.state = state or SamplerState()

    @property
    def _seen(self) -> int:
        return self.state.epoch * len(self.sampler) + self.state.start_index

    @property
    def batches_done(self) -> int:
        """Batches taken before the first one of this run."""
        return self._seen // self.batch_size

    def state_after(self, count: int) -> SamplerState:
        """Return where the run is after some batches.

        Args:
            count: Batches taken since `state`.
        """
        return SamplerState(*divmod(self._seen + count * self.batch_size, len(self.sampler)))


class EndlessReader(IterableDataset[dict[str, Any]]):
    """What the processes of a loader read: each its share of the stream, pass after pass.

    The loader takes batches from its processes in turn. After a break the turn begins with the process that would
    have been next, so that batches come as they would have come without it.

    Args:
        dataset: The stream.
        batch_size: Samples of one batch.
        batches_done: Batches taken before.
    """

    def __init__(self, dataset: StreamingLeRobotDataset, batch_size: int, batches_done: int) -> None:
        super().__init__()
        self._dataset, self._batch_size, self._done = dataset, batch_size, batches_done

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = get_worker_info()
        readers, number = (1, 0) if info is None else (info.num_workers, info.id)
        reader = (number + self._done) % readers
        rounds, extra = divmod(self._done, readers)
        taken = self._batch_size * (rounds + (reader < extra))
        epoch, start = divmod(taken, self._dataset.part_length(reader, readers))
        while True:
            yield from self._dataset.read_part(reader, readers, epoch=epoch, start=start)
            epoch, start = epoch + 1, 0
