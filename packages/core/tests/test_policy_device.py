# SPDX-License-Identifier: Apache-2.0
"""The device a policy runs on."""

from __future__ import annotations

import pytest

from ulna.core.errors import ConfigError

pytest.importorskip("torch")


def test_a_device_that_is_not_here_is_a_wrong_setting() -> None:
    from ulna.core.policies import resolve_device

    with pytest.raises(ConfigError, match=r"device: one of the devices of this computer: .*cpu.*'abacus'"):
        resolve_device("abacus")
