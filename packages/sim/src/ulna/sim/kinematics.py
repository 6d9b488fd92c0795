# SPDX-License-Identifier: Apache-2.0
"""Geometry of an SO-101-like arm: joints, limits, forward and inverse kinematics, gravity torques. No servos.

Lengths follow the published SO-101 parts to within a few centimetres; do not use them to command a real arm.

Frame: the origin is on the table below the pan axis, x points forward, y to the arm's left, z up; metres and degrees.
Joint angles are zero in the middle pose: upper arm upright, forearm and hand level, pointing forward. Positive
`shoulder_pan` turns left, positive `shoulder_lift` leans forward, positive `elbow_flex` and `wrist_flex` bend down. The
gripper is given in per cent, 0 closed to 100 open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from ulna.core.errors import ControlError

__all__ = [
    "FOREARM_M",
    "HAND_M",
    "JOINTS",
    "JOINT_LIMITS",
    "REST_POSE",
    "SHOULDER_FORWARD_M",
    "SHOULDER_HEIGHT_M",
    "UPPER_ARM_M",
    "JointRange",
    "Skeleton",
    "forward_kinematics",
    "gravity_load",
    "inverse_kinematics",
    "skeleton",
]

SHOULDER_HEIGHT_M: Final = 0.117
SHOULDER_FORWARD_M: Final = 0.030
UPPER_ARM_M: Final = 0.116
FOREARM_M: Final = 0.135
HAND_M: Final = 0.100

_UPPER_ARM_KG: Final = 0.12
_FOREARM_KG: Final = 0.11
_HAND_KG: Final = 0.14
_GRAVITY: Final = 9.81
_STALL_NM: Final = 1.9

JOINTS: Final = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")

Point = tuple[float, float, float]


class JointRange(NamedTuple):
    """Reachable interval of one joint, in degrees (per cent for the gripper)."""

    low: float
    high: float


JOINT_LIMITS: Final[Mapping[str, JointRange]] = {
    "shoulder_pan": JointRange(-110.0, 110.0),
    "shoulder_lift": JointRange(-100.0, 100.0),
    "elbow_flex": JointRange(-97.0, 97.0),
    "wrist_flex": JointRange(-95.0, 95.0),
    "wrist_roll": JointRange(-180.0, 180.0),
    "gripper": JointRange(0.0, 100.0),
}

REST_POSE: Final[Mapping[str, float]] = {
    "shoulder_pan": 0.0,
    "shoulder_lift": -100.0,
    "elbow_flex": 97.0,
    "wrist_flex": 72.0,
    "wrist_roll": 0.0,
    "gripper": 10.0,
}
"""Folded, leaning on its end stops with the fingertips just above the table: it stays there without torque."""


class Skeleton(NamedTuple):
    """Points of the arm in space, metres.

    Attributes:
        base: Foot of the pan axis.
        shoulder: Lift axis.
        elbow: Elbow axis.
        wrist: Wrist flex axis.
        tip: Between the fingertips.
        forward: Unit vector along the hand.
        side: Unit vector along which the fingers open.
    """

    base: Point
    shoulder: Point
    elbow: Point
    wrist: Point
    tip: Point
    forward: Point
    side: Point


def _pitches(joints: Mapping[str, float]) -> tuple[float, float, float]:
    """Return the pitch of upper arm, forearm and hand above the horizontal, in radians."""
    upper = 90.0 - joints["shoulder_lift"]
    fore = upper - 90.0 - joints["elbow_flex"]
    hand = fore - joints["wrist_flex"]
    return math.radians(upper), math.radians(fore), math.radians(hand)


def skeleton(joints: Mapping[str, float]) -> Skeleton:
    """Return where the parts of the arm are.

    Args:
        joints: Joint name to degrees (gripper to per cent).
    """
    pan, roll = math.radians(joints["shoulder_pan"]), math.radians(joints["wrist_roll"])
    cos_pan, sin_pan = math.cos(pan), math.sin(pan)

    def at(reach: float, height: float) -> Point:
        return (reach * cos_pan, reach * sin_pan, height)

    upper, fore, hand = _pitches(joints)
    reach, height = SHOULDER_FORWARD_M, SHOULDER_HEIGHT_M
    shoulder = at(reach, height)
    reach, height = reach + UPPER_ARM_M * math.cos(upper), height + UPPER_ARM_M * math.sin(upper)
    elbow = at(reach, height)
    reach, height = reach + FOREARM_M * math.cos(fore), height + FOREARM_M * math.sin(fore)
    wrist = at(reach, height)
    reach, height = reach + HAND_M * math.cos(hand), height + HAND_M * math.sin(hand)
    forward = at(math.cos(hand), math.sin(hand))
    up = at(-math.sin(hand), math.cos(hand))
    left = (-sin_pan, cos_pan, 0.0)
    side = tuple(math.cos(roll) * a + math.sin(roll) * b for a, b in zip(left, up, strict=True))
    return Skeleton((0.0, 0.0, 0.0), shoulder, elbow, wrist, at(reach, height), forward, (side[0], side[1], side[2]))


def forward_kinematics(joints: Mapping[str, float]) -> Point:
    """Return the gripper tip in metres.

    Args:
        joints: Joint name to degrees (gripper to per cent).
    """
    return skeleton(joints).tip


def inverse_kinematics(
    target: Point, *, hand_pitch_deg: float = -85.0, roll_deg: float = 0.0, gripper: float = 10.0
) -> dict[str, float]:
    """Return the joints that put the gripper tip at a point, elbow up. Exact, no iteration.

    Args:
        target: Where the tip shall be, metres.
        hand_pitch_deg: Pitch of the hand above the horizontal; -90 points straight down.
        roll_deg: Wrist roll, copied through.
        gripper: Opening in per cent, copied through.

    Returns:
        Joint name to degrees.

    Raises:
        ControlError: The point cannot be reached in that way.
    """
    x, y, z = target
    pitch = math.radians(hand_pitch_deg)
    reach = math.hypot(x, y) - SHOULDER_FORWARD_M - HAND_M * math.cos(pitch)
    height = z - SHOULDER_HEIGHT_M - HAND_M * math.sin(pitch)
    distance = math.hypot(reach, height)
    bend = _acos((distance**2 - UPPER_ARM_M**2 - FOREARM_M**2) / (2 * UPPER_ARM_M * FOREARM_M))
    lean = _acos((distance**2 + UPPER_ARM_M**2 - FOREARM_M**2) / (2 * UPPER_ARM_M * distance)) if distance else None
    if bend is None or lean is None:
        raise _unreachable(target, f"the wrist would be {distance:.3f} m from the shoulder")
    upper = math.degrees(math.atan2(height, reach) + lean)
    fore = upper - math.degrees(bend)
    joints = {
        "shoulder_pan": math.degrees(math.atan2(y, x)),
        "shoulder_lift": 90.0 - upper,
        "elbow_flex": upper - 90.0 - fore,
        "wrist_flex": fore - hand_pitch_deg,
        "wrist_roll": roll_deg,
        "gripper": gripper,
    }
    for name, value in joints.items():
        low, high = JOINT_LIMITS[name]
        if not low - 1e-9 <= value <= high + 1e-9:
            raise _unreachable(target, f"{name} would be {value:.1f}, outside {low:g}..{high:g}")
    return joints


def gravity_load(joints: Mapping[str, float]) -> dict[str, float]:
    """Return the torque by which gravity pulls at each joint, as a fraction of the stall torque.

    Positive pulls to larger angles. Once the fingertips rest on the table nothing pulls.

    Args:
        joints: Joint name to degrees.
    """
    upper, fore, hand = _pitches(joints)
    height = SHOULDER_HEIGHT_M
    height += UPPER_ARM_M * math.sin(upper) + FOREARM_M * math.sin(fore) + HAND_M * math.sin(hand)
    loads = dict.fromkeys(JOINTS, 0.0)
    if height <= 0.005:
        return loads
    scale = _GRAVITY / _STALL_NM
    at_wrist = _HAND_KG * 0.5 * HAND_M * math.cos(hand)
    at_elbow = at_wrist + (_FOREARM_KG * 0.5 + _HAND_KG) * FOREARM_M * math.cos(fore)
    at_shoulder = at_elbow + (_UPPER_ARM_KG * 0.5 + _FOREARM_KG + _HAND_KG) * UPPER_ARM_M * math.cos(upper)
    loads["shoulder_lift"] = at_shoulder * scale
    loads["elbow_flex"] = at_elbow * scale
    loads["wrist_flex"] = at_wrist * scale
    return loads


def _acos(value: float) -> float | None:
    if abs(value) > 1.0 + 1e-12:
        return None
    return math.acos(max(-1.0, min(1.0, value)))


def _unreachable(target: Point, why: str) -> ControlError:
    place = ", ".join(f"{value:.3f}" for value in target)
    hint = "Choose a nearer point or another hand pitch."
    return ControlError(f"The arm cannot reach ({place}) m: {why}.", hint=hint)
