# SPDX-License-Identifier: Apache-2.0
"""The RLAlgorithm contract: turns batches into updates of a policy. Needs torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor
from torch.optim import Optimizer

from ulna.core.algorithm_config import RLAlgorithmConfig, SamplerNeeds, TrainingStats
from ulna.core.constants import WEIGHTS_NAME
from ulna.core.hub import HubMixin, local_folder
from ulna.core.policies import PreTrainedPolicy
from ulna.core.tensors import read_tensors, write_tensors

__all__ = ["RLAlgorithm"]


class RLAlgorithm(HubMixin, ABC):
    """An RL algorithm; not a torch module. Created by `make_algorithm`.

    Args:
        policy: The policy being trained.
        config: Settings.
    """

    config_class: ClassVar[type[RLAlgorithmConfig]]
    name: ClassVar[str]
    sampler_needs: ClassVar[SamplerNeeds] = SamplerNeeds()

    def __init__(self, policy: PreTrainedPolicy, config: RLAlgorithmConfig) -> None:
        self.policy, self.config = policy, config
        self._optimization_step = 0
        self._weights_version = 0

    @abstractmethod
    def update(self, batch_iterator: Iterator[Any]) -> TrainingStats:
        """Do one training step.

        Args:
            batch_iterator: Gives batches; belongs to the trainer. Taken from as often as the step needs.

        Returns:
            Figures of the step.
        """

    @abstractmethod
    def make_optimizers_and_scheduler(self) -> dict[str, Optimizer]:
        """Make the optimizers; called once, on the learner.

        Returns:
            Name to optimizer.
        """

    def configure_data_iterator(
        self, data_mixer: Any, batch_size: int, *, async_prefetch: bool = True, queue_size: int = 2
    ) -> Iterator[Any]:
        """Return the iterator `update` takes batches from.

        Args:
            data_mixer: Where transitions come from.
            batch_size: Transitions in a batch.
            async_prefetch: Whether batches are prepared in the background.
            queue_size: How many.

        Returns:
            The iterator.
        """
        iterator: Iterator[Any] = data_mixer.get_iterator(
            batch_size=batch_size, async_prefetch=async_prefetch, queue_size=queue_size
        )
        return iterator

    def get_optimizers(self) -> dict[str, Optimizer]:
        """Return the optimizers to be checkpointed, by name."""
        return {}

    @property
    def optimization_step(self) -> int:
        """Training steps done; part of what a resume restores."""
        return self._optimization_step

    @optimization_step.setter
    def optimization_step(self, value: int) -> None:
        self._optimization_step = value

    @property
    def weights_version(self) -> int:
        """Counts up each time the weights that actors use change."""
        return self._weights_version

    def get_weights(self) -> dict[str, Any]:
        """Return what actors need, as a nested dict of tensors."""
        return {}

    @abstractmethod
    def load_weights(self, weights: Mapping[str, Any], device: str = "cpu") -> None:
        """Take weights pushed by the learner.

        Args:
            weights: What `get_weights` returned.
            device: Where the policy runs.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors the algorithm owns beyond the policy, flat; an empty dict must be said."""

    @abstractmethod
    def load_state_dict(self, state_dict: Mapping[str, Tensor], device: str = "cpu") -> None:
        """Take tensors back in place, so that optimizers keep their parameters.

        Args:
            state_dict: What `state_dict` returned.
            device: Where they go.
        """

    def _save_pretrained(self, folder: Path) -> None:
        write_tensors(folder / WEIGHTS_NAME, self.state_dict(), {"format": "pt"})
        self.config._save_pretrained(folder)

    @classmethod
    def from_pretrained(
        cls,
        source: Path | str,
        *,
        policy: PreTrainedPolicy | None = None,
        config: RLAlgorithmConfig | None = None,
        revision: str | None = None,
        device: str = "cpu",
        **kwargs: Any,
    ) -> Self:
        """Load what `save_pretrained` wrote.

        Args:
            source: A folder, or a Hub repository.
            policy: The policy it belongs to; required.
            config: Settings to use instead of the saved ones.
            revision: Hub revision.
            device: Where its tensors go.
            **kwargs: Passed to the constructor.

        Returns:
            The algorithm.

        Raises:
            ValueError: No policy was given.
            CheckpointError: A file is missing or damaged.
        """
        if policy is None:
            raise ValueError("from_pretrained needs the policy the algorithm belongs to: policy=...")
        folder = local_folder(source, revision=revision, needs=WEIGHTS_NAME)
        config = config or cls.config_class.from_pretrained(folder)
        config.policy_config = policy.config
        algorithm = cls(policy=policy, config=config, **kwargs)
        algorithm.load_state_dict(read_tensors(folder / WEIGHTS_NAME), device=device)
        return algorithm
