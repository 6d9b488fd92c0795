# SPDX-License-Identifier: Apache-2.0
"""Trainings in processes of their own: Ctrl-C on a terminal, and LeRobot as the successor."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ulna.testing.peer import Peer, needs_peer
from ulna.training import find_checkpoint

pytestmark = pytest.mark.slow
interop, skip_without_peer = needs_peer

SIZES = {"dim_model": 16, "n_heads": 2, "dim_feedforward": 16, "chunk_size": 4, "n_action_steps": 4, "latent_dim": 4}
LAYERS = {"n_encoder_layers": 1, "n_decoder_layers": 1, "n_vae_encoder_layers": 1, "dropout": 0.0, "use_vae": "false"}
POLICY = {"type": "act", "device": "cpu", "pretrained_backbone_weights": "null", **SIZES, **LAYERS}


def _command(run: Path, root: Path, *more: str) -> list[str]:
    code = "import ulna.training.commands as c; c.app()"
    policy = [f"--policy.{name}={value}" for name, value in POLICY.items()]
    data = ["--dataset.repo_id=corpus/train", f"--dataset.root={root}"]
    return [sys.executable, "-c", code, *policy, *data, f"--output_dir={run}", *more]


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def test_ctrl_c_reaches_reading_processes_too(tmp_path: Path, golden: Path, act: None) -> None:
    """A terminal sends Ctrl-C to all processes of a command; those that read data leave it to the one that trains."""
    run = tmp_path / "run"
    flags = ("--num_workers=1", "--batch_size=2", "--log_freq=1", "--steps=100000")
    command = _command(run, golden / "images_dataset", *flags)
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, env=_environment()
    ) as process:
        assert process.stderr is not None
        lines = []
        try:
            for line in process.stderr:
                lines.append(line)
                if line.startswith("step 2/"):
                    os.killpg(process.pid, signal.SIGINT)
                    break
            lines.append(process.communicate(timeout=540)[1])
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    text = "".join(lines)
    assert process.returncode == 130, text
    assert "Continue with: ulna train --resume" in text
    assert find_checkpoint(run).training_step()["step"] >= 2


@interop
@skip_without_peer
@pytest.mark.parametrize("scheduled", [False, True])
def test_lerobot_resumes_our_run(scheduled: bool, lerobot_peer: Peer, tmp_path: Path, golden: Path, act: None) -> None:
    """LeRobot continues a checkpoint of ours, and its losses are those of our own uninterrupted run."""
    shutil.copytree(golden / "dataset_env/dataset", tmp_path / "dataset")
    run = tmp_path / "run"
    flags = [
        "--steps=6",
        "--save_freq=3",
        "--log_freq=1",
        "--num_workers=0",
        "--env_eval_freq=0",
        "--dataset.cache=ram",
    ]
    if scheduled:
        flags += ["--use_policy_training_preset=false", "--optimizer.type=adamw", "--optimizer.lr=0.001"]
        flags += ["--scheduler.type=cosine_annealing_with_warmup", "--scheduler.num_warmup_steps=2"]
    subprocess.run(_command(run, tmp_path / "dataset", *flags), check=True, capture_output=True, env=_environment())
    ours = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    shutil.rmtree(run / "checkpoints/000006")
    config = run / "checkpoints/000003/pretrained_model/train_config.json"
    said = lerobot_peer.start("lerobot-train", f"--config_path={config}", "--resume=true", "--log_freq=1")
    theirs = [float(text) for text in re.findall(r" loss:([0-9.]+)", said)]
    assert theirs == pytest.approx(ours[3:], rel=2e-3)
