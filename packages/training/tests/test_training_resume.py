# SPDX-License-Identifier: Apache-2.0
"""Resuming: LeRobot's checkpoints to its own losses, ours bit for bit, by every way of naming a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ulna.core.errors import CheckpointError, ConfigError
from ulna.core.policy_config import PreTrainedConfig
from ulna.testing.golden import procedural_tensor
from ulna.training import (
    DatasetConfig,
    TrainPipelineConfig,
    capture_rng,
    find_checkpoint,
    read_metrics,
    restore_rng,
    train,
)


def _assert_like(rows: list[dict[str, float]], want: list[dict[str, Any]], rates: bool = True) -> None:
    assert len(rows) == len(want)
    for count, (row, expected) in enumerate(zip(rows, want, strict=True)):
        tolerance = min(1e-5 * 10**count, 1e-3)
        assert row["loss"] == pytest.approx(expected["loss"], rel=tolerance)
        assert row["grad_norm"] == pytest.approx(expected["grad_norm"], rel=max(tolerance, 1e-4))
        if rates:
            assert row["lr"] == pytest.approx(expected["lr_after"][0], rel=1e-12)


@pytest.mark.parametrize("case", ["act_deterministic", "act_custom_optimizer", "act_vae_dropout"])
def test_lerobots_run_continues(
    case: str, golden_run: Callable[[str], Path], helpers: SimpleNamespace, recorder: Any, act: None
) -> None:
    """Steps 4 to 6 have the losses of LeRobot's uninterrupted run, also where the model draws random numbers."""
    run = golden_run(case)
    result = train(TrainPipelineConfig.from_checkpoint(run), observers=[recorder])
    _assert_like(recorder.rows, helpers.golden_info(case)["steps"][3:])
    assert (result.step, result.checkpoint) == (6, run / "checkpoints/000006")
    golden_file = Path(__file__).parent / "golden" / case / "golden.safetensors"
    after = {k[8:]: t for k, t in load_file(golden_file).items() if k.startswith("after_6/")}
    own = result.policy.state_dict()
    assert sum(tensor.numel() for tensor in after.values()) >= helpers.golden_info(case)["trained_parameters"]
    for key, value in after.items():
        torch.testing.assert_close(own[key], value, rtol=1e-3, atol=1e-4)


def test_tree_is_lerobots(golden_run: Callable[[str], Path], helpers: SimpleNamespace, act: None) -> None:
    """The files of a checkpoint, and the settings in it, are exactly LeRobot's."""
    run = golden_run("act_custom_optimizer")
    before = json.loads((run / "checkpoints/000003/pretrained_model/train_config.json").read_text(encoding="utf-8"))
    train(TrainPipelineConfig.from_checkpoint(run))
    checkpoints = run / "checkpoints"
    files = {p.relative_to(run).as_posix() for p in checkpoints.rglob("*") if p.is_file() and "last" not in p.parts}
    assert files == set(helpers.golden_info("act_custom_optimizer")["files"])
    assert (checkpoints / "last").readlink() == Path("000006")
    after = json.loads((checkpoints / "000006/pretrained_model/train_config.json").read_text(encoding="utf-8"))
    assert after == before


def _materialize(source: Path, target: Path, procedural: list[dict[str, Any]] | dict[str, Any]) -> Path:
    """Copy a checkpoint whose large tensors are given by a rule, filling them in (the rule of the corpus)."""
    shutil.copytree(source, target)
    weights = load_file(target / "model.safetensors")
    for name, shape in dict(procedural).items():
        weights.setdefault(name, torch.from_numpy(procedural_tensor(name, tuple(shape))))
    save_file(weights, target / "model.safetensors", {"format": "pt"})
    return target


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["none", "ram"])
def test_fine_tuning_on_pictures_equals_lerobots(
    cache: str, golden: Path, tmp_path: Path, helpers: SimpleNamespace, recorder: Any, act: None
) -> None:
    """A pretrained policy with a camera gets LeRobot's losses, from disk and from memory."""
    info = helpers.golden_info("act_images")
    start = _materialize(golden / "act_images/start", tmp_path / "start", info["procedural"])
    policy = PreTrainedConfig.from_pretrained(start, overrides={"device": "cpu", "pretrained_path": start})
    dataset = DatasetConfig(repo_id="corpus/train", root=golden / "images_dataset", cache=cache)
    config = TrainPipelineConfig(
        dataset=dataset, policy=policy, output_dir=tmp_path / "run", steps=4, num_workers=0, log_freq=1, save_freq=0
    )
    train(config, observers=[recorder])
    _assert_like(recorder.rows, info["steps"], rates=False)


def test_two_halves_equal_the_whole(
    toy_config: Callable[..., TrainPipelineConfig], helpers: SimpleNamespace, tmp_path: Path
) -> None:
    """2N steps, and N steps resumed to 2N, give the same bits: weights, figures and generators, over several passes."""
    settings = {"policy_dropout": 0.3, "policy_decay_steps": 1, "steps": 14, "save_freq": 7}
    whole = helpers.Recorder()
    first = train(toy_config(output_dir=tmp_path / "a", **settings), dataset=helpers.copy_data(), observers=[whole])
    expected_generators = capture_rng()
    shutil.copytree(tmp_path / "a/checkpoints/000007", tmp_path / "b/checkpoints/000007")
    torch.manual_seed(99)
    rest = helpers.Recorder()
    config = TrainPipelineConfig.from_checkpoint(tmp_path / "b")
    second = train(config, dataset=helpers.copy_data(), observers=[rest])
    assert second.output_dir == tmp_path / "b"
    assert rest.losses == whole.losses[7:]
    assert [row["lr"] for row in rest.rows] == [row["lr"] for row in whole.rows[7:]]
    for key, value in first.policy.state_dict().items():
        assert torch.equal(value, second.policy.state_dict()[key])
    assert all(torch.equal(value, capture_rng()[key]) for key, value in expected_generators.items())


def test_without_a_seed_resuming_is_exact_too(
    toy_config: Callable[..., TrainPipelineConfig], helpers: SimpleNamespace, tmp_path: Path
) -> None:
    """`seed=null` draws another order each time, but a resumed run keeps its order."""
    orders = []
    for name in ("a", "b"):
        whole = helpers.Recorder()
        torch.manual_seed(11)
        config = toy_config(seed=None, steps=6, save_freq=3, output_dir=tmp_path / name)
        run = train(config, dataset=helpers.copy_data(), observers=[whole]).output_dir
        orders.append(find_checkpoint(run).training_step()["ulna"]["sampler_seed"])
        rest = helpers.Recorder()
        again = TrainPipelineConfig.from_checkpoint(run / "checkpoints/000003")
        train(again, dataset=helpers.copy_data(), observers=[rest])
        assert rest.losses == whole.losses[3:]
    assert orders[0] != orders[1]


def test_resume_with_another_batch_size_keeps_its_place(
    toy_config: Callable[..., TrainPipelineConfig], helpers: SimpleNamespace
) -> None:
    """The place in the data is kept in samples, so that resuming with other batch sizes skips nothing."""
    config = toy_config(steps=2, batch_size=8, seed=3)
    result = train(config, dataset=helpers.copy_data())
    for size, steps, place in ((4, 4, 24), (6, 5, 30)):
        again = TrainPipelineConfig.from_checkpoint(result.output_dir, batch_size=size, steps=steps)
        train(again, dataset=helpers.copy_data())
        state = find_checkpoint(result.output_dir).training_step()
        assert (state["step"], state["ulna"]["start_index"]) == (steps, place)


def test_a_dataset_that_has_grown_is_told(
    toy_config: Callable[..., TrainPipelineConfig], helpers: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    """With other data a run goes on, but it is said that the order of samples is not that of one whole run."""
    run = train(toy_config(steps=2), dataset=helpers.copy_data(40)).output_dir
    train(TrainPipelineConfig.from_checkpoint(run, steps=4), dataset=helpers.copy_data(50))
    assert "has 50 samples, at the checkpoint it had 40" in caplog.text


@pytest.mark.parametrize("where", ["run", "checkpoints", "step", "last", "model", "train_config", "state_file"])
def test_a_run_is_found_by_every_name(
    where: str, toy_config: Callable[..., TrainPipelineConfig], helpers: SimpleNamespace
) -> None:
    """Run folder, checkpoint folder, link, model folder or a file in it: all mean the same checkpoint."""
    config = toy_config(steps=3)
    train(config, dataset=helpers.copy_data())
    assert config.output_dir is not None
    checkpoints = config.output_dir / "checkpoints"
    named = {
        "run": config.output_dir,
        "checkpoints": checkpoints,
        "step": checkpoints / "000003",
        "last": checkpoints / "last",
        "model": checkpoints / "last/pretrained_model",
        "train_config": checkpoints / "last/pretrained_model/train_config.json",
        "state_file": checkpoints / "000003/training_state/training_step.json",
    }[where]
    assert find_checkpoint(named).path == checkpoints / "000003"
    if where != "state_file":
        again = TrainPipelineConfig.from_checkpoint(named, steps=4)
        assert train(again, dataset=helpers.copy_data()).step == 4


def test_resume_by_output_dir(toy_config: Callable[..., TrainPipelineConfig], helpers: SimpleNamespace) -> None:
    """From Python, the same settings with `resume` continue the run in their run folder."""
    train(toy_config(steps=3), dataset=helpers.copy_data())
    result = train(toy_config(steps=5, resume=True), dataset=helpers.copy_data())
    assert (result.step, result.interrupted) == (5, False)


def test_what_cannot_be_resumed_says_so(tmp_path: Path, toy_config: Callable[..., TrainPipelineConfig]) -> None:
    """An empty or missing folder, and resuming without a name, are errors that tell what is expected."""
    with pytest.raises(CheckpointError, match="does not exist"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="no checkpoint that a training can resume from"):
        find_checkpoint(tmp_path)
    with pytest.raises(ConfigError, match="what to resume"):
        train(toy_config(output_dir=None, resume=True))
    with pytest.raises(ConfigError, match=r"no checkpoint|does not exist"):
        TrainPipelineConfig.from_checkpoint(tmp_path)


def test_resume_at_the_end_does_nothing(
    toy_config: Callable[..., TrainPipelineConfig], helpers: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    """A finished run is not trained further, and it is said how to go on."""
    run = train(toy_config(steps=3), dataset=helpers.copy_data()).output_dir
    result = train(TrainPipelineConfig.from_checkpoint(run), dataset=helpers.copy_data())
    assert result.step == 3
    assert result.checkpoint is not None
    assert "raise steps" in caplog.text


def test_metrics_of_repeated_steps_are_not_doubled(
    toy_config: Callable[..., TrainPipelineConfig], helpers: SimpleNamespace
) -> None:
    """Steps that a resumed run takes again replace their old lines."""
    run = train(toy_config(steps=6, save_freq=3), dataset=helpers.copy_data()).output_dir
    config = TrainPipelineConfig.from_checkpoint(run / "checkpoints/000003", steps=8)
    train(config, dataset=helpers.copy_data())
    assert [line["step"] for line in read_metrics(run)] == list(range(1, 9))


def test_generators_survive_whole() -> None:
    """All three generators go on as if nothing had happened, normal deviates in stock included."""
    import random

    random.seed(3)
    random.gauss(0, 1)
    np.random.seed(3)  # noqa: NPY002
    np.random.randn()  # noqa: NPY002
    state = capture_rng()

    def draw() -> list[float]:
        numbers = [random.gauss(0, 1), random.random(), float(np.random.randn()), float(np.random.rand())]  # noqa: NPY002
        return [*numbers, float(torch.rand(()))]

    expected = draw()
    restore_rng(state)
    assert draw() == expected
    with pytest.raises(CheckpointError, match="torch_rng_state"):
        restore_rng({k: v for k, v in state.items() if k != "torch_rng_state"})
