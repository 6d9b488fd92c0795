# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: what an author sees in the terminal, and the fixtures."""

from __future__ import annotations

import os
from pathlib import Path

import importlib_metadata
import numpy as np
import pytest

from ulna.core.paths import calibration_roots, ulna_home
from ulna.core.plugins import Registry
from ulna.core.plugins import registry as current_registry
from ulna.testing import CameraSuite, RobotSuite, configs, fakes

pytest_plugins = ["pytester"]
KEPT = (CameraSuite, RobotSuite, configs, fakes.FakeRobot, importlib_metadata, np)
"""Imported here, since each inner run forgets what it imported first, and extension modules cannot be loaded twice."""


_AUTHOR = """
import pytest
from ulna.testing import RobotSuite
from ulna.testing.fakes import FakeRobot, FakeRobotConfig

class TestOneJoint(RobotSuite):
    @pytest.fixture
    def robot(self):
        return FakeRobot(FakeRobotConfig(joints=["only"]))
"""
_WRONG = """

class Wrong(FakeRobot):
    def _get_observation(self):
        return {}

class TestWrong(RobotSuite):
    @pytest.fixture
    def robot(self):
        return Wrong(FakeRobotConfig(joints=["only"]))
"""
_ARGUMENTS = ("-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-k", "not lean and not torch")


def test_summary_names_what_was_not_exercised(pytester: pytest.Pytester) -> None:
    """One subclass and one fixture: the checks run, and the last lines tell what could not be exercised."""
    pytester.makepyfile(_AUTHOR)
    result = pytester.runpytest_inprocess(*_ARGUMENTS)
    result.assert_outcomes(passed=19, skipped=1, deselected=2)
    result.stdout.fnmatch_lines(["conformance: 19 passed, 1 not exercised: R16 (its actions have a single key)"])


def test_failure_tells_contract_sight_and_fix(pytester: pytest.Pytester) -> None:
    """A failed check shows its id, what must hold, what was seen and what to do; the summary tells of whom."""
    pytester.makepyfile(_AUTHOR + _WRONG)
    result = pytester.runpytest_inprocess(*_ARGUMENTS)
    result.stdout.fnmatch_lines(
        [
            "*R09-observation-fits-features",
            "*contract: An observation has exactly the keys of observation_features*",
            "*seen: *declared but not returned: only.pos",
            "*fix: *Let observation_features and _get_observation name the same keys and shapes.",
            "conformance: *failed: *R09 TestWrong*",
        ]
    )


def test_forgotten_fixture_is_explained(pytester: pytest.Pytester) -> None:
    """A subclass without the fixture says which one is missing and how it looks."""
    pytester.makepyfile("from ulna.testing import CameraSuite\n\nclass TestCamera(CameraSuite):\n    pass\n")
    result = pytester.runpytest_inprocess(*_ARGUMENTS, "-k", "c04")
    result.stdout.fnmatch_lines(["*TestCamera must override the fixture 'camera':*"])


def test_checks_can_be_selected(pytester: pytest.Pytester) -> None:
    """The marker `conformance` selects checks and nothing else."""
    pytester.makepyfile(_AUTHOR + "\ndef test_other():\n    pass\n")
    result = pytester.runpytest_inprocess("-q", "--strict-markers", "-m", "not conformance")
    result.assert_outcomes(passed=1, deselected=22)
    assert "conformance:" not in result.stdout.str()


def test_home_is_isolated(ulna_home_before: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The fixture ulna_home points both homes into the test's own folder and creates nothing."""
    home = request.getfixturevalue("ulna_home")
    assert ulna_home() == home != ulna_home_before
    assert all(root.is_relative_to(tmp_path) for root in calibration_roots())
    assert not home.exists()


@pytest.fixture
def ulna_home_before() -> Path:
    """Return the home before it is isolated."""
    return ulna_home()


def test_registry_is_isolated(registry: Registry) -> None:
    """The fixture registry sees no installed plugin, and is the process's own meanwhile."""
    assert current_registry() is registry
    assert registry.records() == []
    registry.register("robots", "mine", object)
    assert registry.types("robots") == ["mine"]
    assert "ULNA_HOME" in os.environ
