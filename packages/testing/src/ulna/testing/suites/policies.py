# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of policies."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ulna.testing.checks import Suite

__all__ = ["PolicySuite"]


class PolicySuite(Suite):
    """Checks of policies. Override the fixture `policy_config`."""

    subject: ClassVar[str] = "policy_config"

    @pytest.fixture
    def policy_config(self) -> Any:
        """Give the subject of the checks; overridden by the author."""
        return self.missing_fixture()
