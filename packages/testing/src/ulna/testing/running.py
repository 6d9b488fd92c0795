# SPDX-License-Identifier: Apache-2.0
"""Running a suite without pytest: for `ulna plugins verify`, notebooks, and the tests of the suites themselves."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ulna.testing.checks import Check, ContractViolation, NotExercised, Suite

__all__ = ["FAILED", "NOT_EXERCISED", "PASSED", "Outcome", "Report", "run_suite", "summary_line"]

PASSED, FAILED, NOT_EXERCISED = "passed", "failed", "not exercised"


@dataclass(frozen=True)
class Outcome:
    """What came of one check.

    Attributes:
        check: Which one.
        status: `passed`, `failed` or `not exercised`.
        detail: What was seen, or why it was not exercised.
    """

    check: Check
    status: str
    detail: str = ""


@dataclass
class Report:
    """What came of a suite.

    Attributes:
        suite: Name of the suite.
        outcomes: One for each check, in the order of their ids.
    """

    suite: str
    outcomes: list[Outcome] = field(default_factory=list)

    def _ids(self, status: str) -> list[str]:
        return [o.check.id for o in self.outcomes if o.status == status]

    @property
    def passed(self) -> list[str]:
        """Ids of the checks that passed."""
        return self._ids(PASSED)

    @property
    def failed(self) -> list[str]:
        """Ids of the checks that failed."""
        return self._ids(FAILED)

    @property
    def not_exercised(self) -> dict[str, str]:
        """Ids of the checks that could not be exercised, and why."""
        return {o.check.id: o.detail for o in self.outcomes if o.status == NOT_EXERCISED}

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    def __str__(self) -> str:
        lines = [str(ContractViolation(o.check, o.detail)) for o in self.outcomes if o.status == FAILED]
        return "\n".join([*lines, f"{self.suite}: {self.summary()}"])

    def summary(self) -> str:
        """Return one line: how many passed and failed, and what was not exercised."""
        skipped = {o.check.short: o.detail for o in self.outcomes if o.status == NOT_EXERCISED}
        return summary_line(len(self.passed), [i.partition("-")[0] for i in self.failed], skipped)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        rows = [
            {"id": o.check.id, "status": o.status, "contract": o.check.contract, "detail": o.detail, "fix": o.check.fix}
            for o in self.outcomes
        ]
        return {"suite": self.suite, "ok": self.ok, "checks": rows}


def summary_line(passed: int, failed: Collection[str], not_exercised: dict[str, str]) -> str:
    """Write the result of checks in one line: `23 passed, 2 not exercised: R07 (no cameras), R12 (no bus)`.

    Args:
        passed: How many passed.
        failed: Short ids of those that failed.
        not_exercised: Short ids of those that could not be exercised, and why.

    Returns:
        The line.
    """
    parts = [f"{passed} passed"]
    if failed:
        parts.append(f"{len(failed)} failed: {', '.join(failed)}")
    if not_exercised:
        reasons = ", ".join(f"{short} ({why})" for short, why in not_exercised.items())
        parts.append(f"{len(not_exercised)} not exercised: {reasons}")
    return ", ".join(parts)


def run_suite(suite: type[Suite], make: Callable[[], Any], *, only: Collection[str] = ()) -> Report:
    """Run every check of a suite, each on a subject of its own.

    Args:
        suite: A suite, or a subclass with its optional hooks.
        make: Makes the subject (what the suite's fixture returns). A generator function is finished after the check.
        only: Ids of the checks to run; default all.

    Returns:
        One outcome for each check. Nothing a plugin raises comes out of here.
    """
    report = Report(suite.__name__)
    for item in suite.checks().values():
        if not only or item.id in only or item.short in only:
            report.outcomes.append(_run_one(suite, item, make))
    return report


def _run_one(suite: type[Suite], item: Check, make: Callable[[], Any]) -> Outcome:
    method = getattr(suite(), item.method)
    try:
        with tempfile.TemporaryDirectory() as scratch, _subject(make) as subject:
            given = {suite.subject: subject, "tmp_path": Path(scratch)}
            method(**{name: given[name] for name in inspect.signature(method).parameters})
    except NotExercised as reason:
        return Outcome(item, NOT_EXERCISED, str(reason))
    except ContractViolation as violation:
        return Outcome(item, FAILED, violation.seen)
    except Exception as error:  # noqa: BLE001 - the subject could not be made or ended: an outcome like others
        return Outcome(item, FAILED, f"making or ending the {suite.subject} raised {type(error).__name__}: {error}")
    return Outcome(item, PASSED)


@contextmanager
def _subject(make: Callable[[], Any]) -> Iterator[Any]:
    made = make()
    if not inspect.isgenerator(made):
        yield made
        return
    try:
        yield next(made)
    finally:
        next(made, None)
