# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of teleoperators."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ulna.testing.checks import Suite

__all__ = ["TeleoperatorSuite"]


class TeleoperatorSuite(Suite):
    """Checks of teleoperators. Override the fixture `teleoperator`."""

    subject: ClassVar[str] = "teleoperator"

    @pytest.fixture
    def teleoperator(self) -> Any:
        """Give the subject of the checks; overridden by the author."""
        return self.missing_fixture()
