# SPDX-License-Identifier: Apache-2.0
"""Looking at a robot whose cameras may stall: short gaps are tolerated and counted, only a lasting loss is an error."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from ulna.core.cameras import Camera, CameraState
from ulna.core.capabilities import HasCameras
from ulna.core.config import Config
from ulna.core.errors import ControlError, DeviceError

__all__ = ["CameraLossConfig", "CameraLostError", "CameraWatch"]

logger = logging.getLogger(__name__)


class CameraLossConfig(Config):
    """How long a camera may be silent."""

    stale_after_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Age at which a picture is flagged as stale; default: two and a half periods of its camera.",
    )
    lost_after_s: float = Field(
        2.0,
        gt=0,
        allow_inf_nan=False,
        description="Age at which the camera counts as lost and the episode ends, saved.",
    )


class CameraLostError(ControlError):
    """A camera delivered no picture for longer than tolerated, or was unplugged.

    Args:
        message: What happened.
        cameras: Names of the cameras.
        hint: What to do next.
    """

    def __init__(self, message: str, *, cameras: tuple[str, ...], hint: str | None = None) -> None:
        self.cameras = cameras
        super().__init__(message, hint=hint)


class CameraWatch:
    """Reads a robot's observations, flags stale pictures and tells a lost camera from a broken robot.

    Args:
        robot: A robot; one without cameras is read as it is.
        config: How long a camera may be silent.
    """

    def __init__(self, robot: Any, config: CameraLossConfig) -> None:
        self.robot, self.config = robot, config
        self.stale_frames: dict[str, int] = {}
        self._cameras: Mapping[str, Camera] = robot.cameras if isinstance(robot, HasCameras) else {}
        self._limit_ms = {name: 1e3 * self._stale_after(camera) for name, camera in self._cameras.items()}
        if self._cameras and hasattr(robot, "max_frame_age_ms"):
            robot.max_frame_age_ms = 1e3 * config.lost_after_s

    def _stale_after(self, camera: Camera) -> float:
        return self.config.stale_after_s or 2.5 / (camera.fps or 30)

    def observe(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Read the robot once.

        Returns:
            The observation, and the names of cameras whose picture in it is stale.

        Raises:
            CameraLostError: A camera is silent for too long, or gone.
            DeviceError: Something else of the robot failed.
        """
        try:
            observation = self.robot.get_observation()
        except DeviceError as error:
            lost = self._lost(error)
            if not lost:
                raise
            raise CameraLostError(
                f"No picture from {', '.join(lost)}: {error.message}", cameras=lost, hint=error.hint
            ) from error
        stale = tuple(name for name, camera in self._cameras.items() if camera.frame_age_ms > self._limit_ms[name])
        for name in stale:
            self.stale_frames[name] = self.stale_frames.get(name, 0) + 1
        return observation, stale

    def _lost(self, error: DeviceError) -> tuple[str, ...]:
        """Return the cameras that an error is about; none when it is about something else.

        Cameras of one kind may share a name in messages; those that are silent are meant.
        """
        named = tuple(name for name, camera in self._cameras.items() if error.device == str(camera))
        silent = tuple(n for n in named if self._is_silent(n))
        return silent or named

    def _is_silent(self, name: str) -> bool:
        camera = self._cameras[name]
        return camera.state is not CameraState.LIVE or camera.frame_age_ms > self._limit_ms[name]

    def reconnect(self) -> tuple[str, ...]:
        """Open every camera that is not live again.

        Returns:
            Names of the cameras that are still not there.
        """
        missing = []
        for name, camera in self._cameras.items():
            if not self._is_silent(name):
                continue
            try:
                camera.disconnect()
                camera.connect()
            except DeviceError as error:
                logger.warning("Camera %s cannot be opened again: %s", name, error.message)
                missing.append(name)
        return tuple(missing)
