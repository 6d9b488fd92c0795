# SPDX-License-Identifier: Apache-2.0
"""SO-100 and SO-101 arms. Names load on use, so that looking at this package opens no serial library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'config')}"), name)
