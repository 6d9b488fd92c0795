# SPDX-License-Identifier: Apache-2.0
"""Deliberately wrong environments: each fails the check that speaks of its fault, and no other."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import field_validator

from ulna.core.features import FeatureType, PolicyFeature
from ulna.testing import EnvSuite, isolation, run_suite
from ulna.testing.fakes import FakeEnv, FakeEnvConfig


class GrowingConfig(FakeEnvConfig):
    """E01"""

    speed: float = 1.0

    @field_validator("speed")
    @classmethod
    def _grow(cls, value: float) -> float:
        return value * 2


class OneCopy(FakeEnvConfig):
    """E03"""

    def create_envs(self, n_envs: int, use_async_envs: bool = False) -> dict[str, dict[int, Any]]:
        if n_envs == 1:
            return {"fake_env": {0: FakeEnv(1), 1: FakeEnv(3)}}
        return super().create_envs(n_envs, use_async_envs)


class WrongFeatures(FakeEnvConfig):
    """E09"""

    features: dict[str, PolicyFeature] = {
        "action": PolicyFeature(FeatureType.ACTION, (2,)),
        "pixels/top": PolicyFeature(FeatureType.VISUAL, (8, 8, 3)),
    }
    features_map: dict[str, str] = {"action": "action", "pixels/top": "observation.images.top"}


class DoublePrecision(FakeEnv):
    """E04"""

    def reset(self, **named: Any) -> Any:
        observation, info = super().reset(**named)
        return {k: v.astype(float) for k, v in observation.items()}, info


class NumberReward(FakeEnv):
    """E05"""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, float(reward[0]), terminated, truncated, info


class NanReward(FakeEnv):
    """E05"""

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, np.full(self.num_envs, np.nan), terminated, truncated, info


class OwnDice(FakeEnv):
    """E06"""

    dice: ClassVar[Any] = np.random.default_rng(0)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed=int(self.dice.integers(1000)), options=options)


class SilentSuccess(FakeEnv):
    """E07"""

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return (*rest, {})


class EndsForGood(FakeEnv):
    """E08"""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if (terminated | truncated).any():
            observation = {k: v * np.nan for k, v in observation.items()}
        return observation, reward, terminated, truncated, info


class LeavesFile(FakeEnv):
    """E10"""

    kept: ClassVar[list[Any]] = []

    def reset(self, **named: Any) -> Any:
        self.kept.append(Path(__file__).open())  # noqa: SIM115 - never closed on purpose
        return super().reset(**named)


class ClosesOnce(FakeEnv):
    """E10"""

    stop: ClassVar[threading.Event] = threading.Event()

    def close(self) -> None:
        if self.faults.count("close"):
            raise RuntimeError("it is closed already")
        super().close()


WRONG_ENVS = [
    DoublePrecision,
    NumberReward,
    NanReward,
    OwnDice,
    SilentSuccess,
    EndsForGood,
    LeavesFile,
    ClosesOnce,
]
IN_PROCESS = [i for i, c in EnvSuite.checks().items() if c.short != "E02"]  # it starts an interpreter


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Wait less for what will not end, and close what was left."""
    monkeypatch.setattr(isolation, "PATIENCE_S", 0.2)
    yield
    while LeavesFile.kept:
        LeavesFile.kept.pop().close()


@pytest.mark.parametrize("wrong", WRONG_ENVS, ids=lambda cls: cls.__name__)
def test_wrong_environment_fails_its_check(wrong: type[FakeEnv]) -> None:
    """An environment with one fault fails the one check of that fault."""

    class Config(FakeEnvConfig):
        def create_envs(self, n_envs: int, use_async_envs: bool = False) -> dict[str, dict[int, Any]]:
            return {"fake_env": {0: wrong(n_envs, **self.gym_kwargs)}}

    report = run_suite(EnvSuite, Config, only=IN_PROCESS)
    assert [i.partition("-")[0] for i in report.failed] == [wrong.__doc__], str(report)


@pytest.mark.parametrize("wrong", [GrowingConfig, OneCopy, WrongFeatures], ids=lambda cls: cls.__name__)
def test_wrong_settings_fail_their_check(wrong: type[FakeEnvConfig]) -> None:
    """Settings with one fault fail the one check of that fault."""
    report = run_suite(EnvSuite, wrong, only=IN_PROCESS)
    assert [i.partition("-")[0] for i in report.failed] == [wrong.__doc__], str(report)


def test_right_environment_passes() -> None:
    """A right environment passes every check."""
    report = run_suite(EnvSuite, FakeEnvConfig)
    assert len(report.passed) == 10, str(report)


def test_long_episodes_are_reported() -> None:
    """When no episode ends in time, the checks of its end are not exercised."""

    class Short(EnvSuite):
        max_steps = 3

    report = run_suite(Short, FakeEnvConfig, only=["E07", "E08"])
    assert list(report.not_exercised) == ["E07-success-is-told", "E08-goes-on-after-an-end"]
