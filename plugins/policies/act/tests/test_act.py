# SPDX-License-Identifier: Apache-2.0
"""Behaviour of ACT that does not need golden data."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from ulna.core.errors import CheckpointError, ConfigError
from ulna.core.features import FeatureType, PolicyFeature
from ulna.policies.act import ACTConfig, ACTPolicy
from ulna.policies.act.ensemble import TemporalEnsembler

STATE, ENV = "observation.state", "observation.environment_state"


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def config(**changes: Any) -> ACTConfig:
    settings: dict[str, Any] = {
        "input_features": {STATE: PolicyFeature(FeatureType.STATE, (2,)), ENV: PolicyFeature(FeatureType.ENV, (3,))},
        "output_features": {"action": PolicyFeature(FeatureType.ACTION, (2,))},
        "chunk_size": 6,
        "n_action_steps": 4,
        "dim_model": 16,
        "n_heads": 2,
        "dim_feedforward": 16,
        "n_encoder_layers": 1,
        "n_vae_encoder_layers": 1,
        "latent_dim": 4,
        "pretrained_backbone_weights": None,
        "device": "cpu",
    }
    return ACTConfig(**{**settings, **changes})


def seeing(**changes: Any) -> ACTConfig:
    picture = {"observation.images.top": PolicyFeature(FeatureType.VISUAL, (3, 32, 32))}
    return config(input_features={STATE: PolicyFeature(FeatureType.STATE, (2,)), **picture}, **changes)


def batch(size: int = 2, chunk: int = 6, padded: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mask = torch.zeros(size, chunk, dtype=torch.bool)
    if padded:
        mask[:, -padded:] = True
    return {
        STATE: torch.randn(size, 2, generator=generator),
        ENV: torch.randn(size, 3, generator=generator),
        "action": torch.randn(size, chunk, 2, generator=generator),
        "action_is_pad": mask,
    }


@pytest.mark.parametrize("padded", [0, 3, 4, 6])
def test_padding_does_not_count_in_the_loss(padded: int) -> None:
    policy = ACTPolicy(config(use_vae=False)).eval()
    data = batch(padded=padded)
    with torch.no_grad():
        data["action"] = policy.predict_action_chunk(data) + 1.0
    loss, _ = policy(data)
    assert loss.item() == pytest.approx(1.0 if padded < 6 else 0.0, abs=1e-5)
    each, _ = policy(data, reduction="none")
    assert each.shape == (2,)
    assert each.mean().item() == pytest.approx(loss.item(), abs=1e-6)


def test_padded_actions_have_no_gradient() -> None:
    policy = ACTPolicy(config(use_vae=False, dropout=0.0))
    data = batch(padded=3)
    data["action"].requires_grad_(True)
    policy(data)[0].backward()
    assert data["action"].grad is not None
    assert torch.all(data["action"].grad[:, -3:] == 0)
    assert torch.any(data["action"].grad[:, :3] != 0)


def test_a_missing_padding_mask_is_an_error() -> None:
    data = batch()
    del data["action_is_pad"]
    with pytest.raises(KeyError, match="action_is_pad"):
        ACTPolicy(config())(data)


def test_reset_empties_the_queue() -> None:
    policy = ACTPolicy(config()).eval()
    first = batch()
    policy.select_action(first)
    policy.reset()
    other = {**first, ENV: first[ENV] + 5}
    assert torch.equal(policy.select_action(other), policy.predict_action_chunk(other)[:, 0])


def test_every_sample_of_a_large_batch_gets_its_own_actions() -> None:
    policy = ACTPolicy(config()).eval()
    data = batch(size=8)
    chunk = policy.predict_action_chunk(data)
    taken = torch.stack([policy.select_action(data) for _ in range(4)], dim=1)
    assert torch.equal(taken, chunk[:, :4])


def test_the_callers_batch_is_not_changed() -> None:
    policy = ACTPolicy(config())
    data = batch()
    before = {k: v.clone() for k, v in data.items()}
    policy(data)
    policy.select_action(data)
    assert data.keys() == before.keys()
    assert all(torch.equal(data[k], before[k]) for k in before)


def test_inference_keeps_the_mode() -> None:
    policy = ACTPolicy(config()).train()
    assert torch.equal(policy.predict_action_chunk(batch()), policy.predict_action_chunk(batch()))
    assert policy.training


def test_a_state_of_one_dimension_works() -> None:
    features = {STATE: PolicyFeature(FeatureType.STATE, (1,)), ENV: PolicyFeature(FeatureType.ENV, (3,))}
    policy = ACTPolicy(config(input_features=features))
    data = batch()
    for state in (torch.zeros(2), torch.zeros(2, 1)):
        loss, _ = policy({**data, STATE: state})
        assert torch.isfinite(loss)


def test_bfloat16_on_the_cpu() -> None:
    policy = ACTPolicy(config()).to(torch.bfloat16)
    data = {k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in batch().items()}
    loss, _ = policy(data)
    loss.backward()
    assert policy.select_action(data).dtype == torch.bfloat16


@pytest.mark.parametrize("coefficient", [0.0, 0.01, 0.5])
def test_ensembling_equals_the_closed_form(coefficient: float) -> None:
    size, steps = 5, 9
    chunks = torch.randn(steps, 1, size, 2, dtype=torch.float64)
    ensembler = TemporalEnsembler(coefficient, size)
    for now in range(steps):
        got = ensembler.update(chunks[now])
        votes = [(now - made, chunks[made][:, now - made]) for made in range(max(0, now - size + 1), now + 1)]
        votes.sort(key=lambda v: -v[0])
        weights = torch.exp(-coefficient * torch.arange(len(votes), dtype=torch.float64))
        want = sum(w * v for w, (_, v) in zip(weights, votes, strict=True)) / weights.sum()
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


def test_a_chunk_with_ensembling_is_refused() -> None:
    policy = ACTPolicy(config(temporal_ensemble_coeff=0.01, n_action_steps=1))
    with pytest.raises(NotImplementedError, match="select_action"):
        policy.predict_action_chunk(batch())


def test_all_wrong_settings_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        config(n_action_steps=9, vision_backbone="vit", n_obs_steps=2, dim_model=15)
    assert {p.path for p in caught.value.problems} == {"n_action_steps", "vision_backbone", "n_obs_steps", "dim_model"}


def test_strict_loading_names_what_does_not_fit(tmp_path: Path) -> None:
    ACTPolicy(config()).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "use_vae": False, "dim_feedforward": 8}))
    with pytest.raises(CheckpointError, match=r"unexpected .*vae_encoder.*of another shape: .*linear1") as caught:
        ACTPolicy.from_pretrained(tmp_path)
    assert caught.value.unexpected


def test_unknown_settings_are_kept_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ACTPolicy(config()).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "from_the_future": 7}))
    with caplog.at_level(logging.WARNING):
        policy = ACTPolicy.from_pretrained(tmp_path)
    assert "from_the_future" in caplog.text
    policy.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["from_the_future"] == 7


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    policy = ACTPolicy(config())
    policy.save_pretrained(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    policy.config._unknown["bad"] = object()
    with pytest.raises(TypeError):
        policy.save_pretrained(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_groups_of_the_optimizer() -> None:
    features = {
        STATE: PolicyFeature(FeatureType.STATE, (2,)),
        "observation.images.a": PolicyFeature(FeatureType.VISUAL, (3, 32, 32)),
    }
    policy = ACTPolicy(config(input_features=features, optimizer_lr_backbone=3e-6))
    rest, backbone = policy.get_optim_params()
    assert backbone["lr"] == 3e-6
    assert sum(p.numel() for p in rest["params"]) + sum(p.numel() for p in backbone["params"]) == sum(
        p.numel() for p in policy.parameters() if p.requires_grad
    )


def test_weights_that_cannot_be_fetched_are_an_error_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a network, or without a place for the download, the message says how to go on."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "file"))
    with pytest.raises(CheckpointError, match=r"(?s)resnet18 could not be fetched.*pretrained_backbone_weights=null"):
        ACTPolicy(seeing(pretrained_backbone_weights="ResNet18_Weights.IMAGENET1K_V1"))


@pytest.mark.parametrize("wrong", [{"vision_backbone": "resnet99"}, {"pretrained_backbone_weights": "Best"}])
def test_a_backbone_that_torchvision_lacks_is_a_wrong_setting(wrong: dict[str, Any]) -> None:
    """It is named, instead of ending in the middle of torchvision."""
    with pytest.raises(ConfigError, match=f"policy.vision_backbone.*{next(iter(wrong.values()))}"):
        ACTPolicy(seeing(**wrong))
