# SPDX-License-Identifier: Apache-2.0
"""Dialogues with one device: calibration, motor ids, limits. Whoever answers is given from outside."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from pydantic import Field, model_validator

from ulna.control.interrupts import Interrupts
from ulna.control.loop import RateLoop
from ulna.control.runtime import Runtime
from ulna.control.session import Session
from ulna.core.calibration import CalibrationStep, drive
from ulna.core.capabilities import HasMotorSetup, HasTorque
from ulna.core.config import Config
from ulna.core.errors import ConfigError, ConfigProblem, ControlError
from ulna.core.factories import make_robot_from_config, make_teleoperator_from_config
from ulna.core.robots import Robot, RobotConfig
from ulna.core.teleoperators import Teleoperator, TeleoperatorConfig

__all__ = ["Answer", "LimitsConfig", "OneDeviceConfig", "SetupConfig", "calibrate", "setup_motors", "watch_limits"]

Answer = Callable[[CalibrationStep], str]
Limits = dict[str, tuple[float, float, float]]


class OneDeviceConfig(Config):
    """Settings of a command that works on a robot or on a teleoperator."""

    robot: RobotConfig | None = Field(None, description="The robot; give this or teleop.")
    teleop: TeleoperatorConfig | None = Field(None, description="The teleoperator; give this or robot.")

    @model_validator(mode="after")
    def _exactly_one(self) -> OneDeviceConfig:
        if (self.robot is None) == (self.teleop is None):
            raise ConfigError([ConfigProblem("robot", None, "give exactly one of --robot.type and --teleop.type")])
        return self

    def make(self) -> Robot | Teleoperator:
        """Make the device; opens nothing.

        Raises:
            PluginLoadError: Its implementation cannot be imported.
        """
        if self.robot is not None:
            return make_robot_from_config(self.robot)
        assert self.teleop is not None
        return make_teleoperator_from_config(self.teleop)


class SetupConfig(OneDeviceConfig):
    """Settings of `ulna motors setup`."""

    only: str | None = Field(None, description="Set up this motor alone; default: all, one after the other.")


class LimitsConfig(OneDeviceConfig):
    """Settings of `ulna motors limits`."""

    time_s: float = Field(30, gt=0, allow_inf_nan=False, description="How long the joints are watched, seconds.")
    fps: float = Field(30, ge=0.01, le=10_000, description="Readings a second.")


def calibrate(device: Robot | Teleoperator, answer: Answer) -> None:
    """Connect a device, lead the operator through its calibration, and release it on every way out.

    Args:
        device: Not connected.
        answer: Called for each step; returns the operator's answer.

    Raises:
        CalibrationError: The result is degenerate, or the device has no id.
        DeviceError: The hardware failed; torque has been released.
        KeyboardInterrupt: Ctrl-C; nothing was saved.
    """
    interrupts = Interrupts(orderly=False)
    with interrupts, Session(device, runtime=Runtime(stop=interrupts), calibrate=False):
        drive(device.calibrate(), answer)


def setup_motors(device: Robot | Teleoperator, answer: Answer, only: str | None = None) -> None:
    """Lead the operator through giving each motor its id.

    Args:
        device: Not connected.
        answer: Called for each step; returns the operator's answer.
        only: Set up this motor alone.

    Raises:
        ControlError: The device does not offer it.
        DeviceError: The hardware failed.
        ValueError: There is no motor of that name.
    """
    if not isinstance(device, HasMotorSetup):
        raise ControlError(f"{device} has no motors whose ids can be set from here.")
    dialogue: Generator[CalibrationStep, str, None] = device.setup_motors(only)
    with Interrupts(orderly=False):
        drive(dialogue, answer)


def watch_limits(
    device: Robot | Teleoperator,
    config: LimitsConfig,
    on_limits: Callable[[Limits], object] | None = None,
    runtime: Runtime | None = None,
) -> Limits:
    """Watch how far each joint is moved by hand.

    Args:
        device: Connected here without torque where it can be released.
        config: How long and how often.
        on_limits: Called with the limits so far after each reading.
        runtime: Time and stop.

    Returns:
        Joint to (lowest, latest, highest), in its unit.

    Raises:
        DeviceError: The hardware failed; torque has been released.
    """
    with (runtime or Runtime()).stoppable() as (runtime, stop), Session(device, runtime=runtime):
        if isinstance(device, HasTorque):
            device.disable_torque()
        loop, limits = RateLoop(config.fps, runtime.clock), Limits()
        while not stop:
            loop.tick()
            if loop.tick_time_s >= config.time_s:
                break
            for joint, value in _joints(device).items():
                low, _, high = limits.get(joint, (value, value, value))
                limits[joint] = (min(low, value), value, max(high, value))
            if on_limits is not None:
                on_limits(limits)
        return limits


def _joints(device: Robot | Teleoperator) -> dict[str, float]:
    values: Mapping[str, Any] = device.get_observation() if isinstance(device, Robot) else device.get_action()
    return {key: float(value) for key, value in values.items() if isinstance(value, (int, float))}
