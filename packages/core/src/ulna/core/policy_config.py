# SPDX-License-Identifier: Apache-2.0
"""Settings of policies, readable without torch. Fields and files are LeRobot's."""

from __future__ import annotations

import builtins
import json
import logging
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from pydantic import Field, PrivateAttr, field_validator

from ulna.core.config import PluginConfig
from ulna.core.constants import ACTION, CONFIG_NAME, OBS_STATE
from ulna.core.errors import CheckpointError
from ulna.core.features import FeatureType, NormalizationMode, PolicyFeature
from ulna.core.files import write_text
from ulna.core.hub import Saveable, local_folder

if TYPE_CHECKING:
    from ulna.core.optim import LRSchedulerConfig, OptimizerConfig

__all__ = ["PreTrainedConfig", "read_config_file"]

logger = logging.getLogger(__name__)


def read_config_file(source: Path | str, *, revision: str | None = None) -> dict[str, Any]:
    """Read the `config.json` of a checkpoint.

    Args:
        source: A folder, the file itself, or a Hub repository.
        revision: Hub revision.

    Returns:
        Its content.

    Raises:
        CheckpointError: There is none, or it is damaged.
    """
    path = local_folder(source, revision=revision, needs=CONFIG_NAME)
    path = path if path.is_file() else path / CONFIG_NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"No {CONFIG_NAME} in {path.parent}.", hint="Point at a folder like .../pretrained_model."
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} holds {type(data).__name__}, expected an object.")
    return data


class PreTrainedConfig(PluginConfig, Saveable):
    """Base of every policy's settings.

    Attributes:
        processors: `module:function` that makes the pre- and postprocessor; default: the standard pipelines.
    """

    plugin_kind: ClassVar[str] = "policies"
    plugin_base: ClassVar[bool] = True
    processors: ClassVar[str] = ""

    n_obs_steps: int = Field(1, ge=1, description="Observations seen at once.")
    input_features: dict[str, PolicyFeature] | None = Field(
        default_factory=dict, description="Inputs; default: from the dataset."
    )
    output_features: dict[str, PolicyFeature] | None = Field(
        default_factory=dict, description="Outputs; from the dataset."
    )
    device: str | None = Field(None, description="cpu, cuda, cuda:1, mps, xpu; default: the best there is.")
    use_amp: bool = Field(False, description="Mixed precision at inference.")
    use_peft: bool = Field(False, description="Whether the checkpoint holds an adapter.")
    push_to_hub: bool = Field(False, description="Upload after training.")
    repo_id: str | None = Field(None, description="Hub repository to upload to.")
    private: bool | None = Field(None, description="Whether that repository is private.")
    tags: list[str] | None = Field(None, description="Tags of the model card.")
    license: str | None = Field(None, description="License of the model card.")
    pretrained_path: Path | None = Field(None, description="Checkpoint these settings come from.")
    pretrained_revision: str | None = Field(None, description="Hub revision of that checkpoint.")

    _unknown: dict[str, Any] = PrivateAttr(default_factory=dict)

    @field_validator("input_features", "output_features", mode="before")
    @classmethod
    def _feature_types(cls, value: Any) -> Any:
        return {} if value is None else value

    @property
    @abstractmethod
    def observation_delta_indices(self) -> list[int] | None:
        """Frames of each observation key, relative to now; None for now alone."""

    @property
    @abstractmethod
    def action_delta_indices(self) -> list[int] | None:
        """Frames of the action, relative to now; None for now alone."""

    @property
    def reward_delta_indices(self) -> list[int] | None:
        """Frames of the reward, relative to now; None when it is not needed."""
        return None

    @abstractmethod
    def get_optimizer_preset(self) -> OptimizerConfig:
        """Return the optimizer the policy is trained with unless told otherwise."""

    @abstractmethod
    def get_scheduler_preset(self) -> LRSchedulerConfig | None:
        """Return the learning-rate schedule it is trained with unless told otherwise."""

    @abstractmethod
    def validate_features(self) -> None:
        """Check that inputs and outputs suit the policy.

        Raises:
            ConfigError: They do not.
        """

    def _features(self, kind: FeatureType) -> dict[str, PolicyFeature]:
        return {k: f for k, f in (self.input_features or {}).items() if f.type is kind}

    @property
    def robot_state_feature(self) -> PolicyFeature | None:
        """The feature `observation.state`."""
        return self._features(FeatureType.STATE).get(OBS_STATE)

    @property
    def env_state_feature(self) -> PolicyFeature | None:
        """The first feature of type ENV."""
        return next(iter(self._features(FeatureType.ENV).values()), None)

    @property
    def image_features(self) -> dict[str, PolicyFeature]:
        """Key to feature of every picture."""
        return self._features(FeatureType.VISUAL)

    @property
    def action_feature(self) -> PolicyFeature | None:
        """The feature `action`."""
        feature = (self.output_features or {}).get(ACTION)
        return feature if feature and feature.type is FeatureType.ACTION else None

    def normalization(self, kind: FeatureType) -> NormalizationMode:
        """Return how features of a type are normalized; IDENTITY where nothing is said."""
        mapping: Mapping[Any, Any] = getattr(self, "normalization_mapping", {})
        return NormalizationMode(mapping.get(kind, mapping.get(kind.value, NormalizationMode.IDENTITY)))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values, unknown fields of the file they came from included."""
        return {**super().to_dict(), **self._unknown}

    def _save_pretrained(self, folder: Path) -> None:
        write_text(folder / CONFIG_NAME, json.dumps(self.to_dict(), indent=4))

    @classmethod
    def from_pretrained(
        cls, source: Path | str, *, revision: str | None = None, overrides: Mapping[str, Any] | None = None, **_: Any
    ) -> Self:
        """Read the settings of a checkpoint. Unknown fields are kept, warned about and written again.

        Args:
            source: A folder, a `config.json`, or a Hub repository.
            revision: Hub revision.
            overrides: Settings that replace the saved ones.

        Returns:
            An instance of the policy's own settings class, also when called on the base.

        Raises:
            CheckpointError: There is no config, or it belongs to another policy.
            ConfigError: A known field has a wrong value, or an override is unknown.
            PluginNotFoundError: The policy is not installed.
        """
        data = read_config_file(source, revision=revision)
        target = cls._class_for(data, source)
        known = set(target.model_fields)
        unknown = {k: v for k, v in data.items() if k not in known}
        if unknown:
            logger.warning("%s: unknown fields are kept but not used: %s", source, ", ".join(unknown))
        fields = {k: v for k, v in data.items() if k in known}
        config = target.build({**fields, **(overrides or {})}, title=f"config of {source}")
        config._unknown = unknown
        return config

    @classmethod
    def _class_for(cls, data: dict[str, Any], source: Path | str) -> builtins.type[Self]:
        from ulna.core.plugins import registry

        if not cls.__dict__.get("plugin_base", False):
            own = cls.model_fields["type"].default
            saved = data.setdefault("type", own)
            if saved != own:
                raise CheckpointError(f"{source} is a checkpoint of {saved!r}, not of {own!r}.")
            return cls
        if "type" not in data:
            raise CheckpointError(
                f"{source} does not say its policy type.", hint="Load it with the policy's own class."
            )
        target = registry().config_class(cls.plugin_kind, data["type"])
        return cast("builtins.type[Self]", target)
