# SPDX-License-Identifier: Apache-2.0
"""The checks of an API level, frozen in a file: a plugin that passes today passes until it moves to another level.

A check that is added later gets an entry in `added`, with the version since when it is there; ids are never used again.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import ulna.testing
from ulna.testing.checks import Suite

__all__ = ["API_LEVEL", "SUITES", "current", "drift", "frozen"]

API_LEVEL = 1
SUITES = (
    "AlgorithmSuite",
    "CameraSuite",
    "EnvSuite",
    "MotorsBusSuite",
    "PackagingSuite",
    "PolicySuite",
    "ProcessorSuite",
    "RobotSuite",
    "TeleoperatorSuite",
)
"""Names of the suites."""


def current() -> dict[str, dict[str, str]]:
    """Return the checks there are: suite to id to contract."""
    suites: dict[str, type[Suite]] = {name: getattr(ulna.testing, name) for name in SUITES}
    return {name: {i: c.contract for i, c in suite.checks().items()} for name, suite in suites.items()}


def frozen(level: int = API_LEVEL) -> dict[str, dict[str, str]]:
    """Return the checks of an API level, those added to it included.

    Args:
        level: The level.

    Returns:
        Suite to id to contract.

    Raises:
        ValueError: There is no such level.
    """
    file = resources.files("ulna.testing").joinpath(f"api_level_{level}.json")
    if not file.is_file():
        raise ValueError(f"There is no API level {level} of the conformance suites; the present one is {API_LEVEL}.")
    said: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    added = {name: {i: c["contract"] for i, c in checks.items()} for name, checks in said["added"].items()}
    return {name: {**checks, **added.get(name, {})} for name, checks in said["suites"].items()}


def drift(level: int = API_LEVEL) -> list[str]:
    """Tell how the checks there are differ from those of an API level.

    Args:
        level: The level.

    Returns:
        One line for each difference; empty when there is none.
    """
    told, there = frozen(level), current()
    lines = [f"{suite} is in only one of them" for suite in sorted(set(told) ^ set(there))]
    for suite in sorted(set(told) & set(there)):
        for name in sorted(told[suite].keys() | there[suite].keys()):
            old, new = told[suite].get(name), there[suite].get(name)
            if new is None:
                lines.append(f"{suite}: {name} is gone")
            elif old is None:
                lines.append(f"{suite}: {name} is new; write it into `added` with the version that brings it")
            elif old != new:
                lines.append(f"{suite}: {name} means something else now")
    return lines
