# SPDX-License-Identifier: Apache-2.0
"""Deliberately wrong policies: each fails the check that speaks of its fault, and no other."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from pydantic import field_validator
from torch import Tensor

from ulna.core.constants import ACTION, OBS_STATE
from ulna.core.features import FeatureType, PolicyFeature
from ulna.core.pipeline import DataProcessorPipeline
from ulna.core.policy_config import PreTrainedConfig
from ulna.testing import PolicySuite, run_suite
from ulna.testing.fakes import FakePolicy, FakePolicyConfig, FakeScaleStep, fake_plugins
from ulna.testing.fakes.processing import make_fake_processors


def settings(config: type[FakePolicyConfig] = FakePolicyConfig, **changes: Any) -> FakePolicyConfig:
    features = {
        "input_features": {OBS_STATE: PolicyFeature(FeatureType.STATE, (4,))},
        "output_features": {ACTION: PolicyFeature(FeatureType.ACTION, (2,))},
    }
    return config(device="cpu", **{**features, **changes})


@pytest.fixture(autouse=True)
def fakes() -> Iterator[None]:
    torch.set_num_threads(1)
    with fake_plugins():
        yield


class GrowingConfig(FakePolicyConfig):
    speed: float = 1.0

    @field_validator("speed")
    @classmethod
    def _grow(cls, value: float) -> float:
        return value * 2


class ForeignConfig(FakePolicyConfig):
    implementation: ClassVar[str] = "ulna.testing.fakes.algorithm:FakeAlgorithm"


class EasyConfig(FakePolicyConfig):
    def validate_features(self) -> None:
        pass


class ForgetfulConfig(FakePolicyConfig):
    def to_dict(self) -> dict[str, Any]:
        return {k: v for k, v in super().to_dict().items() if k in type(self).model_fields}


class LossyConfig(FakePolicyConfig):
    processors: ClassVar[str] = f"{__name__}:make_lossy_processors"


class LossyStep(FakeScaleStep):
    def state_dict(self) -> dict[str, Any]:
        return {k: v for k, v in super().state_dict().items() if k == ACTION}


def make_lossy_processors(config: PreTrainedConfig, dataset_stats: Any = None) -> Any:
    before, after = make_fake_processors(config, dataset_stats)
    old = before.steps[0]
    assert isinstance(old, FakeScaleStep)
    lossy = LossyStep(old.keys, old.inverse, old.scale)
    return DataProcessorPipeline([lossy], before.name), after


class NoParameters(FakePolicy):
    """P06"""

    def get_optim_params(self) -> Any:
        return [{"params": [torch.zeros(1)]}]


class HiddenTensor(FakePolicy):
    """P07"""

    def __init__(self, config: FakePolicyConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.offset = torch.zeros(1)

    def save_pretrained(self, folder: Any) -> Path:
        self.offset = torch.ones(1)
        return super().save_pretrained(folder)

    def _chunk(self, batch: dict[str, Tensor]) -> Tensor:
        return super()._chunk(batch) + self.offset


class SavesPickle(FakePolicy):
    """P08"""

    def _save_pretrained(self, folder: Path) -> None:
        super()._save_pretrained(folder)
        (folder / "optimizer.pt").write_bytes(b"")


class StaysInTraining(FakePolicy):
    """P09"""

    @classmethod
    def from_pretrained(cls, source: Any, **options: Any) -> Any:
        return super().from_pretrained(source, **options).train()


class LoadsAnything(FakePolicy):
    """P10"""

    @classmethod
    def from_pretrained(cls, source: Any, **options: Any) -> Any:
        return super().from_pretrained(source, **{**options, "strict": False})


class AsksTheNetwork(FakePolicy):
    """P11"""

    @classmethod
    def from_pretrained(cls, source: Any, **options: Any) -> Any:
        import socket

        socket.getaddrinfo("localhost", 80)
        return super().from_pretrained(source, **options)


class CutsTheBatch(FakePolicy):
    """P13"""

    @torch.no_grad()
    def select_action(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        if not self._action_queue:
            chunk = self.predict_action_chunk(batch)[: self.config.n_action_steps].transpose(0, 1)
            self._action_queue.extend(chunk)
        return self._action_queue.popleft()


class ShiftedQueue(FakePolicy):
    """P14"""

    @torch.no_grad()
    def select_action(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        if not self._action_queue:
            self._action_queue.extend(self.predict_action_chunk(batch)[:, 1:].unbind(1))
        return self._action_queue.popleft()


class KeepsQueue(FakePolicy):
    """P15"""

    def reset(self) -> None:
        pass


class SecretQueue(FakePolicy):
    """P16"""

    def __init__(self, config: FakePolicyConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.pending: list[Tensor] = []

    def reset(self) -> None:
        self.pending = []

    @torch.no_grad()
    def select_action(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        if not self.pending:
            self.pending = list(self.predict_action_chunk(batch)[:, : self.config.n_action_steps].unbind(1))
        return self.pending.pop(0)


class OwnDice(FakePolicy):
    """P17"""

    dice: ClassVar[random.Random] = random.Random(0)

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> Any:
        loss, figures = super().forward(batch, reduction)
        chosen = len(batch[ACTION]) == 2 and not self.training  # the batch of the check of determinism
        return loss * (1 + self.dice.random()) if chosen else loss, figures


class KeepsGradient(FakePolicy):
    """P18"""

    def predict_action_chunk(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        return self._chunk(batch)


class WritesIntoBatch(FakePolicy):
    """P19"""

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> Any:
        batch["observation.images"] = torch.zeros(1)
        return super().forward(batch, reduction)


class ScalesInPlace(FakePolicy):
    """P19"""

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> Any:
        result = super().forward(batch, reduction)
        batch[ACTION].mul_(0.5)
        return result


class Detached(FakePolicy):
    """P20"""

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> Any:
        loss, figures = super().forward(batch, reduction)
        return loss.detach().requires_grad_(), figures


class AlwaysMean(FakePolicy):
    """P21"""

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> Any:
        return super().forward(batch)


class Dilutes(FakePolicy):
    """P22"""

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> Any:
        loss, figures = super().forward(batch, reduction)
        return loss * (~batch["action_is_pad"]).float().mean() if reduction == "mean" else loss, figures


class NanWhenEmpty(FakePolicy):
    """P22"""

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> Any:
        loss, figures = super().forward(batch, reduction)
        return loss / (~batch["action_is_pad"]).any(), figures


class SupervisesPadding(FakePolicy):
    """P23"""

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> Any:
        loss, figures = super().forward(batch, reduction)
        pad = batch["action_is_pad"]
        partly = bool(pad.any()) and not bool(pad.all()) and not bool((pad.all(1) | ~pad.any(1)).all())
        half = pad.shape[1] // 2
        touched = batch[ACTION][:, half:].abs().max() > 6
        return loss + (1.0 if partly and touched else 0.0), figures


class GuessesMask(FakePolicy):
    """P24"""

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> Any:
        none = torch.zeros(batch[ACTION].shape[:2], dtype=torch.bool)
        return super().forward({"action_is_pad": none, **batch}, reduction)


WRONG = [
    NoParameters,
    HiddenTensor,
    SavesPickle,
    StaysInTraining,
    LoadsAnything,
    AsksTheNetwork,
    CutsTheBatch,
    ShiftedQueue,
    KeepsQueue,
    SecretQueue,
    OwnDice,
    KeepsGradient,
    WritesIntoBatch,
    ScalesInPlace,
    Detached,
    AlwaysMean,
    Dilutes,
    NanWhenEmpty,
    SupervisesPadding,
    GuessesMask,
]
WRONG_CONFIGS = {
    GrowingConfig: ["P01"],
    ForeignConfig: ["P03"],
    EasyConfig: ["P04"],
    ForgetfulConfig: ["P05"],
    LossyConfig: ["P12"],
}
IN_PROCESS = [i for i, c in PolicySuite.checks().items() if c.short != "P02"]  # it starts an interpreter


@pytest.mark.parametrize("wrong", WRONG, ids=lambda cls: cls.__name__)
def test_wrong_policy_fails_its_check(wrong: type[FakePolicy]) -> None:
    """A policy with one fault fails the one check of that fault."""

    class Suite(PolicySuite):
        def make(self, config: Any) -> FakePolicy:
            return wrong(config)

    report = run_suite(Suite, settings, only=IN_PROCESS)
    assert [i.partition("-")[0] for i in report.failed] == [wrong.__doc__], str(report)


@pytest.mark.parametrize("config", WRONG_CONFIGS, ids=lambda cls: cls.__name__)
def test_wrong_settings_fail_their_check(config: type[FakePolicyConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings with one fault fail the one check of that fault."""

    class Policy(FakePolicy):
        config_class = config

    class Suite(PolicySuite):
        def make(self, config: Any) -> FakePolicy:
            return Policy(config)

    if config is LossyConfig:
        monkeypatch.setattr("ulna.core.plugins.load_object", lambda *_, **__: make_lossy_processors)
    only = IN_PROCESS if config is not LossyConfig else [i for i in IN_PROCESS if not i.startswith("P03")]
    report = run_suite(Suite, lambda: settings(config), only=only)
    assert [i.partition("-")[0] for i in report.failed] == WRONG_CONFIGS[config], str(report)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_right_policy_passes(noise: float) -> None:
    """A right policy passes every check, also one that samples."""
    report = run_suite(PolicySuite, lambda: settings(noise=noise))
    assert len(report.passed) == 24, str(report)


def test_what_a_policy_lacks_is_reported() -> None:
    """Padding that is supervised on purpose, and single actions, are reported as not exercised."""

    class Suite(PolicySuite):
        masks_padding = False

    report = run_suite(Suite, lambda: settings(n_action_steps=1), only=IN_PROCESS)
    assert report.ok, str(report)
    lacking = [i.partition("-")[0] for i in report.not_exercised]
    assert lacking == ["P16", "P22", "P23", "P24"]


def test_checkpoint_of_the_fake_is_plain(tmp_path: Path) -> None:
    """The fake writes the two files of every policy."""
    FakePolicy(settings()).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["type"] == "fake_policy"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
