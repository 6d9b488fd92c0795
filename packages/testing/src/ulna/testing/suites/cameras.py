# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of cameras."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ulna.testing.checks import Suite

__all__ = ["CameraSuite"]


class CameraSuite(Suite):
    """Checks of cameras. Override the fixture `camera`."""

    subject: ClassVar[str] = "camera"

    @pytest.fixture
    def camera(self) -> Any:
        """Give the subject of the checks; overridden by the author."""
        return self.missing_fixture()
