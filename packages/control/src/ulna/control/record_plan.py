# SPDX-License-Identifier: Apache-2.0
"""What recording is asked for, needs of a dataset, and reports. The recording itself is in `episodes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from ulna.control.approach import JumpGuardConfig
from ulna.control.camera_watch import CameraLossConfig
from ulna.control.logbook import EpisodeReport
from ulna.control.session import RestConfig
from ulna.core.config import Config
from ulna.core.errors import ControlError

__all__ = ["EpisodePlan", "EpisodeTimes", "EpisodeWriter", "RecordResult", "RecordingInterruptedError"]


class EpisodeWriter(Protocol):
    """What recording needs of a dataset; `ulna.data.LeRobotDataset` has it."""

    @property
    def repo_id(self) -> str:
        """`user/name`."""
        ...

    @property
    def root(self) -> Path:
        """Its folder."""
        ...

    @property
    def fps(self) -> float:
        """Frames a second."""
        ...

    @property
    def features(self) -> Mapping[str, Mapping[str, Any]]:
        """Key to `dtype`, `shape` and `names`."""
        ...

    @property
    def num_episodes(self) -> int:
        """Episodes that are durable."""
        ...

    def add_frame(self, frame: dict[str, Any], timestamp: float | None = None) -> Any:
        """Take a frame of the present episode, and when it was taken, in seconds on a steady clock."""
        ...

    def save_episode(self, *, wait: bool = True) -> None:
        """End the present episode and store it; with `wait=False` in the background."""
        ...

    def clear_episode_buffer(self) -> None:
        """Forget the present episode."""
        ...

    def finalize(self) -> None:
        """Complete the dataset; idempotent."""
        ...


class EpisodeTimes(Config):
    """How many episodes are recorded, of what, and how long."""

    single_task: str = Field(min_length=1, description="What the robot does, in words; stored with every frame.")
    num_episodes: int = Field(
        50, ge=1, description="Episodes the dataset shall have at the end; resuming records only what is missing."
    )
    episode_time_s: float = Field(60, gt=0, allow_inf_nan=False, description="Longest duration of an episode, seconds.")
    reset_time_s: float = Field(
        60, ge=0, allow_inf_nan=False, description="Longest time to reset the scene after an episode, seconds."
    )


class EpisodePlan(EpisodeTimes):
    """All that recording needs to know, without devices and dataset."""

    guard: JumpGuardConfig = Field(default_factory=JumpGuardConfig, description="The first command far from the robot.")
    camera_loss: CameraLossConfig = Field(default_factory=CameraLossConfig, description="Silent cameras.")
    rest: RestConfig = Field(default_factory=RestConfig, description="Return to rest before torque is released.")


@dataclass(frozen=True)
class RecordResult:
    """What a recording session did.

    Attributes:
        repo_id: Name of the dataset.
        root: Its folder.
        asked: Episodes the dataset was to have at the end.
        before: Episodes it had before.
        total: Episodes it has now.
        episodes: How each new episode went.
        rerecorded: Episodes thrown away on the operator's wish.
        discarded_frames: Frames of an unfinished episode, thrown away.
        stop_reason: `complete`, `stop key`, `interrupted`, ..., or the error.
        robot_bus: Counters of the robot's motor bus.
        teleop_bus: Counters of the teleoperator's motor bus.
    """

    repo_id: str
    root: Path
    asked: int
    before: int
    total: int
    episodes: tuple[EpisodeReport, ...] = ()
    rerecorded: int = 0
    discarded_frames: int = 0
    stop_reason: str = "complete"
    robot_bus: dict[str, int] = field(default_factory=dict)
    teleop_bus: dict[str, int] = field(default_factory=dict)

    @property
    def written(self) -> int:
        """Episodes added by this session."""
        return self.total - self.before

    @property
    def complete(self) -> bool:
        """Whether the dataset has as many episodes as were asked for."""
        return self.total >= self.asked

    def summary(self) -> str:
        """Return a few lines for the operator: asked, written, rate, what went wrong."""
        frames = sum(e.frames for e in self.episodes)
        lines = [
            f"Episodes recorded: {self.written}, frames: {frames}",
            f"Dataset: {self.repo_id} in {self.root}, {self.total} of {self.asked} asked for",
        ]
        if self.rerecorded:
            lines.append(f"Re-recorded: {self.rerecorded}")
        if self.discarded_frames:
            lines.append(f"Discarded: {self.discarded_frames} frames of an unfinished episode")
        if slow := [e for e in self.episodes if e.slow]:
            worst = min(slow, key=lambda e: e.measured_fps)
            lines.append(
                f"Episodes slower than {worst.fps:g} Hz: {len(slow)}; episode {worst.episode_index} ran at "
                f"{worst.measured_fps:.1f} Hz; their timestamps run ahead of the truth."
            )
        stale = {name for e in self.episodes for name in e.stale_frames}
        if stale:
            lines.append(f"Stale pictures: {', '.join(sorted(stale))}; which frames is in meta/ulna_recording.jsonl")
        if self.stop_reason != "complete":
            lines.append(f"Stopped: {self.stop_reason}")
        return "\n".join(lines)


class RecordingInterruptedError(ControlError):
    """Recording ended with an error; finished episodes are safe and the dataset is complete in itself.

    Args:
        message: What happened.
        result: What was recorded.
        hint: What to do next.
    """

    def __init__(self, message: str, *, result: RecordResult, hint: str | None = None) -> None:
        self.result = result
        super().__init__(message, hint=hint)
