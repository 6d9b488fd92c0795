# SPDX-License-Identifier: Apache-2.0
"""A scripted operator who moves the leader over the target as a person would: smoothly, and never twice alike."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from ulna.core.errors import ConfigError, ConfigProblem
from ulna.sim.kinematics import JOINT_LIMITS, JOINTS, inverse_kinematics
from ulna.sim.simulation import Simulation

__all__ = ["ScriptedExpert"]

_ROLL_SHARE = -0.3
"""Share of the turn of the arm that the wrist takes back."""

_OPEN_PERCENT = 40.0
"""Opening of the gripper over the target."""


class ScriptedExpert:
    """Demonstrates the reach, one control step at a time. Create one per world; call `begin` after each reset.

    A reach takes about two seconds, follows a minimum-jerk profile with a small sideways bow, opens the gripper and
    ends with a short hold. Its pace, bow and aim vary a little with the scene's seed; the same seed gives the same
    motion.

    Args:
        sim: The world; it must have a leader.
        rate_hz: Control steps per second.
        seed: Mixed into the variation.

    Raises:
        ConfigError: The world has no leader, or the rate is not positive.

    Example:
        >>> with Simulation("lesson", realtime=False) as sim:
        ...     expert = ScriptedExpert(sim)
        ...     while not expert.done:
        ...         pose = expert.step()
    """

    def __init__(self, sim: Simulation, *, rate_hz: float = 30.0, seed: int = 0) -> None:
        if not rate_hz > 0.0:
            raise ConfigError([ConfigProblem("rate_hz", rate_hz, "more than 0")], title="scripted expert")
        self._sim = sim
        self._hand = sim.hand("leader")
        self._dt = 1.0 / rate_hz
        self._seed = seed
        self.begin()

    def begin(self) -> None:
        """Plan a reach from where the leader is now to the present target."""
        rng = random.Random(f"expert-{self._seed}-{self._sim.scene.seed}")
        x, y = self._sim.scene.target
        aim = (x + rng.uniform(-0.004, 0.004), y + rng.uniform(-0.004, 0.004), rng.uniform(0.045, 0.055))
        self._start = self._sim.arm("leader").joints
        turn = math.degrees(math.atan2(aim[1], aim[0]))
        self._end = inverse_kinematics(aim, roll_deg=_ROLL_SHARE * turn, gripper=_OPEN_PERCENT)
        self._reach_s = rng.uniform(1.6, 2.0)
        self._hold_s = rng.uniform(0.5, 0.7)
        self._bow_deg = rng.uniform(-3.0, 3.0)
        self._elapsed_s = 0.0

    def retreat(self) -> None:
        """Plan the way back to where the last reach began, on the same path."""
        self._start, self._end = self._end, self._start
        self._elapsed_s = 0.0

    @property
    def done(self) -> bool:
        """Whether the reach and its hold are over."""
        return self._elapsed_s >= self._reach_s + self._hold_s

    @property
    def steps(self) -> int:
        """Control steps of the whole demonstration."""
        return math.ceil((self._reach_s + self._hold_s) / self._dt)

    def step(self) -> Mapping[str, float]:
        """Move the leader on by one control step; after the end it stays.

        Returns:
            The leader's joints: degrees, the gripper per cent.
        """
        self._elapsed_s += self._dt
        pose = self._pose(min(1.0, self._elapsed_s / self._reach_s))
        self._hand.set(pose)
        return pose

    def _pose(self, share: float) -> dict[str, float]:
        smooth = share**3 * (10.0 - 15.0 * share + 6.0 * share**2)
        pose = {name: self._start[name] + smooth * (self._end[name] - self._start[name]) for name in JOINTS}
        pose["shoulder_pan"] += self._bow_deg * math.sin(math.pi * smooth)
        return {name: max(JOINT_LIMITS[name].low, min(JOINT_LIMITS[name].high, value)) for name, value in pose.items()}
