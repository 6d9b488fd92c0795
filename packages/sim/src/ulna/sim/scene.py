# SPDX-License-Identifier: Apache-2.0
"""The table scene: where the target lies, when the task is done, and the snapshot that frames are drawn from."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ulna.sim.kinematics import REST_POSE, forward_kinematics

__all__ = ["HOLD_S", "TARGET_RADIUS_M", "TOLERANCE_M", "Scene", "SceneState", "target_for_seed"]

TARGET_RADIUS_M: Final = 0.022
TOLERANCE_M: Final = 0.03
HOLD_S: Final = 0.2
_HIGHEST_TIP_M: Final = 0.12
_REACH_M: Final = (0.17, 0.26)
_SPREAD_DEG: Final = 50.0


def target_for_seed(seed: int) -> tuple[float, float]:
    """Return where the target lies for a seed, evenly spread over a ring sector in front of the arm.

    Args:
        seed: Any integer.

    Returns:
        Its centre on the table in metres.
    """
    rng = random.Random(f"target-{seed}")
    near, far = _REACH_M
    reach = math.sqrt(rng.uniform(near**2, far**2))
    angle = math.radians(rng.uniform(-_SPREAD_DEG, _SPREAD_DEG))
    return reach * math.cos(angle), reach * math.sin(angle)


@dataclass(frozen=True)
class SceneState:
    """Everything a frame shows. Equal states give equal frames.

    Attributes:
        time_s: Time on the world's clock.
        seed: Seed of the scene.
        target: Centre of the target on the table, metres.
        joints: Joints of the arm in the scene (the follower), degrees and per cent.
        leader: Joints of the leader, which no view shows.
        success: Whether the task is done.
    """

    time_s: float = 0.0
    seed: int = 0
    target: tuple[float, float] = (0.2, 0.0)
    joints: Mapping[str, float] = field(default_factory=lambda: dict(REST_POSE))
    leader: Mapping[str, float] = field(default_factory=lambda: dict(REST_POSE))
    success: bool = False


class Scene:
    """Target and task of one world. The simulation owns it, tells it where the arm is, and guards it.

    The task is to bring the gripper tip over the target, at most 3 cm off its centre and 12 cm high, and to keep it
    there for 0.2 s.

    Args:
        seed: Draws the target's place.

    Attributes:
        seed: Seed of the present target.
        target: Its centre on the table, metres.
    """

    def __init__(self, seed: int = 0) -> None:
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Draw a new target; nothing has been reached yet.

        Args:
            seed: Any integer.
        """
        self.seed = seed
        self.target = target_for_seed(seed)
        self._since: float | None = None
        self._held_s = 0.0
        self._ever = False

    @property
    def success(self) -> bool:
        """Whether the tip has been over the target for long enough and still is."""
        return self._held_s >= HOLD_S - 1e-9

    @property
    def ever_succeeded(self) -> bool:
        """Whether `success` was true at any time since the last reset."""
        return self._ever

    def distance(self, joints: Mapping[str, float]) -> float:
        """Return how far the tip is from the target's centre, seen from above, in metres.

        Args:
            joints: Joint name to degrees.
        """
        x, y, _ = forward_kinematics(joints)
        return math.hypot(x - self.target[0], y - self.target[1])

    def observe(self, now: float, joints: Mapping[str, float]) -> None:
        """Note where the arm is.

        Args:
            now: Seconds on the world's clock.
            joints: Joint name to degrees.
        """
        height = forward_kinematics(joints)[2]
        if self.distance(joints) > TOLERANCE_M or height > _HIGHEST_TIP_M:
            self._since, self._held_s = None, 0.0
            return
        if self._since is None:
            self._since = now
        self._held_s = now - self._since
        self._ever = self._ever or self.success
