# SPDX-License-Identifier: Apache-2.0
"""Which samples are seen in which order: a pure function of seed, epoch and position, so that resuming is exact."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ulna.core.errors import DatasetError

__all__ = ["EpisodeAwareSampler", "RankBatches", "SamplerState", "compute_sampler_state", "epoch_order"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SamplerState:
    """Where in the order of samples a run is.

    Attributes:
        epoch: Pass over the data, from 0.
        start_index: Samples of this pass that were seen already, by all processes together.
    """

    epoch: int = 0
    start_index: int = 0


def epoch_order(size: int, seed: int, epoch: int) -> torch.Tensor:
    """Return the shuffled order of one pass. No global generator is touched.

    Args:
        size: Number of samples.
        seed: Seed of the run.
        epoch: Which pass.

    Returns:
        A permutation (size,), int64.
    """
    entropy = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0]
    return torch.randperm(size, generator=torch.Generator().manual_seed(int(entropy)))


def compute_sampler_state(step: int, num_frames: int, batch_size: int, num_processes: int = 1) -> SamplerState:
    """Return where a run is after a number of steps.

    Args:
        step: Batches that each process has seen.
        num_frames: Samples of one pass.
        batch_size: Samples of one batch of one process.
        num_processes: Processes that share the data.

    Returns:
        The position.
    """
    batches = math.ceil(num_frames / batch_size)
    epoch, batch = divmod(step, math.ceil(batches / num_processes))
    return SamplerState(epoch, min(batch * batch_size * num_processes, num_frames))


class EpisodeAwareSampler:
    """Yields positions of frames, episode by episode or shuffled; each iteration is the next epoch.

    Its memory grows with the number of episodes, not of frames (a shuffled pass aside).

    Args:
        dataset_from_indices: First frame of each episode.
        dataset_to_indices: End of each episode, exclusive.
        episode_indices_to_use: Episodes to use; default: all. They keep the order of the dataset.
        drop_n_first_frames: Frames left out at the beginning of each episode.
        drop_n_last_frames: Frames left out at the end of each episode.
        shuffle: Whether the order is random.
        seed: Seed of the order.
        absolute_to_relative: Frame number to position in a dataset opened with some episodes only.

    Raises:
        DatasetError: No frame is left.
    """

    def __init__(
        self,
        dataset_from_indices: Sequence[int],
        dataset_to_indices: Sequence[int],
        episode_indices_to_use: Sequence[int] | None = None,
        *,
        drop_n_first_frames: int = 0,
        drop_n_last_frames: int = 0,
        shuffle: bool = False,
        seed: int = 0,
        absolute_to_relative: Mapping[int, int] | None = None,
    ) -> None:
        chosen = None if episode_indices_to_use is None else set(episode_indices_to_use)
        starts, lengths, emptied = [], [], []
        for episode, (start, stop) in enumerate(zip(dataset_from_indices, dataset_to_indices, strict=True)):
            if chosen is not None and episode not in chosen:
                continue
            length = int(stop) - int(start) - drop_n_first_frames - drop_n_last_frames
            if length <= 0:
                emptied.append(episode)
                continue
            starts.append(int(start) + drop_n_first_frames)
            lengths.append(length)
        dropped = f"drop_n_first_frames={drop_n_first_frames} and drop_n_last_frames={drop_n_last_frames}"
        if not lengths:
            raise DatasetError(f"No frame is left after {dropped}: every episode is too short, or none was selected.")
        if emptied:
            _log.warning("Episodes %s are too short for %s and are left out.", emptied, dropped)
        self._starts: npt.NDArray[np.int64] = np.asarray(starts, dtype=np.int64)
        self._ends = np.cumsum(lengths)
        self._offsets = self._starts - (self._ends - np.asarray(lengths))
        self._relative = absolute_to_relative
        self.shuffle, self.seed = shuffle, seed
        self._state, self._next_epoch = SamplerState(), 0

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def indices(self) -> list[int]:
        """All frames in file order."""
        return self._frames(torch.arange(len(self)))

    def epoch(self, number: int) -> list[int]:
        """Return the frames of one pass, in order; the sampler's own position stays as it is.

        Args:
            number: Which pass, from 0.
        """
        order = epoch_order(len(self), self.seed, number) if self.shuffle else torch.arange(len(self))
        return self._frames(order)

    def _frames(self, order: torch.Tensor) -> list[int]:
        slots = order.numpy()
        frames: list[int] = (slots + self._offsets[np.searchsorted(self._ends, slots, side="right")]).tolist()
        return frames if self._relative is None else [self._relative[frame] for frame in frames]

    def __iter__(self) -> Iterator[int]:
        start, epoch = self._state.start_index, self._next_epoch
        self._state, self._next_epoch = SamplerState(epoch), epoch + 1
        return iter(self.epoch(epoch)[start:])

    def state_dict(self) -> dict[str, int]:
        """Return the epoch being iterated and where the next iteration begins."""
        return {"epoch": self._state.epoch, "start_index": self._state.start_index}

    def load_state_dict(self, state: Mapping[str, int] | SamplerState) -> None:
        """Begin the next iteration somewhere.

        Args:
            state: What `state_dict` or `compute_sampler_state` returned.
        """
        self._state = state if isinstance(state, SamplerState) else SamplerState(**state)
        self._next_epoch = self._state.epoch


class RankBatches:
    """Batches of positions for one process, pass after pass without end. Never the same sample twice in a pass.

    All processes compute the same order and take their own part of it; the last round of a pass is shared out evenly,
    so that every process takes the same number of steps. Only when fewer samples are left than there are processes do
    some see one again.

    Args:
        sampler: The order.
        batch_size: Samples of one batch of one process.
        state: Where to begin.
        rank: Which process.
        num_processes: How many there are.
    """

    def __init__(
        self,
        sampler: EpisodeAwareSampler,
        batch_size: int,
        state: SamplerState | None = None,
        *,
        rank: int = 0,
        num_processes: int = 1,
    ) -> None:
        self.sampler, self.batch_size = sampler, batch_size
        self.state = state or SamplerState()
        self.rank, self.num_processes = rank, num_processes

    def __len__(self) -> int:
        """Return the number of batches in a whole pass."""
        return math.ceil(len(self.sampler) / (self.batch_size * self.num_processes))

    def __iter__(self) -> Iterator[list[int]]:
        epoch, start = self.state.epoch, self.state.start_index
        while True:
            order = self.sampler.epoch(epoch)
            together = self.batch_size * self.num_processes
            for first in range(start, len(order), together):
                yield self._share(order, order[first : first + together])
            epoch, start = epoch + 1, 0

    def _share(self, order: list[int], part: list[int]) -> list[int]:
        """Return this process's part of one round."""
        if len(part) == self.batch_size * self.num_processes:
            return part[self.rank * self.batch_size : (self.rank + 1) * self.batch_size]
        return part[self.rank :: self.num_processes] or [order[self.rank % len(order)]]

    def state_after(self, count: int) -> SamplerState:
        """Return where the run is after some batches of this iterator.

        Args:
            count: Batches taken.
        """
        size, together = len(self.sampler), self.batch_size * self.num_processes
        left = math.ceil(max(0, size - self.state.start_index) / together)
        if count < left:
            return SamplerState(self.state.epoch, self.state.start_index + count * together)
        epochs, batches = divmod(count - left, len(self))
        return SamplerState(self.state.epoch + 1 + epochs, batches * together)
