# SPDX-License-Identifier: Apache-2.0
"""Optional abilities of devices and policies, declared as protocols and asked with `isinstance`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ulna.core.calibration import CalibrationStep
    from ulna.core.cameras import Camera
    from ulna.core.motors import MotorsBus
    from ulna.core.teleoperators import TeleopEvents

__all__ = [
    "HasBus",
    "HasCameras",
    "HasMotorSetup",
    "HasTeleopEvents",
    "HasTorque",
    "OpensFound",
    "ReturnsToRest",
    "ScansPort",
]


@runtime_checkable
class HasBus(Protocol):
    """A device with a motor bus."""

    bus: MotorsBus


@runtime_checkable
class HasCameras(Protocol):
    """A device with cameras, by name."""

    cameras: Mapping[str, Camera]


@runtime_checkable
class HasMotorSetup(Protocol):
    """A device whose motors can be given their ids one by one."""

    def setup_motors(self, only: str | None = None) -> Generator[CalibrationStep, str, None]:
        """Lead the operator through plugging in each motor alone; `only` does a single one."""
        ...


@runtime_checkable
class HasTeleopEvents(Protocol):
    """A teleoperator that signals events besides the pose."""

    def get_teleop_events(self) -> dict[TeleopEvents, Any]:
        """Return the events since the last call; reading does not clear held keys."""
        ...


@runtime_checkable
class HasTorque(Protocol):
    """A device whose motors can be made stiff and limp."""

    def enable_torque(self) -> None:
        """Make the motors hold their present position."""
        ...

    def disable_torque(self) -> None:
        """Let the motors go limp."""
        ...


@runtime_checkable
class ReturnsToRest(Protocol):
    """A robot that can move to a safe pose before its torque is released."""

    def return_to_rest(self, duration_s: float) -> None:
        """Move to the rest pose within `duration_s` seconds; returns early when the hardware does not answer."""
        ...


@runtime_checkable
class ScansPort(Protocol):
    """A bus class that finds motors whose ids and baud rates are not known. Asked of the class."""

    @classmethod
    def scan_port(
        cls, port: str, *, baudrates: Sequence[int] | None = None, **settings: Any
    ) -> dict[int, dict[int, int]]:
        """Look at every baud rate and return baud rate to id to model number; changes nothing on the motors."""
        ...


@runtime_checkable
class OpensFound(Protocol):
    """A camera class that makes a camera from what its `find_cameras` told. Asked of the class."""

    @classmethod
    def from_found(cls, found: Mapping[str, Any]) -> Camera:
        """Make a camera, with its own size and rate; opens nothing."""
        ...
