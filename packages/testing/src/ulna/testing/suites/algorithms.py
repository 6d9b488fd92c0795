# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of algorithms."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ulna.testing.checks import Suite

__all__ = ["AlgorithmSuite"]


class AlgorithmSuite(Suite):
    """Checks of algorithms. Override the fixture `algorithm`."""

    subject: ClassVar[str] = "algorithm"

    @pytest.fixture
    def algorithm(self) -> Any:
        """Give the subject of the checks; overridden by the author."""
        return self.missing_fixture()
