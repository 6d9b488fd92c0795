# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of teleoperators."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ulna.core.calibration import CalibrationStep
from ulna.core.capabilities import HasTeleopEvents
from ulna.core.errors import ActionError, DeviceNotConnectedError
from ulna.core.features import FeatureSpecs
from ulna.core.teleoperators import Teleoperator, TeleopEvents
from ulna.testing import configs, devices
from ulna.testing.checks import NotExercised, Suite, check, expect, refused
from ulna.testing.suites.dialogues import answer_step

__all__ = ["TeleoperatorSuite"]


class TeleoperatorSuite(Suite):
    """Checks of a teleoperator. Override the fixture `teleoperator`; it returns one that is not connected.

    Its default `connect()` must work. The suite makes more of the same class and settings.

    Attributes:
        vendor_modules: Libraries of the vendor that its configuration module must not import.
    """

    subject: ClassVar[str] = "teleoperator"
    vendor_modules: ClassVar[tuple[str, ...]] = ()

    @pytest.fixture
    def teleoperator(self) -> Teleoperator:
        """Give a disconnected teleoperator. The one thing an author overrides."""
        made: Teleoperator = self.missing_fixture()
        return made

    def answer(self, teleoperator: Teleoperator, step: CalibrationStep) -> str:
        """Play the operator of a calibration; override it to move simulated joints.

        Args:
            teleoperator: The teleoperator being calibrated.
            step: What it asks.

        Returns:
            The answer.
        """
        return answer_step(self, step)

    def feedback(self, teleoperator: Teleoperator) -> dict[str, Any]:
        """Return feedback that is safe to send now: the pose it is in.

        Args:
            teleoperator: A connected teleoperator.

        Returns:
            A value for every key of `feedback_features`.
        """
        specs, here = FeatureSpecs.of(teleoperator.feedback_features), teleoperator.get_action()
        return {k: float(here[k]) if s.kind == "scalar" and k in here else s.generate() for k, s in specs.items()}

    @check(
        "T01-pure-constructor",
        "Making a teleoperator opens no port, starts no thread and creates no file or folder.",
        "Move such work from __init__ into _connect, behind parts.open(...).",
    )
    def test_t01_pure_constructor(self, teleoperator: Teleoperator, tmp_path: Path) -> None:
        devices.construction_is_pure(lambda: devices.fresh(teleoperator), tmp_path)

    @check(
        "T02-features-disconnected",
        "action_features and feedback_features can be read before connecting and stay the same while connected.",
        "Compute them from the settings alone.",
    )
    def test_t02_features_disconnected(self, teleoperator: Teleoperator) -> None:
        given = FeatureSpecs.of(teleoperator.action_features)
        taken = FeatureSpecs.of(teleoperator.feedback_features)
        with devices.closing(teleoperator):
            teleoperator.connect()
            expect(given == teleoperator.action_features, "action_features changed on connecting")
            expect(taken == teleoperator.feedback_features, "feedback_features changed on connecting")

    @check(
        "T03-atomic-connect",
        "A connect that fails anywhere closes everything it had opened, and the teleoperator connects afterwards.",
        "Open every part in _connect through parts.open(name, opening, closing).",
    )
    def test_t03_atomic_connect(self, teleoperator: Teleoperator) -> None:
        devices.connects_atomically(teleoperator)

    @check(
        "T04-connect-twice",
        "connect on a connected teleoperator raises DeviceAlreadyConnectedError and leaves it connected.",
        "Implement _connect and leave connect to the base class.",
    )
    def test_t04_connect_twice(self, teleoperator: Teleoperator) -> None:
        devices.refuses_second_connect(teleoperator)

    @check(
        "T05-disconnect-idempotent",
        "disconnect can be called at any time, any number of times, and the teleoperator connects again after it.",
        "Leave disconnect to the base class, and let closing functions accept parts that are closed already.",
    )
    def test_t05_disconnect_idempotent(self, teleoperator: Teleoperator) -> None:
        devices.disconnect_is_idempotent(teleoperator)

    @check(
        "T06-disconnect-releases",
        "After disconnect no thread and no open file or port of the teleoperator is left.",
        "Give every parts.open(...) a closing function that joins threads and closes ports.",
    )
    def test_t06_disconnect_releases(self, teleoperator: Teleoperator) -> None:
        devices.disconnect_releases(teleoperator, lambda one: one.get_action())

    @check(
        "T07-disconnect-tries-all",
        "When one part fails to close, the others are closed all the same and the failure is reported.",
        "Register every part with parts.open(...) instead of closing several in one function.",
    )
    def test_t07_disconnect_tries_all(self, teleoperator: Teleoperator) -> None:
        devices.disconnect_tries_all(teleoperator)

    @check(
        "T08-not-connected-errors",
        "get_action and send_feedback raise DeviceNotConnectedError before connect and after disconnect.",
        "Implement _get_action and _send_feedback and leave the public methods to the base class.",
    )
    def test_t08_not_connected_errors(self, teleoperator: Teleoperator) -> None:
        feedback = FeatureSpecs.of(teleoperator.feedback_features).generate()
        for _ in range(2):
            with refused(DeviceNotConnectedError, "get_action() while disconnected"):
                teleoperator.get_action()
            with refused(DeviceNotConnectedError, "send_feedback() while disconnected"):
                teleoperator.send_feedback(feedback)
            with devices.closing(teleoperator):
                teleoperator.connect()

    @check(
        "T09-action-fits-features",
        "An action has exactly the keys of action_features, each value of the declared shape and finite.",
        "Let action_features and _get_action name the same keys and shapes.",
    )
    def test_t09_action_fits_features(self, teleoperator: Teleoperator) -> None:
        with devices.closing(teleoperator):
            teleoperator.connect()
            specs, action = FeatureSpecs.of(teleoperator.action_features), teleoperator.get_action()
        specs.check_action(action, owner="the check of what get_action returned")
        for key, spec in specs.items():
            spec.validate(action[key])

    @check(
        "T10-action-is-owned",
        "Every action is a new dict: changing one does not change the next.",
        "Return a copy from _get_action, not the state of the teleoperator itself.",
    )
    def test_t10_action_is_owned(self, teleoperator: Teleoperator) -> None:
        with devices.closing(teleoperator):
            teleoperator.connect()
            action = teleoperator.get_action()
            keys = set(action)
            action.clear()
            again = teleoperator.get_action()
        expect(set(again) == keys, "clearing one action changed the next one")

    def _bad_feedback(self, good: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        first = next(iter(good))
        return {
            f"feedback with {first!r} = nan": {**good, first: good[first] * 0 + math.nan},
            f"feedback with {first!r} = inf": {**good, first: good[first] * 0 + math.inf},
            "feedback with an unknown key": {**good, "no_such_joint.pos": 0.0},
            f"feedback without {first!r}": {k: v for k, v in good.items() if k != first},
        }

    @check(
        "T11-bad-feedback-refused",
        "Feedback with NaN, an unknown key or a missing key raises ActionError before any driver is called.",
        "Implement _send_feedback and leave send_feedback to the base class.",
    )
    def test_t11_bad_feedback_refused(self, teleoperator: Teleoperator) -> None:
        if not teleoperator.feedback_features:
            raise NotExercised("it declares no feedback")
        calls: list[Any] = []
        with devices.closing(teleoperator):
            teleoperator.connect()
            good = self.feedback(teleoperator)
            with devices.patched(teleoperator, "_send_feedback", calls.append):
                for what, feedback in self._bad_feedback(good).items():
                    with refused(ActionError, what):
                        teleoperator.send_feedback(feedback)
                    expect(not calls, f"{what} was refused, but only after _send_feedback was called")

    @check(
        "T12-feedback-accepted",
        "Feedback with a value for every key of feedback_features is accepted.",
        "Implement _send_feedback for every key that feedback_features declares.",
    )
    def test_t12_feedback_accepted(self, teleoperator: Teleoperator) -> None:
        if not teleoperator.feedback_features:
            raise NotExercised("it declares no feedback")
        with devices.closing(teleoperator):
            teleoperator.connect()
            teleoperator.send_feedback(self.feedback(teleoperator))

    @check(
        "T13-events",
        "get_teleop_events returns a dict whose keys are TeleopEvents, and calling it often changes nothing.",
        "Return {TeleopEvents.SUCCESS: True, ...}; do not clear held keys when they are read.",
    )
    def test_t13_events(self, teleoperator: Teleoperator) -> None:
        if not isinstance(teleoperator, HasTeleopEvents):
            raise NotExercised("it has no get_teleop_events")
        with devices.closing(teleoperator):
            teleoperator.connect()
            events: Any = teleoperator.get_teleop_events()
            again: Any = teleoperator.get_teleop_events()
        expect(isinstance(events, dict), f"get_teleop_events returned {type(events).__name__}")
        wrong = [k for k in events if not isinstance(k, TeleopEvents)]
        expect(not wrong, f"these keys are no TeleopEvents: {wrong}")
        expect(events == again, f"the same events read twice differ: {events}, then {again}")

    @check(
        "T14-calibrate-is-a-dialogue",
        "calibrate is a generator of steps; it neither calls input() nor prints.",
        "Yield a CalibrationStep for everything the operator shall do, and take the answer from yield.",
    )
    def test_t14_calibrate_is_a_dialogue(self, teleoperator: Teleoperator, tmp_path: Path) -> None:
        devices.calibrates_as_dialogue(teleoperator, self.answer, tmp_path)

    @check(
        "T15-torque-released",
        "No motor holds torque after disconnect, after an error while in use, and after a connect that failed.",
        "Open the bus through parts.open(...) with a closing function that disables torque.",
    )
    def test_t15_torque_released(self, teleoperator: Teleoperator) -> None:
        devices.torque_is_released(teleoperator)

    @check(
        "T16-config-round-trip",
        "The settings are the same after they were written as JSON and read again.",
        "Use types that pydantic writes and reads; avoid private state that changes fields.",
    )
    def test_t16_config_round_trip(self, teleoperator: Teleoperator) -> None:
        configs.survives_json(teleoperator.config)

    @check(
        "T17-config-names-implementation",
        "The configuration class names, as `module:Class`, the teleoperator it configures.",
        "Set implementation: ClassVar[str] in the configuration class.",
    )
    def test_t17_config_names_implementation(self, teleoperator: Teleoperator) -> None:
        configs.implementation_fits(teleoperator.config, teleoperator)

    @check(
        "T18-lean-config",
        "Importing the configuration class imports neither torch nor a vendor's library.",
        "Keep the configuration in a module of its own and import libraries where they are used.",
    )
    def test_t18_lean_config(self, teleoperator: Teleoperator) -> None:
        configs.module_is_lean(type(teleoperator.config), self.vendor_modules)

    @check(
        "T19-runs-without-torch",
        "The teleoperator's module can be imported where torch is not installed.",
        "Import torch nowhere in a teleoperator; use numpy.",
    )
    def test_t19_runs_without_torch(self, teleoperator: Teleoperator) -> None:
        configs.runs_without(type(teleoperator), ("torch", "torchvision"))
