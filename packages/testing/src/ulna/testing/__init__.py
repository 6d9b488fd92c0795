# SPDX-License-Identifier: Apache-2.0
"""Conformance suites, fakes with fault injection, and what tests of plugins need. Names resolve on use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names
from ulna.testing.__about__ import __version__

if TYPE_CHECKING:
    from ulna.testing.checks import Check, ContractViolation, NotExercised, Suite, check, expect, refused
    from ulna.testing.isolation import (
        HEAVY_MODULES,
        assert_not_imported,
        importing,
        isolated_home,
        leftovers,
        open_files,
        recorded_io,
    )
    from ulna.testing.running import Outcome, Report, run_suite
    from ulna.testing.suites.algorithms import AlgorithmSuite
    from ulna.testing.suites.cameras import CameraSuite
    from ulna.testing.suites.envs import EnvSuite
    from ulna.testing.suites.motors import MotorsBusSuite
    from ulna.testing.suites.packaging import PackagingSuite
    from ulna.testing.suites.policies import PolicySuite
    from ulna.testing.suites.processors import ProcessorSuite
    from ulna.testing.suites.robots import RobotSuite
    from ulna.testing.suites.teleoperators import TeleoperatorSuite

_HOMES = {
    "checks": ("Check", "ContractViolation", "NotExercised", "Suite", "check", "expect", "refused"),
    "isolation": (
        "HEAVY_MODULES",
        "assert_not_imported",
        "importing",
        "isolated_home",
        "leftovers",
        "open_files",
        "recorded_io",
    ),
    "running": ("Outcome", "Report", "run_suite"),
    "suites.algorithms": ("AlgorithmSuite",),
    "suites.cameras": ("CameraSuite",),
    "suites.envs": ("EnvSuite",),
    "suites.motors": ("MotorsBusSuite",),
    "suites.packaging": ("PackagingSuite",),
    "suites.policies": ("PolicySuite",),
    "suites.processors": ("ProcessorSuite",),
    "suites.robots": ("RobotSuite",),
    "suites.teleoperators": ("TeleoperatorSuite",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "HEAVY_MODULES",
    "AlgorithmSuite",
    "CameraSuite",
    "Check",
    "ContractViolation",
    "EnvSuite",
    "MotorsBusSuite",
    "NotExercised",
    "Outcome",
    "PackagingSuite",
    "PolicySuite",
    "ProcessorSuite",
    "Report",
    "RobotSuite",
    "Suite",
    "TeleoperatorSuite",
    "__version__",
    "assert_not_imported",
    "check",
    "expect",
    "importing",
    "isolated_home",
    "leftovers",
    "open_files",
    "recorded_io",
    "refused",
    "run_suite",
]

__getattr__, __dir__ = lazy_names(globals(), _HOME_OF)
