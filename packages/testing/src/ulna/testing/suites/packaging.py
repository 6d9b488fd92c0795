# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of packaging."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ulna.testing.checks import Suite

__all__ = ["PackagingSuite"]


class PackagingSuite(Suite):
    """Checks of packaging. Override the fixture `distribution`."""

    subject: ClassVar[str] = "distribution"

    @pytest.fixture
    def distribution(self) -> Any:
        """Give the subject of the checks; overridden by the author."""
        return self.missing_fixture()
