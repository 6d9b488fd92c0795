# SPDX-License-Identifier: Apache-2.0
"""Settings: LeRobot's fields and files, nothing ignored in silence, no torch needed to read them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ulna.core.errors import ConfigError
from ulna.core.optim import make_optimizer_config
from ulna.core.options import read_options
from ulna.training import DatasetConfig, TrainPipelineConfig, WandBConfig
from ulna.training.config import EvalConfig, JobConfig, PeftConfig
from ulna.training.config_files import OWN_FIELDS, split_own_fields

Make = Callable[..., TrainPipelineConfig]


def test_reading_settings_needs_no_torch() -> None:
    """Importing the settings, the optimizers and the command loads neither torch nor a dataset library."""
    code = (
        "import sys, ulna.training.config, ulna.training.commands, ulna.training.optimizers, ulna.training.schedulers;"
        "print([m for m in ('torch', 'numpy', 'pyarrow', 'av', 'matplotlib', 'tqdm') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("case", ["act_deterministic", "act_custom_optimizer", "act_vae_dropout"])
def test_lerobots_file_loads_and_comes_back(case: str, golden: Path, act: None) -> None:
    """LeRobot's train_config.json is read, valid, and written again with the same content."""
    file = golden / case / "checkpoint/pretrained_model/train_config.json"
    config = TrainPipelineConfig.build(TrainPipelineConfig.read_settings(file))
    config.validate()
    assert config.checkpoint_path == file.parent.parent
    theirs, own = split_own_fields({**config.resolved().to_dict(), "checkpoint_path": None})
    assert theirs == json.loads(file.read_text(encoding="utf-8"))
    assert set(own) == set(OWN_FIELDS)


def test_fields_of_another_version_are_left_out(
    golden: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, act: None
) -> None:
    """A newer file's unknown fields are warned about by name, at every depth; missing ones get their default."""
    file = golden / "act_deterministic/checkpoint/pretrained_model/train_config.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    data["ema"] = {"enable": False}
    data["dataset"]["exclude_episodes"] = None
    data["policy"]["new_field"] = 3
    del data["eval"]["recording"]
    newer = tmp_path / "train_config.json"
    newer.write_text(json.dumps(data), encoding="utf-8")
    config = TrainPipelineConfig.build(TrainPipelineConfig.read_settings(newer))
    assert config.eval.recording is False
    for name in ("ema", "dataset.exclude_episodes", "policy.new_field"):
        assert name in caplog.text


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"wandb": WandBConfig(enable=True)}, "wandb.enable"),
        ({"job": JobConfig(target="a10g-small")}, "job.target"),
        ({"peft": PeftConfig()}, "peft"),
        ({"reward_model": {"type": "sarm"}}, "reward_model"),
        ({"sample_weighting": {"type": "rabc"}}, "sample_weighting"),
        ({"save_checkpoint_to_hub": True}, "save_checkpoint_to_hub"),
        ({"eval": EvalConfig(n_episodes=3)}, "eval"),
        ({"dataset": DatasetConfig(repo_id="me/toy", streaming=True, eval_split=0.1)}, "dataset.eval_split"),
        ({"dataset": DatasetConfig(repo_id="me/toy", streaming=True, cache="ram")}, "dataset.cache"),
        ({"dataset": DatasetConfig(repo_id=["me/a", "me/b"], streaming=True)}, "dataset.streaming"),
        ({"dataset": DatasetConfig(repo_id=["me/a", "me/b"], episodes=[1])}, "dataset.episodes"),
        ({"dataset": DatasetConfig(repo_id="me/toy", image_transforms={"enable": True}, cache="ram")}, "dataset.image"),
        ({"policy_push_to_hub": True}, "policy.push_to_hub"),
        ({"policy_use_peft": True}, "policy.use_peft"),
        ({"policy": None}, "policy"),
        ({"rename_map": {"a": "b"}}, "rename_map"),
        ({"use_policy_training_preset": False}, "optimizer"),
        ({"optimizer": make_optimizer_config("sgd")}, "optimizer"),
        ({"eval_steps": 5}, "eval_steps"),
        ({"keep_last": 2, "save_checkpoint": False}, "keep_last"),
    ],
)
def test_nothing_is_ignored_in_silence(changes: dict[str, Any], path: str, toy_config: Make) -> None:
    """What cannot work, or is not supported, is refused with the setting's name."""
    with pytest.raises(ConfigError) as caught:
        toy_config(**changes).validate()
    assert [problem.path.startswith(path) for problem in caught.value.problems] == [True]


def test_all_problems_at_once(toy_config: Make) -> None:
    """Every wrong setting is in the one error."""
    with pytest.raises(ConfigError) as caught:
        toy_config(eval_steps=5, peft=PeftConfig(), wandb=WandBConfig(enable=True)).validate()
    assert {problem.path for problem in caught.value.problems} == {"eval_steps", "peft", "wandb.enable"}


def test_resolved_settings(toy_config: Make) -> None:
    """Name, folder and optimizer are filled in; an optimizer equal to the preset is accepted."""
    config = toy_config(output_dir=None)
    filled = config.resolved(datetime(2026, 1, 2, 3, 4, 5))
    assert filled.output_dir == Path("outputs/train/2026-01-02/03-04-05_copycat")
    assert (filled.job_name, filled.optimizer) == ("copycat", make_optimizer_config("adamw", lr=0.01, weight_decay=0))
    assert (config.output_dir, config.optimizer) == (None, None)
    filled.validate()


def test_flags_over_a_run(toy_config: Make, helpers: SimpleNamespace, tmp_path: Path) -> None:
    """`--resume --config=RUN` is the run's settings with the flags over them, for a folder as for a file."""
    from ulna.training import train

    dataset = DatasetConfig(repo_id="me/toy", cache="ram", cache_limit_gb=0.5)
    train(toy_config(steps=2, keep_last=3, dataset=dataset), dataset=helpers.copy_data())
    run = tmp_path / "run"
    file = run / "checkpoints/last/pretrained_model/train_config.json"
    for name in (run, file):
        flags = ["--resume", f"--config={name}", "--steps=9", "--policy.lr=0.5"]
        config = read_options(TrainPipelineConfig, flags, title="train").config
        assert (config.resume, config.steps, config.keep_last) == (True, 9, 3)
        assert (config.dataset.cache, config.dataset.cache_limit_gb) == ("ram", 0.5)
        assert config.policy is not None
        assert config.policy.get_optimizer_preset().lr == 0.5
        assert config.checkpoint_path is not None
        config.validate()
    with pytest.raises(ConfigError, match="cannot be read"):
        read_options(TrainPipelineConfig, [f"--config={tmp_path / 'none.yaml'}"], title="train")


def test_typing_errors_are_refused_in_files_of_ones_own(tmp_path: Path, toy_config: Make) -> None:
    """Only saved checkpoints may have unknown fields; a hand-written file may not."""
    own = tmp_path / "mine.json"
    own.write_text('{"dataset": {"repo_id": "me/toy"}, "stepps": 3}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"stepps.*steps"):
        read_options(TrainPipelineConfig, [f"--config={own}"], title="train")
