# SPDX-License-Identifier: Apache-2.0
"""The command `ulna train`: help with the policy's settings, a whole run, Ctrl-C, errors, messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ulna.core.plugins import registry
from ulna.training import find_checkpoint
from ulna.training.commands import app
from ulna.training.observers import ProgressObserver, TrainingPlan, figures_text

SIZES = {"dim_model": 16, "n_heads": 2, "dim_feedforward": 16, "chunk_size": 4, "n_action_steps": 4}
LAYERS = {"n_encoder_layers": 1, "n_vae_encoder_layers": 1}
TINY = [f"--policy.{k}={v}" for k, v in {"type": "act", "device": "cpu", **SIZES, **LAYERS}.items()]


def _train(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_offered_as_a_command() -> None:
    """The command is found by entry point, with a title for `ulna --help`."""
    record = registry().find("commands", "train")
    assert record.manifest is not None
    assert record.manifest["summary"]


def test_help_shows_the_policys_settings(act: None) -> None:
    """`--policy.type=act --help` lists ACT's fields; without a policy, the types there are."""
    found = _train("--policy.type=act", "--help")
    assert found.exit_code == 0
    for text in ("--policy.chunk_size", "--dataset.cache", "--resume", "--batch_size"):
        assert text in found.stdout
    assert "act" in _train("--help").stdout


def test_a_run_and_its_continuation(tmp_path: Path, golden: Path, act: None) -> None:
    """A run ends with the folder of its policy on stdout and the next command on stderr; it continues by its folder."""
    run = tmp_path / "run"
    data = [f"--dataset.root={golden / 'dataset_env/dataset'}", "--dataset.repo_id=corpus/train"]
    found = _train(*TINY, *data, f"--output_dir={run}", "--steps=3", "--log_freq=1", "--batch_size=4")
    assert found.exit_code == 0, found.output
    assert found.stdout.strip() == str(run / "checkpoints/last/pretrained_model")
    assert "ulna rollout --policy.path=" in found.stderr
    assert "step 3/3" in found.stderr
    found = _train("--resume", f"--config={run}", "--steps=5")
    assert found.exit_code == 0, found.output
    assert "from step 3 to step 5" in found.stderr
    assert find_checkpoint(run).training_step()["step"] == 5
    again = _train(*TINY, *data, f"--output_dir={run}")
    assert again.exit_code == 2
    assert "--resume" in again.stderr


def test_ctrl_c(tmp_path: Path, golden: Path, act: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the command with 130 after saving, and it says how to continue."""
    import os
    import signal

    def press(self: ProgressObserver, step: int) -> None:
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ProgressObserver, "step_taken", press)
    run = tmp_path / "run"
    data = [f"--dataset.root={golden / 'dataset_env/dataset'}", "--dataset.repo_id=corpus/train"]
    found = _train(*TINY, *data, f"--output_dir={run}", "--steps=50", "--batch_size=4")
    assert found.exit_code == 130
    assert f"ulna train --resume --config={run}" in found.stderr
    assert find_checkpoint(run).training_step()["step"] == 2


def test_errors_are_messages(tmp_path: Path, act: None) -> None:
    """A missing dataset and a misspelt setting are messages with an exit code, not tracebacks."""
    found = _train(*TINY, "--dataset.repo_id=me/none", f"--dataset.root={tmp_path / 'none'}")
    assert found.exit_code in (1, 2)
    assert "Traceback" not in found.output
    assert "none" in found.stderr
    found = _train(*TINY, "--dataset.repo_id=me/none", "--policy.chunksize=3")
    assert found.exit_code == 2
    assert "chunk_size" in found.stderr


class _Terminal:
    """A stream that says it is a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        """Keep what is written."""
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Nothing to do."""

    def isatty(self) -> bool:
        """It is one."""
        return True

    def fileno(self) -> int:
        """It has no number."""
        raise OSError


def test_bar_only_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal a bar is drawn and lines stand above it; elsewhere there are only lines."""
    import io

    plan = TrainingPlan(tmp_path, 2, 4, "cpu", 10, 30, 2, 8)
    texts = []
    for stream in (_Terminal(), io.StringIO()):
        progress = ProgressObserver(stream=stream)
        progress.started(plan)
        progress.step_taken(3)
        progress.training_step(3, {"loss": 0.5, "data_s": 0.002, "epoch": 1.0})
        progress.checkpoint_written(tmp_path / "x", 3)
        progress.finished()
        texts.append(stream.text if isinstance(stream, _Terminal) else stream.getvalue())
    assert "3/4" in texts[0]
    assert "\r" in texts[0]
    assert "\r" not in texts[1]
    assert "step 3/4  loss 0.5  data 2.0 ms  epoch 1.00" in texts[1]
    assert figures_text({"lr": 1e-5}) == "lr 1e-05"
