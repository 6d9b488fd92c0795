# SPDX-License-Identifier: Apache-2.0
"""Settings of ACT. Fields and defaults are LeRobot's, so that its checkpoints load."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ulna.core.errors import ConfigError, ConfigProblem
from ulna.core.features import FeatureType, NormalizationMode
from ulna.core.optim import LRSchedulerConfig, OptimizerConfig, make_optimizer_config
from ulna.core.policy_config import PreTrainedConfig

__all__ = ["ACTConfig"]

_MEAN_STD = NormalizationMode.MEAN_STD


class ACTConfig(PreTrainedConfig):
    """Settings of ACT (arXiv:2304.13705)."""

    implementation: ClassVar[str] = "ulna.policies.act.policy:ACTPolicy"
    processors: ClassVar[str] = "ulna.processing.pipelines:make_default_pre_post_processors"

    type: Literal["act"] = "act"
    chunk_size: int = Field(100, ge=1, description="Actions predicted at once.")
    n_action_steps: int = Field(100, ge=1, description="Actions executed before the next prediction.")
    normalization_mapping: dict[FeatureType, NormalizationMode] = Field(
        default_factory=lambda: dict.fromkeys((FeatureType.VISUAL, FeatureType.STATE, FeatureType.ACTION), _MEAN_STD),
        description="Feature type to how it is normalized.",
    )
    vision_backbone: str = Field("resnet18", description="A torchvision ResNet.")
    pretrained_backbone_weights: str | None = Field(
        "ResNet18_Weights.IMAGENET1K_V1", description="torchvision weights of the backbone; null for none."
    )
    replace_final_stride_with_dilation: int = Field(False, description="Dilate the last stage instead of striding it.")
    pre_norm: bool = Field(False, description="Normalize before each block instead of after it.")
    dim_model: int = Field(512, ge=1, description="Width of the transformer.")
    n_heads: int = Field(8, ge=1, description="Attention heads.")
    dim_feedforward: int = Field(3200, ge=1, description="Hidden width of the feed-forward blocks.")
    feedforward_activation: Literal["relu", "gelu", "glu"] = Field("relu", description="relu, gelu or glu.")
    n_encoder_layers: int = Field(4, ge=1, description="Encoder layers.")
    n_decoder_layers: int = Field(1, ge=1, description="Decoder layers.")
    use_vae: bool = Field(True, description="Train as a conditional VAE.")
    latent_dim: int = Field(32, ge=1, description="Width of the latent.")
    n_vae_encoder_layers: int = Field(4, ge=1, description="Layers of the VAE encoder.")
    temporal_ensemble_coeff: float | None = Field(
        None, description="Blend predictions over time; needs n_action_steps=1."
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout in the transformer.")
    kl_weight: float = Field(10.0, ge=0, description="Weight of the KL loss.")
    optimizer_lr: float = Field(1e-5, gt=0, description="Learning rate.")
    optimizer_weight_decay: float = Field(1e-4, ge=0, description="Weight decay.")
    optimizer_lr_backbone: float = Field(1e-5, gt=0, description="Learning rate of the backbone.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = []
        if not self.vision_backbone.startswith("resnet"):
            problems.append(
                ConfigProblem("vision_backbone", self.vision_backbone, "a torchvision ResNet, such as resnet18")
            )
        if self.n_action_steps > self.chunk_size:
            text = f"at most chunk_size ({self.chunk_size}), since no more is predicted at once"
            problems.append(ConfigProblem("n_action_steps", self.n_action_steps, text))
        if self.temporal_ensemble_coeff is not None and self.n_action_steps != 1:
            text = "1 with temporal_ensemble_coeff, since every step is a prediction then"
            problems.append(ConfigProblem("n_action_steps", self.n_action_steps, text))
        if self.n_obs_steps != 1:
            problems.append(ConfigProblem("n_obs_steps", self.n_obs_steps, "1; ACT sees one observation"))
        if self.dim_model % self.n_heads:
            problems.append(ConfigProblem("dim_model", self.dim_model, f"a multiple of n_heads ({self.n_heads})"))
        if problems:
            raise ConfigError(problems, title="act settings")
        return self

    @property
    def observation_delta_indices(self) -> None:
        """Now alone."""
        return

    @property
    def action_delta_indices(self) -> list[int]:
        """The whole chunk, from now on."""
        return list(range(self.chunk_size))

    def get_optimizer_preset(self) -> OptimizerConfig:
        """Return AdamW with the settings' learning rate and weight decay.

        Raises:
            ConfigError: No optimizer plugin is installed (it comes with ulna-training).
        """
        return make_optimizer_config("adamw", lr=self.optimizer_lr, weight_decay=self.optimizer_weight_decay)

    def get_scheduler_preset(self) -> LRSchedulerConfig | None:
        """Return None: the learning rate stays."""
        return None

    def validate_features(self) -> None:
        """Check that there is something to see and an action to predict.

        Raises:
            ConfigError: There is neither a picture nor an environment state, or no action.
        """
        problems = []
        if not self.image_features and self.env_state_feature is None:
            text = "needs a picture (observation.images.*) or observation.environment_state"
            problems.append(ConfigProblem("input_features", list(self.input_features or {}), text))
        if self.action_feature is None:
            problems.append(
                ConfigProblem("output_features", list(self.output_features or {}), "needs the key 'action'")
            )
        if problems:
            raise ConfigError(
                problems, title="act features", hint="Check the features of the dataset: ulna dataset info"
            )
