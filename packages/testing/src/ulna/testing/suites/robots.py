# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of robots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ulna.core.calibration import CalibrationStep
from ulna.core.errors import ActionError, DeviceNotConnectedError
from ulna.core.features import FeatureSpecs
from ulna.core.motors import MotorsBus
from ulna.core.robots import Robot
from ulna.testing import configs, devices
from ulna.testing.checks import NotExercised, Suite, check, expect, refused
from ulna.testing.suites.dialogues import answer_step

__all__ = ["RobotSuite"]

_NOT_FINITE = (math.nan, math.inf, -math.inf)


class RobotSuite(Suite):
    """Checks of a robot. Override the fixture `robot`; it returns one that is not connected, on simulated hardware.

    Its default `connect()` must work: give it settings whose calibration exists. The suite makes more robots of
    the same class and settings.

    Attributes:
        vendor_modules: Libraries of the robot's vendor that its configuration module must not import.
    """

    subject: ClassVar[str] = "robot"
    vendor_modules: ClassVar[tuple[str, ...]] = ()

    @pytest.fixture
    def robot(self) -> Robot:
        """Give a disconnected robot. The one thing an author overrides."""
        made: Robot = self.missing_fixture()
        return made

    def answer(self, robot: Robot, step: CalibrationStep) -> str:
        """Play the operator of a calibration; override it to move simulated joints.

        Args:
            robot: The robot being calibrated.
            step: What it asks.

        Returns:
            The answer.
        """
        return answer_step(self, step)

    def action(self, robot: Robot) -> dict[str, Any]:
        """Return an action that is safe to send now: where the robot is.

        Args:
            robot: A connected robot.

        Returns:
            A value for every key of `action_features`.
        """
        specs, here = FeatureSpecs.of(robot.action_features), robot.get_observation()
        return {k: float(here[k]) if s.kind == "scalar" and k in here else s.generate() for k, s in specs.items()}

    def far_action(self, robot: Robot) -> dict[str, Any]:
        """Return an action far enough away to meet the robot's limits, if it has any.

        Args:
            robot: A connected robot.

        Returns:
            A value for every key of `action_features`.
        """
        return {k: v + 30.0 if isinstance(v, float) else v for k, v in self.action(robot).items()}

    def sent(self, robot: Robot, written: Mapping[str, float]) -> Mapping[str, Any] | None:
        """Return what the hardware was really told by the last action.

        Args:
            robot: The robot.
            written: Motor name to the position written to its bus last, in its unit.

        Returns:
            Action key to value; None when it cannot be told.
        """
        found = {f"{motor}.pos": value for motor, value in written.items()}
        return found if found and set(found) <= set(robot.action_features) else None

    @contextmanager
    def _driver(self, robot: Robot) -> Iterator[list[str]]:
        """Note every call that reaches the driver."""
        calls: list[str] = []
        with ExitStack() as stack:
            spied: list[tuple[Any, str]] = [(robot, "_send_action")]
            for part in devices.components(robot).values():
                if isinstance(part, MotorsBus):
                    spied += [(part, "write"), (part, "sync_write")]
            for target, name in spied:
                stack.enter_context(devices.patched(target, name, _noting(calls, name, getattr(target, name))))
            yield calls

    def _refuses(self, robot: Robot, action: Mapping[str, Any], what: str) -> None:
        with self._driver(robot) as calls, refused(ActionError, what):
            robot.send_action(action)
        expect(not calls, f"{what} was refused, but only after {', '.join(calls)} was called")

    @check(
        "R01-pure-constructor",
        "Making a robot opens no port, starts no thread and creates no file or folder.",
        "Move such work from __init__ into _connect, behind parts.open(...).",
    )
    def test_r01_pure_constructor(self, robot: Robot, tmp_path: Path) -> None:
        devices.construction_is_pure(lambda: devices.fresh(robot), tmp_path)

    @check(
        "R02-features-disconnected",
        "observation_features and action_features can be read before connecting and stay the same while connected.",
        "Compute them from the settings alone.",
    )
    def test_r02_features_disconnected(self, robot: Robot) -> None:
        seen, taken = FeatureSpecs.of(robot.observation_features), FeatureSpecs.of(robot.action_features)
        expect(len(seen), "observation_features is empty")
        with devices.closing(robot):
            robot.connect()
            expect(seen == robot.observation_features, "observation_features changed when the robot was connected")
            expect(taken == robot.action_features, "action_features changed when the robot was connected")

    @check(
        "R03-atomic-connect",
        "A connect that fails anywhere closes everything it had opened, and the robot can be connected afterwards.",
        "Open every part in _connect through parts.open(name, opening, closing).",
    )
    def test_r03_atomic_connect(self, robot: Robot) -> None:
        devices.connects_atomically(robot)

    @check(
        "R04-connect-twice",
        "connect on a connected robot raises DeviceAlreadyConnectedError and leaves it connected.",
        "Implement _connect and leave connect to the base class.",
    )
    def test_r04_connect_twice(self, robot: Robot) -> None:
        devices.refuses_second_connect(robot)

    @check(
        "R05-disconnect-idempotent",
        "disconnect can be called at any time, any number of times, and the robot connects again after it.",
        "Leave disconnect to the base class, and let closing functions accept parts that are closed already.",
    )
    def test_r05_disconnect_idempotent(self, robot: Robot) -> None:
        devices.disconnect_is_idempotent(robot)

    @check(
        "R06-disconnect-releases",
        "After disconnect no thread and no open file or port of the robot is left.",
        "Give every parts.open(...) a closing function that joins threads and closes ports.",
    )
    def test_r06_disconnect_releases(self, robot: Robot) -> None:
        devices.disconnect_releases(robot, lambda one: one.get_observation())

    @check(
        "R07-disconnect-tries-all",
        "When one part fails to close, the others are closed all the same and the failure is reported.",
        "Register every part with parts.open(...) instead of closing several in one function.",
    )
    def test_r07_disconnect_tries_all(self, robot: Robot) -> None:
        devices.disconnect_tries_all(robot)

    @check(
        "R08-not-connected-errors",
        "get_observation and send_action raise DeviceNotConnectedError before connect and after disconnect.",
        "Implement _get_observation and _send_action and leave the public methods to the base class.",
    )
    def test_r08_not_connected_errors(self, robot: Robot) -> None:
        action = FeatureSpecs.of(robot.action_features).generate()
        for _ in range(2):
            with refused(DeviceNotConnectedError, "get_observation() while disconnected"):
                robot.get_observation()
            with refused(DeviceNotConnectedError, "send_action() while disconnected"):
                robot.send_action(action)
            with devices.closing(robot):
                robot.connect()

    @check(
        "R09-observation-fits-features",
        "An observation has exactly the keys of observation_features, each value of the declared shape and dtype.",
        "Let observation_features and _get_observation name the same keys and shapes.",
    )
    def test_r09_observation_fits_features(self, robot: Robot) -> None:
        with devices.closing(robot):
            robot.connect()
            specs, seen = FeatureSpecs.of(robot.observation_features), robot.get_observation()
        missing, extra = [k for k in specs if k not in seen], [k for k in seen if k not in specs]
        expect(not missing, f"declared but not returned: {', '.join(missing)}")
        expect(not extra, f"returned but not declared: {', '.join(extra)}")
        for key, spec in specs.items():
            spec.validate(seen[key])

    @check(
        "R10-non-finite-refused",
        "An action with NaN or an infinite value raises ActionError before any driver is called.",
        "Implement _send_action and leave send_action to the base class.",
    )
    def test_r10_non_finite_refused(self, robot: Robot) -> None:
        with devices.closing(robot):
            robot.connect()
            good = self.action(robot)
            for key, value in good.items():
                for bad in _NOT_FINITE:
                    self._refuses(robot, {**good, key: value * 0 + bad}, f"an action with {key!r} = {bad}")

    @check(
        "R11-unknown-key-refused",
        "An action with a key that action_features does not declare raises ActionError before any driver is called.",
        "Implement _send_action and leave send_action to the base class.",
    )
    def test_r11_unknown_key_refused(self, robot: Robot) -> None:
        with devices.closing(robot):
            robot.connect()
            action = {**self.action(robot), "no_such_joint.pos": 0.0}
            self._refuses(robot, action, "an action with the unknown key 'no_such_joint.pos'")

    @check(
        "R12-missing-key-refused",
        "An action that lacks a key raises ActionError before any driver is called, unless partial_actions is True.",
        "Leave send_action to the base class; set partial_actions = True where a part of the keys makes sense.",
    )
    def test_r12_missing_key_refused(self, robot: Robot) -> None:
        with devices.closing(robot):
            robot.connect()
            good = self.action(robot)
            for key in good:
                less = {k: v for k, v in good.items() if k != key}
                if robot.partial_actions:
                    expect(set(robot.send_action(less)) <= set(less), f"without {key!r} it sent {key!r} all the same")
                elif less:
                    self._refuses(robot, less, f"an action without {key!r}")

    @check(
        "R13-empty-action",
        "An empty action sends nothing: it is refused, or with partial_actions returned as {}.",
        "Leave send_action to the base class.",
    )
    def test_r13_empty_action(self, robot: Robot) -> None:
        with devices.closing(robot):
            robot.connect()
            if not robot.partial_actions:
                self._refuses(robot, {}, "an empty action")
                return
            with self._driver(robot) as calls:
                returned = robot.send_action({})
            expect(returned == {}, f"an empty action returned {returned!r}")
            expect(not calls, f"an empty action called {', '.join(calls)}")

    @check(
        "R14-returns-sent-keys",
        "send_action returns a finite value for every key it was given, and leaves the caller's action alone.",
        "Return from _send_action a new dict with the value really sent for each key.",
    )
    def test_r14_returns_sent_keys(self, robot: Robot) -> None:
        with devices.closing(robot):
            robot.connect()
            action = self.action(robot)
            before = dict(action)
            returned = robot.send_action(action)
        expect(isinstance(returned, dict), f"send_action returned {type(returned).__name__}, expected a dict")
        FeatureSpecs.of(robot.action_features).check_action(returned, owner="the check of what was returned")
        expect(
            list(map(id, action.values())) == list(map(id, before.values())), "send_action changed the caller's action"
        )
        expect(returned is not action, "send_action returned the caller's own dict")

    @check(
        "R15-returns-what-was-sent",
        "send_action returns the values that went to the motors, after every limit.",
        "Return from _send_action what was written, not what was asked for.",
    )
    def test_r15_returns_what_was_sent(self, robot: Robot) -> None:
        with devices.closing(robot):
            robot.connect()
            action = self.far_action(robot)
            with _goals(robot) as written:
                returned = robot.send_action(action)
            told = self.sent(robot, written)
        if told is None:
            raise NotExercised("it cannot be told what the motors got; override sent()")
        wrong = {k: (returned[k], v) for k, v in told.items() if k in returned and not _same(returned[k], v)}
        lines = ", ".join(f"{k} returned {a}, written {b}" for k, (a, b) in wrong.items())
        expect(not wrong, f"the returned action is not what was written: {lines}")

    @check(
        "R16-order-does-not-matter",
        "Actions are mapped by name: the same action with its keys in another order does the same.",
        "Look values up by key; never zip an action with a list of motors.",
    )
    def test_r16_order_does_not_matter(self, robot: Robot) -> None:
        with devices.closing(robot):
            robot.connect()
            action = {k: v + i if isinstance(v, float) else v for i, (k, v) in enumerate(self.action(robot).items())}
            if len(action) < 2:
                raise NotExercised("its actions have a single key")
            results = []
            for order in (list(action), list(reversed(action))):
                robot.send_action(self.action(robot))
                with _goals(robot) as written:
                    results.append((robot.send_action({k: action[k] for k in order}), dict(written)))
        (first, first_written), (second, second_written) = results
        moved = [k for k in first if not _same(first[k], second.get(k), 1.0)]
        moved += [m for m in first_written if not _same(first_written[m], second_written.get(m), 1.0)]
        expect(
            not moved, f"with the keys in another order, other values were sent for {', '.join(dict.fromkeys(moved))}"
        )

    @check(
        "R17-calibrate-is-a-dialogue",
        "calibrate is a generator of steps; it neither calls input() nor prints.",
        "Yield a CalibrationStep for everything the operator shall do, and take the answer from yield.",
    )
    def test_r17_calibrate_is_a_dialogue(self, robot: Robot, tmp_path: Path) -> None:
        devices.calibrates_as_dialogue(robot, self.answer, tmp_path)

    @check(
        "R18-torque-released",
        "No motor holds torque after disconnect, after an error while in use, and after a connect that failed.",
        "Open the bus through parts.open(...) with a closing function that disables torque.",
    )
    def test_r18_torque_released(self, robot: Robot) -> None:
        devices.torque_is_released(robot)

    @check(
        "R19-config-round-trip",
        "The settings are the same after they were written as JSON and read again.",
        "Use types that pydantic writes and reads; avoid private state that changes fields.",
    )
    def test_r19_config_round_trip(self, robot: Robot) -> None:
        configs.survives_json(robot.config)

    @check(
        "R20-config-names-implementation",
        "The configuration class names, as `module:Class`, the robot it configures.",
        "Set implementation: ClassVar[str] in the configuration class.",
    )
    def test_r20_config_names_implementation(self, robot: Robot) -> None:
        configs.implementation_fits(robot.config, robot)

    @check(
        "R21-lean-config",
        "Importing the configuration class imports neither torch nor a vendor's library.",
        "Keep the configuration in a module of its own and import libraries where they are used.",
    )
    def test_r21_lean_config(self, robot: Robot) -> None:
        configs.module_is_lean(type(robot.config), self.vendor_modules)

    @check(
        "R22-runs-without-torch",
        "The robot's module can be imported where torch is not installed.",
        "Import torch nowhere in a robot; use numpy.",
    )
    def test_r22_runs_without_torch(self, robot: Robot) -> None:
        configs.runs_without(type(robot), ("torch", "torchvision"))


def _noting(calls: list[str], name: str, original: Any) -> Any:
    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(name)
        return original(*arguments, **named)

    return call


@contextmanager
def _goals(robot: Robot) -> Iterator[dict[str, float]]:
    """Collect the goal positions, in user units, that reach the robot's buses."""
    written: dict[str, float] = {}

    def sync_write(original: Any) -> Any:
        def call(data_name: str, values: Any, **named: Any) -> Any:
            if data_name == "Goal_Position" and isinstance(values, Mapping) and named.get("normalize", True):
                written.update(values)
            return original(data_name, values, **named)

        return call

    def write(original: Any) -> Any:
        def call(data_name: str, motor: str, value: float, **named: Any) -> Any:
            if data_name == "Goal_Position" and named.get("normalize", True):
                written[motor] = value
            return original(data_name, motor, value, **named)

        return call

    with ExitStack() as stack:
        for part in devices.components(robot).values():
            if isinstance(part, MotorsBus):
                stack.enter_context(devices.patched(part, "sync_write", sync_write(part.sync_write)))
                stack.enter_context(devices.patched(part, "write", write(part.write)))
        yield written


def _same(one: Any, other: Any, tolerance: float = 1e-6) -> bool:
    if one is None or other is None:
        return one is other
    import numpy as np

    return bool(np.allclose(np.asarray(one, dtype=float), np.asarray(other, dtype=float), rtol=0, atol=tolerance))
