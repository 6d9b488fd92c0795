# SPDX-License-Identifier: Apache-2.0
"""The network of ACT: a ResNet and a DETR-style transformer, with a VAE encoder for training.

Zhao et al. 2023, arXiv:2304.13705, figures 4 and 11; Carion et al. 2020, arXiv:2005.12872, for the position embeddings.
Shapes: B batch, S sequence, D model width, C chunk, A action, L latent. Sequences come first: (S, B, D).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.ops.misc import FrozenBatchNorm2d

from ulna.core.constants import ACTION, OBS_STATE
from ulna.core.errors import CheckpointError, ConfigError, ConfigProblem

if TYPE_CHECKING:
    from ulna.policies.act.config import ACTConfig

__all__ = ["ACT", "position_embedding_1d", "position_embedding_2d"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "glu": functional.glu,
}


def _frequencies(width: int) -> Tensor:
    return 10000.0 ** (2 * torch.div(torch.arange(width, dtype=torch.float64), 2, rounding_mode="floor") / width)


def position_embedding_1d(length: int, width: int) -> Tensor:
    """Return sinusoidal embeddings of positions 0..length-1.

    Args:
        length: Positions.
        width: Width of the embedding.

    Returns:
        float32 (length, width): sine in even columns, cosine in odd ones.
    """
    angles = torch.arange(length, dtype=torch.float64)[:, None] / _frequencies(width)
    table = torch.empty(length, width, dtype=torch.float64)
    table[:, 0::2], table[:, 1::2] = angles[:, 0::2].sin(), angles[:, 1::2].cos()
    return table.float()


def _axis_embedding(length: int, width: int, like: Tensor) -> Tensor:
    """Embed positions 1..length scaled to (0, 2 pi]; (length, width)."""
    position = torch.arange(1, length + 1, dtype=torch.float32, device=like.device)
    position = position / (length + 1e-6) * (2 * math.pi)
    exponent = 2 * torch.div(torch.arange(width, dtype=torch.float32, device=like.device), 2, rounding_mode="floor")
    angles = position[:, None] / 10000 ** (exponent / width)
    return torch.stack((angles[:, 0::2].sin(), angles[:, 1::2].cos()), dim=-1).flatten(1)


def position_embedding_2d(features: Tensor, width: int) -> Tensor:
    """Return sinusoidal embeddings of the pixels of a feature map.

    Args:
        features: (B, _, H, W); only its size and device matter.
        width: Width of the embedding; half of it is for the rows, half for the columns.

    Returns:
        (1, width, H, W).
    """
    height, columns = features.shape[-2:]
    rows = _axis_embedding(height, width // 2, features)[:, None, :].expand(height, columns, -1)
    cols = _axis_embedding(columns, width // 2, features)[None, :, :].expand(height, columns, -1)
    return torch.cat((rows, cols), dim=-1).permute(2, 0, 1)[None].to(features.dtype)


class ACTEncoderLayer(nn.Module):
    """Self-attention and a feed-forward block."""

    def __init__(self, config: ACTConfig) -> None:
        super().__init__()
        width = config.dim_model
        self.self_attn = nn.MultiheadAttention(width, config.n_heads, dropout=config.dropout)
        self.linear1 = nn.Linear(width, config.dim_feedforward)
        self.dropout = nn.Dropout(config.dropout)
        self.linear2 = nn.Linear(config.dim_feedforward, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout1, self.dropout2 = nn.Dropout(config.dropout), nn.Dropout(config.dropout)
        self.activation = _ACTIVATIONS[config.feedforward_activation]
        self.pre_norm = config.pre_norm

    def forward(self, x: Tensor, position: Tensor | None, padding: Tensor | None = None) -> Tensor:
        """Map (S, B, D) to (S, B, D); `padding` (B, S) is True where a token is to be ignored."""
        y = self.norm1(x) if self.pre_norm else x
        query = y if position is None else y + position
        x = x + self.dropout1(self.self_attn(query, query, value=y, key_padding_mask=padding, need_weights=False)[0])
        x = x if self.pre_norm else self.norm1(x)
        y = self.norm2(x) if self.pre_norm else x
        x = x + self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(y)))))
        return x if self.pre_norm else self.norm2(x)


class ACTEncoder(nn.Module):
    """A stack of encoder layers, with a last normalization when `pre_norm`."""

    def __init__(self, config: ACTConfig, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ACTEncoderLayer(config) for _ in range(layers))
        self.norm = nn.LayerNorm(config.dim_model) if config.pre_norm else nn.Identity()

    def forward(self, x: Tensor, position: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """Map (S, B, D) to (S, B, D)."""
        for layer in self.layers:
            x = layer(x, position, padding)
        normed: Tensor = self.norm(x)
        return normed


class ACTDecoderLayer(nn.Module):
    """Self-attention, attention to the encoder, and a feed-forward block."""

    def __init__(self, config: ACTConfig) -> None:
        super().__init__()
        width = config.dim_model
        self.self_attn = nn.MultiheadAttention(width, config.n_heads, dropout=config.dropout)
        self.multihead_attn = nn.MultiheadAttention(width, config.n_heads, dropout=config.dropout)
        self.linear1 = nn.Linear(width, config.dim_feedforward)
        self.dropout = nn.Dropout(config.dropout)
        self.linear2 = nn.Linear(config.dim_feedforward, width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.dropout1, self.dropout2, self.dropout3 = (nn.Dropout(config.dropout) for _ in range(3))
        self.activation = _ACTIVATIONS[config.feedforward_activation]
        self.pre_norm = config.pre_norm

    def forward(self, x: Tensor, memory: Tensor, position: Tensor, memory_position: Tensor) -> Tensor:
        """Map (C, B, D) to (C, B, D), looking at `memory` (S, B, D)."""
        y = self.norm1(x) if self.pre_norm else x
        query = y + position
        x = x + self.dropout1(self.self_attn(query, query, value=y, need_weights=False)[0])
        x = x if self.pre_norm else self.norm1(x)
        y = self.norm2(x) if self.pre_norm else x
        keys = memory + memory_position
        x = x + self.dropout2(self.multihead_attn(y + position, keys, value=memory, need_weights=False)[0])
        x = x if self.pre_norm else self.norm2(x)
        y = self.norm3(x) if self.pre_norm else x
        x = x + self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(y)))))
        return x if self.pre_norm else self.norm3(x)


class ACTDecoder(nn.Module):
    """A stack of decoder layers with a last normalization."""

    def __init__(self, config: ACTConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ACTDecoderLayer(config) for _ in range(config.n_decoder_layers))
        self.norm = nn.LayerNorm(config.dim_model)

    def forward(self, x: Tensor, memory: Tensor, position: Tensor, memory_position: Tensor) -> Tensor:
        """Map (C, B, D) to (C, B, D), looking at `memory` (S, B, D)."""
        for layer in self.layers:
            x = layer(x, memory, position, memory_position)
        normed: Tensor = self.norm(x)
        return normed


class ACT(nn.Module):
    """The whole network: observation (and, in training, actions) to a chunk of actions.

    Args:
        config: Settings with features filled in.
        pretrained_backbones: Whether the backbone may load the torchvision weights the settings name.

    Raises:
        ConfigError: torchvision has no such backbone, or no such weights of it.
        CheckpointError: The weights of the backbone could not be downloaded.
    """

    def __init__(self, config: ACTConfig, *, pretrained_backbones: bool = True) -> None:
        super().__init__()
        self.config = config
        width = config.dim_model
        assert config.action_feature is not None, "features are validated before the network is built"
        action_size = config.action_feature.shape[0]
        state, env_state = config.robot_state_feature, config.env_state_feature
        if config.use_vae:
            self._build_vae_encoder(width, action_size, state.shape[0] if state else None)
        if config.image_features:
            self._build_backbone(width, pretrained_backbones)
        self.encoder = ACTEncoder(config, config.n_encoder_layers)
        self.decoder = ACTDecoder(config)
        if state:
            self.encoder_robot_state_input_proj = nn.Linear(state.shape[0], width)
        if env_state:
            self.encoder_env_state_input_proj = nn.Linear(env_state.shape[0], width)
        self.encoder_latent_input_proj = nn.Linear(config.latent_dim, width)
        self.encoder_1d_feature_pos_embed = nn.Embedding(1 + bool(state) + bool(env_state), width)
        self.decoder_pos_embed = nn.Embedding(config.chunk_size, width)
        self.action_head = nn.Linear(width, action_size)
        for module in (self.encoder, self.decoder):
            for parameter in module.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)

    def _build_vae_encoder(self, width: int, action_size: int, state_size: int | None) -> None:
        config = self.config
        self.vae_encoder = ACTEncoder(config, config.n_vae_encoder_layers)
        self.vae_encoder_cls_embed = nn.Embedding(1, width)
        if state_size is not None:
            self.vae_encoder_robot_state_input_proj = nn.Linear(state_size, width)
        self.vae_encoder_action_input_proj = nn.Linear(action_size, width)
        self.vae_encoder_latent_output_proj = nn.Linear(width, config.latent_dim * 2)
        tokens = 1 + (state_size is not None) + config.chunk_size
        self.register_buffer("vae_encoder_pos_enc", position_embedding_1d(tokens, width)[None])

    def _build_backbone(self, width: int, pretrained: bool) -> None:
        config = self.config
        weights = config.pretrained_backbone_weights if pretrained else None
        try:
            resnet = torchvision.models.get_model(
                config.vision_backbone,
                weights=weights,
                replace_stride_with_dilation=[False, False, bool(config.replace_final_stride_with_dilation)],
                norm_layer=FrozenBatchNorm2d,
            )
        except (KeyError, ValueError) as error:
            chosen = f"{config.vision_backbone} with {weights}"
            expected = "a ResNet, and weights of it, that torchvision has"
            problem = ConfigProblem("policy.vision_backbone", chosen, expected)
            raise ConfigError([problem], title="ACT's settings") from error
        except OSError as error:
            raise CheckpointError(
                f"The weights {weights} of the backbone {config.vision_backbone} could not be fetched: {error}",
                hint="Connect to the internet once, or train the backbone from scratch: "
                "--policy.pretrained_backbone_weights=null",
            ) from error
        self.backbone = IntermediateLayerGetter(resnet, return_layers={"layer4": "feature_map"})
        self.encoder_img_feat_input_proj = nn.Conv2d(resnet.fc.in_features, width, kernel_size=1)

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Predict a chunk.

        Args:
            batch: State (B, S), environment state (B, E), pictures (B, 3, H, W); in training also actions (B, C, A) and
                `action_is_pad` (B, C).

        Returns:
            Actions (B, C, A), and mean and log variance of the latent (B, L) when the VAE encoder ran.
        """
        config = self.config
        reference = next(v for k, v in batch.items() if k in (config.input_features or {}))
        size, device = reference.shape[0], reference.device
        latent_of = None
        if config.use_vae and self.training and ACTION in batch:
            latent_of = self._encode_actions(batch)
            mean, log_variance = latent_of
            latent = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        else:
            latent = torch.zeros(size, config.latent_dim, dtype=self.action_head.weight.dtype, device=device)
        tokens, position = self._observation_tokens(batch, latent)
        memory = self.encoder(tokens, position)
        start = torch.zeros(config.chunk_size, size, config.dim_model, dtype=memory.dtype, device=device)
        decoded = self.decoder(start, memory, self.decoder_pos_embed.weight[:, None], position)
        actions: Tensor = self.action_head(decoded.transpose(0, 1))
        return actions, latent_of

    def _encode_actions(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Encode state and actions into mean and log variance of the latent, (B, L) each."""
        actions, padding = batch[ACTION], batch["action_is_pad"]
        tokens = [self.vae_encoder_cls_embed.weight[None].expand(actions.shape[0], -1, -1)]
        if self.config.robot_state_feature:
            tokens.append(self.vae_encoder_robot_state_input_proj(batch[OBS_STATE])[:, None])
        tokens.append(self.vae_encoder_action_input_proj(actions))
        sequence = torch.cat(tokens, dim=1)  # (B, S, D)
        always = torch.zeros(actions.shape[0], len(tokens) - 1, dtype=torch.bool, device=padding.device)
        summary = self.vae_encoder(
            sequence.transpose(0, 1),
            self.get_buffer("vae_encoder_pos_enc").transpose(0, 1),
            torch.cat((always, padding), dim=1),
        )[0]
        mean, log_variance = self.vae_encoder_latent_output_proj(summary).chunk(2, dim=-1)
        return mean, log_variance

    def _observation_tokens(self, batch: dict[str, Tensor], latent: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoder's tokens (S, B, D) and their position embeddings (S, 1, D)."""
        config = self.config
        tokens = [self.encoder_latent_input_proj(latent)[None]]
        if config.robot_state_feature:
            tokens.append(self.encoder_robot_state_input_proj(batch[OBS_STATE])[None])
        if config.env_state_feature:
            key = next(k for k, f in (config.input_features or {}).items() if f is config.env_state_feature)
            tokens.append(self.encoder_env_state_input_proj(batch[key])[None])
        position = [self.encoder_1d_feature_pos_embed.weight[:, None]]
        for key in config.image_features:
            features = self.backbone(batch[key])["feature_map"]  # (B, F, h, w)
            position.append(position_embedding_2d(features, config.dim_model).flatten(2).permute(2, 0, 1))
            tokens.append(self.encoder_img_feat_input_proj(features).flatten(2).permute(2, 0, 1))
        return torch.cat(tokens), torch.cat(position)


def backbone_parameters(network: ACT) -> Sequence[nn.Parameter]:
    """Return the trainable parameters of the backbone."""
    return [p for n, p in network.named_parameters() if n.startswith("backbone.") and p.requires_grad]
