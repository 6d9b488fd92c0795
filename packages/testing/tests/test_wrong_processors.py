# SPDX-License-Identifier: Apache-2.0
"""Deliberately wrong processor steps: each fails the check that speaks of its fault, and no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest
import torch

from ulna.core.constants import ACTION, OBS_STATE
from ulna.core.features import FeatureType, PipelineFeatureType, PolicyFeature
from ulna.core.pipeline import PipelineFeatures
from ulna.core.plugins import registry
from ulna.core.types import EnvTransition, TransitionKey
from ulna.testing import ProcessorSuite, run_suite
from ulna.testing.fakes import FakeScaleStep, fake_plugins


class Nameless(FakeScaleStep):
    """S01"""

    registry_name: ClassVar[str] = "nobody_offers_this"


class ForgetsSetting(FakeScaleStep):
    """S02"""

    def get_config(self) -> dict[str, Any]:
        return {"keys": self.keys}


class ScalesInPlace(FakeScaleStep):
    """S03"""

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        state = transition[TransitionKey.OBSERVATION][OBS_STATE]
        done = super().__call__(transition)
        state.copy_(done[TransitionKey.OBSERVATION][OBS_STATE])
        return done


class DropsCustomKeys(FakeScaleStep):
    """S04"""

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        done = super().__call__(transition)
        kept = transition[TransitionKey.COMPLEMENTARY_DATA]
        return {**done, TransitionKey.COMPLEMENTARY_DATA: {k: kept[k] for k in ("task", "index")}}


class DropsInfo(FakeScaleStep):
    """S04"""

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        return {k: v for k, v in super().__call__(transition).items() if k is not TransitionKey.INFO}


class PromisesKey(FakeScaleStep):
    """S05"""

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        side = PipelineFeatureType.OBSERVATION
        return {**features, side: {**features[side], "velocity": PolicyFeature(FeatureType.STATE, (4,))}}


class ChangesFeatures(FakeScaleStep):
    """S05"""

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        features[PipelineFeatureType.OBSERVATION].pop(OBS_STATE)
        return features


class WrongShape(FakeScaleStep):
    """S05"""

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        return {**features, PipelineFeatureType.ACTION: {ACTION: PolicyFeature(FeatureType.ACTION, (7,))}}


class Remembers(FakeScaleStep):
    """S06"""

    calls = 0

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        done = super().__call__(transition)
        self.calls += 1
        seen = done[TransitionKey.OBSERVATION]
        later = max(0, self.calls - 3)
        return {**done, TransitionKey.OBSERVATION: {**seen, OBS_STATE: seen[OBS_STATE] + later}}


class ListsAsState(FakeScaleStep):
    """S07"""

    def state_dict(self) -> dict[str, Any]:
        return {k: v.tolist() for k, v in super().state_dict().items()}


WRONG = [
    Nameless,
    ForgetsSetting,
    ScalesInPlace,
    DropsCustomKeys,
    DropsInfo,
    PromisesKey,
    ChangesFeatures,
    WrongShape,
    Remembers,
    ListsAsState,
]
ALSO = {
    ForgetsSetting: ["S08"],  # what is not in the settings is lost in files too
    ListsAsState: ["S08"],  # what is no tensor cannot be written
}


@pytest.fixture(autouse=True)
def fakes() -> Iterator[None]:
    with fake_plugins():
        yield


def make(cls: type[FakeScaleStep]) -> FakeScaleStep:
    return cls([OBS_STATE, ACTION], True, {OBS_STATE: torch.arange(1, 5), ACTION: 2.0})


@pytest.mark.parametrize("wrong", WRONG, ids=lambda cls: cls.__name__)
def test_wrong_step_fails_its_check(wrong: type[FakeScaleStep]) -> None:
    """A step with one fault fails the check of that fault, and only what follows from it."""
    undo = None
    if wrong is not Nameless:
        wrong.registry_name = f"wrong_{wrong.__name__.lower()}"
        undo = registry().register("processors", wrong.registry_name, wrong)
    report = run_suite(ProcessorSuite, lambda: make(wrong))
    if undo is not None:
        undo()
    failed = [i.partition("-")[0] for i in report.failed]
    assert failed == [wrong.__doc__, *ALSO.get(wrong, [])], str(report)


def test_right_step_passes() -> None:
    """A right step passes every check."""
    report = run_suite(ProcessorSuite, lambda: make(FakeScaleStep))
    assert len(report.passed) == 8, str(report)


def test_step_without_state_must_refuse_one() -> None:
    """A step without state that swallows a foreign state hides a broken file."""

    class Swallows(FakeScaleStep):
        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            pass

    report = run_suite(ProcessorSuite, lambda: Swallows(["x"]), only=["S07"])
    assert report.failed == ["S07-state-is-tensors"]
