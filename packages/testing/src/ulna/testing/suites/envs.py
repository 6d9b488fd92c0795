# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of simulated environments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pytest

from ulna.core.constants import ACTION
from ulna.core.envs import EnvConfig, make_env
from ulna.core.features import FeatureType
from ulna.testing import batches, configs
from ulna.testing.checks import NotExercised, Suite, check, expect, refused
from ulna.testing.isolation import leftovers

__all__ = ["EnvSuite"]


class EnvSuite(Suite):
    """Checks of an environment. Override the fixture `env_config`; it returns settings, best of short episodes.

    Attributes:
        vendor_modules: Libraries that the configuration module must not import.
        num_envs: Copies in the vector environment of the checks.
        max_steps: Steps after which the check of the success key gives up waiting for the end of an episode.
        tolerance: Largest difference between observations that should be equal.
    """

    subject: ClassVar[str] = "env_config"
    vendor_modules: ClassVar[tuple[str, ...]] = ()
    num_envs: ClassVar[int] = 2
    max_steps: ClassVar[int] = 300
    tolerance: ClassVar[float] = 1e-6

    @pytest.fixture
    def env_config(self) -> EnvConfig:
        """Give settings of an environment. The one thing an author overrides."""
        made: EnvConfig = self.missing_fixture()
        return made

    @contextmanager
    def _env(self, config: EnvConfig, n_envs: int | None = None) -> Iterator[Any]:
        """Make the first vector environment of the suite for the block."""
        made = make_env(config, self.num_envs if n_envs is None else n_envs)
        every = [env for tasks in made.values() for env in tasks.values()]
        try:
            yield every[0]
        finally:
            for env in every:
                env.close()

    def _actions(self, env: Any, count: int) -> list[Any]:
        """Return actions inside the action space, the same each time."""
        env.action_space.seed(0)
        return [env.action_space.sample() for _ in range(count)]

    @check(
        "E01-config-round-trip",
        "The settings are the same after they were written as JSON and read again.",
        "Use types that pydantic writes and reads; avoid private state that changes fields.",
    )
    def test_e01_config_round_trip(self, env_config: EnvConfig) -> None:
        configs.survives_json(env_config)

    @check(
        "E02-lean-config",
        "Importing the configuration class imports neither torch, Gymnasium nor the simulator.",
        "Import the simulator in create_envs.",
    )
    def test_e02_lean_config(self, env_config: EnvConfig) -> None:
        configs.module_is_lean(type(env_config), self.vendor_modules)

    @check(
        "E03-vector-environments",
        "create_envs returns suite to task number to vector environment, each with as many copies as asked for.",
        "Return {suite: {0: env, ...}} and make n_envs copies in each.",
    )
    def test_e03_vector_environments(self, env_config: EnvConfig) -> None:
        for count in (1, self.num_envs):
            made: Any = make_env(env_config, count)
            try:
                expect(isinstance(made, dict) and made, f"create_envs returned {type(made).__name__}")
                for suite, tasks in made.items():
                    expect(isinstance(tasks, Mapping) and tasks, f"{suite!r} maps to {type(tasks).__name__}")
                    wrong = [k for k in tasks if not isinstance(k, int)]
                    expect(not wrong, f"tasks of {suite!r} are numbered {wrong}")
                    sizes = [env.num_envs for env in tasks.values()]
                    expect(set(sizes) == {count}, f"asked for {count} copies, {suite!r} has {sizes}")
            finally:
                for tasks in made.values():
                    for env in tasks.values():
                        env.close()
        with refused(ValueError, "make_env with 0 copies"):
            make_env(env_config, 0)

    @check(
        "E04-observations-fit-the-space",
        "Observations of reset and step lie in observation_space.",
        "Declare the keys, shapes, dtypes and bounds that the environment really gives.",
    )
    def test_e04_observations_fit_the_space(self, env_config: EnvConfig) -> None:
        with self._env(env_config) as env:
            seen = [env.reset(seed=0)[0]]
            seen += [env.step(action)[0] for action in self._actions(env, 3)]
            for index, observation in enumerate(seen):
                fits = env.observation_space.contains(observation)
                expect(fits, f"observation {index} does not lie in observation_space: {_shapes(observation)}")

    @check(
        "E05-step-fits-the-contract",
        "step returns observation, finite rewards, boolean terminated and truncated of shape (n,), and an info dict.",
        "Return arrays with one entry for each copy.",
    )
    def test_e05_step_fits_the_contract(self, env_config: EnvConfig) -> None:
        with self._env(env_config) as env:
            env.reset(seed=0)
            for action in self._actions(env, 3):
                result = env.step(action)
                expect(len(result) == 5, f"step returned {len(result)} values, expected 5")
                reward, ended = np.asarray(result[1]), [np.asarray(value) for value in result[2:4]]
                fits = reward.shape == (env.num_envs,) and bool(np.isfinite(reward.astype(float)).all())
                expect(fits, f"the rewards are {reward!r}")
                for name, flags in zip(("terminated", "truncated"), ended, strict=True):
                    fits = flags.shape == (env.num_envs,) and flags.dtype == bool
                    expect(fits, f"{name} is {flags!r}, expected {env.num_envs} booleans")
                expect(isinstance(result[4], dict), f"info is a {type(result[4]).__name__}")

    @check(
        "E06-seeded",
        "The same seed and actions give the same observations and rewards; another seed gives another start.",
        "Draw every random number from the generator that reset(seed=...) seeds.",
    )
    def test_e06_seeded(self, env_config: EnvConfig) -> None:
        runs = []
        for seed in (3, 3, 4):
            with self._env(env_config) as env:
                run = [env.reset(seed=seed)[0]]
                for action in self._actions(env, 5):
                    observation, reward, *_ = env.step(action)
                    run.append({"observation": observation, "reward": np.asarray(reward)})
            runs.append(batches.copied(run))
        differ = [i for i, (a, b) in enumerate(zip(runs[0], runs[1], strict=True)) if self._differ(a, b)]
        expect(not differ, f"two runs with the seed 3 differ from step {differ[0] if differ else 0} on")
        expect(self._differ(runs[0][0], runs[2][0]), "the seeds 3 and 4 start from the same observation")

    def _differ(self, one: Any, other: Any) -> list[str]:
        return batches.differences(one, other, self.tolerance)

    @check(
        "E07-success-is-told",
        "When an episode ends, info says is_success for each copy, directly or in final_info.",
        "Put is_success into info at every step (Gymnasium moves it into final_info at an end).",
    )
    def test_e07_success_is_told(self, env_config: EnvConfig) -> None:
        with self._env(env_config) as env:
            env.reset(seed=0)
            for action in self._actions(env, self.max_steps):
                _, _, terminated, truncated, info = env.step(action)
                if np.any(terminated) or np.any(truncated):
                    break
            else:
                raise NotExercised(f"no episode ended within {self.max_steps} steps")
        last = info.get("final_info", info)
        told = last.get("is_success", info.get("is_success")) if isinstance(last, Mapping) else None
        keys = f"info has {', '.join(map(str, info))}"
        expect(told is not None, f"at the end of an episode there is no is_success: {keys}")
        expect(np.asarray(told).shape == (self.num_envs,), f"is_success is {told!r}, expected {self.num_envs} values")

    @check(
        "E08-goes-on-after-an-end",
        "After an episode has ended, stepping goes on with the next one and observations still fit.",
        "Use Gymnasium's autoreset, or reset finished copies in step.",
    )
    def test_e08_goes_on_after_an_end(self, env_config: EnvConfig) -> None:
        with self._env(env_config) as env:
            env.reset(seed=0)
            ends = 0
            for action in self._actions(env, self.max_steps):
                observation, _, terminated, truncated, _ = env.step(action)
                ends += int(np.any(terminated) or np.any(truncated))
                if ends:
                    expect(env.observation_space.contains(observation), "after an end an observation does not fit")
                if ends > 1:
                    return
        if ends < 2:
            raise NotExercised(f"fewer than two episodes ended within {self.max_steps} steps")

    @check(
        "E09-features-tell-the-truth",
        "Every declared feature is in the observation (or is the action) in its declared shape, and has a policy key.",
        "Let features and features_map name what the environment gives; nested keys are written a/b.",
    )
    def test_e09_features_tell_the_truth(self, env_config: EnvConfig) -> None:
        if not env_config.features:
            raise NotExercised("its settings declare no features")
        with self._env(env_config) as env:
            observation, _ = env.reset(seed=0)
            shape = tuple(env.single_action_space.shape)
        for key, feature in env_config.features.items():
            expect(key in env_config.features_map, f"features_map has no policy key for {key!r}")
            if feature.type is FeatureType.ACTION or key == ACTION:
                expect(feature.shape == shape, f"the action is declared {feature.shape}, the environment takes {shape}")
                continue
            value = _look_up(observation, key)
            expect(value is not None, f"{key!r} is declared and not in the observation: {_shapes(observation)}")
            found = np.asarray(value).shape[1:]
            expect(found == feature.shape, f"{key!r} is declared {feature.shape}, the environment gives {found}")

    @check(
        "E10-closes",
        "close can be called twice and leaves no thread and no open file.",
        "Join workers and release the renderer in close.",
    )
    def test_e10_closes(self, env_config: EnvConfig) -> None:
        with self._env(env_config) as env:
            env.reset(seed=0)
        with leftovers() as left:
            with self._env(env_config) as env:
                env.reset(seed=0)
            env.close()
        expect(not left, f"after close() there is still {left}")


def _look_up(observation: Any, key: str) -> Any:
    if isinstance(observation, Mapping) and key in observation:
        return observation[key]
    for part in key.split("/"):
        if not isinstance(observation, Mapping) or part not in observation:
            return None
        observation = observation[part]
    return observation


def _shapes(observation: Any) -> str:
    if isinstance(observation, Mapping):
        return "{" + ", ".join(f"{k}: {_shapes(v)}" for k, v in observation.items()) + "}"
    return f"{np.asarray(observation).dtype} {np.asarray(observation).shape}"
