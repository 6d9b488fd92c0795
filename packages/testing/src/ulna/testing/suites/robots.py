# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of robots."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ulna.testing.checks import Suite

__all__ = ["RobotSuite"]


class RobotSuite(Suite):
    """Checks of robots. Override the fixture `robot`."""

    subject: ClassVar[str] = "robot"

    @pytest.fixture
    def robot(self) -> Any:
        """Give the subject of the checks; overridden by the author."""
        return self.missing_fixture()
