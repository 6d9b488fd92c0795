# SPDX-License-Identifier: Apache-2.0
"""Teleoperation: a person moves the leader, the robot follows."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import Field

from ulna.control.approach import JumpGuardConfig
from ulna.control.camera_watch import CameraLossConfig
from ulna.control.compatibility import check_pair
from ulna.control.driving import Command, CommandReader, Driver, Processors
from ulna.control.interrupts import StopRequest
from ulna.control.loop import LoopStats, RateLoop
from ulna.control.runtime import Runtime, Tick
from ulna.control.session import RestConfig, Session, bus_counters
from ulna.core.config import Config
from ulna.core.factories import make_robot_from_config, make_teleoperator_from_config
from ulna.core.robots import Robot, RobotConfig
from ulna.core.teleoperators import Teleoperator, TeleoperatorConfig

__all__ = ["TeleoperateConfig", "TeleoperateResult", "TeleoperateSettings", "run_teleoperation", "teleoperate"]


class TeleoperateSettings(Config):
    """Settings of the teleoperation loop, without the devices."""

    fps: float = Field(60, ge=0.01, le=10_000, description="Commands a second.")
    teleop_time_s: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Stop after so many seconds; default: when told to."
    )
    observe: bool = Field(True, description="Read the robot every time, its cameras too; off saves the time it takes.")
    feedback: bool = Field(False, description="Feed what the robot feels back to a leader that takes it.")
    guard: JumpGuardConfig = Field(default_factory=JumpGuardConfig, description="The first command far from the robot.")
    camera_loss: CameraLossConfig = Field(default_factory=CameraLossConfig, description="Silent cameras.")
    rest: RestConfig = Field(default_factory=RestConfig, description="Return to rest before torque is released.")


class TeleoperateConfig(TeleoperateSettings):
    """Settings of `ulna teleoperate`."""

    robot: RobotConfig = Field(description="The robot that follows.")
    teleop: TeleoperatorConfig = Field(description="The teleoperator that leads.")
    display_data: bool = Field(False, description="Show every joint below the rate, on a terminal.")


@dataclass(frozen=True)
class TeleoperateResult:
    """What a teleoperation was like.

    Attributes:
        stats: Rate, jitter and overruns.
        stop_reason: Why it ended: `time`, `stop key`, `interrupted`, ...
        robot_bus: Counters of the robot's motor bus; empty without one.
        teleop_bus: Counters of the teleoperator's motor bus.
        stale_frames: Camera to ticks with a stale picture.
    """

    stats: LoopStats
    stop_reason: str
    robot_bus: dict[str, int] = field(default_factory=dict)
    teleop_bus: dict[str, int] = field(default_factory=dict)
    stale_frames: dict[str, int] = field(default_factory=dict)


def teleoperate(config: TeleoperateConfig, runtime: Runtime | None = None) -> TeleoperateResult:
    """Make the devices and teleoperate until time is up or somebody stops it.

    Args:
        config: Settings.
        runtime: Time, keys, stop and observers.

    Returns:
        What it was like.

    Raises:
        IncompatibleError: The teleoperator does not fit the robot; nothing was connected.
        JumpError: The first action is too far away and the guard is set to refuse.
        DeviceError: The hardware failed; torque has been released.
    """
    robot, teleop = make_robot_from_config(config.robot), make_teleoperator_from_config(config.teleop)
    return run_teleoperation(robot, teleop, config, runtime)


def run_teleoperation(
    robot: Robot,
    teleop: Teleoperator,
    settings: TeleoperateSettings | None = None,
    runtime: Runtime | None = None,
    processors: Processors | None = None,
) -> TeleoperateResult:
    """Teleoperate with devices at hand; those not connected are connected, and released at the end.

    Args:
        robot: The robot that follows.
        teleop: The teleoperator that leads.
        settings: Rate, duration, guard.
        runtime: Time, keys, stop and observers.
        processors: Changes between the devices; with one for actions, names are checked by the robot only.

    Returns:
        What it was like.

    Raises:
        IncompatibleError: The teleoperator does not fit the robot; nothing was connected.
        JumpError: The first action is too far away and the guard is set to refuse.
        CameraLostError: A camera is silent for too long.
        DeviceError: The hardware failed; torque has been released.
    """
    settings, change = settings or TeleoperateSettings(), processors or Processors()
    if change.teleop_action is None and change.robot_action is None:
        check_pair(teleop, robot)
    with (runtime or Runtime()).stoppable() as (runtime, stop):
        with Session(robot, teleop, settings.rest, runtime, fps=settings.fps):
            driver = Driver(
                robot, teleop, settings.fps, settings.guard, settings.camera_loss, change, settings.feedback
            )
            loop = RateLoop(settings.fps, runtime.clock)
            runtime.phase("teleoperate", text="Teleoperating")
            reason = _loop(driver, loop, settings, runtime, stop)
        return TeleoperateResult(
            loop.stats(), reason, bus_counters(robot), bus_counters(teleop), dict(driver.watch.stale_frames)
        )


def _loop(driver: Driver, loop: RateLoop, settings: TeleoperateSettings, runtime: Runtime, stop: StopRequest) -> str:
    commands, end_s, on_tick = CommandReader(runtime.keys), settings.teleop_time_s, runtime.on_tick
    while True:
        index = loop.tick()
        if stop:
            return stop.reason or "stopped"
        if end_s is not None and loop.tick_time_s >= end_s:
            return "time"
        if commands.read() is Command.STOP:
            return "stop key"
        step = driver.step(settings.observe)
        if on_tick is not None:
            on_tick(Tick("teleoperate", index, loop.tick_time_s, step.observation, step.action, step.sent, step.stale))
