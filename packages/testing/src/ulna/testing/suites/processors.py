# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of processor steps."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ulna.core.constants import OBS_STATE, TASK
from ulna.core.errors import PluginNotFoundError, ProcessorError
from ulna.core.features import FeatureType, PipelineFeatureType, PolicyFeature
from ulna.core.pipeline import DataProcessorPipeline, PipelineFeatures, ProcessorStep
from ulna.core.transitions import create_transition
from ulna.core.types import EnvTransition, TransitionKey
from ulna.testing import batches
from ulna.testing.checks import NotExercised, Suite, check, expect, refused
from ulna.testing.seeding import seeded

__all__ = ["ProcessorSuite"]

_SIDES = {PipelineFeatureType.OBSERVATION: TransitionKey.OBSERVATION, PipelineFeatureType.ACTION: TransitionKey.ACTION}


class ProcessorSuite(Suite):
    """Checks of a processor step. Override the fixture `step`; it returns one with its state, ready to run.

    Override the methods `transition` and `features` where the step needs other inputs than a batch with state, picture
    and action.

    Attributes:
        tolerance: Largest difference between numbers that should be equal.
    """

    subject: ClassVar[str] = "step"
    tolerance: ClassVar[float] = 1e-6

    @pytest.fixture
    def step(self) -> ProcessorStep:
        """Give a step. The one thing an author overrides."""
        made: ProcessorStep = self.missing_fixture()
        return made

    def transition(self, step: ProcessorStep) -> EnvTransition:
        """Make an input of the step. An ordinary method, not a fixture.

        Args:
            step: The step.

        Returns:
            A transition of a batch of two: state, picture, action, task and a key of the user's own.
        """
        if importlib.util.find_spec("torch") is None:
            raise NotExercised("torch is not installed; override transition()")
        import torch

        random = torch.Generator().manual_seed(0)
        observation = {
            OBS_STATE: torch.randn(2, 4, generator=random),
            "observation.images.front": torch.rand(2, 3, 6, 8, generator=random),
        }
        extra = {TASK: ["pick up the cube"] * 2, "index": torch.arange(2), "my_custom_key": torch.ones(2, 1)}
        return create_transition(observation, torch.randn(2, 3, generator=random), complementary_data=extra)

    def features(self, step: ProcessorStep) -> PipelineFeatures:
        """Return the features of that input, without its batch axis.

        Args:
            step: The step.

        Returns:
            Side to key to feature; default: told from the tensors of `transition`.
        """
        given = self.transition(step)
        found: PipelineFeatures = {PipelineFeatureType.OBSERVATION: {}, PipelineFeatureType.ACTION: {}}
        for key, value in _tensors(given[TransitionKey.OBSERVATION]).items():
            kind = FeatureType.VISUAL if value.ndim == 4 else FeatureType.STATE
            found[PipelineFeatureType.OBSERVATION][key] = PolicyFeature(kind, tuple(value.shape[1:]))
        for key, value in _tensors({"action": given[TransitionKey.ACTION]}).items():
            found[PipelineFeatureType.ACTION][key] = PolicyFeature(FeatureType.ACTION, tuple(value.shape[1:]))
        return found

    def _run(self, step: ProcessorStep, times: int = 1) -> list[EnvTransition]:
        with seeded(0):
            return [batches.copied(step(self.transition(step))) for _ in range(times)]

    def _rebuilt(self, step: ProcessorStep, folder: Path) -> ProcessorStep:
        arguments = json.loads(json.dumps(step.get_config()))
        arguments |= {name: str(folder / path) for name, path in step.save_artifacts(folder).items()}
        again = type(step)(**arguments)
        state = step.state_dict()
        if state:
            again.load_state_dict(batches.copied(state))
        return again

    def _expect_same(self, one: Any, other: Any, what: str) -> None:
        differ = batches.differences(one, other, self.tolerance)
        expect(not differ, f"{what} differs in {', '.join(differ)}")

    @check(
        "S01-registered-name",
        "The step has a registry_name, and the registry finds its class under that name.",
        'Set registry_name and add [project.entry-points."ulna.processors"] name = "module:Class".',
    )
    def test_s01_registered_name(self, step: ProcessorStep) -> None:
        from ulna.core.plugins import registry

        expect(step.registry_name, f"{type(step).__name__} has no registry_name")
        try:
            found = registry().load("processors", step.registry_name)
        except PluginNotFoundError:
            found = None
        expect(found is not None, f"no installed distribution offers {step.registry_name!r} in ulna.processors")
        expect(isinstance(step, found), f"{step.registry_name!r} is {found!r}, not the class of this step")

    @check(
        "S02-config-is-complete",
        "get_config is JSON and complete: with state_dict it rebuilds a step that gives the same outputs.",
        "Return every setting from get_config and everything learnt from state_dict.",
    )
    def test_s02_config_is_complete(self, step: ProcessorStep, tmp_path: Path) -> None:
        again = self._rebuilt(step, tmp_path)
        expect(json.dumps(step.get_config()) == json.dumps(again.get_config()), "the rebuilt step has other settings")
        step.reset()
        again.reset()
        self._expect_same(self._run(step), self._run(again), "the output of the rebuilt step")

    @check(
        "S03-input-is-unchanged",
        "The step leaves the transition it is given, and everything in it, as it was.",
        "Return a new dict and new tensors; never write in place.",
    )
    def test_s03_input_is_unchanged(self, step: ProcessorStep) -> None:
        given = self.transition(step)
        before = batches.copied(given)
        returned = step(given)
        differ = batches.differences(before, given, 0.0)
        expect(not differ, f"the step changed {', '.join(differ)} of its input")
        expect(returned is not given or not differ, "the step returned its input changed")

    @check(
        "S04-custom-keys-survive",
        "What the step does not work on survives: all seven keys of the transition, and the user's complementary data.",
        "Start from dict(transition), and from a copy of its complementary data.",
    )
    def test_s04_custom_keys_survive(self, step: ProcessorStep) -> None:
        mark = object()
        given = self.transition(step)
        given[TransitionKey.COMPLEMENTARY_DATA] = {
            **(given.get(TransitionKey.COMPLEMENTARY_DATA) or {}),
            "key_of_the_user": mark,
        }
        given[TransitionKey.INFO] = {**(given.get(TransitionKey.INFO) or {}), "info_of_the_user": mark}
        returned = step(given)
        lost = [key.value for key in given if key not in returned]
        expect(not lost, f"the transition lost {', '.join(lost)}")
        for key, name in (
            (TransitionKey.COMPLEMENTARY_DATA, "key_of_the_user"),
            (TransitionKey.INFO, "info_of_the_user"),
        ):
            kept = (returned[key] or {}).get(name)
            expect(kept is mark, f"{name!r} of {key.value} did not survive")

    @check(
        "S05-features-tell-the-truth",
        "transform_features names exactly the keys and shapes that the step then gives, and leaves its argument alone.",
        "Change names and shapes in transform_features as __call__ does, on a copy.",
    )
    def test_s05_features_tell_the_truth(self, step: ProcessorStep) -> None:
        given = self.features(step)
        before = {side: dict(features) for side, features in given.items()}
        told = step.transform_features(given)
        expect(given == before, "transform_features changed its argument")
        returned = self._run(step)[0]
        for side, key in _SIDES.items():
            value = returned.get(key)
            found = _tensors(value if isinstance(value, Mapping) else {"action": value})
            self._expect_told(side.value.lower(), told.get(side, {}), found)

    def _expect_told(self, side: str, told: Mapping[str, PolicyFeature], found: Mapping[str, Any]) -> None:
        missing, extra = [k for k in told if k not in found], [k for k in found if k not in told]
        expect(
            not missing, f"transform_features promises {', '.join(missing)} in the {side}, which the step does not give"
        )
        expect(not extra, f"the step gives {', '.join(extra)} in the {side}, which transform_features does not name")
        for key, feature in told.items():
            shape = tuple(found[key].shape)
            fits = not feature.shape or shape[-len(feature.shape) :] == feature.shape
            expect(fits, f"{key} has the shape {shape}, transform_features says {feature.shape}")

    @check(
        "S06-reset-forgets",
        "After reset the step behaves as if it were new: nothing of the past episode is left.",
        "Clear in reset whatever __call__ remembers.",
    )
    def test_s06_reset_forgets(self, step: ProcessorStep) -> None:
        step.reset()
        first = self._run(step, 3)
        step.reset()
        self._expect_same(first, self._run(step, 3), "the output after reset()")

    @check(
        "S07-state-is-tensors",
        "state_dict maps names to tensors, load_state_dict takes them back, and a step without state refuses any.",
        "Keep settings in get_config and tensors in state_dict.",
    )
    def test_s07_state_is_tensors(self, step: ProcessorStep) -> None:
        state = step.state_dict()
        wrong = [f"{k!r} ({type(v).__name__})" for k, v in state.items() if not hasattr(v, "dtype")]
        expect(not wrong, f"these are no tensors: {', '.join(wrong)}")
        if state:
            step.load_state_dict(batches.copied(state))
            self._expect_same(state, step.state_dict(), "the state after loading it")
        else:
            with refused(ProcessorError, "a state given to a step that has none"):
                step.load_state_dict({"unknown": 0})

    @check(
        "S08-saved-pipeline",
        "A pipeline of this step, saved and loaded, gives the same outputs.",
        "Check S01, S02 and S07; write files the step needs in save_artifacts.",
    )
    def test_s08_saved_pipeline(self, step: ProcessorStep, tmp_path: Path) -> None:
        from ulna.core.plugins import registry

        try:
            registry().find("processors", step.registry_name)
        except PluginNotFoundError as error:
            raise NotExercised("the registry does not know the step (see S01)") from error
        pipeline: DataProcessorPipeline[Any, Any] = DataProcessorPipeline([step], "conformance")
        file = pipeline.save_pretrained(tmp_path)
        again = DataProcessorPipeline[Any, Any].from_pretrained(tmp_path, config_filename=file.name)
        step.reset()
        again.reset()
        self._expect_same(self._run(step), self._run(again.steps[0]), "the output of the loaded pipeline")


def _tensors(values: Any) -> dict[str, Any]:
    return {k: v for k, v in (values or {}).items() if hasattr(v, "shape") and hasattr(v, "ndim")}
