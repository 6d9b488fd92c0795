# SPDX-License-Identifier: Apache-2.0
"""Names of keys that datasets, batches, checkpoints and pipelines share. Values are LeRobot's."""

from __future__ import annotations

from typing import Final

ACTION: Final = "action"
OBS_STR: Final = "observation"
OBS_PREFIX: Final = "observation."
OBS_STATE: Final = "observation.state"
OBS_ENV_STATE: Final = "observation.environment_state"
OBS_IMAGE: Final = "observation.image"
OBS_IMAGES: Final = "observation.images"
OBS_LANGUAGE_TOKENS: Final = "observation.language.tokens"
OBS_LANGUAGE_ATTENTION_MASK: Final = "observation.language.attention_mask"
REWARD: Final = "next.reward"
DONE: Final = "next.done"
TRUNCATED: Final = "next.truncated"
SUCCESS: Final = "next.success"
INFO: Final = "info"
TASK: Final = "task"

CONFIG_NAME: Final = "config.json"
WEIGHTS_NAME: Final = "model.safetensors"
TRAIN_CONFIG_NAME: Final = "train_config.json"
PREPROCESSOR_NAME: Final = "policy_preprocessor"
POSTPROCESSOR_NAME: Final = "policy_postprocessor"
PRETRAINED_MODEL_DIR: Final = "pretrained_model"
TRAINING_STATE_DIR: Final = "training_state"
CHECKPOINTS_DIR: Final = "checkpoints"
LAST_CHECKPOINT_LINK: Final = "last"
