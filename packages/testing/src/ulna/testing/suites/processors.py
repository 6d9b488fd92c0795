# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of processors."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ulna.testing.checks import Suite

__all__ = ["ProcessorSuite"]


class ProcessorSuite(Suite):
    """Checks of processors. Override the fixture `step`."""

    subject: ClassVar[str] = "step"

    @pytest.fixture
    def step(self) -> Any:
        """Give the subject of the checks; overridden by the author."""
        return self.missing_fixture()
