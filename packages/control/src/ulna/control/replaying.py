# SPDX-License-Identifier: Apache-2.0
"""Replay: a robot repeats a recorded episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from ulna.control.approach import move_to
from ulna.control.compatibility import check_action_names
from ulna.control.driving import Command, CommandReader
from ulna.control.frames import read_actions
from ulna.control.interrupts import StopRequest
from ulna.control.loop import LoopStats, RateLoop
from ulna.control.runtime import Runtime, Tick
from ulna.control.session import RestConfig, Session, bus_counters
from ulna.core.config import Config
from ulna.core.errors import ControlError
from ulna.core.factories import make_robot_from_config
from ulna.core.robots import Robot, RobotConfig

__all__ = ["DatasetReplayConfig", "ReplayConfig", "ReplayResult", "ReplaySettings", "replay", "run_replay"]


class DatasetReplayConfig(Config):
    """The episode to replay."""

    repo_id: str = Field(description="Name of the dataset, `user/name`.")
    episode: int = Field(ge=0, description="Number of the episode.")
    root: Path | None = Field(None, description="Folder of the dataset; found by name when not given.")
    fps: float | None = Field(None, ge=0.01, le=10_000, description="Frames a second; default: the dataset's own rate.")


class ReplaySettings(Config):
    """Settings of the replay loop, without robot and dataset."""

    approach_speed: float = Field(
        60, gt=0, allow_inf_nan=False, description="Speed of the approach to the first pose, joint units a second."
    )
    approach_time_s: float = Field(10, gt=0, allow_inf_nan=False, description="Longest time of that approach, seconds.")
    rest: RestConfig = Field(default_factory=RestConfig, description="Return to rest before torque is released.")


class ReplayConfig(ReplaySettings):
    """Settings of `ulna replay`."""

    robot: RobotConfig = Field(description="The robot that repeats the episode.")
    dataset: DatasetReplayConfig = Field(description="The episode to replay.")


@dataclass(frozen=True)
class ReplayResult:
    """What a replay was like.

    Attributes:
        stats: Rate, jitter and overruns.
        sent: Actions sent, of `total`.
        total: Actions of the episode.
        stop_reason: `complete`, `stop key`, `interrupted`, ...
        robot_bus: Counters of the robot's motor bus.
    """

    stats: LoopStats
    sent: int
    total: int
    stop_reason: str
    robot_bus: dict[str, int] = field(default_factory=dict)


def replay(config: ReplayConfig, runtime: Runtime | None = None) -> ReplayResult:
    """Replay an episode of a dataset.

    Args:
        config: Settings.
        runtime: Time, keys, stop and observers.

    Returns:
        What it was like.

    Raises:
        DatasetError: No such dataset or episode, or its actions have no names.
        IncompatibleError: The robot does not take these actions; nothing was connected.
        DeviceError: The hardware failed; torque has been released.
    """
    chosen = config.dataset
    actions, fps = read_actions(chosen.repo_id, chosen.episode, chosen.root)
    return run_replay(make_robot_from_config(config.robot), actions, chosen.fps or fps, config, runtime)


def run_replay(
    robot: Robot,
    actions: Sequence[Mapping[str, float]],
    fps: float,
    settings: ReplaySettings | None = None,
    runtime: Runtime | None = None,
) -> ReplayResult:
    """Send recorded actions to a robot at their rate, after a smooth approach to the first one.

    Args:
        robot: The robot; connected and released here unless it is connected already.
        actions: Action name to value, one a frame.
        fps: Actions a second.
        settings: Approach and rest.
        runtime: Time, keys, stop and observers.

    Returns:
        What it was like.

    Raises:
        IncompatibleError: The robot does not take these actions; nothing was connected.
        ControlError: There are no actions, or the first pose was not reached in time.
        DeviceError: The hardware failed; torque has been released.
    """
    settings = settings or ReplaySettings()
    if not actions:
        raise ControlError("The episode has no actions to replay.")
    check_action_names(actions[0], robot, offers="the recorded episode")
    with (runtime or Runtime()).stoppable() as (runtime, stop):
        loop = RateLoop(fps, runtime.clock)
        with Session(robot, None, settings.rest, runtime, fps=fps):
            _approach(robot, actions[0], settings, fps, runtime, stop)
            runtime.phase("replay", text=f"Replaying {len(actions)} actions at {fps:g} Hz")
            sent, reason = _send_all(robot, actions, loop, runtime, stop)
        return ReplayResult(loop.stats(), sent, len(actions), reason, bus_counters(robot))


def _approach(
    robot: Robot,
    first: Mapping[str, float],
    settings: ReplaySettings,
    fps: float,
    runtime: Runtime,
    stop: StopRequest,
) -> None:
    runtime.phase("approach", text="The robot moves to the first pose")
    speed, limit = settings.approach_speed, settings.approach_time_s
    there = move_to(robot, first, speed=speed, fps=fps, clock=runtime.clock, timeout_s=limit, stop=stop)
    if not (there or stop):
        raise ControlError(
            f"The robot did not reach the first pose within {limit:g} s at {speed:g} units/s.",
            hint="Move it nearer by hand, or give it more time: --approach_time_s=30",
        )


def _send_all(
    robot: Robot, actions: Sequence[Mapping[str, float]], loop: RateLoop, runtime: Runtime, stop: StopRequest
) -> tuple[int, str]:
    commands = CommandReader(runtime.keys)
    for number, action in enumerate(actions):
        loop.tick()
        if not stop and commands.read() is Command.STOP:
            stop.request("stop key")
        if stop:
            return number, stop.reason or "stopped"
        sent = robot.send_action(action)
        if runtime.on_tick is not None:
            runtime.on_tick(Tick("replay", number, loop.tick_time_s, {}, action, sent))
    return len(actions), "complete"
