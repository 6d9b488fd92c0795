# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of LeRobot 0.6.1 load here and give its losses and actions; saved again, they are the same files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ulna.core import PreTrainedConfig, make_policy, make_pre_post_processors
from ulna.policies.act import ACTConfig, ACTPolicy
from ulna.testing.golden import GoldenCase

CASES = sorted(p for p in (Path(__file__).parent / "golden").glob("act_*"))
case_of = pytest.mark.parametrize("folder", CASES, ids=lambda p: p.name)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@case_of
def test_actions_of_a_stream_of_observations(folder: Path, tmp_path: Path) -> None:
    case = GoldenCase(folder)
    path = case.checkpoint(tmp_path / "checkpoint")
    policy = make_policy(PreTrainedConfig.from_pretrained(path, overrides={"pretrained_path": path}))
    before, after = make_pre_post_processors(policy.config, path)
    recorded = case.tensors("control")
    steps = sorted({int(k.split("/")[0]) for k in recorded})
    policy.reset()
    for step in steps:
        inputs = {k.removeprefix(f"{step}/in/"): t for k, t in recorded.items() if k.startswith(f"{step}/in/")}
        batch = before(inputs)
        for key, want in recorded.items():
            if key.startswith(f"{step}/pre/"):
                torch.testing.assert_close(batch[key.removeprefix(f"{step}/pre/")], want, rtol=1e-5, atol=1e-6)
        action = policy.select_action(batch)
        torch.testing.assert_close(action, recorded[f"{step}/policy_action"], rtol=0, atol=1e-5)
        std = float(recorded[f"{step}/action"].abs().max())
        torch.testing.assert_close(after(action), recorded[f"{step}/action"], rtol=0, atol=1e-5 * max(1.0, std))
    assert len(steps) >= 3


@case_of
def test_loss_of_a_batch(folder: Path, tmp_path: Path) -> None:
    case = GoldenCase(folder)
    policy = ACTPolicy.from_pretrained(case.checkpoint(tmp_path / "checkpoint"))
    before, _ = make_pre_post_processors(policy.config, tmp_path / "checkpoint")
    batch = before(case.tensors("train/in"))
    for key, want in case.tensors("train/pre").items():
        torch.testing.assert_close(batch[key], want, rtol=1e-5, atol=1e-6)
    loss, figures = policy(batch)
    torch.testing.assert_close(loss, case.tensors("train")["loss"].squeeze(), rtol=1e-5, atol=0)
    assert figures["l1_loss"] == pytest.approx(case.info["loss_items"]["l1_loss"], rel=1e-5)


@case_of
def test_saved_folder_equals_lerobots(folder: Path, tmp_path: Path) -> None:
    path = GoldenCase(folder).checkpoint(tmp_path / "theirs")
    policy = ACTPolicy.from_pretrained(path)
    before, after = make_pre_post_processors(policy.config, path)
    ours = policy.save_pretrained(tmp_path / "ours")
    before.save_pretrained(ours)
    after.save_pretrained(ours)
    assert {p.name for p in ours.iterdir()} == {p.name for p in path.iterdir()}
    for name in (p.name for p in path.glob("*.json")):
        mine, their = (json.loads((f / name).read_text()) for f in (ours, path))
        if name == "config.json":
            mine.pop("pretrained_path"), their.pop("pretrained_path")
            assert next(iter(mine)) == "type"
        assert mine == their, name
    for name in (p.name for p in path.glob("*.safetensors")):
        mine, their = load_file(ours / name), load_file(path / name)
        assert mine.keys() == their.keys()
        assert all(torch.equal(mine[k], their[k]) and mine[k].dtype == their[k].dtype for k in mine), name


def test_settings_load_by_class_and_by_base_without_their_type(tmp_path: Path) -> None:
    data = json.loads((CASES[0] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(data))
    assert isinstance(PreTrainedConfig.from_pretrained(tmp_path), ACTConfig)
    data.pop("type")
    (tmp_path / "config.json").write_text(json.dumps(data))
    assert ACTConfig.from_pretrained(tmp_path).chunk_size == data["chunk_size"]
