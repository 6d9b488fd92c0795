# SPDX-License-Identifier: Apache-2.0
"""The checks of API level 1 are frozen, well-formed and complete."""

from __future__ import annotations

import re

import pytest

import ulna.testing
from ulna.testing import Suite, check, levels


def test_nothing_changed_within_the_level() -> None:
    """Adding, dropping or re-wording a check needs a new level, or an entry in `added`."""
    assert levels.drift() == []


@pytest.mark.parametrize("name", levels.SUITES)
def test_checks_are_well_formed(name: str) -> None:
    """Ids count up under one letter, contracts and fixes are sentences, a missing fixture is explained."""
    suite: type[Suite] = getattr(ulna.testing, name)
    found = suite.checks()
    letters = {i[0] for i in found}
    assert len(letters) == 1
    assert [int(i[1:3]) for i in found] == list(range(1, len(found) + 1))
    for item in found.values():
        assert re.fullmatch(r"[A-Z]\d\d(-[a-z0-9]+)+", item.id)
        assert item.contract.endswith(".")
        assert item.fix.endswith(".")
        assert getattr(suite, item.method).__doc__ == item.contract
    with pytest.raises(NotImplementedError, match=f"override the fixture '{suite.subject}'"):
        suite().missing_fixture()


def test_all_suites_are_listed() -> None:
    """The table of suites and what the package exports are the same."""
    exported = {n for n in ulna.testing.__all__ if n.endswith("Suite") and n != "Suite"}
    assert exported == set(levels.SUITES)


def test_unknown_level_is_refused() -> None:
    """A level that does not exist is an error that names the present one."""
    with pytest.raises(ValueError, match="present one is 1"):
        levels.frozen(99)


def test_drift_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that is new, gone or changed is named."""
    told = levels.frozen()
    told["RobotSuite"] = {**told["RobotSuite"], "R01-pure-constructor": "another", "R99-gone": "x"}
    del told["CameraSuite"]["C01-pure-constructor"]
    monkeypatch.setattr(levels, "frozen", lambda level=1: told)
    assert [line.partition(";")[0] for line in levels.drift()] == [
        "CameraSuite: C01-pure-constructor is new",
        "RobotSuite: R01-pure-constructor means something else now",
        "RobotSuite: R99-gone is gone",
    ]


def test_method_must_be_called_like_its_id() -> None:
    """The decorator refuses a method whose name does not follow from the id."""
    with pytest.raises(TypeError, match="test_x01_some_check"):

        @check("X01-some-check", "Something holds.", "Make it hold.")
        def test_another_name(self: Suite) -> None:
            pass
