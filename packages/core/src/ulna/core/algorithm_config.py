# SPDX-License-Identifier: Apache-2.0
"""Settings of RL algorithms and the figures a training step gives. Readable without torch."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field

from ulna.core.config import PluginConfig
from ulna.core.constants import CONFIG_NAME
from ulna.core.errors import CheckpointError
from ulna.core.files import write_text
from ulna.core.hub import HubMixin
from ulna.core.policy_config import PreTrainedConfig, read_config_file

__all__ = ["RLAlgorithmConfig", "SamplerNeeds", "TrainingStats"]


@dataclass(frozen=True)
class SamplerNeeds:
    """What an algorithm needs from the replay sampler, declared instead of probed.

    Attributes:
        n_step: Length of the reward sum; 1 for single transitions.
        sequence_length: Consecutive steps in a sample; 1 for single transitions.
        priorities: Whether it gives priorities back.
    """

    n_step: int = 1
    sequence_length: int = 1
    priorities: bool = False


@dataclass
class TrainingStats:
    """Figures of one training step.

    Attributes:
        losses: Name to value.
        grad_norms: Name to value; logged with the suffix `_grad_norm`.
        extra: Name to value.
    """

    losses: dict[str, float] = field(default_factory=dict)
    grad_norms: dict[str, float] = field(default_factory=dict)
    extra: dict[str, float] = field(default_factory=dict)

    def to_log_dict(self) -> dict[str, float]:
        """Return all figures flat.

        Returns:
            Name to value.

        Raises:
            ValueError: Two figures would get one name.
        """
        flat: dict[str, float] = {}
        for group, suffix in ((self.losses, ""), (self.grad_norms, "_grad_norm"), (self.extra, "")):
            for name, value in group.items():
                if name + suffix in flat:
                    raise ValueError(f"Two figures are called {name + suffix!r}; rename one.")
                flat[name + suffix] = value
        return flat


class RLAlgorithmConfig(PluginConfig, HubMixin):
    """Base of every RL algorithm's settings."""

    plugin_kind: ClassVar[str] = "algorithms"
    plugin_base: ClassVar[bool] = True

    policy_config: PreTrainedConfig | None = Field(None, description="Settings of the policy being trained.")

    @classmethod
    @abstractmethod
    def from_policy_config(cls, policy_config: PreTrainedConfig) -> Self:
        """Make settings that suit a policy.

        Args:
            policy_config: The policy's settings.

        Returns:
            The algorithm's settings.
        """

    def _save_pretrained(self, folder: Path) -> None:
        write_text(folder / CONFIG_NAME, json.dumps(self.to_dict(), indent=4))

    @classmethod
    def from_pretrained(
        cls, source: Path | str, *, revision: str | None = None, overrides: Mapping[str, Any] | None = None, **_: Any
    ) -> Self:
        """Read saved settings.

        Args:
            source: A folder, a `config.json`, or a Hub repository.
            revision: Hub revision.
            overrides: Settings that replace the saved ones.

        Returns:
            An instance of the algorithm's own settings class.

        Raises:
            CheckpointError: There is none, or it belongs to another algorithm.
            ConfigError: A value is wrong or a name unknown.
        """
        data = {**read_config_file(source, revision=revision), **(overrides or {})}
        if cls.__dict__.get("plugin_base", False):
            return cls.choose(data)
        own = cls.model_fields["type"].default
        if data.setdefault("type", own) != own:
            raise CheckpointError(f"{source} holds settings of {data['type']!r}, not of {own!r}.")
        return cls.build(data, title=f"config of {source}")
