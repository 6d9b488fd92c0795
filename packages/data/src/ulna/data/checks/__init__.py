# SPDX-License-Identifier: Apache-2.0
"""Checks every invariant of a dataset and mends what can be mended. Names resolve when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.data.checks.mending import Repair as Repair
    from ulna.data.checks.mending import repair as repair
    from ulna.data.checks.report import Problem as Problem
    from ulna.data.checks.report import Report as Report
    from ulna.data.checks.validation import validate as validate

_HOME = {
    "Problem": "report",
    "Repair": "mending",
    "Report": "report",
    "repair": "mending",
    "validate": "validation",
}

__all__ = ["Problem", "Repair", "Report", "repair", "validate"]

__getattr__, __dir__ = lazy_names(globals(), _HOME)
