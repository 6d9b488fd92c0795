# SPDX-License-Identifier: Apache-2.0
"""What the tests of training share: golden data, one torch thread, and a tiny policy that learns to copy its state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from pydantic import Field
from torch import Tensor, nn

from ulna.core.features import FeatureType, NormalizationMode
from ulna.core.optim import LRSchedulerConfig, OptimizerConfig, make_optimizer_config, make_scheduler_config
from ulna.core.plugins import registry
from ulna.core.policies import PreTrainedPolicy
from ulna.core.policy_config import PreTrainedConfig
from ulna.training import DatasetConfig, InMemoryDataset, TrainingObserver, TrainPipelineConfig

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder of the golden cases."""
    return GOLDEN


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Keep torch on one thread, which is what tiny networks want."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class CopyConfig(PreTrainedConfig):
    """Settings of the toy policy."""

    processors: ClassVar[str] = "ulna.processing.pipelines:make_default_pre_post_processors"

    type: Literal["copycat"] = "copycat"
    width: int = Field(16, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    lr: float = Field(1e-2, gt=0)
    decay_steps: int = Field(0, ge=0)
    drop_n_last_frames: int = Field(0, ge=0)
    window: int = Field(0, ge=0)
    normalization_mapping: dict[FeatureType, NormalizationMode] = Field(
        default_factory=lambda: dict.fromkeys((FeatureType.STATE, FeatureType.ACTION), NormalizationMode.MEAN_STD)
    )

    @property
    def observation_delta_indices(self) -> None:
        """Now alone."""

    @property
    def action_delta_indices(self) -> list[int] | None:
        """A window of actions, if asked for."""
        return list(range(self.window)) if self.window else None

    def get_optimizer_preset(self) -> OptimizerConfig:
        """AdamW."""
        return make_optimizer_config("adamw", lr=self.lr, weight_decay=0.0)

    def get_scheduler_preset(self) -> LRSchedulerConfig | None:
        """A cosine, if asked for."""
        steps = self.decay_steps
        return make_scheduler_config("cosine_annealing_with_warmup", num_warmup_steps=2) if steps else None

    def validate_features(self) -> None:
        """Everything suits."""

    @classmethod
    def load_implementation(cls) -> type[CopyPolicy]:
        """Return the policy below."""
        return CopyPolicy


class CopyPolicy(PreTrainedPolicy):
    """A small network from state to action."""

    config_class = CopyConfig
    name = "copycat"

    def __init__(self, config: CopyConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        assert config.robot_state_feature is not None
        assert config.action_feature is not None
        size, out = config.robot_state_feature.shape[0], config.action_feature.shape[0]
        self.net = nn.Sequential(
            nn.Linear(size, config.width), nn.Tanh(), nn.Dropout(config.dropout), nn.Linear(config.width, out)
        )
        self.updates = 0

    def get_optim_params(self) -> Any:
        """All parameters."""
        return self.parameters()

    def reset(self) -> None:
        """There is no past."""

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> tuple[Tensor, dict[str, Any] | None]:
        """Mean squared error."""
        error = (self.net(batch["observation.state"]) - batch["action"]).square()
        return error.mean(), {"mse": float(error.mean().detach()), "label": "not a number"}

    def update(self) -> None:
        """Count."""
        self.updates += 1

    def predict_action_chunk(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """One action as a chunk."""
        return self.select_action(batch)[:, None]

    def select_action(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """The network's output."""
        action: Tensor = self.net(batch["observation.state"])
        return action


@pytest.fixture(autouse=True)
def toy_policy() -> Iterator[type[CopyConfig]]:
    """Offer the toy policy as type `copycat` while a test runs."""
    undo = registry().register("policies", "copycat", CopyConfig)
    yield CopyConfig
    undo()


def copy_data(frames: int = 40, episodes: int = 2, *, seed: int = 0, constant: bool = False) -> InMemoryDataset:
    """Samples whose action equals their state; with `constant`, the last action dimension never changes."""
    state = torch.tensor(np.random.default_rng(seed).uniform(-1, 1, (frames, 3)), dtype=torch.float32)
    action = state.clone()
    if constant:
        action[:, 2] = 0.5
    cut = [round(frames * i / episodes) for i in range(episodes + 1)]
    columns: dict[str, Any] = {
        "observation.state": state,
        "action": action,
        "index": torch.arange(frames),
        "task": [f"copy {i % 2}" for i in range(frames)],
    }
    vector = {"dtype": "float32", "shape": (3,), "names": None}
    stats = {
        k: {"mean": c.mean(0), "std": c.std(0, correction=0), "min": c.amin(0), "max": c.amax(0)}
        for k, c in (("observation.state", state), ("action", action))
    }
    meta = SimpleNamespace(
        features={"observation.state": vector, "action": vector}, stats=stats, camera_keys=[], fps=10
    )
    return InMemoryDataset(columns, list(pairwise(cut)), meta)


class Recorder(TrainingObserver):
    """Notes all that it is told."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.evaluations: list[dict[str, float]] = []
        self.saved: list[int] = []
        self.ended = 0

    def training_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Note figures."""
        self.rows.append({"step": step, **metrics})

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """Note figures on held-out episodes."""
        self.evaluations.append({"step": step, **metrics})

    def checkpoint_written(self, path: Path, step: int) -> None:
        """Note the step."""
        self.saved.append(step)

    def finished(self) -> None:
        """Count the ends."""
        self.ended += 1

    @property
    def losses(self) -> list[float]:
        """Loss of each logged step."""
        return [row["loss"] for row in self.rows]


@pytest.fixture
def recorder() -> Recorder:
    """An observer that notes all that it is told."""
    return Recorder()


@pytest.fixture
def toy_config(tmp_path: Path) -> Callable[..., TrainPipelineConfig]:
    """Make settings of a toy training in `tmp_path/run`; policy settings are given as `policy_...`."""

    def make(**changes: Any) -> TrainPipelineConfig:
        policy = {k.removeprefix("policy_"): changes.pop(k) for k in list(changes) if k.startswith("policy_")}
        settings = {
            "dataset": DatasetConfig(repo_id="me/toy"),
            "policy": CopyConfig(device="cpu", **policy),
            "output_dir": tmp_path / "run",
            "steps": 10,
            "batch_size": 8,
            "log_freq": 1,
            "save_freq": 0,
        }
        return TrainPipelineConfig(**{**settings, **changes})

    return make


@pytest.fixture
def golden_run(tmp_path: Path) -> Callable[[str], Path]:
    """Copy a golden checkpoint of step 3 to where a run would have it; returns the run folder."""

    def place(case: str) -> Path:
        run = tmp_path / case
        shutil.copytree(GOLDEN / case / "checkpoint", run / "checkpoints" / "000003")
        file = run / "checkpoints/000003/pretrained_model/train_config.json"
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("DATASET", str(GOLDEN / "dataset_env/dataset")).replace("OUTPUT", str(run)))
        return run

    return place


def golden_info(case: str) -> dict[str, Any]:
    """Return the facts of a golden case."""
    found: dict[str, Any] = json.loads((GOLDEN / case / "golden.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def act() -> None:
    """Skip where the ACT plugin is not installed."""
    if "act" not in registry().types("policies"):
        pytest.skip("needs the plugin ulna-policies-act")


@pytest.fixture(scope="session")
def helpers() -> SimpleNamespace:
    """Functions and classes that tests use by name."""
    return SimpleNamespace(
        copy_data=copy_data, golden_info=golden_info, Recorder=Recorder, CopyConfig=CopyConfig, CopyPolicy=CopyPolicy
    )
