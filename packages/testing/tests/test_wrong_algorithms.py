# SPDX-License-Identifier: Apache-2.0
"""Deliberately wrong algorithms: each fails the check that speaks of its fault, and no other."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest
import torch
from pydantic import field_validator
from torch import Tensor

from ulna.core.algorithm_config import TrainingStats
from ulna.core.constants import ACTION, OBS_STATE
from ulna.core.features import FeatureType, PolicyFeature
from ulna.core.policy_config import PreTrainedConfig
from ulna.testing import AlgorithmSuite, run_suite
from ulna.testing.fakes import FakeAlgorithm, FakeAlgorithmConfig, FakePolicy, FakePolicyConfig, fake_plugins


def policy() -> FakePolicy:
    torch.manual_seed(0)
    return FakePolicy(
        FakePolicyConfig(
            input_features={OBS_STATE: PolicyFeature(FeatureType.STATE, (4,))},
            output_features={ACTION: PolicyFeature(FeatureType.ACTION, (2,))},
            device="cpu",
        )
    )


@pytest.fixture(autouse=True)
def fakes() -> Iterator[None]:
    torch.set_num_threads(1)
    with fake_plugins():
        yield


class GrowingConfig(FakeAlgorithmConfig):
    speed: float = 1.0

    @field_validator("speed")
    @classmethod
    def _grow(cls, value: float) -> float:
        return value * 2


class ForeignConfig(FakeAlgorithmConfig):
    implementation: ClassVar[str] = "ulna.testing.fakes.policy:FakePolicy"


class BareConfig(FakeAlgorithmConfig):
    @classmethod
    def from_policy_config(cls, policy_config: PreTrainedConfig) -> Any:
        return cls()


class HidesOptimizers(FakeAlgorithm):
    """A05"""

    def get_optimizers(self) -> dict[str, Any]:
        return {}


class NanFigure(FakeAlgorithm):
    """A06"""

    def update(self, batch_iterator: Iterator[Any]) -> TrainingStats:
        stats = super().update(batch_iterator)
        return TrainingStats(losses={**stats.losses, "entropy": math.nan})


class CountsNothing(FakeAlgorithm):
    """A07"""

    def update(self, batch_iterator: Iterator[Any]) -> TrainingStats:
        before = self._optimization_step
        stats = super().update(batch_iterator)
        self._optimization_step = before
        return stats


class LearnsNothing(FakeAlgorithm):
    """A08"""

    def make_optimizers_and_scheduler(self) -> dict[str, Any]:
        self._optimizers = {"policy": torch.optim.Adam([self.log_scale], lr=self.config.lr)}
        return self._optimizers


class OwnDice(FakeAlgorithm):
    """A09"""

    dice: ClassVar[random.Random] = random.Random(0)

    def update(self, batch_iterator: Iterator[Any]) -> TrainingStats:
        stats = super().update(batch_iterator)
        with torch.no_grad():
            next(self.policy.parameters()).add_(self.dice.random() * 1e-2)
        return stats


class LoadsNearly(FakeAlgorithm):
    """A10"""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.count = torch.zeros(1)

    def update(self, batch_iterator: Iterator[Any]) -> TrainingStats:
        self.count += 1
        return super().update(batch_iterator)

    def state_dict(self) -> dict[str, Tensor]:
        return {**super().state_dict(), "count": self.count.clone()}

    def save_pretrained(self, folder: Any) -> Any:
        self.count = torch.zeros(1)
        return super().save_pretrained(folder)


class ReplacesParameter(FakeAlgorithm):
    """A11"""

    def load_state_dict(self, state_dict: Mapping[str, Tensor], device: str = "cpu") -> None:
        self.log_scale = state_dict["log_scale"].clone().requires_grad_()


class SavesOldTensors(FakeAlgorithm):
    """A12"""

    def _save_pretrained(self, folder: Any) -> None:
        value = self.log_scale.detach().clone()
        with torch.no_grad():
            self.log_scale.zero_()
        super()._save_pretrained(folder)
        with torch.no_grad():
            self.log_scale.copy_(value)


class SendsHalf(FakeAlgorithm):
    """A13"""

    def load_weights(self, weights: Mapping[str, Any], device: str = "cpu") -> None:
        kept = {k: v for k, v in weights["policy"].items() if "bias" not in k}
        self.policy.load_state_dict(kept, strict=False)


class OneVersion(FakeAlgorithm):
    """A14"""

    def update(self, batch_iterator: Iterator[Any]) -> TrainingStats:
        stats = super().update(batch_iterator)
        self._weights_version = 0
        return stats


class ClimbsLoss(FakeAlgorithm):
    """A15"""

    def make_optimizers_and_scheduler(self) -> dict[str, Any]:
        made = super().make_optimizers_and_scheduler()
        made["policy"].param_groups[0]["maximize"] = True
        return made


WRONG = [
    HidesOptimizers,
    NanFigure,
    CountsNothing,
    LearnsNothing,
    OwnDice,
    LoadsNearly,
    ReplacesParameter,
    SavesOldTensors,
    SendsHalf,
    OneVersion,
    ClimbsLoss,
]
WRONG_CONFIGS = {GrowingConfig: ["A01"], ForeignConfig: ["A03"], BareConfig: ["A04"]}


class TaughtSuite(AlgorithmSuite):
    """Teaches that the best action is the first two numbers of the state, halved."""

    def identity_error(self, algorithm: Any) -> tuple[float, float]:
        if isinstance(algorithm, LearnsNothing):
            return 1.0, 0.0
        state = torch.randn(64, 4)
        batch = {"state": {OBS_STATE: state}, ACTION: state[:, :2] / 2}

        def error() -> float:
            with torch.no_grad():
                action = algorithm.policy.predict_action_chunk(batch["state"])[:, 0]
                return float((action - batch[ACTION]).abs().mean())

        before = error()
        for _ in range(80):
            algorithm.update(iter([batch]))
        return before, error()


IN_PROCESS = [i for i, c in TaughtSuite.checks().items() if c.short != "A02"]  # it starts an interpreter


@pytest.mark.parametrize("wrong", WRONG, ids=lambda cls: cls.__name__)
def test_wrong_algorithm_fails_its_check(wrong: type[FakeAlgorithm]) -> None:
    """An algorithm with one fault fails the one check of that fault."""

    def make() -> FakeAlgorithm:
        given = policy()
        return wrong(given, FakeAlgorithmConfig.from_policy_config(given.config))

    report = run_suite(TaughtSuite, make, only=IN_PROCESS)
    assert [i.partition("-")[0] for i in report.failed] == [wrong.__doc__], str(report)


@pytest.mark.parametrize("config", WRONG_CONFIGS, ids=lambda cls: cls.__name__)
def test_wrong_settings_fail_their_check(config: type[FakeAlgorithmConfig]) -> None:
    """Settings with one fault fail the one check of that fault."""

    class Algorithm(FakeAlgorithm):
        config_class = config

    def make() -> FakeAlgorithm:
        given = policy()
        return Algorithm(given, config(policy_config=given.config))

    report = run_suite(TaughtSuite, make, only=IN_PROCESS)
    assert [i.partition("-")[0] for i in report.failed] == WRONG_CONFIGS[config], str(report)


def test_right_algorithm_passes() -> None:
    """A right algorithm passes every check."""

    def make() -> FakeAlgorithm:
        given = policy()
        return FakeAlgorithm(given, FakeAlgorithmConfig.from_policy_config(given.config))

    report = run_suite(TaughtSuite, make)
    assert len(report.passed) == 15, str(report)
