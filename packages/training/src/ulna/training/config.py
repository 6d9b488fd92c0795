# SPDX-License-Identifier: Apache-2.0
"""Settings of a training, with LeRobot's names and defaults, readable without torch. Their files: `config_files`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from ulna.core.config import Config
from ulna.core.envs import EnvConfig
from ulna.core.errors import ConfigError, ConfigProblem
from ulna.core.optim import LRSchedulerConfig, OptimizerConfig
from ulna.core.policy_config import PreTrainedConfig
from ulna.data.image_transforms_config import ImageTransformConfig, ImageTransformsConfig

__all__ = [
    "DatasetConfig",
    "EvalConfig",
    "ImageTransformConfig",
    "ImageTransformsConfig",
    "JobConfig",
    "PeftConfig",
    "TrainPipelineConfig",
    "WandBConfig",
]


class DatasetConfig(Config):
    """Which dataset is trained on, and how it is read."""

    repo_id: str | list[str] = Field(
        description="Name of the dataset, `user/name`; several names train on all of them, on what they have in common."
    )
    repo_type: Literal["dataset", "bucket"] = Field("dataset", description="Kind of Hub repository.")
    root: Path | None = Field(None, description="Folder of the dataset; default: found by its name.")
    episodes: list[int] | None = Field(None, description="Episodes to use; default: all.")
    image_transforms: ImageTransformsConfig = Field(
        default_factory=ImageTransformsConfig, description="Random changes of pictures."
    )
    revision: str | None = Field(None, description="Hub revision.")
    use_imagenet_stats: bool = Field(True, description="Normalize colour pictures with the statistics of ImageNet.")
    video_backend: str | None = Field(
        None,
        description="Video decoder, `pyav` or `torchcodec`; default: pyav. The pictures are the same.",
    )
    return_uint8: bool = Field(False, description="Without effect: pictures always travel as uint8 while training.")
    depth_output_unit: Literal["mm", "m"] = Field("mm", description="Unit of depth maps and of their statistics.")
    streaming: bool = Field(
        False, description="Read frames one after the other, a dataset that is not on this machine from the Hub."
    )
    eval_split: float = Field(
        0.0, ge=0, lt=1, description="Share of the episodes of each task held out for evaluation."
    )
    cache: Literal["none", "ram", "disk"] = Field(
        "none",
        description="`ram` decodes every frame before the first step and keeps it in memory, refused when it does not "
        "fit; `disk` keeps decoded frames in a file that all reading processes share, as many as fit.",
    )
    cache_limit_gb: float = Field(
        4.0, gt=0, description="Most memory or disk space that the cache may take, in 10^9 bytes."
    )

    def contradictions(self) -> list[ConfigProblem]:
        """Return a problem for every setting that does not go with another one of the dataset."""
        several = isinstance(self.repo_id, list)
        one_only = "must be left out when repo_id names several datasets"
        checks = (
            (several and self.streaming, "streaming", one_only),
            (several and self.episodes is not None, "episodes", one_only),
            (several and self.revision is not None, "revision", one_only),
            (several and self.eval_split > 0, "eval_split", one_only),
            (several and self.cache != "none", "cache", one_only),
            (
                self.streaming and self.eval_split > 0,
                "eval_split",
                "must be 0 when streaming is set: held-out episodes are read by position",
            ),
            (
                self.streaming and self.cache != "none",
                "cache",
                "keeps decoded frames, which streaming avoids: set one of them only",
            ),
        )
        return [ConfigProblem(f"dataset.{name}", getattr(self, name), text) for wrong, name, text in checks if wrong]


class EvalConfig(Config):
    """Rollouts in an environment while training."""

    n_episodes: int = Field(50, ge=1, description="Episodes of one evaluation.")
    batch_size: int = Field(1, ge=0, description="Environments at once; 0 chooses.")
    use_async_envs: bool = Field(True, description="Whether each environment has its own process.")
    recording: bool = Field(False, description="Whether the episodes are recorded.")
    recording_repo_id: str | None = Field(None, description="Name of the dataset they are recorded to.")
    recording_private: bool = Field(False, description="Whether that dataset is private.")


class WandBConfig(Config):
    """Tracking with Weights & Biases."""

    enable: bool = Field(False, description="Whether to track.")
    disable_artifact: bool = Field(False, description="Do not upload checkpoints.")
    project: str = Field("lerobot", description="Project.")
    entity: str | None = Field(None, description="User or team.")
    notes: str | None = Field(None, description="Notes on the run.")
    run_id: str | None = Field(None, description="Run to continue.")
    mode: Literal["online", "offline", "disabled"] | None = Field(None, description="How to track.")
    add_tags: bool = Field(True, description="Tag the run with policy, seed, dataset and environment.")


class PeftConfig(Config):
    """Parameter-efficient fine-tuning."""

    target_modules: list[str] | str | None = Field(None, description="Modules that get an adapter.")
    full_training_modules: list[str] | None = Field(None, description="Modules that are trained whole.")
    method_type: str = Field("LORA", description="Method.")
    init_type: str | None = Field(None, description="How adapters start.")
    r: int = Field(16, ge=1, description="Rank.")
    lora_alpha: int | None = Field(None, description="Scale.")


class JobConfig(Config):
    """Where the training runs."""

    target: str | None = Field(None, description="`local`, or hardware to rent; default: here.")
    image: str = Field("huggingface/lerobot-gpu:latest", description="Container of a remote job.")
    timeout: str = Field("2d", description="Longest time of a remote job.")
    detach: bool = Field(False, description="Do not follow a remote job.")
    tags: list[str] = Field(default_factory=list, description="Tags of a remote job.")


class TrainPipelineConfig(Config):
    """Everything about one training. `validate` checks it, `resolved` fills it in; neither changes it."""

    dataset: DatasetConfig = Field(description="The dataset.")
    env: EnvConfig | None = Field(None, description="Environment to evaluate in.")
    policy: PreTrainedConfig | None = Field(None, description="The policy.")
    reward_model: dict[str, Any] | None = Field(None, description="A reward model to train instead of a policy.")
    output_dir: Path | None = Field(None, description="Run folder; default: outputs/train/DATE/TIME_JOB.")
    job_name: str | None = Field(None, description="Name of the run; default: the policy's type.")
    resume: bool = Field(False, description="Continue the run of --config or --output_dir.")
    seed: int | None = Field(1000, ge=0, description="Seed of every random generator; null leaves them alone.")
    cudnn_deterministic: bool = Field(False, description="Repeatable, slower convolutions on CUDA.")
    num_workers: int = Field(4, ge=0, description="Most processes that read data; none are used where none help.")
    batch_size: int = Field(8, ge=1, description="Samples of one step.")
    prefetch_factor: int = Field(4, ge=1, description="Batches that each reading process prepares ahead.")
    persistent_workers: bool = Field(True, description="Without effect: reading processes live for the whole run.")
    dataloader_multiprocessing_context: Literal["spawn", "fork", "forkserver"] | None = Field(
        "spawn", description="How reading processes start."
    )
    steps: int = Field(100_000, ge=1, description="Optimizer steps in all.")
    env_eval_freq: int = Field(20_000, ge=0, description="Steps between evaluations in the environment; 0 for none.")
    log_freq: int = Field(200, ge=0, description="Steps between logged figures; 0 for none.")
    eval_steps: int = Field(0, ge=0, description="Steps between evaluations on held-out episodes; 0 for none.")
    max_eval_samples: int = Field(0, ge=0, description="Most held-out samples of one evaluation; 0 for all.")
    tolerance_s: float = Field(1e-4, gt=0, description="Allowed difference of time stamps in seconds.")
    save_checkpoint: bool = Field(True, description="Whether checkpoints are written.")
    save_freq: int = Field(20_000, description="Steps between checkpoints; 0 or less keeps only the last.")
    use_policy_training_preset: bool = Field(True, description="Take optimizer and schedule from the policy.")
    optimizer: OptimizerConfig | None = Field(None, description="The optimizer.")
    scheduler: LRSchedulerConfig | None = Field(None, description="The learning-rate schedule.")
    eval: EvalConfig = Field(default_factory=EvalConfig, description="Evaluation in the environment.")
    wandb: WandBConfig = Field(default_factory=WandBConfig, description="Tracking.")
    peft: PeftConfig | None = Field(None, description="Parameter-efficient fine-tuning.")
    job: JobConfig = Field(default_factory=JobConfig, description="Where it runs.")
    save_checkpoint_to_hub: bool = Field(False, description="Upload every checkpoint.")
    sample_weighting: dict[str, Any] | None = Field(None, description="Weights of samples.")
    rename_map: dict[str, str] = Field(default_factory=dict, description="Key of the data to key of the policy.")
    checkpoint_path: Path | None = Field(None, description="Checkpoint that is resumed; set by --resume.")
    mixed_precision: Literal["no", "bf16"] = Field(
        "no", description="`bf16` computes in bfloat16, keeps float32 weights."
    )
    keep_last: int = Field(0, ge=0, description="How many of the newest checkpoints are kept; 0 keeps all.")

    def validate(self) -> None:  # type: ignore[override]  # pydantic's class method of this name is long deprecated
        """Check what no single field can tell, and refuse what this version cannot do.

        Raises:
            ConfigError: Everything that is wrong, at once.
        """
        problems = [*_unsupported(self), *self._contradictions()]
        if problems:
            raise ConfigError(problems, title="training settings")

    def _contradictions(self) -> list[ConfigProblem]:
        checks = (
            (self.policy is None, "policy", None, "is required: --policy.type=act or --policy.path=FOLDER"),
            (
                bool(self.rename_map) and (self.policy is None or self.policy.pretrained_path is None),
                "rename_map",
                self.rename_map,
                "only fits a pretrained policy, whose names are fixed; a new policy takes the names of the dataset",
            ),
            (
                not self.use_policy_training_preset and self.optimizer is None,
                "optimizer",
                None,
                "is required when use_policy_training_preset is false",
            ),
            (
                self.eval_steps > 0 and self.dataset.eval_split == 0,
                "eval_steps",
                self.eval_steps,
                "needs held-out episodes: set dataset.eval_split",
            ),
            (
                self.eval not in (EvalConfig(), EvalConfig(batch_size=0)),
                "eval",
                self.eval.to_dict(),
                "has no effect without an environment, which this version does not support",
            ),
            (
                self.dataset.image_transforms.enable and self.dataset.cache == "ram",
                "dataset.image_transforms.enable",
                True,
                "pictures cannot be changed when whole batches come from memory: set dataset.cache=none",
            ),
            (
                self.keep_last > 0 and not self.save_checkpoint,
                "keep_last",
                self.keep_last,
                "has no effect when save_checkpoint is false",
            ),
        )
        found = [ConfigProblem(p, v, text) for wrong, p, v, text in checks if wrong]
        return [*found, *self.dataset.contradictions(), *self._preset_problems()]

    def _preset_problems(self) -> list[ConfigProblem]:
        if not self.use_policy_training_preset or self.policy is None:
            return []
        presets = {"optimizer": self.policy.get_optimizer_preset(), "scheduler": self.policy.get_scheduler_preset()}
        expected = "would be replaced by the policy's preset; set use_policy_training_preset=false to use it"
        given = {name: getattr(self, name) for name in presets}
        return [
            ConfigProblem(name, chosen.to_dict(), expected)
            for name, chosen in given.items()
            if chosen is not None and chosen != presets[name]
        ]

    def resolved(self, now: datetime | None = None) -> Self:
        """Return a copy with job name, run folder, optimizer and schedule filled in.

        Args:
            now: Time that names the run folder; default: the clock.

        Returns:
            The settings that a training runs with, and that its checkpoints hold.
        """
        filled = self.model_copy(deep=True)
        if filled.policy is not None:
            filled.job_name = filled.job_name or filled.policy.type
            if filled.use_policy_training_preset:
                filled.optimizer = filled.policy.get_optimizer_preset()
                filled.scheduler = filled.policy.get_scheduler_preset()
        if filled.output_dir is None:
            when = now or datetime.now()
            name = f"{when:%H-%M-%S}_{filled.job_name or 'training'}"
            filled.output_dir = Path("outputs/train") / f"{when:%Y-%m-%d}" / name
        return filled

    @classmethod
    def read_settings(cls, path: Path | str, wanted_by: str = "config") -> dict[str, Any]:
        """Read what `--config` names: a file, or a run, checkpoint or `pretrained_model` folder.

        Args:
            path: The file or folder.
            wanted_by: The setting that names it, for messages.

        Returns:
            Nested settings.

        Raises:
            ConfigError: It cannot be read.
        """
        from ulna.training.config_files import read_train_settings

        return read_train_settings(cls, path, wanted_by)

    @classmethod
    def from_checkpoint(cls, source: Path | str, **changes: Any) -> Self:
        """Return the settings that continue a run.

        Args:
            source: A run folder, a checkpoint, the `pretrained_model` in it, or a file there.
            **changes: Settings that replace the saved ones: `steps=40_000`.

        Returns:
            The settings, with `resume` set.

        Raises:
            ConfigError: It cannot be read, or a setting is wrong.
        """
        return cls.build({**cls.read_settings(source), "resume": True, **changes}, title=f"settings of {source}")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values, with unknown fields of the policy's file."""
        data = super().to_dict()
        if self.policy is not None:
            data["policy"] = self.policy.to_dict()
        return data


_UNSUPPORTED: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("env", (None,), "evaluation in an environment is not supported by this version; evaluate checkpoints afterwards"),
    ("reward_model", (None,), "training reward models is not supported by this version"),
    ("peft", (None,), "fine-tuning with adapters is not supported by this version"),
    ("sample_weighting", (None,), "weighting samples is not supported by this version"),
    ("job.target", (None, "local"), "remote jobs are not supported by this version; leave it null"),
    (
        "wandb.enable",
        (False,),
        "tracking is not supported by this version; metrics.jsonl in the run folder has every figure",
    ),
    ("save_checkpoint_to_hub", (False,), "is not supported by this version; upload with `hf upload USER/NAME FOLDER`"),
    ("dataset.repo_type", ("dataset",), "only `dataset` is supported by this version"),
    ("policy.use_peft", (False,), "training adapters is not supported by this version"),
    (
        "policy.push_to_hub",
        (False,),
        "is not supported by this version; set it to false and upload with `hf upload USER/NAME FOLDER`",
    ),
)


def _unsupported(config: TrainPipelineConfig) -> list[ConfigProblem]:
    """Return a problem for every setting that asks for something this version does not do."""
    problems = []
    for path, accepted, expected in _UNSUPPORTED:
        value: Any = config
        for name in path.split("."):
            value = getattr(value, name, accepted[0])
        if value not in accepted:
            shown = value.to_dict() if isinstance(value, Config) else value
            problems.append(ConfigProblem(path, shown, expected))
    return problems
