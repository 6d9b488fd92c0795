# SPDX-License-Identifier: Apache-2.0
"""ACT, the action chunking transformer. The settings load without torch; the policy loads on use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names
from ulna.policies.act.__about__ import __version__
from ulna.policies.act.config import ACTConfig

if TYPE_CHECKING:
    from ulna.policies.act.policy import ACTPolicy

__all__ = ["ACTConfig", "ACTPolicy", "__version__"]

__getattr__, __dir__ = lazy_names(globals(), {"ACTPolicy": "policy"})
