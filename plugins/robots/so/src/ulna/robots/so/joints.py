# SPDX-License-Identifier: Apache-2.0
"""The joints of an SO arm, the one table that leader, follower and settings share. No driver is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["FULL_TURN", "GRIPPER", "JOINTS", "MODEL", "position_key"]

JOINTS: Final[Mapping[str, int]] = MappingProxyType(
    {"shoulder_pan": 1, "shoulder_lift": 2, "elbow_flex": 3, "wrist_flex": 4, "wrist_roll": 5, "gripper": 6}
)
"""Joint to motor id, from the base to the hand."""

MODEL: Final = "sts3215"
"""Every motor of an SO arm."""

FULL_TURN: Final = "wrist_roll"
"""The joint without stops."""

GRIPPER: Final = "gripper"
"""The joint that is 0 % closed and 100 % open, whatever its motor's direction."""


def position_key(joint: str) -> str:
    """Return the key of a joint's position in observations and actions.

    Args:
        joint: Its name.
    """
    return f"{joint}.pos"
