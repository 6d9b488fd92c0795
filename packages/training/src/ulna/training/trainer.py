# SPDX-License-Identifier: Apache-2.0
"""The training loop on one process: batch, loss, step, figures, checkpoint. Its parts come from other modules."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ulna.core.errors import ConfigError, ConfigProblem
from ulna.core.files import write_json
from ulna.core.pipeline import DataProcessorPipeline
from ulna.core.plugins import call_hook
from ulna.core.policies import PreTrainedPolicy
from ulna.data import StreamingLeRobotDataset
from ulna.training.assembling import Parts, build_parts, check_features
from ulna.training.checkpoints import TRAINING_STEP, Checkpoint, checkpoint_folder, new_checkpoint
from ulna.training.config import TrainPipelineConfig
from ulna.training.config_files import OWN_KEY, save_train_config
from ulna.training.datasets import (
    TrainingData,
    TrainingDataset,
    as_training_dataset,
    check_windows,
    episode_spans,
    open_training_data,
    training_stats,
)
from ulna.training.errors import CheckpointNotWrittenError, TrainingDivergedError
from ulna.training.evaluation import evaluation_positions, held_out_loss
from ulna.training.interrupts import InterruptRequest
from ulna.training.loading import Batch, batch_stream, pictures_as_float
from ulna.training.metrics import METRICS_FILE, MetricsFile, StepFigures, is_number
from ulna.training.observers import TrainingObserver, TrainingPlan
from ulna.training.rng import load_rng, save_rng, seed_everything
from ulna.training.sampling import SamplerState
from ulna.training.starting import refuse_ranks, refuse_taken, resumed_checkpoint, set_cuda_flags, starting_point
from ulna.training.state_files import save_optimizer, save_scheduler

__all__ = ["TrainResult", "Trainer", "train"]

_log = logging.getLogger(__name__)


@dataclass
class TrainResult:
    """What came out of a training.

    Attributes:
        output_dir: The run folder.
        checkpoint: Folder of the last checkpoint; None when none was written.
        step: Steps taken in all.
        interrupted: Whether Ctrl-C ended it early.
        metrics: The last logged figures, those of the last evaluation included.
        seconds: Time of the loop.
        policy: The policy, in training mode.
        preprocessor: Batch to batch.
        postprocessor: Action to action.
    """

    output_dir: Path
    checkpoint: Path | None
    step: int
    interrupted: bool
    metrics: dict[str, float]
    seconds: float
    policy: PreTrainedPolicy
    preprocessor: DataProcessorPipeline[Any, Any]
    postprocessor: DataProcessorPipeline[Any, Any]


def train(
    config: TrainPipelineConfig,
    *,
    dataset: TrainingDataset | StreamingLeRobotDataset | None = None,
    observers: Iterable[TrainingObserver] = (),
) -> TrainResult:
    """Train a policy.

    Args:
        config: Settings; not changed.
        dataset: Samples to train on instead of `config.dataset`, which then is only a name. It must have
            the windows the policy needs.
        observers: Who is told about progress.

    Returns:
        Where the result is, and the trained policy itself.

    Raises:
        ConfigError: Settings are wrong, or ask for what this version cannot do.
        DatasetError: The dataset is not there or not whole.
        FeatureError: The dataset lacks what the policy needs.
        CheckpointError: What is resumed is not there or does not fit.
        TrainingDivergedError: The loss became infinite or not a number.
    """
    return Trainer(config, dataset=dataset, observers=observers).run()


class Trainer:
    """One training. Made, run once, and thrown away; `train` does all of it.

    Args:
        config: Settings; not changed.
        dataset: Samples to train on instead of those of `config.dataset`.
        observers: Who is told about progress.

    Raises:
        ConfigError: Settings are wrong, or ask for what this version cannot do.
        CheckpointError: What is resumed is not there.
    """

    def __init__(
        self,
        config: TrainPipelineConfig,
        *,
        dataset: TrainingDataset | StreamingLeRobotDataset | None = None,
        observers: Iterable[TrainingObserver] = (),
    ) -> None:
        config.validate()
        refuse_ranks()
        if dataset is not None and config.dataset.eval_split:
            problem = ConfigProblem(
                "dataset.eval_split", config.dataset.eval_split, "must be 0 when a dataset is given"
            )
            raise ConfigError([problem], title="training settings")
        self.resumed = resumed_checkpoint(config)
        self.config = config.resolved()
        if self.resumed is not None and self.resumed.run_dir is not None:
            self.config.output_dir = self.resumed.run_dir
        self.observers = tuple(observers)
        self._given = None if dataset is None else as_training_dataset(dataset)
        self.step = 0
        self.metrics: dict[str, float] = {}
        self.checkpoint: Path | None = None
        self._saved_step = -1
        self._figures = StepFigures(config.batch_size, _advice(config))

    @property
    def output_dir(self) -> Path:
        """The run folder."""
        assert self.config.output_dir is not None
        return self.config.output_dir

    def run(self) -> TrainResult:
        """Train to the last step, or to Ctrl-C; then save.

        Returns:
            What came out.

        Raises:
            UlnaError: See `train`.
        """
        self._setup()
        began = time.perf_counter()
        try:
            with InterruptRequest() as interrupt:
                self._tell("started", self._plan())
                self._loop(lambda: interrupt.requested)
                interrupted = interrupt.requested and self.step < self.config.steps
        finally:
            self._tell("finished")
        return TrainResult(
            self.output_dir,
            self.checkpoint,
            self.step,
            interrupted,
            dict(self.metrics),
            time.perf_counter() - began,
            self.parts.policy,
            self.parts.preprocessor,
            self.parts.postprocessor,
        )

    def _setup(self) -> None:
        config = self.config
        assert config.policy is not None
        if self.resumed is None:
            refuse_taken(self.output_dir)
        if config.seed is not None:
            seed_everything(config.seed)
        self.data = (
            open_training_data(config) if self._given is None else TrainingData(as_training_dataset(self._given))
        )
        check_windows(self.data.train, config.policy)
        meta = self.data.train.meta
        check_features(config, meta)
        stats = training_stats(meta, use_imagenet=config.dataset.use_imagenet_stats, rename_map=config.rename_map)
        self.cameras = list(meta.camera_keys)
        self.parts: Parts = build_parts(config, meta, stats, self.resumed)
        self.device = str(config.policy.device)
        set_cuda_flags(self.device, deterministic=config.cudnn_deterministic)
        self._parameters = [p for p in self.parts.policy.parameters() if p.requires_grad]
        self._start = starting_point(config, self.data.train, self.resumed)
        if self.resumed is not None:
            self.step = self._saved_step = self._start.step
            self.checkpoint = self.resumed.path
            load_rng(self.resumed.state / "rng_state.safetensors")
        self._file = MetricsFile(self.output_dir / METRICS_FILE, from_step=self.step)

    def _plan(self) -> TrainingPlan:
        return TrainingPlan(
            self.output_dir,
            self.step,
            self.config.steps,
            self.device,
            sum(p.numel() for p in self._parameters),
            len(self._start.batches.sampler),
            len(episode_spans(self.data.train)),
            self.config.batch_size,
        )

    def _loop(self, stop: Callable[[], bool]) -> None:
        if self.step >= self.config.steps:
            _log.warning("Step %d of %d is reached already; raise steps to go on.", self.step, self.config.steps)
            return
        stream = batch_stream(self.data.train, self._start.batches, self.config)
        while self.step < self.config.steps and not stop():
            self._figures.add(self.take_step(stream))
            self.step += 1
            self._tell("step_taken", self.step)
            ends = self.step == self.config.steps or stop()
            if _due(self.step, self.config.log_freq) or (ends and self.config.log_freq):
                self._log_figures()
            if _due(self.step, self.config.eval_steps):
                self._evaluate()
            if self.config.save_checkpoint and (ends or _due(self.step, self.config.save_freq)):
                self.save()
        if self.config.save_checkpoint and self._saved_step != self.step:
            self.save()

    def take_step(self, stream: Iterator[Batch]) -> dict[str, float | Tensor]:
        """Take one optimizer step.

        Args:
            stream: Batches of the dataset.

        Returns:
            Its figures: `loss`, `grad_norm`, times, and what the policy tells.
        """
        began = time.perf_counter()
        batch = next(stream)
        read = time.perf_counter()
        batch = self.prepare(batch)
        prepared = time.perf_counter()
        with self.autocast():
            loss, outputs = self.parts.policy(batch)
        loss.backward()
        norm = self._clip()
        for optimizer in self._optimizers():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.parts.scheduler is not None:
            self.parts.scheduler.step()
        self.parts.policy.update()
        done = time.perf_counter()
        times = {"data_s": read - began, "preprocessing_s": prepared - read, "update_s": done - prepared}
        own = {name: value for name, value in (outputs or {}).items() if name != "loss" and is_number(value)}
        return {"loss": loss, **own, "grad_norm": norm, **times}

    def prepare(self, batch: Batch) -> Batch:
        """Turn a batch of the dataset into one for the policy.

        Args:
            batch: Not changed.

        Returns:
            Float pictures, renamed, normalized, on the device.
        """
        prepared: Batch = self.parts.preprocessor(pictures_as_float(batch, self.cameras, self.device))
        return prepared

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context in which losses are computed."""
        if self.config.mixed_precision == "no":
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)

    def _optimizers(self) -> list[Optimizer]:
        optimizer = self.parts.optimizer
        return [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer.values())

    def _clip(self) -> Tensor:
        assert self.config.optimizer is not None
        limit = self.config.optimizer.grad_clip_norm or math.inf
        return torch.nn.utils.clip_grad_norm_(self._parameters, limit)

    def _log_figures(self) -> None:
        self._refuse_nonsense()
        place = self._place()
        epoch = place.epoch + place.start_index / len(self._start.batches.sampler)
        line = self._figures.line(lr=float(self._optimizers()[0].param_groups[0]["lr"]), epoch=epoch)
        self.metrics.update(line)
        self._file.append(self.step, line)
        self._tell("training_step", self.step, line)
        call_hook("training_step", step=self.step, metrics=line)

    def _refuse_nonsense(self) -> None:
        if not math.isfinite(loss := self._figures.loss):
            raise TrainingDivergedError(self.step, loss, self.checkpoint)

    def _place(self) -> SamplerState:
        return self._start.batches.state_after(self.step - self._start.step)

    def _evaluate(self) -> None:
        dataset = self.data.held_out
        assert dataset is not None
        positions = evaluation_positions(dataset, self.config.max_eval_samples)
        found = held_out_loss(
            self.parts.policy, self.prepare, dataset, positions, self.config.batch_size, self.autocast
        )
        self.metrics.update(found)
        self._file.append(self.step, found)
        self._tell("evaluated", self.step, found)
        call_hook("metrics", source="eval", values=found, step=self.step)

    def save(self) -> Path:
        """Write a checkpoint; older ones stay as they are until it is whole.

        Returns:
            Its folder.

        Raises:
            TrainingDivergedError: The loss since the last logged step is not a number.
            CheckpointNotWrittenError: The system refused, for example because the disk is full.
        """
        self._refuse_nonsense()
        folder = checkpoint_folder(self.output_dir, self.step, self.config.steps)
        try:
            with new_checkpoint(folder, keep_last=self.config.keep_last) as unfinished:
                self._write(unfinished)
        except OSError as error:
            raise CheckpointNotWrittenError(folder, error, self.checkpoint) from error
        self.checkpoint, self._saved_step = folder, self.step
        self._tell("checkpoint_written", folder, self.step)
        call_hook("checkpoint_written", path=folder, step=self.step)
        return folder

    def _write(self, checkpoint: Checkpoint) -> None:
        parts = self.parts
        own_settings = save_train_config(self.config, checkpoint.model)
        parts.policy.save_pretrained(checkpoint.model)
        parts.preprocessor.save_pretrained(checkpoint.model)
        parts.postprocessor.save_pretrained(checkpoint.model)
        save_optimizer(parts.optimizer, checkpoint.state)
        if parts.scheduler is not None:
            save_scheduler(parts.scheduler, checkpoint.state)
        save_rng(checkpoint.state / "rng_state.safetensors")
        where = self._place()
        sampler = self._start.batches.sampler
        own = {
            "epoch": where.epoch,
            "start_index": where.start_index,
            "frames": len(sampler),
            "sampler_seed": sampler.seed,
        }
        step = {"step": self.step, "num_processes": 1, "batch_size": self.config.batch_size}
        write_json(checkpoint.state / TRAINING_STEP, {**step, OWN_KEY: {**own, "settings": own_settings}})

    def _tell(self, event: str, *arguments: Any) -> None:
        for observer in self.observers:
            getattr(observer, event)(*arguments)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _advice(config: TrainPipelineConfig) -> str:
    more = f"more --num_workers (now {config.num_workers})"
    if config.dataset.cache == "ram":
        return f"Try {more}."
    other = "torchcodec" if config.dataset.video_backend in (None, "pyav") else "pyav"
    decoder = f"--dataset.video_backend={other} if it is faster on this machine"
    kept = (
        "" if config.dataset.cache == "disk" else "--dataset.cache=ram, --dataset.cache=disk when that does not fit, "
    )
    return f"Try {kept}{more}, or {decoder}."
