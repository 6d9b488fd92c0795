# SPDX-License-Identifier: Apache-2.0
"""Running suites without pytest, and what a report says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import ClassVar

import pytest

import ulna.testing
from ulna.testing import ContractViolation, NotExercised, Suite, check, expect, refused, run_suite
from ulna.testing.__main__ import main


class Three(Suite):
    subject: ClassVar[str] = "number"

    @check("X01-positive", "The number is positive.", "Take another one.")
    def test_x01_positive(self, number: int) -> None:
        expect(number > 0, f"it is {number}")

    @check("X02-even", "The number is even.", "Double it.")
    def test_x02_even(self, number: int) -> None:
        if number > 100:
            raise NotExercised("it is too large")
        expect(number % 2 == 0, f"{number} is odd")

    @check("X03-refuses", "Dividing by it works.", "Take another one.")
    def test_x03_refuses(self, number: int) -> None:
        with refused(ZeroDivisionError, "dividing by zero"):
            _ = 1 / number


def test_report_of_a_run() -> None:
    """A report lists passed, failed and not exercised checks, in text, in one line and as JSON."""
    report = run_suite(Three, lambda: 3)
    assert (report.passed, report.failed) == (["X01-positive"], ["X02-even", "X03-refuses"])
    assert report.summary() == "1 passed, 2 failed: X02, X03"
    assert "  contract: The number is even.\n  seen:     3 is odd\n  fix:      Double it." in str(report)
    assert "dividing by zero was accepted, expected ZeroDivisionError" in str(report)
    assert not report.ok
    rows = json.loads(json.dumps(report.to_dict()))["checks"]
    assert [row["status"] for row in rows] == ["passed", "failed", "failed"]
    large = run_suite(Three, lambda: 101, only=["X02"])
    assert large.ok
    assert large.summary() == "0 passed, 1 not exercised: X02 (it is too large)"


def test_subject_is_made_and_ended_for_each_check() -> None:
    """A generator gives a subject for each check and is finished after it, also when the check failed."""
    events: list[str] = []

    def make() -> Iterator[int]:
        events.append("made")
        yield -1
        events.append("ended")

    assert run_suite(Three, make).failed == ["X01-positive", "X02-even", "X03-refuses"]
    assert events == ["made", "ended"] * 3


def test_subject_that_cannot_be_made_is_an_outcome() -> None:
    """What the maker raises does not come out of run_suite."""

    def make() -> int:
        raise OSError("no such port")

    report = run_suite(Three, make, only=["X01"])
    assert report.failed == ["X01-positive"]
    assert "making or ending the number raised OSError: no such port" in str(report)


def test_wrong_error_is_told() -> None:
    """A check that expects one error and sees another tells both."""
    text = "a test raised KeyError: 'x', expected ValueError or OSError"
    with pytest.raises(AssertionError, match=text), refused((ValueError, OSError), "a test"):
        raise KeyError("x")


def test_violation_carries_its_check() -> None:
    """The error of a failed check knows which check it was."""
    with pytest.raises(ContractViolation) as violation:
        Three().test_x01_positive(-1)
    assert violation.value.check is Three.checks()["X01-positive"]
    assert violation.value.seen == "it is -1"


def test_exported_names_exist() -> None:
    """Every name in __all__ resolves, and an unknown one is an AttributeError."""
    for name in ulna.testing.__all__:
        assert getattr(ulna.testing, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ulna.testing.no_such_name


def test_command_checks_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    """python -m ulna.testing prints a report and says by its exit code whether all passed."""
    assert main(["no-such-distribution"]) == 1
    assert "no-such-distribution is not installed" in capsys.readouterr().out
    assert main(["--json", "no-such-distribution"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["no-such-distribution"]["checks"][0]["status"] == "failed"
