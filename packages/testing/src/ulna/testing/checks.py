# SPDX-License-Identifier: Apache-2.0
"""What a check is: an id, a contract in one sentence, and what to do when it is broken. Running them is elsewhere."""

from __future__ import annotations

import functools
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, ParamSpec

from ulna.core.errors import UlnaError

__all__ = ["Check", "ContractViolation", "NotExercised", "Suite", "check", "expect", "refused"]

P = ParamSpec("P")


@dataclass(frozen=True)
class Check:
    """One check of a suite.

    Attributes:
        id: Its id, `R03-atomic-connect`; never changes its meaning.
        contract: What must hold, in one sentence.
        fix: What an author does when it does not hold.
    """

    id: str
    contract: str
    fix: str

    @property
    def short(self) -> str:
        """The letter and number of the id, `R03`."""
        return self.id.partition("-")[0]

    @property
    def method(self) -> str:
        """Name of the test method."""
        return "test_" + self.id.lower().replace("-", "_")


class NotExercised(unittest.SkipTest):
    """The plugin lacks what the check is about; reported with this reason instead of passing silently."""


class ContractViolation(AssertionError):  # noqa: N818 - an assertion, not an error of the suite
    """A check failed.

    Args:
        check: Which one.
        seen: What the plugin did.
    """

    def __init__(self, check: Check, seen: str) -> None:
        self.check, self.seen = check, seen
        super().__init__(f"{check.id}\n  contract: {check.contract}\n  seen:     {seen}\n  fix:      {check.fix}")


def check(id: str, contract: str, fix: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a method of a suite a check.

    Whatever the method raises becomes a `ContractViolation` that says contract, what was seen, and fix.

    Args:
        id: Its id; the method is called `test_` and the id in lower case with `_` for `-`.
        contract: What must hold, in one sentence.
        fix: What an author does when it does not hold.

    Returns:
        The decorator.
    """
    made = Check(id, contract, fix)

    def decorate(method: Callable[P, None]) -> Callable[P, None]:
        if method.__name__ != made.method:
            raise TypeError(f"The method of {id} must be called {made.method}, not {method.__name__}.")

        @functools.wraps(method)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            __tracebackhide__ = True
            try:
                method(*args, **kwargs)
            except (NotExercised, ContractViolation):
                raise
            except Exception as error:
                raise ContractViolation(made, _describe(error)) from error

        run.__doc__ = contract
        run.ulna_check = made  # type: ignore[attr-defined]
        return run

    return decorate


def _describe(error: Exception) -> str:
    text = error.message if isinstance(error, UlnaError) else str(error)
    if isinstance(error, AssertionError):
        return text or "an assertion failed"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def expect(condition: object, seen: str) -> None:
    """Fail the running check unless `condition` holds.

    Args:
        condition: What must be true.
        seen: What is the case instead.

    Raises:
        AssertionError: It is false.
    """
    __tracebackhide__ = True
    if not condition:
        raise AssertionError(seen)


@contextmanager
def refused(kind: type[BaseException] | tuple[type[BaseException], ...], what: str) -> Iterator[None]:
    """Fail the running check unless the block raises an error of `kind`.

    Args:
        kind: Accepted classes of the error.
        what: What the block does, for the message: `an action with NaN`.

    Yields:
        Nothing.

    Raises:
        AssertionError: It raised nothing, or another error.
    """
    __tracebackhide__ = True
    kinds = kind if isinstance(kind, tuple) else (kind,)
    names = " or ".join(k.__name__ for k in kinds)
    try:
        yield
    except kinds:
        return
    except Exception as error:
        raise AssertionError(f"{what} raised {_describe(error)}, expected {names}") from error
    raise AssertionError(f"{what} was accepted, expected {names}")


class Suite:
    """Base of the suites. An author subclasses one, calls the class `Test...` and overrides its one fixture.

    Attributes:
        subject: Name of that fixture.
    """

    subject: ClassVar[str] = ""

    @classmethod
    def checks(cls) -> dict[str, Check]:
        """Return the checks of this suite: id to check, sorted."""
        found = [getattr(getattr(cls, name), "ulna_check", None) for name in dir(cls) if name.startswith("test_")]
        return {item.id: item for item in sorted((c for c in found if c is not None), key=lambda c: c.id)}

    def missing_fixture(self) -> Any:
        """Say that the subclass forgot its fixture.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must override the fixture {self.subject!r}:\n\n"
            f"    @pytest.fixture\n    def {self.subject}(self):\n        return ...\n"
        )
