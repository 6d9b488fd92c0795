# SPDX-License-Identifier: Apache-2.0
"""Training of policies. Names resolve when first used, so importing this loads nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names
from ulna.training.__about__ import __version__

if TYPE_CHECKING:
    from ulna.training.checkpoints import Checkpoint as Checkpoint
    from ulna.training.checkpoints import find_checkpoint as find_checkpoint
    from ulna.training.checkpoints import last_checkpoint as last_checkpoint
    from ulna.training.config import DatasetConfig as DatasetConfig
    from ulna.training.config import EvalConfig as EvalConfig
    from ulna.training.config import ImageTransformConfig as ImageTransformConfig
    from ulna.training.config import ImageTransformsConfig as ImageTransformsConfig
    from ulna.training.config import JobConfig as JobConfig
    from ulna.training.config import PeftConfig as PeftConfig
    from ulna.training.config import TrainPipelineConfig as TrainPipelineConfig
    from ulna.training.config import WandBConfig as WandBConfig
    from ulna.training.datasets import delta_timestamps as delta_timestamps
    from ulna.training.datasets import split_episodes as split_episodes
    from ulna.training.datasets import training_stats as training_stats
    from ulna.training.errors import CheckpointNotWrittenError as CheckpointNotWrittenError
    from ulna.training.errors import TrainingDivergedError as TrainingDivergedError
    from ulna.training.evaluation import evaluation_mode as evaluation_mode
    from ulna.training.evaluation import held_out_loss as held_out_loss
    from ulna.training.memory import InMemoryDataset as InMemoryDataset
    from ulna.training.memory import keep_in_memory as keep_in_memory
    from ulna.training.metrics import read_metrics as read_metrics
    from ulna.training.observers import ProgressObserver as ProgressObserver
    from ulna.training.observers import TrainingObserver as TrainingObserver
    from ulna.training.observers import TrainingPlan as TrainingPlan
    from ulna.training.optimizers import AdamConfig as AdamConfig
    from ulna.training.optimizers import AdamWConfig as AdamWConfig
    from ulna.training.optimizers import MultiAdamConfig as MultiAdamConfig
    from ulna.training.optimizers import SGDConfig as SGDConfig
    from ulna.training.optimizers import XVLAAdamWConfig as XVLAAdamWConfig
    from ulna.training.plotting import plot_metrics as plot_metrics
    from ulna.training.rng import capture_rng as capture_rng
    from ulna.training.rng import preserved_rng as preserved_rng
    from ulna.training.rng import restore_rng as restore_rng
    from ulna.training.rng import seed_everything as seed_everything
    from ulna.training.sampling import EpisodeAwareSampler as EpisodeAwareSampler
    from ulna.training.sampling import RankBatches as RankBatches
    from ulna.training.sampling import SamplerState as SamplerState
    from ulna.training.sampling import compute_sampler_state as compute_sampler_state
    from ulna.training.schedulers import ConstantWithWarmupSchedulerConfig as ConstantWithWarmupSchedulerConfig
    from ulna.training.schedulers import (
        CosineAnnealingWithWarmupSchedulerConfig as CosineAnnealingWithWarmupSchedulerConfig,
    )
    from ulna.training.schedulers import CosineDecayWithWarmupSchedulerConfig as CosineDecayWithWarmupSchedulerConfig
    from ulna.training.schedulers import DiffuserSchedulerConfig as DiffuserSchedulerConfig
    from ulna.training.schedulers import VQBeTSchedulerConfig as VQBeTSchedulerConfig
    from ulna.training.trainer import Trainer as Trainer
    from ulna.training.trainer import TrainResult as TrainResult
    from ulna.training.trainer import train as train

_HOMES = {
    "checkpoints": (
        "Checkpoint",
        "find_checkpoint",
        "last_checkpoint",
    ),
    "config": (
        "DatasetConfig",
        "EvalConfig",
        "ImageTransformConfig",
        "ImageTransformsConfig",
        "JobConfig",
        "PeftConfig",
        "TrainPipelineConfig",
        "WandBConfig",
    ),
    "datasets": (
        "delta_timestamps",
        "split_episodes",
        "training_stats",
    ),
    "errors": ("CheckpointNotWrittenError", "TrainingDivergedError"),
    "evaluation": (
        "evaluation_mode",
        "held_out_loss",
    ),
    "memory": (
        "InMemoryDataset",
        "keep_in_memory",
    ),
    "metrics": ("read_metrics",),
    "observers": (
        "ProgressObserver",
        "TrainingObserver",
        "TrainingPlan",
    ),
    "optimizers": (
        "AdamConfig",
        "AdamWConfig",
        "MultiAdamConfig",
        "SGDConfig",
        "XVLAAdamWConfig",
    ),
    "plotting": ("plot_metrics",),
    "rng": (
        "capture_rng",
        "preserved_rng",
        "restore_rng",
        "seed_everything",
    ),
    "sampling": (
        "EpisodeAwareSampler",
        "RankBatches",
        "SamplerState",
        "compute_sampler_state",
    ),
    "schedulers": (
        "ConstantWithWarmupSchedulerConfig",
        "CosineAnnealingWithWarmupSchedulerConfig",
        "CosineDecayWithWarmupSchedulerConfig",
        "DiffuserSchedulerConfig",
        "VQBeTSchedulerConfig",
    ),
    "trainer": (
        "TrainResult",
        "Trainer",
        "train",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AdamConfig",
    "AdamWConfig",
    "Checkpoint",
    "CheckpointNotWrittenError",
    "ConstantWithWarmupSchedulerConfig",
    "CosineAnnealingWithWarmupSchedulerConfig",
    "CosineDecayWithWarmupSchedulerConfig",
    "DatasetConfig",
    "DiffuserSchedulerConfig",
    "EpisodeAwareSampler",
    "EvalConfig",
    "ImageTransformConfig",
    "ImageTransformsConfig",
    "InMemoryDataset",
    "JobConfig",
    "MultiAdamConfig",
    "PeftConfig",
    "ProgressObserver",
    "RankBatches",
    "SGDConfig",
    "SamplerState",
    "TrainPipelineConfig",
    "TrainResult",
    "Trainer",
    "TrainingDivergedError",
    "TrainingObserver",
    "TrainingPlan",
    "VQBeTSchedulerConfig",
    "WandBConfig",
    "XVLAAdamWConfig",
    "__version__",
    "capture_rng",
    "compute_sampler_state",
    "delta_timestamps",
    "evaluation_mode",
    "find_checkpoint",
    "held_out_loss",
    "keep_in_memory",
    "last_checkpoint",
    "plot_metrics",
    "preserved_rng",
    "read_metrics",
    "restore_rng",
    "seed_everything",
    "split_episodes",
    "train",
    "training_stats",
]

__getattr__, __dir__ = lazy_names(globals(), _HOME_OF)
