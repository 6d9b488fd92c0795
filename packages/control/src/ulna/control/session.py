# SPDX-License-Identifier: Apache-2.0
"""The frame around every loop: devices connected in order, and torque released on every way out."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from pydantic import Field

from ulna.control.approach import move_to, shared_joints
from ulna.control.interrupts import Interrupts, StopRequest
from ulna.control.runtime import Runtime
from ulna.core.capabilities import HasBus, ReturnsToRest
from ulna.core.clock import MonotonicClock
from ulna.core.config import Config
from ulna.core.errors import DeviceError, UlnaError

__all__ = ["RestConfig", "Session", "bus_counters"]

logger = logging.getLogger(__name__)


class RestConfig(Config):
    """What the robot does before its torque is released at the end of a session."""

    enabled: bool = Field(
        False, description="Return to the rest pose first, or to the pose at the start where there is none."
    )
    duration_s: float = Field(3.0, gt=0, allow_inf_nan=False, description="The return takes at most so long, seconds.")
    speed: float = Field(
        60.0, gt=0, allow_inf_nan=False, description="Largest speed of a joint on the way back, units a second."
    )


def bus_counters(device: Any) -> dict[str, int]:
    """Return what happened on a device's motor bus; empty without a bus.

    Args:
        device: A robot or teleoperator.
    """
    if not isinstance(device, HasBus):
        return {}
    counters = device.bus.counters
    return {
        "exchanges": counters.exchanges,
        "retries": counters.retries,
        "lost": sum(counters.lost.values()),
        "corrupt": counters.corrupt,
        "faults": sum(counters.faults.values()),
    }


@dataclass
class Session:
    """Connected devices for the length of a `with` block.

    The teleoperator connects first, then the robot; if the second fails, the first is closed again. On every way out
    (the end, an exception, Ctrl-C, SIGTERM) each device is disconnected, whatever the others do, and a further Ctrl-C
    meanwhile waits until that is done. Devices that were connected before are used and left as they are: whoever
    connected them closes them.

    Attributes:
        robot: The robot.
        teleop: The teleoperator, if any.
        rest: Whether and how the robot returns to rest first.
        runtime: Time, stop request and observers.
        calibrate: Whether a missing calibration is an error.
        fps: Commands a second of the return to rest.
    """

    robot: Any
    teleop: Any = None
    rest: RestConfig = field(default_factory=RestConfig)
    runtime: Runtime = field(default_factory=Runtime)
    calibrate: bool = True
    fps: float = 60.0
    _opened: list[Any] = field(default_factory=list, init=False)
    _start_pose: dict[str, float] = field(default_factory=dict, init=False)

    def __enter__(self) -> Self:
        try:
            for device in (self.teleop, self.robot):
                if device is not None and not device.is_connected:
                    self.runtime.phase("connect", text=f"Connecting {device}")
                    device.connect(calibrate=self.calibrate)
                    self._opened.append(device)
            if self.rest.enabled:
                self._start_pose = self._pose()
        except BaseException as error:
            self._close(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.rest.enabled and not isinstance(error, KeyboardInterrupt):
            try:
                self._return_to_rest(error)
            except BaseException as interrupt:
                self._close(interrupt)
                raise
        self._close(error)

    def _pose(self) -> dict[str, float]:
        observation = self.robot.get_observation()
        return {key: float(observation[key]) for key in shared_joints(self.robot)}

    def _return_to_rest(self, error: BaseException | None) -> None:
        """Go home for at most `rest.duration_s`; a second stop cuts it short, a silent bus skips it."""
        if isinstance(error, DeviceError) or isinstance(getattr(error, "__cause__", None), DeviceError):
            logger.warning("The robot stays where it is, since it did not answer: %s", error)
            return
        try:
            self.runtime.phase("rest", text="Returning to rest")
            # A robot's own way home takes real time, which on a simulator's clock never passes.
            if isinstance(self.robot, ReturnsToRest) and isinstance(self.runtime.clock, MonotonicClock):
                self.robot.return_to_rest(self.rest.duration_s)
            elif set(self._start_pose) == set(self.robot.action_features):
                rest = self.rest
                move_to(
                    self.robot,
                    self._start_pose,
                    speed=rest.speed,
                    fps=self.fps,
                    clock=self.runtime.clock,
                    timeout_s=rest.duration_s,
                    stop=_Further(self.runtime.stop),
                )
        except UlnaError as failed:
            logger.warning("Returning to rest failed; releasing torque where the robot is: %s", failed)

    def _close(self, error: BaseException | None) -> None:
        with self.runtime.stop.shielded() if self.runtime.stop is not None else nullcontext():
            self._disconnect_all(error)

    def _disconnect_all(self, error: BaseException | None) -> None:
        failures: list[BaseException] = []
        while self._opened:
            device = self._opened.pop()
            try:
                device.disconnect()
            except BaseException as failed:  # noqa: BLE001 - the other device must be released as well; reported below
                failures.append(failed)
        if not failures:
            return
        if error is None:
            first, *others = failures
            for other in others:
                first.add_note(f"Also while disconnecting: {other}")
            raise first
        for failure in failures:
            error.add_note(f"While disconnecting: {failure}")


class _Further(StopRequest):
    """A stop that is true once a further signal arrives after it was made."""

    def __init__(self, stop: StopRequest | None) -> None:
        super().__init__()
        self._interrupts = stop if isinstance(stop, Interrupts) else None
        self._count = self._interrupts.count if self._interrupts else 0

    def __bool__(self) -> bool:
        return self._interrupts is not None and self._interrupts.count > self._count
