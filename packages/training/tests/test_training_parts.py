# SPDX-License-Identifier: Apache-2.0
"""Optimizers, schedules and the order of samples, against golden values of LeRobot and against what they promise."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from ulna.core.errors import ConfigError, DatasetError
from ulna.core.optim import make_optimizer_config, make_scheduler_config
from ulna.core.plugins import registry
from ulna.training import EpisodeAwareSampler, RankBatches, SamplerState, compute_sampler_state
from ulna.training.state_files import load_optimizer, save_optimizer

SCHEDULES = range(15)
OPTIMIZERS = ("adam", "adamw", "sgd", "xvla-adamw", "xvla-adamw-warm", "multi_adam")
PARTS = {"vlm_head": "actor", "body": "critic", "soft_prompt_hub": "temperature"}


@pytest.mark.parametrize("number", SCHEDULES)
def test_schedule_equals_lerobots(number: int, golden: Path, helpers: SimpleNamespace) -> None:
    """Every rate of 200 steps is LeRobot's to 1e-12, for each parameter group."""
    info = helpers.golden_info("schedulers")["curves"][number]
    want = load_file(golden / "schedulers/golden.safetensors")[info["key"]].numpy()
    groups = [{"params": [torch.zeros(1, requires_grad=True)]} for _ in range(2)]
    optimizer = torch.optim.SGD([groups[0], {**groups[1], "lr": 1e-4}], lr=1e-3)
    schedule = make_scheduler_config(info["type"], **info["options"]).make(optimizer, info["num_training_steps"])
    rows = []
    for _ in range(len(want)):
        rows.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    np.testing.assert_allclose(rows, want, rtol=1e-12, atol=0)
    state = schedule.state_dict()
    assert set(state) == set(info["state_after"])
    for name in ("lr_lambdas", "last_epoch", "base_lrs", "_step_count"):
        assert state[name] == info["state_after"][name]


def _golden_optimizer(name: str, golden: Path, helpers: SimpleNamespace) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    info = next(o for o in helpers.golden_info("optimizers")["optimizers"] if o["name"] == name)
    tensors = load_file(golden / "optimizers/golden.safetensors")
    start = f"{name}/start/"
    values = {k.removeprefix(start): t.clone().requires_grad_() for k, t in tensors.items() if k.startswith(start)}
    order = [p for groups in info["groups"].values() for group in groups for p in group["params"]]
    named = {key: values[key] for key in order}
    if info["type"] == "multi_adam":
        given: Any = {}
        for key, value in named.items():
            given.setdefault(PARTS[key.split(".")[0]], []).append(value)
    else:
        given = named if info["type"] == "xvla-adamw" else list(named.values())
    return make_optimizer_config(info["type"], **info["options"]).make(given), named, tensors


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_equals_lerobots(name: str, golden: Path, helpers: SimpleNamespace, tmp_path: Path) -> None:
    """Three steps with given gradients move every parameter as LeRobot's do, and the saved state is the same."""
    optimizer, named, tensors = _golden_optimizer(name, golden, helpers)
    several = list(optimizer.values()) if isinstance(optimizer, dict) else [optimizer]
    for step in range(3):
        for key, value in named.items():
            value.grad = tensors[f"{name}/grad/{step}/{key}"].clone()
        for one in several:
            one.step()
        for key, value in named.items():
            torch.testing.assert_close(value.detach(), tensors[f"{name}/after/{step}/{key}"], rtol=1e-6, atol=1e-6)
    save_optimizer(optimizer, tmp_path)
    wanted = golden / "optimizers" / name
    for file in sorted(wanted.rglob("*.json")):
        mine = tmp_path / file.relative_to(wanted)
        assert mine.read_text(encoding="utf-8").strip() == file.read_text(encoding="utf-8").strip()
    for file in sorted(wanted.rglob("*.safetensors")):
        mine, theirs = load_file(tmp_path / file.relative_to(wanted)), load_file(file)
        assert mine.keys() == theirs.keys()
        for key, value in theirs.items():
            torch.testing.assert_close(mine[key], value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_takes_lerobots_state(name: str, golden: Path, helpers: SimpleNamespace, tmp_path: Path) -> None:
    """A state file of LeRobot loads, and is written again unchanged."""
    optimizer, _, _ = _golden_optimizer(name, golden, helpers)
    wanted = golden / "optimizers" / name
    load_optimizer(optimizer, wanted)
    save_optimizer(optimizer, tmp_path)
    for file in sorted(wanted.rglob("*.safetensors")):
        mine, theirs = load_file(tmp_path / file.relative_to(wanted)), load_file(file)
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], value) for key, value in theirs.items())


def test_optimizers_that_need_names_say_so() -> None:
    """Nameless parameters are refused with the setting that wants names."""
    for type in ("xvla-adamw", "multi_adam"):
        with pytest.raises(ConfigError, match="by name"):
            make_optimizer_config(type).make([torch.zeros(1, requires_grad=True)])
    with pytest.raises(ConfigError, match="actor"):
        make_optimizer_config("multi_adam", optimizer_groups={"acto": {}}).make({"actor": [torch.zeros(1)]})


def test_state_of_other_parameters_is_refused(golden: Path) -> None:
    """An optimizer state for another number of parameters is an error, not a silent mix-up."""
    optimizer = make_optimizer_config("adam").make([torch.zeros(1, requires_grad=True)])
    with pytest.raises(ValueError, match=r"groups of \[5\] parameters, the optimizer has \[1\]"):
        load_optimizer(optimizer, golden / "optimizers/adam")


def test_plugins_are_offered_and_described() -> None:
    """Every optimizer and schedule is an entry point, and the manifest describes each of them."""
    for kind, count in (("optimizers", 5), ("schedulers", 5)):
        records = [r for r in registry().records(kind) if r.distribution == "ulna-training"]
        assert len(records) == count
        assert all(r.status == "ok" and r.manifest and r.manifest["summary"] for r in records)


@pytest.mark.parametrize("number", range(8))
def test_sampler_equals_lerobots(number: int, helpers: SimpleNamespace) -> None:
    """Three passes, and a pass begun in its middle, have LeRobot's order."""
    info = helpers.golden_info("samplers")
    case = info["samplers"][number]
    with warnings.catch_warnings():
        sampler = EpisodeAwareSampler(info["episode_from"], info["episode_to"], **case["options"])
    assert len(sampler) == case["length"]
    assert sampler.indices == case["indices"]
    assert [list(sampler) for _ in range(3)] == case["epochs"]
    assert sampler.state_dict() == case["state_after"]
    sampler.load_state_dict({"epoch": 1, "start_index": 4})
    assert list(sampler) == case["from_epoch_1_position_4"]


def test_sampler_of_selected_episode(helpers: SimpleNamespace) -> None:
    """With a map, positions of the opened dataset come out instead of frame numbers of the whole one."""
    case = helpers.golden_info("samplers")["selected_episode"]
    start, stop = case["absolute_from"], case["absolute_to"]
    relative = {frame: i for i, frame in enumerate(range(start, stop))}
    sampler = EpisodeAwareSampler([start], [stop], **case["options"], absolute_to_relative=relative)
    assert list(sampler) == case["relative_order"]


def test_sampler_without_frames_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing left is an error; an episode that is too short is named."""
    with pytest.raises(DatasetError, match="drop_n_last_frames=100"):
        EpisodeAwareSampler([0, 7], [7, 9], drop_n_last_frames=100)
    EpisodeAwareSampler([0, 7], [7, 9], drop_n_last_frames=3)
    assert "[1]" in caplog.text


def test_resume_arithmetic_equals_lerobots(helpers: SimpleNamespace) -> None:
    """Step to epoch and offset, for one and several processes."""
    for case in helpers.golden_info("samplers")["resume_states"]:
        state = compute_sampler_state(case["step"], case["num_frames"], case["batch_size"], case["num_processes"])
        assert vars(state) == case["state"]


def _take(batches: RankBatches, count: int) -> list[list[int]]:
    stream = iter(batches)
    return [next(stream) for _ in range(count)]


@settings(deadline=None)
@given(frames=st.integers(1, 60), batch=st.integers(1, 9), ranks=st.integers(1, 4), taken=st.integers(0, 25))
def test_ranks_share_every_pass(frames: int, batch: int, ranks: int, taken: int) -> None:
    """Together all processes see every frame of a pass once, take equally many steps, and resume anywhere exactly."""
    sampler = EpisodeAwareSampler([0], [frames], shuffle=True, seed=7)
    parts = [RankBatches(sampler, batch, rank=r, num_processes=ranks) for r in range(ranks)]
    rounds = len(parts[0])
    seen = [_take(part, rounds) for part in parts]
    flat = [frame for part in seen for b in part for frame in b]
    assert set(flat) == set(range(frames))
    if frames % (batch * ranks) == 0 or frames % (batch * ranks) >= ranks:
        assert len(flat) == frames
    for part, rank in zip(parts, range(ranks), strict=True):
        whole = _take(part, taken + 3)
        state = part.state_after(taken)
        assert state == compute_sampler_state(taken, frames, batch, ranks) or ranks > 1
        again = RankBatches(sampler, batch, state, rank=rank, num_processes=ranks)
        assert _take(again, 3) == whole[taken:]
        further = RankBatches(sampler, batch, part.state_after(2), rank=rank, num_processes=ranks)
        assert further.state_after(taken) == part.state_after(2 + taken)


def test_order_does_not_depend_on_global_generators() -> None:
    """A process that drew other random numbers still has the same order (data never drifts between ranks)."""
    sampler = EpisodeAwareSampler([0], [30], shuffle=True, seed=5)
    first = _take(RankBatches(sampler, 4, rank=0, num_processes=2), 8)
    torch.rand(100)
    np.random.rand(3)  # noqa: NPY002
    assert _take(RankBatches(sampler, 4, SamplerState(), rank=0, num_processes=2), 8) == first


def test_presets_of_act(helpers: SimpleNamespace, act: None, toy_config: Callable[..., Any]) -> None:
    """ACT's preset is LeRobot's optimizer with LeRobot's parameter groups."""
    from ulna.core.factories import make_policy_config

    want = helpers.golden_info("presets")["policies"]["act"]
    policy = make_policy_config("act")
    assert policy.get_optimizer_preset().to_dict() == want["optimizer"]
    assert policy.get_scheduler_preset() is want["scheduler"] is None
    assert policy.action_delta_indices == want["action_delta_indices"]
