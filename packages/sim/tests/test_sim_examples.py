# SPDX-License-Identifier: Apache-2.0
"""The examples in the docstrings do what they say."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("module", ["bus", "clock", "expert", "faults", "feetech.servo", "simulation"])
def test_examples_run(module: str) -> None:
    result = doctest.testmod(import_module(f"ulna.sim.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
