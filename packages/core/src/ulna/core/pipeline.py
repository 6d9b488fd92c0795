# SPDX-License-Identifier: Apache-2.0
"""The processing pipeline: steps that turn transitions into transitions. Files are in `ulna.core.pipeline_files`."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, overload

from ulna.core.errors import ProcessorError
from ulna.core.features import PipelineFeatureType, PolicyFeature
from ulna.core.transitions import batch_to_transition, create_transition, transition_to_batch
from ulna.core.types import EnvTransition, TransitionKey

__all__ = [
    "DataProcessorPipeline",
    "PipelineFeatures",
    "PolicyProcessorPipeline",
    "ProcessorStep",
    "RobotProcessorPipeline",
]

PipelineFeatures = dict[PipelineFeatureType, dict[str, PolicyFeature]]
Hook = Callable[[int, EnvTransition], None]
TInput = TypeVar("TInput")
TOutput = TypeVar("TOutput")


class ProcessorStep(ABC):
    """One step of a pipeline. Its constructor takes what `get_config` returns; what it learnt is its state.

    A step never changes the transition it is given: it returns a new one, sharing what it did not touch.
    """

    registry_name: ClassVar[str] = ""

    @abstractmethod
    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Process one transition.

        Args:
            transition: Not changed.

        Returns:
            The processed transition.
        """

    @abstractmethod
    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Tell how the step changes names and shapes.

        Args:
            features: Side to key to feature, before the step. Not changed.

        Returns:
            The same after the step.
        """

    def get_config(self) -> dict[str, Any]:
        """Return constructor arguments as JSON values; complete, so that saving and loading changes nothing."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return tensors to be saved; empty when the step has none."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take tensors saved before.

        Args:
            state: What `state_dict` returned.

        Raises:
            ProcessorError: The step has no state.
        """
        if state:
            raise ProcessorError(f"{type(self).__name__} takes no state, got {', '.join(state)}.")

    def save_artifacts(self, folder: Path) -> dict[str, str]:
        """Write files the step needs to be rebuilt offline (a tokenizer, say).

        Args:
            folder: Where to write.

        Returns:
            Constructor argument to path relative to `folder`.
        """
        return {}

    def reset(self) -> None:
        """Forget what belongs to the past episode."""


class DataProcessorPipeline(Generic[TInput, TOutput]):
    """Steps in order, with a conversion at each end.

    Args:
        steps: The steps.
        name: Names the files when saved.
        to_transition: Turns the input into a transition; default: from a batch.
        to_output: Turns the transition into the output; default: into a batch.
        before_step_hooks: Called with (index, transition) before each step.
        after_step_hooks: Called with (index, transition) after each step.
    """

    def __init__(
        self,
        steps: Sequence[ProcessorStep] = (),
        name: str = "DataProcessorPipeline",
        *,
        to_transition: Callable[[TInput], EnvTransition] | None = None,
        to_output: Callable[[EnvTransition], TOutput] | None = None,
        before_step_hooks: Sequence[Hook] = (),
        after_step_hooks: Sequence[Hook] = (),
    ) -> None:
        wrong = [s for s in cast("Sequence[object]", steps) if not callable(s)]
        if wrong:
            raise ProcessorError(f"Every step of {name} must be a ProcessorStep; got {wrong!r}.")
        self.steps = list(steps)
        self.name = name
        self.to_transition = to_transition or cast("Callable[[TInput], EnvTransition]", batch_to_transition)
        self.to_output = to_output or cast("Callable[[EnvTransition], TOutput]", transition_to_batch)
        self.before_step_hooks = list(before_step_hooks)
        self.after_step_hooks = list(after_step_hooks)

    def __call__(self, data: TInput) -> TOutput:
        """Process one input.

        Args:
            data: What `to_transition` takes.

        Returns:
            What `to_output` gives.
        """
        return self.to_output(self._run(self.to_transition(data)))

    def _run(self, transition: EnvTransition) -> EnvTransition:
        if not (self.before_step_hooks or self.after_step_hooks):
            for step in self.steps:
                transition = step(transition)
            return transition
        for index, step in enumerate(self.steps):
            for hook in self.before_step_hooks:
                hook(index, transition)
            transition = step(transition)
            for hook in self.after_step_hooks:
                hook(index, transition)
        return transition

    def step_through(self, data: TInput) -> Iterator[EnvTransition]:
        """Yield the transition before the first step and after each.

        Args:
            data: What `to_transition` takes.

        Yields:
            Transitions.
        """
        transition = self.to_transition(data)
        yield transition
        for step in self.steps:
            transition = step(transition)
            yield transition

    def _only(self, key: TransitionKey, value: Any) -> Any:
        return self._run(create_transition(**{key.value: value}))[key]

    def process_observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Run the steps on an observation alone."""
        return cast("dict[str, Any]", self._only(TransitionKey.OBSERVATION, observation))

    def process_action(self, action: Any) -> Any:
        """Run the steps on an action alone."""
        return self._only(TransitionKey.ACTION, action)

    def process_reward(self, reward: Any) -> Any:
        """Run the steps on a reward alone."""
        return self._only(TransitionKey.REWARD, reward)

    def process_done(self, done: Any) -> Any:
        """Run the steps on a termination flag alone."""
        return self._only(TransitionKey.DONE, done)

    def process_truncated(self, truncated: Any) -> Any:
        """Run the steps on a truncation flag alone."""
        return self._only(TransitionKey.TRUNCATED, truncated)

    def process_info(self, info: dict[str, Any]) -> dict[str, Any]:
        """Run the steps on an info dict alone."""
        return cast("dict[str, Any]", self._only(TransitionKey.INFO, info))

    def process_complementary_data(self, data: dict[str, Any]) -> dict[str, Any]:
        """Run the steps on complementary data alone."""
        return cast("dict[str, Any]", self._only(TransitionKey.COMPLEMENTARY_DATA, data))

    def transform_features(self, features: PipelineFeatures) -> PipelineFeatures:
        """Tell how all steps together change names and shapes.

        Args:
            features: Side to key to feature. Not changed.

        Returns:
            The same after the last step.
        """
        features = copy.deepcopy(features)
        for step in self.steps:
            features = step.transform_features(features)
        return features

    def reset(self) -> None:
        """Forget what belongs to the past episode, in every step."""
        for step in self.steps:
            step.reset()

    def register_before_step_hook(self, hook: Hook) -> None:
        """Call `hook(index, transition)` before each step from now on."""
        self.before_step_hooks.append(hook)

    def register_after_step_hook(self, hook: Hook) -> None:
        """Call `hook(index, transition)` after each step from now on."""
        self.after_step_hooks.append(hook)

    def unregister_before_step_hook(self, hook: Hook) -> None:
        """Stop calling `hook` before each step; ValueError when it was not registered."""
        self.before_step_hooks.remove(hook)

    def unregister_after_step_hook(self, hook: Hook) -> None:
        """Stop calling `hook` after each step; ValueError when it was not registered."""
        self.after_step_hooks.remove(hook)

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, index: int) -> ProcessorStep: ...
    @overload
    def __getitem__(self, index: slice) -> DataProcessorPipeline[TInput, TOutput]: ...
    def __getitem__(self, index: int | slice) -> ProcessorStep | DataProcessorPipeline[TInput, TOutput]:
        if isinstance(index, slice):
            return type(self)(self.steps[index], self.name, to_transition=self.to_transition, to_output=self.to_output)
        return self.steps[index]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, steps=[{', '.join(type(s).__name__ for s in self.steps)}])"

    def get_config(self) -> dict[str, Any]:
        """Return the JSON form without state: `name` and `steps`."""
        from ulna.core.pipeline_files import pipeline_config

        return pipeline_config(self)

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Return `<index>` of every step with state to its tensors."""
        return {str(i): state for i, step in enumerate(self.steps) if (state := step.state_dict())}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Give every step its state back.

        Args:
            state: What `state_dict` returned.

        Raises:
            ProcessorError: An index names no step.
        """
        for index, tensors in state.items():
            if not index.isdigit() or int(index) >= len(self.steps):
                raise ProcessorError(f"{self.name} has {len(self.steps)} steps; there is no step {index!r}.")
            self.steps[int(index)].load_state_dict(tensors)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **options: Any) -> Self:
        """Build from `get_config`'s result.

        Args:
            config: `name` and `steps`.
            **options: Constructor options of the pipeline.

        Returns:
            The pipeline, without state.

        Raises:
            ProcessorError: A step is unknown or its settings do not fit.
        """
        from ulna.core.pipeline_files import build_steps

        return cls(build_steps(config), str(config.get("name", cls.__name__)), **options)

    def save_pretrained(self, folder: Path | str, *, config_filename: str | None = None) -> Path:
        """Write `<name>.json`, the state files and the artifacts.

        Args:
            folder: Created when missing.
            config_filename: Instead of `<name>.json`.

        Returns:
            The JSON file.
        """
        from ulna.core.pipeline_files import save_pipeline

        return save_pipeline(self, Path(folder), config_filename)

    @classmethod
    def from_pretrained(
        cls,
        source: Path | str,
        *,
        config_filename: str,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        revision: str | None = None,
        **options: Any,
    ) -> Self:
        """Read a saved pipeline.

        Args:
            source: A folder, the JSON file, or a Hub repository. A local folder never leads to the network.
            config_filename: Name of the JSON file.
            overrides: Registered name to settings that replace the saved ones; `stats` replace the saved state.
            revision: Hub revision.
            **options: Constructor options of the pipeline.

        Returns:
            The pipeline with its state.

        Raises:
            ProcessorError: A file is missing, a step is unknown, or an override names no step.
        """
        from ulna.core.pipeline_files import load_pipeline_parts

        steps, name = load_pipeline_parts(source, config_filename, overrides or {}, revision)
        return cls(steps, name, **options)


PolicyProcessorPipeline = DataProcessorPipeline
RobotProcessorPipeline = DataProcessorPipeline
