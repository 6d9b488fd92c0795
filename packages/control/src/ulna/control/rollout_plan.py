# SPDX-License-Identifier: Apache-2.0
"""What a rollout is asked for and what it reports. The rollout itself is in `rollouts`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from ulna.control.approach import JumpGuardConfig
from ulna.control.camera_watch import CameraLossConfig
from ulna.control.loop import LoopStats
from ulna.control.session import RestConfig
from ulna.core.config import Config

__all__ = ["RolloutEpisode", "RolloutResult", "RolloutSettings"]


class RolloutSettings(Config):
    """Settings of a rollout, without robot, policy and dataset."""

    strategy: Literal["base", "episodic"] = Field(
        "base", description="One run until told to stop, or episodes with resets between them."
    )
    fps: int = Field(30, gt=0, description="Actions a second; the rate of the training data.")
    duration: float = Field(
        0, ge=0, allow_inf_nan=False, description="Longest time of the whole rollout, seconds; 0: no limit."
    )
    num_episodes: int = Field(1, ge=1, description="Episodes of the episodic strategy.")
    episode_time_s: float = Field(
        60, gt=0, allow_inf_nan=False, description="Longest duration of one of them, seconds."
    )
    reset_time_s: float = Field(
        0, ge=0, allow_inf_nan=False, description="Time to reset the scene between them, seconds."
    )
    return_to_initial_position: bool = Field(
        True, description="Move back to the pose at the start between episodes and at the end."
    )
    guard: JumpGuardConfig = Field(
        default_factory=lambda: JumpGuardConfig(threshold=20.0), description="The first action far from the robot."
    )
    camera_loss: CameraLossConfig = Field(default_factory=CameraLossConfig, description="Silent cameras.")
    rest: RestConfig = Field(default_factory=RestConfig, description="Speed and longest time of the way back.")


@dataclass(frozen=True)
class RolloutEpisode:
    """How one episode of a policy went.

    Attributes:
        index: Its number, from 0.
        frames: Actions sent.
        duration_s: From its first tick to its last.
        success: The verdict; None where nobody judged.
        ended_by: `time`, `success`, `end key`, `stop key`, `camera lost`, ...
        stats: Rate, jitter and overruns.
    """

    index: int
    frames: int
    duration_s: float
    success: bool | None
    ended_by: str
    stats: LoopStats


@dataclass(frozen=True)
class RolloutResult:
    """What a rollout was like.

    Attributes:
        episodes: Each episode.
        stop_reason: `complete`, `time`, `stop key`, `interrupted`, ...
        robot_bus: Counters of the robot's motor bus.
        recorded: Episodes written to a dataset.
    """

    episodes: tuple[RolloutEpisode, ...]
    stop_reason: str = "complete"
    robot_bus: dict[str, int] = field(default_factory=dict)
    recorded: int = 0

    @property
    def judged(self) -> int:
        """Episodes with a verdict."""
        return sum(e.success is not None for e in self.episodes)

    @property
    def successes(self) -> int:
        """Episodes that succeeded."""
        return sum(e.success is True for e in self.episodes)

    @property
    def success_rate(self) -> float:
        """Share of the judged episodes that succeeded; NaN when none was judged."""
        return self.successes / self.judged if self.judged else math.nan

    def interval(self, z: float = 1.96) -> tuple[float, float]:
        """Return a confidence interval of the success rate (Wilson's score interval).

        Args:
            z: Standard deviations; 1.96 is 95 %.

        Returns:
            Lowest and highest rate; (0, 1) when no episode was judged.
        """
        n, rate = self.judged, self.success_rate
        if n == 0:
            return 0.0, 1.0
        middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return max(0.0, middle - half), min(1.0, middle + half)

    def summary(self) -> str:
        """Return a few lines for the operator."""
        frames = sum(e.frames for e in self.episodes)
        lines = [f"Episodes: {len(self.episodes)}, actions: {frames}"]
        if self.judged:
            low, high = self.interval()
            likely = f"95 % interval {low:.0%} to {high:.0%}"
            lines.append(f"Success: {self.successes} of {self.judged} ({self.success_rate:.0%}, {likely})")
        late = sum(e.stats.overruns for e in self.episodes)
        if late:
            lines.append(f"Late: {late} of {frames} actions came after their deadline.")
        if self.recorded:
            lines.append(f"Episodes recorded: {self.recorded}")
        if self.stop_reason != "complete":
            lines.append(f"Stopped: {self.stop_reason}")
        return "\n".join(lines)
