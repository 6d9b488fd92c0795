# SPDX-License-Identifier: Apache-2.0
"""The PreTrainedPolicy contract: a torch module with settings, strict loading, LeRobot's files. Needs torch."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ulna.core.constants import ACTION, WEIGHTS_NAME
from ulna.core.errors import CheckpointError, ConfigError, ConfigProblem
from ulna.core.hub import HubMixin, local_folder
from ulna.core.policy_config import PreTrainedConfig
from ulna.core.tensors import read_tensors, write_tensors

__all__ = ["PreTrainedPolicy", "resolve_device"]


def resolve_device(name: str | None) -> str:
    """Return the device asked for, or the best there is.

    Args:
        name: cpu, cuda, cuda:1, mps, xpu; None chooses.

    Returns:
        A device torch accepts here.

    Raises:
        ConfigError: The device is not available; the available ones are named.
    """
    available = ["cpu"]
    if torch.backends.mps.is_available():
        available.insert(0, "mps")
    if torch.cuda.is_available():
        available.insert(0, "cuda")
    if name is None:
        return available[0]
    if name.split(":")[0] not in available:
        expected = f"one of the devices of this computer: {', '.join(available)}"
        raise ConfigError([ConfigProblem("device", name, expected)], title="policy settings")
    return name


class PreTrainedPolicy(nn.Module, HubMixin, ABC):
    """A policy: observations in, actions out. Created by `make_policy` or `from_pretrained`.

    Args:
        config: Its settings, features filled in.
        pretrained_backbones: Whether backbones may load their own pretrained weights (from the provider they use).
            False when a whole state dict follows, so that loading a checkpoint never touches the network.
    """

    config_class: ClassVar[type[PreTrainedConfig]]
    name: ClassVar[str]
    key_remaps: ClassVar[Mapping[str, str]] = {}
    _fsdp_wrap_modules: ClassVar[list[str] | None] = None
    _action_queue_attrs: ClassVar[tuple[str, ...]] = ("_queues", "_action_queue")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not inspect.isabstract(cls) and not (hasattr(cls, "config_class") and hasattr(cls, "name")):
            raise TypeError(f"Policy class {cls.__name__} must define config_class and name.")

    def __init__(self, config: PreTrainedConfig, *, pretrained_backbones: bool = True, **_: Any) -> None:
        super().__init__()
        config.device = resolve_device(config.device)
        self.config = config
        self.pretrained_backbones = pretrained_backbones

    @abstractmethod
    def get_optim_params(self) -> Any:
        """Return parameters or parameter groups for the optimizer."""

    @abstractmethod
    def reset(self) -> None:
        """Forget the past episode: queues of actions and observations."""

    @abstractmethod
    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> tuple[Tensor, dict[str, Any] | None]:
        """Compute the training loss of a preprocessed batch.

        Args:
            batch: Key to tensor (B, ...). Not changed.
            reduction: `mean` gives a scalar, `none` a loss for each sample (B,).

        Returns:
            The loss, and figures to be logged.
        """

    @abstractmethod
    def predict_action_chunk(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """Predict actions from one preprocessed observation.

        Args:
            batch: Key to tensor (B, ...). Not changed.
            **kwargs: Family specific.

        Returns:
            Normalized actions (B, chunk, A).
        """

    @abstractmethod
    def select_action(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """Return the next action, predicting a new chunk when the queue is empty.

        Args:
            batch: Key to tensor (B, ...). Not changed.
            **kwargs: Family specific.

        Returns:
            A normalized action (B, A).
        """

    def update(self) -> None:
        """Called after each optimizer step (target networks, for instance)."""

    def drop_queued_actions(self) -> None:
        """Forget actions not yet executed, keep the observation history."""
        for attribute in self._action_queue_attrs:
            queue = getattr(self, attribute, None)
            if isinstance(queue, dict):
                queue.get(ACTION, _NO_QUEUE).clear()
            elif queue is not None:
                queue.clear()

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return next(self.parameters()).device

    def _save_pretrained(self, folder: Path) -> None:
        tensors = dict(_without_aliases(self.state_dict()))
        write_tensors(folder / WEIGHTS_NAME, tensors, {"format": "pt"})
        self.config._save_pretrained(folder)

    @classmethod
    def from_pretrained(
        cls,
        source: Path | str,
        *,
        config: PreTrainedConfig | None = None,
        revision: str | None = None,
        strict: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Load a checkpoint. The policy comes back on `config.device`, in evaluation mode.

        Args:
            source: A folder with `config.json` and `model.safetensors`, or a Hub repository.
            config: Settings to use instead of the saved ones.
            revision: Hub revision.
            strict: Whether missing and unexpected keys are an error. When False they are named in one warning.
            **kwargs: Passed to the constructor.

        Returns:
            The policy.

        Raises:
            CheckpointError: A file is missing or damaged, or keys or shapes do not fit; all of them are named.
        """
        folder = local_folder(source, revision=revision, needs=WEIGHTS_NAME)
        if config is None:
            config = cls.config_class.from_pretrained(folder)
        kwargs.setdefault("pretrained_backbones", False)
        policy = cls(config, **kwargs)
        policy.load_weights(folder / WEIGHTS_NAME, strict=strict)
        policy.config.pretrained_path = Path(source)
        policy.to(config.device)
        policy.eval()
        return policy

    def load_weights(self, path: Path, *, strict: bool = True) -> None:
        """Load a safetensors file into this policy.

        Args:
            path: The file.
            strict: Whether missing and unexpected keys are an error.

        Raises:
            CheckpointError: Keys or shapes do not fit.
        """
        tensors = {self._remapped(k): t for k, t in read_tensors(path).items()}
        own = self.state_dict()
        wrong = [
            f"{k}: {tuple(t.shape)} in the file, {tuple(own[k].shape)} here"
            for k, t in tensors.items()
            if k in own and t.shape != own[k].shape
        ]
        kept = {key for key, _ in _without_aliases(own)}
        missing = sorted(k for k in own if k not in tensors and k in kept)
        unexpected = sorted(k for k in tensors if k not in own)
        if wrong or (strict and (missing or unexpected)):
            parts = [f"missing {', '.join(missing)}"] if missing else []
            parts += [f"unexpected {', '.join(unexpected)}"] if unexpected else []
            parts += [f"of another shape: {'; '.join(wrong)}"] if wrong else []
            raise CheckpointError(
                f"{path} does not fit {type(self).__name__}: {'; '.join(parts)}.",
                missing=missing,
                unexpected=unexpected,
                hint="The weights belong to other settings or another version; check config.json beside them.",
            )
        if missing or unexpected:
            import logging

            logging.getLogger(__name__).warning("%s: missing keys %s, unexpected keys %s", path, missing, unexpected)
        self.load_state_dict(tensors, strict=False)

    @classmethod
    def _remapped(cls, key: str) -> str:
        for pattern, replacement in cls.key_remaps.items():
            key = re.sub(pattern, replacement, key)
        return key


class _NoQueue:
    def clear(self) -> None:
        return


_NO_QUEUE = _NoQueue()


def _without_aliases(state: Mapping[str, Tensor]) -> Iterable[tuple[str, Tensor]]:
    """Yield each tensor once: of keys sharing storage the first one is kept."""
    seen: set[tuple[Any, ...]] = set()
    for key, tensor in state.items():
        mark = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())
        if tensor.numel() and mark in seen:
            continue
        seen.add(mark)
        yield key, tensor
