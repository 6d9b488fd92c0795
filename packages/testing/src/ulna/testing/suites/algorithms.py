# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of RL algorithms. Needs torch, which it imports when a check runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from ulna.core.algorithm_config import TrainingStats
from ulna.testing import batches, configs
from ulna.testing.checks import NotExercised, Suite, check, expect
from ulna.testing.seeding import seeded

if TYPE_CHECKING:
    from ulna.core.algorithms import RLAlgorithm
    from ulna.core.policies import PreTrainedPolicy

__all__ = ["AlgorithmSuite"]


class AlgorithmSuite(Suite):
    """Checks of an RL algorithm. Override the fixture `algorithm`; it returns one with its policy, of tiny shapes.

    Its optimizers are not made yet. Override `batches` where it needs other batches than transitions, and
    `identity_error` to have it learn a task of known solution.

    Attributes:
        vendor_modules: Libraries that the configuration module must not import.
        batch_size: Transitions in a batch.
        updates: Updates after which the policy must have changed.
        tolerance: Largest difference between numbers that should be equal.
    """

    subject: ClassVar[str] = "algorithm"
    vendor_modules: ClassVar[tuple[str, ...]] = ()
    batch_size: ClassVar[int] = 8
    updates: ClassVar[int] = 3
    tolerance: ClassVar[float] = 1e-6

    @pytest.fixture
    def algorithm(self) -> RLAlgorithm:
        """Give an algorithm. The one thing an author overrides."""
        made: RLAlgorithm = self.missing_fixture()
        return made

    def batches(self, algorithm: RLAlgorithm) -> Iterator[Any]:
        """Give batches without end, the same each time.

        Args:
            algorithm: The algorithm.

        Yields:
            Batches as its `update` takes them.
        """
        for seed in itertools.count():
            yield batches.transition_batch(algorithm.policy.config, self.batch_size, seed)

    def identity_error(self, algorithm: RLAlgorithm) -> tuple[float, float]:
        """Train on a task whose best action is known, and tell how far the policy is from it.

        Args:
            algorithm: The algorithm, optimizers made.

        Returns:
            Error before and after.
        """
        raise NotExercised("override identity_error() with a task of known solution")

    def _fresh(self, algorithm: RLAlgorithm) -> RLAlgorithm:
        """Make the same algorithm again: same settings, same policy, same tensors; optimizers made."""
        config = algorithm.config.model_copy(deep=True)
        with seeded(0):
            made = type(algorithm)(policy=self._policy(algorithm), config=config)
            made.load_state_dict(batches.copied(algorithm.state_dict()))
            made.make_optimizers_and_scheduler()
        return made

    def _policy(self, algorithm: RLAlgorithm) -> PreTrainedPolicy:
        old = algorithm.policy
        policy = type(old)(old.config.model_copy(deep=True), pretrained_backbones=False)
        policy.load_state_dict(old.state_dict())
        return policy

    def _trained(self, algorithm: RLAlgorithm, updates: int | None = None) -> list[TrainingStats]:
        given = self.batches(algorithm)
        with seeded(1):
            return [algorithm.update(given) for _ in range(self.updates if updates is None else updates)]

    def _tensors(self, algorithm: RLAlgorithm) -> dict[str, Any]:
        own = {"policy": dict(algorithm.policy.state_dict()), "algorithm": algorithm.state_dict()}
        found: dict[str, Any] = batches.copied(own)
        return found

    @check(
        "A01-config-round-trip",
        "The settings are the same after they were written as JSON and read again.",
        "Use types that pydantic writes and reads; avoid private state that changes fields.",
    )
    def test_a01_config_round_trip(self, algorithm: RLAlgorithm) -> None:
        configs.survives_json(algorithm.config)

    @check(
        "A02-lean-config",
        "Importing the configuration class imports neither torch nor another heavy library.",
        "Keep the configuration in a module of its own and import libraries where they are used.",
    )
    def test_a02_lean_config(self, algorithm: RLAlgorithm) -> None:
        configs.module_is_lean(type(algorithm.config), self.vendor_modules)

    @check(
        "A03-config-names-implementation",
        "The configuration class names, as `module:Class`, the algorithm it configures.",
        "Set implementation: ClassVar[str] in the configuration class.",
    )
    def test_a03_config_names_implementation(self, algorithm: RLAlgorithm) -> None:
        configs.implementation_fits(algorithm.config, algorithm)

    @check(
        "A04-settings-from-policy",
        "from_policy_config makes settings for a policy's settings, with policy_config set to them.",
        "Return cls(policy_config=policy_config, ...).",
    )
    def test_a04_settings_from_policy(self, algorithm: RLAlgorithm) -> None:
        made = type(algorithm.config).from_policy_config(algorithm.policy.config)
        expect(isinstance(made, type(algorithm.config)), f"it made a {type(made).__name__}")
        expect(made.policy_config == algorithm.policy.config, "policy_config is not the policy's settings")

    @check(
        "A05-optimizers",
        "make_optimizers_and_scheduler returns optimizers by name, and get_optimizers gives the same ones to be saved.",
        "Keep what make_optimizers_and_scheduler made and return it from get_optimizers.",
    )
    def test_a05_optimizers(self, algorithm: RLAlgorithm) -> None:
        made: Any = algorithm.make_optimizers_and_scheduler()
        expect(isinstance(made, dict) and made, f"make_optimizers_and_scheduler returned {made!r}")
        wrong = [name for name, optimizer in made.items() if not hasattr(optimizer, "param_groups")]
        expect(not wrong, f"these are no optimizers: {', '.join(wrong)}")
        kept = algorithm.get_optimizers()
        lost = [name for name in made if kept.get(name) is not made[name]]
        expect(not lost, f"get_optimizers does not give {', '.join(lost)}, so a resume would lose them")

    @check(
        "A06-finite-figures",
        "update returns TrainingStats with at least one figure, all of them finite numbers.",
        "Return TrainingStats(losses={...}) with floats, detached.",
    )
    def test_a06_finite_figures(self, algorithm: RLAlgorithm) -> None:
        for stats in self._trained(self._fresh(algorithm)):
            expect(isinstance(stats, TrainingStats), f"update returned a {type(stats).__name__}")
            figures: dict[str, Any] = dict(stats.to_log_dict())
            expect(figures, "update returned no figure")
            wrong = [f"{k} = {v!r}" for k, v in figures.items() if not (isinstance(v, float) and math.isfinite(v))]
            expect(not wrong, f"these figures are no finite floats: {', '.join(wrong)}")

    @check(
        "A07-steps-are-counted",
        "optimization_step counts the updates, and can be set for a resume.",
        "Add 1 to self._optimization_step at the end of update.",
    )
    def test_a07_steps_are_counted(self, algorithm: RLAlgorithm) -> None:
        made = self._fresh(algorithm)
        before = made.optimization_step
        self._trained(made)
        done = made.optimization_step - before
        expect(done == self.updates, f"{self.updates} updates were counted as {done}")
        made.optimization_step = 41
        self._trained(made, 1)
        expect(made.optimization_step == 42, f"set to 41, one update made it {made.optimization_step}")

    @check(
        "A08-policy-learns",
        "Updates change the policy, and leave no NaN in it.",
        "Give the policy's parameters to an optimizer and step it in update.",
    )
    def test_a08_policy_learns(self, algorithm: RLAlgorithm) -> None:
        made = self._fresh(algorithm)
        before = self._tensors(made)["policy"]
        self._trained(made)
        after = self._tensors(made)["policy"]
        expect(batches.differences(before, after, 0.0), f"{self.updates} updates did not change the policy")
        broken = [k for k, v in after.items() if v.is_floating_point() and not bool(v.isfinite().all())]
        expect(not broken, f"after {self.updates} updates these are not finite: {', '.join(broken)}")

    @check(
        "A09-deterministic",
        "The same tensors, batches and seed give the same updates.",
        "Draw random numbers from torch's generator alone.",
    )
    def test_a09_deterministic(self, algorithm: RLAlgorithm) -> None:
        results = []
        for made in (self._fresh(algorithm), self._fresh(algorithm)):
            self._trained(made)
            results.append(self._tensors(made))
        differ = batches.differences(results[0], results[1], self.tolerance)
        expect(not differ, f"two runs from the same start differ in {', '.join(differ[:8])}")

    @check(
        "A10-state-round-trip",
        "state_dict is a flat dict of tensors that load_state_dict takes back exactly.",
        "Return every tensor beyond the policy's, and copy each one back.",
    )
    def test_a10_state_round_trip(self, algorithm: RLAlgorithm) -> None:
        made, other = self._fresh(algorithm), self._fresh(algorithm)
        self._trained(made)
        state = batches.copied(made.state_dict())
        wrong = [k for k, v in state.items() if not hasattr(v, "dtype")]
        expect(not wrong, f"these are no tensors: {', '.join(wrong)}")
        other.load_state_dict(state)
        differ = batches.differences(state, other.state_dict(), 0.0)
        expect(not differ, f"after loading, the state differs in {', '.join(differ)}")

    @check(
        "A11-state-loads-in-place",
        "load_state_dict copies into the tensors that optimizers hold, so that training goes on with them.",
        "Use parameter.copy_(...) under torch.no_grad(); do not replace parameters.",
    )
    def test_a11_state_loads_in_place(self, algorithm: RLAlgorithm) -> None:
        made = self._fresh(algorithm)
        start = batches.copied(made.state_dict())
        self._trained(made, 1)
        learnt = batches.differences(start, made.state_dict(), 0.0)
        if not learnt:
            raise NotExercised("it has no tensors of its own that learn")
        made.load_state_dict(start)
        loaded = batches.copied(made.state_dict())
        self._trained(made, 1)
        still = batches.differences(loaded, made.state_dict(), 0.0)
        stuck = [key for key in learnt if key not in still]
        expect(not stuck, f"after load_state_dict the optimizers no longer reach {', '.join(stuck)}")

    @check(
        "A12-save-load",
        "A saved algorithm loads with the same settings and tensors.",
        "Leave save_pretrained and from_pretrained to the base class.",
    )
    def test_a12_save_load(self, algorithm: RLAlgorithm, tmp_path: Path) -> None:
        made = self._fresh(algorithm)
        self._trained(made)
        made.save_pretrained(tmp_path)
        again = type(made).from_pretrained(tmp_path, policy=made.policy)
        differ = batches.differences(dict(made.state_dict()), dict(again.state_dict()), 0.0)
        expect(not differ, f"after loading, the state differs in {', '.join(differ)}")
        one, other = configs.as_read_again(made.config), again.config.to_dict()
        changed = [k for k in one if k != "policy_config" and one[k] != other.get(k)]
        expect(not changed, f"after loading, the settings differ in {', '.join(changed)}")

    @check(
        "A13-weights-reach-actors",
        "get_weights is a nested dict of tensors, and load_weights makes another copy act the same.",
        "Return from get_weights all that acting needs, and load all of it.",
    )
    def test_a13_weights_reach_actors(self, algorithm: RLAlgorithm) -> None:
        learner, actor = self._fresh(algorithm), self._fresh(algorithm)
        self._trained(learner)
        weights = batches.copied(learner.get_weights())
        wrong = list(_no_tensors(weights))
        expect(weights and not wrong, f"get_weights gave {', '.join(wrong) or 'nothing'}, expected tensors")
        actor.load_weights(weights)
        differ = batches.differences(weights, actor.get_weights(), 0.0)
        expect(not differ, f"after load_weights, get_weights differs in {', '.join(differ)}")
        batch = batches.observation(learner.policy.config, 2)
        actions = []
        for made in (learner, actor):
            made.policy.eval()
            made.policy.reset()
            with seeded(2):
                actions.append(made.policy.select_action(batch).detach())
        expect(
            not batches.differences(actions[0], actions[1], 1e-5), "the actor chooses other actions than the learner"
        )

    @check(
        "A14-weights-version",
        "weights_version grows when the weights that actors use change, and only then.",
        "Add 1 to self._weights_version when the policy was stepped.",
    )
    def test_a14_weights_version(self, algorithm: RLAlgorithm) -> None:
        made = self._fresh(algorithm)
        before, start = batches.copied(made.get_weights()), made.weights_version
        made.get_weights()
        expect(made.weights_version == start, "reading the weights changed weights_version")
        self._trained(made)
        if batches.differences(before, made.get_weights(), 0.0):
            expect(made.weights_version > start, f"the weights changed, weights_version stayed {start}")

    @check(
        "A15-identity-task",
        "On a task whose best action is known, training at least halves the error of the policy.",
        "Look for a wrong sign, a detached loss or a missing step.",
    )
    def test_a15_identity_task(self, algorithm: RLAlgorithm) -> None:
        with seeded(3):
            before, after = self.identity_error(self._fresh(algorithm))
        expect(after <= before / 2, f"the error was {before:.4g} before training and {after:.4g} after it")


def _no_tensors(weights: Any, path: str = "weights") -> Iterator[str]:
    if isinstance(weights, dict):
        for key, value in weights.items():
            yield from _no_tensors(value, f"{path}.{key}")
    elif not hasattr(weights, "dtype"):
        yield f"{path} ({type(weights).__name__})"
