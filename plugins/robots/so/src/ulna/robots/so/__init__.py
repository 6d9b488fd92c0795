# SPDX-License-Identifier: Apache-2.0
"""SO-100 and SO-101 arms. Names load on use, so that looking at this package opens no serial library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.robots.so.bimanual import BiSOFollower, BiSOLeader
    from ulna.robots.so.config import (
        BiSOFollowerConfig,
        BiSOLeaderConfig,
        SOFollowerConfig,
        SOFollowerRobotConfig,
        SOLeaderConfig,
        SOLeaderTeleopConfig,
    )
    from ulna.robots.so.follower import SOFollower
    from ulna.robots.so.leader import SOLeader

__all__ = [
    "BiSOFollower",
    "BiSOFollowerConfig",
    "BiSOLeader",
    "BiSOLeaderConfig",
    "SOFollower",
    "SOFollowerConfig",
    "SOFollowerRobotConfig",
    "SOLeader",
    "SOLeaderConfig",
    "SOLeaderTeleopConfig",
]

_HOMES = {"BiSOFollower": "bimanual", "BiSOLeader": "bimanual", "SOFollower": "follower", "SOLeader": "leader"}

__getattr__, __dir__ = lazy_names(globals(), {name: _HOMES.get(name, "config") for name in __all__})
