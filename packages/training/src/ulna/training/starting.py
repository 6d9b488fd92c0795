# SPDX-License-Identifier: Apache-2.0
"""Where a training begins: the checkpoint it resumes, its place in the data, a run folder of its own."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ulna.core.errors import ConfigError, ConfigProblem
from ulna.training.checkpoints import Checkpoint, find_checkpoint
from ulna.training.config import TrainPipelineConfig
from ulna.training.config_files import OWN_KEY
from ulna.training.datasets import TrainingDataset, episode_spans
from ulna.training.sampling import EpisodeAwareSampler, RankBatches, SamplerState, compute_sampler_state
from ulna.training.streams import StreamBatches, StreamOrder, TrainingStream

__all__ = ["Start", "refuse_ranks", "refuse_taken", "resumed_checkpoint", "set_cuda_flags", "starting_point"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """Where the loop begins.

    Attributes:
        step: Steps taken already.
        batches: Positions of all batches from there on.
    """

    step: int
    batches: RankBatches | StreamBatches


def resumed_checkpoint(config: TrainPipelineConfig) -> Checkpoint | None:
    """Return the checkpoint that a training continues from, if it does.

    Args:
        config: Its settings.

    Returns:
        The checkpoint.

    Raises:
        ConfigError: It is not said what to resume.
        CheckpointError: There is no checkpoint there.
    """
    if not config.resume:
        return None
    source = config.checkpoint_path or config.output_dir
    if source is None:
        expected = "needs to know what to resume: --config=RUN_FOLDER, or output_dir"
        raise ConfigError([ConfigProblem("resume", True, expected)], title="training settings")
    return find_checkpoint(source)


def refuse_ranks() -> None:
    """Refuse to be one of several processes: each would train a policy of its own, without a word.

    Raises:
        ConfigError: There are others, by torch.distributed or by the environment that its launchers set.
    """
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        count = str(distributed.get_world_size())
    else:
        count = os.environ.get("WORLD_SIZE", "1")
    if count != "1":
        problem = ConfigProblem("WORLD_SIZE", count, "training on several processes is not supported by this version")
        hint = "Start it once, without torchrun or accelerate; or unset WORLD_SIZE, if another program has left it"
        raise ConfigError([problem], title="environment", hint=hint)


def refuse_taken(folder: Path) -> None:
    """Refuse to begin a run in a folder that holds something, or that cannot be made.

    Args:
        folder: The run folder.

    Raises:
        ConfigError: It is not empty, or the folder it would be in may not be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        expected = "exists already; choose another folder, or continue that run with --resume"
        problem = ConfigProblem("output_dir", str(folder), expected)
        raise ConfigError([problem], title="training settings", hint=f"ulna train --resume --config={folder}")
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        problem = ConfigProblem("output_dir", str(folder), f"cannot be made: {above} is no folder that may be written")
        raise ConfigError([problem], title="training settings", hint="Choose another --output_dir")


def starting_point(config: TrainPipelineConfig, dataset: TrainingDataset, checkpoint: Checkpoint | None) -> Start:
    """Return where the loop begins: at the first sample, or exactly where a checkpoint was.

    Checkpoints of ours say their place in samples; for LeRobot's it follows from steps, batch size and processes.

    Args:
        config: Settings; `policy` is set.
        dataset: Samples.
        checkpoint: What is resumed.

    Returns:
        The step, and the batches from there on.

    Raises:
        DatasetError: No sample is left after leaving out frames at the ends of episodes.
        CheckpointError: The checkpoint does not say its step.
    """
    saved = {} if checkpoint is None else checkpoint.training_step()
    own = saved.get(OWN_KEY, {})
    seed = own.get("sampler_seed", config.seed)
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
    sampler = _order(config, dataset, seed)
    step = int(saved.get("step", 0))
    if own.get("frames", len(sampler)) != len(sampler):
        text = (
            "The dataset has %d samples, at the checkpoint it had %d: the order of samples is another one from here on."
        )
        _log.warning(text, len(sampler), own["frames"])
    if "epoch" in own:
        state = SamplerState(own["epoch"], own["start_index"])
    else:
        processes = saved.get("num_processes", saved.get("dp_world_size", 1))
        state = compute_sampler_state(step, len(sampler), saved.get("batch_size", config.batch_size), processes)
    if isinstance(sampler, StreamOrder):
        return Start(step, StreamBatches(sampler, config.batch_size, state))
    return Start(step, RankBatches(sampler, config.batch_size, state))


def _order(config: TrainPipelineConfig, dataset: TrainingDataset, seed: int) -> EpisodeAwareSampler | StreamOrder:
    if isinstance(dataset, TrainingStream):
        dataset.dataset.seed = seed
        return StreamOrder(len(dataset), seed)
    starts, stops = zip(*episode_spans(dataset), strict=True)
    dropped = getattr(config.policy, "drop_n_last_frames", 0) or 0
    return EpisodeAwareSampler(starts, stops, drop_n_last_frames=dropped, shuffle=True, seed=seed)


def set_cuda_flags(device: str, *, deterministic: bool) -> None:
    """Choose between speed and repeatability on CUDA; elsewhere nothing is changed.

    Args:
        device: Where the policy is.
        deterministic: Whether convolutions are repeatable.
    """
    if torch.device(device).type == "cuda":
        torch.backends.cudnn.deterministic = deterministic
        torch.backends.cudnn.benchmark = not deterministic
        torch.backends.cuda.matmul.allow_tf32 = True
