# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of envs."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ulna.testing.checks import Suite

__all__ = ["EnvSuite"]


class EnvSuite(Suite):
    """Checks of envs. Override the fixture `env_config`."""

    subject: ClassVar[str] = "env_config"

    @pytest.fixture
    def env_config(self) -> Any:
        """Give the subject of the checks; overridden by the author."""
        return self.missing_fixture()
