# SPDX-License-Identifier: Apache-2.0
"""The loop: it learns, says what it did, evaluates without side effects, stops in order, refuses nonsense."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ulna.core.errors import ConfigError, FeatureError, ProcessorError
from ulna.core.factories import make_pre_post_processors
from ulna.core.features import FeatureType, NormalizationMode
from ulna.core.plugins import Registry, hookimpl, use_registry
from ulna.training import (
    TrainingDivergedError,
    TrainingObserver,
    TrainPipelineConfig,
    evaluation_mode,
    find_checkpoint,
    plot_metrics,
    read_metrics,
    split_episodes,
    train,
    training_stats,
)

Make = Callable[..., TrainPipelineConfig]


def test_identity_is_learnt(toy_config: Make, helpers: SimpleNamespace, recorder: Any) -> None:
    """A policy learns to copy its state, and the saved checkpoint does so too."""
    result = train(
        toy_config(steps=600, batch_size=32, log_freq=100), dataset=helpers.copy_data(200), observers=[recorder]
    )
    assert recorder.losses[-1] < 0.01 < recorder.losses[0]
    assert result.policy.updates == 600
    assert result.policy.training
    assert recorder.ended == 1
    assert result.checkpoint is not None
    saved = result.checkpoint / "pretrained_model"
    policy = helpers.CopyPolicy.from_pretrained(saved)
    before, after = make_pre_post_processors(policy.config, saved)
    state = torch.tensor([0.3, -0.5, 0.1])
    with torch.no_grad():
        action = after(policy.select_action(before({"observation.state": state})))
    torch.testing.assert_close(action[0], state, atol=0.15, rtol=0)


def test_figures_are_logged(toy_config: Make, helpers: SimpleNamespace, recorder: Any) -> None:
    """Loss, gradient, rate, times and the policy's own numbers reach observers, hook plugins and the file, as means."""
    told: list[tuple[Any, ...]] = []

    class Hook:
        @hookimpl
        def training_step(self, step: int, metrics: dict[str, float]) -> None:
            told.append(("step", step, metrics["loss"]))

        @hookimpl
        def checkpoint_written(self, path: Path, step: int) -> None:
            told.append(("checkpoint", step, path.name))

    with use_registry(Registry()) as fresh:
        fresh.register("policies", "copycat", helpers.CopyConfig)
        fresh.register("hooks", "watcher", Hook())
        result = train(toy_config(steps=10, log_freq=4, save_freq=5), dataset=helpers.copy_data(), observers=[recorder])
    assert [row["step"] for row in recorder.rows] == [4, 8, 10]
    assert recorder.saved == [5, 10]
    lines = list(read_metrics(result.output_dir))
    assert lines == recorder.rows
    for line in lines:
        assert line["loss"] == pytest.approx(line["mse"])
        assert line["epoch"] == pytest.approx(line["step"] * 8 / 40)
        assert line["step_s"] == pytest.approx(line["data_s"] + line["preprocessing_s"] + line["update_s"])
        assert {"grad_norm", "lr", "samples_per_s"} < line.keys()
    assert told == [
        ("step", 4, lines[0]["loss"]),
        ("checkpoint", 5, "000005"),
        ("step", 8, lines[1]["loss"]),
        ("step", 10, lines[2]["loss"]),
        ("checkpoint", 10, "000010"),
    ]


def test_settings_are_not_changed(toy_config: Make, helpers: SimpleNamespace) -> None:
    """The caller's settings are the same after a training, so that they can be used again."""
    config = toy_config(steps=1)
    before = config.to_dict()
    train(config, dataset=helpers.copy_data())
    assert config.to_dict() == before


def test_constant_dimension_keeps_the_loss_finite(toy_config: Make, helpers: SimpleNamespace) -> None:
    """An action dimension that never changes does no harm, with either normalization."""
    data = helpers.copy_data(constant=True)
    for mode in (NormalizationMode.MEAN_STD, NormalizationMode.MIN_MAX):
        mapping = dict.fromkeys((FeatureType.STATE, FeatureType.ACTION), mode)
        folder = toy_config().output_dir
        assert folder is not None
        config = toy_config(
            steps=5, policy_normalization_mapping=mapping, save_checkpoint=False, output_dir=folder / mode.value
        )
        result = train(config, dataset=data)
        assert np.isfinite(result.metrics["loss"])
        assert result.checkpoint is None


def test_missing_statistics_are_found_before_training(toy_config: Make, helpers: SimpleNamespace) -> None:
    """A feature without statistics is an error at once that names it, the nearest key and what is missing."""
    data = helpers.copy_data()
    data.meta.stats = {"observation.stat": data.meta.stats["observation.state"], "action": {"min": [0, 0, 0]}}
    with pytest.raises(
        ProcessorError, match=r"observation.state: no statistics .*observation.stat.*action: no mean, std"
    ):
        train(toy_config(), dataset=data)


def test_missing_window_is_found_before_training(toy_config: Make, helpers: SimpleNamespace) -> None:
    """A policy that learns from chunks refuses samples with single actions, and says how to open the dataset."""
    with pytest.raises(FeatureError, match=r"4 actions a sample; the dataset gives single actions"):
        train(toy_config(policy_window=4), dataset=helpers.copy_data())


def test_diverged_training_saves_nothing(toy_config: Make, helpers: SimpleNamespace) -> None:
    """A loss that is not a number ends the run with an error, and no checkpoint is made of it."""
    data = helpers.copy_data()
    data._columns["action"][30:] = float("nan")
    config = toy_config(steps=10, save_freq=1, log_freq=10)
    with pytest.raises(TrainingDivergedError, match="nan"):
        train(config, dataset=data)
    assert config.output_dir is not None
    checkpoints = config.output_dir / "checkpoints"
    for folder in checkpoints.glob("0*"):
        weights = helpers.CopyPolicy.from_pretrained(folder / "pretrained_model").state_dict()
        assert all(torch.isfinite(value).all() for value in weights.values())


def test_bf16(toy_config: Make, helpers: SimpleNamespace) -> None:
    """With mixed precision the weights stay float32, and what is saved acts in float32."""
    result = train(toy_config(steps=30, mixed_precision="bf16"), dataset=helpers.copy_data())
    assert {p.dtype for p in result.policy.parameters()} == {torch.float32}
    assert result.metrics["loss"] < 1.5
    again = TrainPipelineConfig.from_checkpoint(result.output_dir)
    assert again.mixed_precision == "bf16"


def test_last_frames_are_left_out_for_policies_that_ask(toy_config: Make, helpers: SimpleNamespace) -> None:
    """`drop_n_last_frames` of a policy shortens every episode."""
    seen: set[int] = set()

    class Watched:
        def __init__(self) -> None:
            self.data = helpers.copy_data(12, 3)
            self.meta = self.data.meta
            self.episode_spans = self.data.episode_spans

        def __len__(self) -> int:
            return len(self.data)

        def __getitem__(self, position: int) -> Any:
            seen.add(position)
            return self.data[position]

    train(toy_config(steps=6, batch_size=3, policy_drop_n_last_frames=1), dataset=Watched())
    assert seen == {0, 1, 2, 4, 5, 6, 8, 9, 10}


def test_mode_comes_back_after_evaluation() -> None:
    """Each part has the mode it had before, also when the evaluation fails."""
    module = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2))
    module.train()
    module[1].eval()

    def fail() -> None:
        with evaluation_mode(module):
            assert not module[0].training
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert (module.training, module[0].training, module[1].training) == (True, True, False)


def test_held_out_episodes(toy_config: Make, helpers: SimpleNamespace, tmp_path: Path, golden: Path, act: None) -> None:
    """The loss on held-out episodes is told, and evaluating changes nothing about the training."""
    from ulna.core.factories import make_policy_config
    from ulna.training import DatasetConfig

    size = {"dim_model": 16, "n_heads": 2, "dim_feedforward": 16, "n_encoder_layers": 1, "n_vae_encoder_layers": 1}
    policy = make_policy_config("act", device="cpu", chunk_size=4, n_action_steps=4, latent_dim=4, **size)
    runs = {}
    for name, settings in (("with", {"eval_steps": 2, "max_eval_samples": 10}), ("without", {})):
        watcher = helpers.Recorder()
        dataset = DatasetConfig(repo_id="corpus/train", root=golden / "dataset_env/dataset", eval_split=0.3)
        config = toy_config(dataset=dataset, policy=policy, steps=4, output_dir=tmp_path / name, **settings)
        train(config, observers=[watcher])
        runs[name] = watcher
    assert runs["with"].losses == runs["without"].losses
    assert [row["step"] for row in runs["with"].evaluations] == [2, 4]
    assert all(row["eval_loss"] > 0 for row in runs["with"].evaluations)
    lines = [line for line in read_metrics(tmp_path / "with") if "eval_loss" in line]
    assert lines == runs["with"].evaluations


def test_eval_split_equals_lerobots(helpers: SimpleNamespace) -> None:
    """The last episodes of each task are held out, rounded up, like LeRobot's."""
    tasks = {0: "reach", 1: "lift", 2: "reach"}
    for case in helpers.golden_info("samplers")["eval_splits_of_dataset_env"]:
        episodes = case.get("episodes", [0, 1, 2])
        if "raises" in case:
            with pytest.raises(ConfigError, match="no episode to train on"):
                split_episodes(episodes, [tasks[e] for e in episodes], case["eval_split"])
            continue
        train_on, held = split_episodes(episodes, [tasks[e] for e in episodes], case["eval_split"])
        assert (train_on, held) == (case["train_episodes"], case["eval_episodes"])


def test_statistics_of_training() -> None:
    """Colour cameras get ImageNet's mean and std, also where a dataset has none; names follow the map."""
    own = {"cam": {"mean": np.zeros((3, 1, 1)), "max": np.ones((3, 1, 1))}, "state": {"mean": np.zeros(2)}}
    meta = SimpleNamespace(stats=own, camera_keys=["cam", "new", "depth"], depth_keys=["depth"], features={})
    stats = training_stats(meta, use_imagenet=True, rename_map={"cam": "front"})
    np.testing.assert_allclose(stats["front"]["mean"].ravel(), [0.485, 0.456, 0.406], rtol=1e-6)
    np.testing.assert_allclose(stats["new"]["std"].ravel(), [0.229, 0.224, 0.225], rtol=1e-6)
    assert stats["front"]["max"].shape == (3, 1, 1)
    assert "depth" not in stats
    assert own["cam"]["mean"].sum() == 0
    plain = training_stats(meta, use_imagenet=False, rename_map={})
    assert plain.keys() == own.keys()


class _Presses(TrainingObserver):
    """Presses Ctrl-C at some step, once or twice."""

    def __init__(self, step: int, times: int) -> None:
        self.step, self.times = step, times

    def step_taken(self, step: int) -> None:
        """Press."""
        if step == self.step:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


def test_first_ctrl_c_saves_and_ends(
    toy_config: Make, helpers: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    """The step is finished, a checkpoint saved, and the run resumes from it to the same result as without the break."""
    before = signal.getsignal(signal.SIGINT)
    settings = {"steps": 9, "policy_dropout": 0.2}
    whole = train(toy_config(**settings), dataset=helpers.copy_data())
    folder = whole.output_dir.with_name("broken")
    config = toy_config(output_dir=folder, **settings)
    result = train(config, dataset=helpers.copy_data(), observers=[_Presses(4, 1)])
    assert (result.interrupted, result.step) == (True, 4)
    assert find_checkpoint(folder).training_step()["step"] == 4
    assert signal.getsignal(signal.SIGINT) is before
    assert "press it again" in caplog.text
    rest = train(TrainPipelineConfig.from_checkpoint(folder), dataset=helpers.copy_data())
    for key, value in whole.policy.state_dict().items():
        assert torch.equal(value, rest.policy.state_dict()[key])


def test_second_ctrl_c_stops_at_once(toy_config: Make, helpers: SimpleNamespace, recorder: Any) -> None:
    """Pressed twice, it is KeyboardInterrupt, nothing is saved, and observers still hear the end."""
    before = signal.getsignal(signal.SIGINT)
    config = toy_config(steps=9)
    with pytest.raises(KeyboardInterrupt):
        train(config, dataset=helpers.copy_data(), observers=[_Presses(4, 2), recorder])
    assert signal.getsignal(signal.SIGINT) is before
    assert (recorder.saved, recorder.ended) == ([], 1)


def test_run_folder_that_exists_is_refused(toy_config: Make, helpers: SimpleNamespace) -> None:
    """A new run never writes into an old one; the error gives the command that continues it."""
    config = toy_config(steps=1)
    train(config, dataset=helpers.copy_data())
    with pytest.raises(ConfigError, match=r"(?s)exists already.*ulna train --resume"):
        train(config, dataset=helpers.copy_data())


def test_run_folder_that_cannot_be_made_is_refused(
    toy_config: Make, helpers: SimpleNamespace, tmp_path: Path, recorder: Any
) -> None:
    """It is said at once, not after the steps before the first figures are written."""
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"(?s)cannot be made.*file is no folder.*--output_dir"):
        train(toy_config(steps=1, output_dir=tmp_path / "file/run"), dataset=helpers.copy_data(), observers=[recorder])


def test_one_of_several_processes_is_refused(
    toy_config: Make, helpers: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started by torchrun, each would train a policy of its own and nobody would notice."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"(?s)WORLD_SIZE.*several processes.*without torchrun"):
        train(toy_config(steps=1), dataset=helpers.copy_data())
    monkeypatch.setenv("WORLD_SIZE", "1")
    train(toy_config(steps=1), dataset=helpers.copy_data())


def test_plot(toy_config: Make, helpers: SimpleNamespace, tmp_path: Path) -> None:
    """The loss becomes a picture; without logged figures it is said what to do."""
    pytest.importorskip("matplotlib")
    run = train(toy_config(steps=4), dataset=helpers.copy_data()).output_dir
    picture = plot_metrics(run, tmp_path / "loss.png")
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    (run / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2, "lo', encoding="utf-8")
    with pytest.raises(ValueError, match="no logged loss"):
        plot_metrics(run / "metrics.jsonl", tmp_path / "none.png")


def test_other_names_are_mapped(toy_config: Make, helpers: SimpleNamespace, tmp_path: Path) -> None:
    """Data with other names trains a pretrained policy through `rename_map`; without it, the names are in the error."""
    first = train(toy_config(steps=60, policy_lr=0.05), dataset=helpers.copy_data())
    assert first.checkpoint is not None
    model = first.checkpoint / "pretrained_model"
    data = helpers.copy_data(seed=1)
    for place in (data.meta.features, data.meta.stats, data._columns):
        place["observation.arm"] = place.pop("observation.state")
    data.meta.stats["observation.arm"]["mean"] += 1.0
    policy = helpers.CopyConfig.from_pretrained(model, overrides={"device": "cpu", "pretrained_path": model})
    with pytest.raises(FeatureError, match=r"observation.state.*observation.arm"):
        train(toy_config(policy=policy, output_dir=tmp_path / "a"), dataset=data)
    names = {"observation.amr": "observation.state"}
    with pytest.raises(ConfigError, match=r"rename_map.observation.amr.*observation.arm"):
        train(toy_config(policy=policy, rename_map=names, output_dir=tmp_path / "a"), dataset=data)
    names = {"observation.arm": "observation.state"}
    config = toy_config(policy=policy, rename_map=names, output_dir=tmp_path / "b", steps=1)
    second = train(config, dataset=data)
    assert second.checkpoint is not None
    saved = second.checkpoint / "pretrained_model"
    before, _ = make_pre_post_processors(helpers.CopyConfig.from_pretrained(saved), saved)
    mean = data.meta.stats["observation.arm"]["mean"]
    found = before({"observation.arm": mean.clone()})
    torch.testing.assert_close(found["observation.state"], torch.zeros(1, 3), atol=1e-5, rtol=0)


def test_a_policy_starts_from_its_checkpoint(toy_config: Make, helpers: SimpleNamespace, tmp_path: Path) -> None:
    """Fine-tuning begins with the weights of the checkpoint, in training mode, with the statistics of the new data."""
    first = train(toy_config(steps=50), dataset=helpers.copy_data())
    assert first.checkpoint is not None
    model = first.checkpoint / "pretrained_model"
    policy = helpers.CopyConfig.from_pretrained(model, overrides={"pretrained_path": model, "lr": 1e-12})
    second = train(toy_config(policy=policy, output_dir=tmp_path / "b", steps=1), dataset=helpers.copy_data(seed=5))
    assert second.policy.training
    assert second.policy.config.pretrained_path == model
    for key, value in first.policy.state_dict().items():
        torch.testing.assert_close(value, second.policy.state_dict()[key])
