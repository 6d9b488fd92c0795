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
from ulna.training.assembling import Parts, build_parts, check_features
from ulna.training.checkpoints import TRAINING_STEP, Checkpoint, checkpoint_folder, find_checkpoint, new_checkpoint
from ulna.training.config import TrainPipelineConfig
from ulna.training.config_files import OWN_KEY, save_train_config
from ulna.training.datasets import (
    TrainingData,
    TrainingDataset,
    check_windows,
    episode_spans,
    open_training_data,
    training_stats,
)
from ulna.training.errors import TrainingDivergedError
from ulna.training.evaluation import evaluation_positions, held_out_loss
from ulna.training.interrupts import InterruptRequest
from ulna.training.loading import Batch, batch_stream, pictures_as_float
from ulna.training.metrics import METRICS_FILE, MetricsFile, RunningMeans
from ulna.training.observers import TrainingObserver, TrainingPlan
from ulna.training.rng import load_rng, save_rng, seed_everything
from ulna.training.sampling import EpisodeAwareSampler, RankBatches, SamplerState, compute_sampler_state
from ulna.training.state_files import save_optimizer, save_scheduler

__all__ = ["TrainResult", "Trainer", "train"]

_log = logging.getLogger(__name__)

_DATA_BOUND = 0.3
"""Share of the time spent waiting for data from which a run is called data-bound."""


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
    config: TrainPipelineConfig, *, dataset: TrainingDataset | None = None, observers: Iterable[TrainingObserver] = ()
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
        dataset: TrainingDataset | None = None,
        observers: Iterable[TrainingObserver] = (),
    ) -> None:
        config.validate()
        if dataset is not None and config.dataset.eval_split:
            problem = ConfigProblem(
                "dataset.eval_split", config.dataset.eval_split, "must be 0 when a dataset is given"
            )
            raise ConfigError([problem], title="training settings")
        self.resumed = _resumed(config)
        self.config = config.resolved()
        if self.resumed is not None and self.resumed.run_dir is not None:
            self.config.output_dir = self.resumed.run_dir
        self.observers = tuple(observers)
        self._given = dataset
        self.step = 0
        self.metrics: dict[str, float] = {}
        self.checkpoint: Path | None = None
        self._means = RunningMeans()
        self._window_began = 0.0
        self._told_data_bound = False

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
            _refuse_taken(self.output_dir)
        if config.seed is not None:
            seed_everything(config.seed)
        self.data = TrainingData(self._given) if self._given is not None else open_training_data(config)
        check_windows(self.data.train, config.policy)
        meta = self.data.train.meta
        check_features(config, meta)
        stats = training_stats(meta, use_imagenet=config.dataset.use_imagenet_stats, rename_map=config.rename_map)
        self.cameras = list(meta.camera_keys)
        self.parts: Parts = build_parts(config, meta, stats, self.resumed)
        self.device = str(config.policy.device)
        _set_cuda_flags(self.device, deterministic=config.cudnn_deterministic)
        self._parameters = [p for p in self.parts.policy.parameters() if p.requires_grad]
        self._batches = self._make_batches()
        if self.resumed is not None:
            load_rng(self.resumed.state / "rng_state.safetensors")
        self._file = MetricsFile(self.output_dir / METRICS_FILE, from_step=self.step)

    def _make_batches(self) -> RankBatches:
        config = self.config
        starts, stops = zip(*episode_spans(self.data.train), strict=True)
        seed = config.seed if config.seed is not None else int(torch.seed() % 2**32)
        state = SamplerState()
        saved = {} if self.resumed is None else self.resumed.training_step()
        own = saved.get(OWN_KEY, {})
        drop = getattr(config.policy, "drop_n_last_frames", 0) or 0
        seed = own.get("sampler_seed", seed)
        sampler = EpisodeAwareSampler(starts, stops, drop_n_last_frames=drop, shuffle=True, seed=seed)
        if saved:
            assert self.resumed is not None
            self.step, self.checkpoint = saved["step"], self.resumed.path
            processes = saved.get("num_processes", saved.get("dp_world_size", 1))
            state = compute_sampler_state(
                self.step, len(sampler), saved.get("batch_size", config.batch_size), processes
            )
            if "epoch" in own:
                state = SamplerState(own["epoch"], own["start_index"])
        self._first_step = self.step
        return RankBatches(sampler, config.batch_size, state)

    def _plan(self) -> TrainingPlan:
        return TrainingPlan(
            self.output_dir,
            self.step,
            self.config.steps,
            self.device,
            sum(p.numel() for p in self._parameters),
            len(self._batches.sampler),
            len(episode_spans(self.data.train)),
            self.config.batch_size,
        )

    def _loop(self, stop: Callable[[], bool]) -> None:
        if self.step >= self.config.steps:
            _log.warning("Step %d of %d is reached already; raise steps to go on.", self.step, self.config.steps)
            return
        stream = batch_stream(self.data.train, self._batches, self.config)
        self._window_began = time.perf_counter()
        while self.step < self.config.steps and not stop():
            self._means.add(self.take_step(stream))
            self.step += 1
            self._tell("step_taken", self.step)
            ends = self.step == self.config.steps or stop()
            if _due(self.step, self.config.log_freq) or (ends and self.config.log_freq):
                self._log_means()
            if _due(self.step, self.config.eval_steps):
                self._evaluate()
            if self.config.save_checkpoint and (ends or _due(self.step, self.config.save_freq)):
                self.save()
        if self.config.save_checkpoint and self.checkpoint_step != self.step:
            self.save()

    @property
    def checkpoint_step(self) -> int | None:
        """Step of the last checkpoint."""
        return (
            None if self.checkpoint is None else int(self.checkpoint.name) if self.checkpoint.name.isdigit() else None
        )

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
        own = {k: v for k, v in (outputs or {}).items() if isinstance(v, int | float) or _is_scalar(v)}
        return {**own, "loss": loss, "grad_norm": norm, **times}

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

    def _log_means(self) -> None:
        now, means = time.perf_counter(), self._means.means()
        self._means.reset()
        if not math.isfinite(means["loss"]):
            raise TrainingDivergedError(self.step, means["loss"], self.checkpoint)
        times = {name: means.pop(name) for name in ("data_s", "preprocessing_s", "update_s")}
        step_s = sum(times.values())
        self.metrics.update(
            means,
            lr=float(self._optimizers()[0].param_groups[0]["lr"]),
            epoch=self._seen() / len(self._batches.sampler),
            **times,
            step_s=step_s,
            samples_per_s=self.config.batch_size / step_s,
        )
        logged = {k: v for k, v in self.metrics.items() if not k.startswith("eval_")}
        self._watch_data(times["data_s"] / step_s)
        self._window_began = now
        self._file.append(self.step, logged)
        self._tell("training_step", self.step, logged)
        call_hook("training_step", step=self.step, metrics=logged)

    def _seen(self) -> int:
        state = self._sampler_state()
        return state.epoch * len(self._batches.sampler) + state.start_index

    def _sampler_state(self) -> SamplerState:
        return self._batches.state_after(self.step - self._first_step)

    def _watch_data(self, share: float) -> None:
        if share < _DATA_BOUND or self._told_data_bound:
            return
        self._told_data_bound = True
        _log.warning(
            "Data-bound: %.0f %% of the time goes into waiting for data. "
            "Try --dataset.cache=ram, or more num_workers (now %d).",
            100 * share,
            self.config.num_workers,
        )

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

    def save(self) -> Path:
        """Write a checkpoint; older ones stay as they are until it is whole.

        Returns:
            Its folder.

        Raises:
            TrainingDivergedError: The loss since the last logged step is not a number.
        """
        loss = self._means.means().get("loss", 0.0)
        if not math.isfinite(loss):
            raise TrainingDivergedError(self.step, loss, self.checkpoint)
        folder = checkpoint_folder(self.output_dir, self.step, self.config.steps)
        with new_checkpoint(folder, keep_last=self.config.keep_last) as unfinished:
            self._write(unfinished)
        self.checkpoint = folder
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
        where = self._sampler_state()
        own = {"epoch": where.epoch, "start_index": where.start_index, "sampler_seed": self._batches.sampler.seed}
        step = {"step": self.step, "num_processes": 1, "batch_size": self.config.batch_size}
        write_json(checkpoint.state / TRAINING_STEP, {**step, OWN_KEY: {**own, "settings": own_settings}})

    def _tell(self, event: str, *arguments: Any) -> None:
        for observer in self.observers:
            getattr(observer, event)(*arguments)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _is_scalar(value: object) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1


def _resumed(config: TrainPipelineConfig) -> Checkpoint | None:
    """Return the checkpoint that a training continues from."""
    if not config.resume:
        return None
    source = config.checkpoint_path or config.output_dir
    if source is None:
        expected = "needs to know what to resume: --config=RUN_FOLDER, or output_dir"
        raise ConfigError([ConfigProblem("resume", True, expected)], title="training settings")
    return find_checkpoint(source)


def _refuse_taken(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        expected = "exists already; choose another folder, or continue that run with --resume"
        problem = ConfigProblem("output_dir", str(folder), expected)
        raise ConfigError([problem], title="training settings", hint=f"ulna train --resume --config={folder}")


def _set_cuda_flags(device: str, *, deterministic: bool) -> None:
    if torch.device(device).type == "cuda":
        torch.backends.cudnn.deterministic = deterministic
        torch.backends.cudnn.benchmark = not deterministic
        torch.backends.cuda.matmul.allow_tf32 = True
