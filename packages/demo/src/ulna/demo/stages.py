# SPDX-License-Identifier: Apache-2.0
"""The stages of the demo, each a few calls of the library: record, make a policy, train it, judge it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ulna.control import (
    DatasetTarget,
    EpisodePlan,
    Phase,
    RecordResult,
    RolloutResult,
    RolloutSettings,
    Tick,
    open_dataset,
    run_engine,
    run_recording,
    run_rollout,
)
from ulna.core.errors import ControlError
from ulna.core.factories import dataset_to_policy_features, make_policy, make_policy_config, make_pre_post_processors
from ulna.core.optim import make_optimizer_config, make_scheduler_config
from ulna.core.policy_config import PreTrainedConfig
from ulna.data import LeRobotDatasetMetadata
from ulna.demo.config import DemoConfig
from ulna.demo.world import DemoWorld, ExpertSource
from ulna.training import DatasetConfig, TrainingObserver, TrainPipelineConfig, TrainResult, seed_everything, train

__all__ = [
    "EVALUATION_SEED",
    "Trial",
    "judge_expert",
    "judge_policy",
    "policy_settings",
    "record_demonstrations",
    "train_policy",
    "untrained_policy",
]

TASK = "Hold the gripper over the target."
REPO_ID = "demo/reach"
RECORDING_SEED = 1_000
EVALUATION_SEED = 1_000_000
"""Scenes of the judged episodes; far from those of the demonstrations."""

_LEARNING_RATE = 3e-4
_POLICY_SEES = ("observation.state", "observation.images.top")


@dataclass(frozen=True)
class Trial:
    """A policy ready to act.

    Attributes:
        policy: In evaluation mode.
        preprocessor: Batch to batch.
        postprocessor: Action to action.
    """

    policy: Any
    preprocessor: Any
    postprocessor: Any


class _EndsWhenDone:
    """Presses the key that ends an episode when the expert has finished."""

    description = "the scripted expert ends the episodes"

    def __init__(self, world: DemoWorld) -> None:
        self._expert = world.expert

    def poll(self) -> str | None:
        """Return `right` when the expert is done."""
        return "right" if self._expert.done else None


def record_demonstrations(
    world: DemoWorld, config: DemoConfig, root: Path, told: Callable[[Phase], object] | None = None
) -> RecordResult:
    """Record the expert's demonstrations through leader and follower.

    Args:
        world: The world.
        config: Settings.
        root: Folder of the dataset, not there yet.
        told: Called at the beginning of each phase.

    Returns:
        What was recorded.

    Raises:
        ControlError: Recording was interrupted before all demonstrations were there.
    """

    def lead(tick: Tick) -> None:
        if tick.phase == "record":
            world.expert.step()

    target = DatasetTarget(repo_id=REPO_ID, root=root)
    plan = EpisodePlan(
        single_task=TASK, num_episodes=config.episodes, episode_time_s=config.episode_time_s, reset_time_s=0
    )
    runtime = world.runtime(RECORDING_SEED * (1 + config.seed), keys=_EndsWhenDone(world), on_tick=lead, on_phase=told)
    result = run_recording(
        world.robot, world.teleop, lambda: open_dataset(target, world.robot, config.fps), plan, runtime
    )
    if not result.complete:
        raise ControlError(f"Recording ended early: {result.stop_reason}.", hint=f"What was recorded is in {root}.")
    return result


def policy_settings(meta: LeRobotDatasetMetadata) -> PreTrainedConfig:
    """Return the settings of the policy: ACT, small enough to learn on two cores in minutes.

    It looks at the joints and at one of the recorded cameras; the other is there for people.

    Args:
        meta: Of the dataset it learns from.
    """
    seen = dataset_to_policy_features(meta.features)
    return make_policy_config(
        "act",
        input_features={key: seen[key] for key in _POLICY_SEES},
        chunk_size=30,
        n_action_steps=5,
        dim_model=128,
        dim_feedforward=512,
        n_encoder_layers=2,
        n_vae_encoder_layers=2,
        use_vae=False,
        pretrained_backbone_weights=None,
        optimizer_lr=_LEARNING_RATE,
        optimizer_lr_backbone=_LEARNING_RATE,
        device="cpu",
    )


def untrained_policy(root: Path, seed: int) -> Trial:
    """Make the policy as it is before training.

    Args:
        root: Folder of the dataset.
        seed: Seed of its weights.
    """
    seed_everything(seed)
    meta = LeRobotDatasetMetadata(REPO_ID, root)
    policy = make_policy(policy_settings(meta), ds_meta=meta).eval()
    return Trial(policy, *make_pre_post_processors(policy.config, dataset_stats=meta.stats))


def train_policy(
    config: DemoConfig, root: Path, run_dir: Path, observers: Iterable[TrainingObserver] = ()
) -> TrainResult:
    """Train the policy on the demonstrations.

    Args:
        config: Settings.
        root: Folder of the dataset.
        run_dir: Folder of the training run, not there yet.
        observers: Told about progress.

    Returns:
        The result, with the trained policy.

    Raises:
        ControlError: Training was interrupted; its checkpoint is named.
    """
    settings = TrainPipelineConfig(
        dataset=DatasetConfig(repo_id=REPO_ID, root=root, cache="ram", use_imagenet_stats=False),
        policy=policy_settings(LeRobotDatasetMetadata(REPO_ID, root)),
        output_dir=run_dir,
        seed=config.seed,
        batch_size=config.batch_size,
        steps=config.steps,
        num_workers=0,
        log_freq=max(1, config.steps // 20),
        save_freq=0,
        use_policy_training_preset=False,
        optimizer=make_optimizer_config("adamw", lr=_LEARNING_RATE, weight_decay=1e-4),
        scheduler=make_scheduler_config(
            "cosine_decay_with_warmup",
            num_warmup_steps=min(50, config.steps // 10),
            num_decay_steps=config.steps,
            peak_lr=_LEARNING_RATE,
            decay_lr=_LEARNING_RATE / 20,
        ),
    )
    result = train(settings, observers=observers)
    if result.interrupted:
        raise ControlError(f"Training ended early at step {result.step}.", hint=f"Its checkpoint: {result.checkpoint}")
    return result


def _settings(config: DemoConfig) -> RolloutSettings:
    return RolloutSettings(
        strategy="episodic",
        fps=config.fps,
        num_episodes=config.rollouts,
        episode_time_s=config.episode_time_s,
        return_to_initial_position=False,
    )


def judge_policy(
    world: DemoWorld, config: DemoConfig, trial: Trial, on_tick: Callable[[Tick], object] | None = None
) -> RolloutResult:
    """Let a policy drive the follower on fresh scenes.

    Args:
        world: The world.
        config: Settings.
        trial: The policy.
        on_tick: Called after every action.

    Returns:
        How every episode went.
    """
    return run_rollout(
        world.robot,
        trial.policy,
        trial.preprocessor,
        trial.postprocessor,
        _settings(config),
        task=TASK,
        judge=lambda: world.sim.success,
        runtime=world.runtime(EVALUATION_SEED, on_tick=on_tick),
    )


def judge_expert(world: DemoWorld, config: DemoConfig) -> RolloutResult:
    """Let the scripted expert drive the follower through the leader, on the scenes the policies are judged on.

    Args:
        world: The world.
        config: Settings.

    Returns:
        How every episode went.
    """
    with world.teleop:
        return run_engine(
            world.robot,
            ExpertSource(world),
            _settings(config),
            judge=lambda: world.sim.success,
            runtime=world.runtime(EVALUATION_SEED),
        )
