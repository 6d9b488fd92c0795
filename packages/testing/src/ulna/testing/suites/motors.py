# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of motors."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ulna.testing.checks import Suite

__all__ = ["MotorsBusSuite"]


class MotorsBusSuite(Suite):
    """Checks of motors. Override the fixture `bus`."""

    subject: ClassVar[str] = "bus"

    @pytest.fixture
    def bus(self) -> Any:
        """Give the subject of the checks; overridden by the author."""
        return self.missing_fixture()
