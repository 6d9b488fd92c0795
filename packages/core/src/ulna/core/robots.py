# SPDX-License-Identifier: Apache-2.0
"""The Robot contract: something with joints and cameras that takes actions."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import model_validator

from ulna.core.cameras import CameraConfig
from ulna.core.devices import Device, DeviceConfig
from ulna.core.errors import ActionError, ConfigError, ConfigProblem
from ulna.core.features import FeatureSpecs
from ulna.core.types import RobotAction, RobotObservation

__all__ = ["Robot", "RobotConfig", "ensure_safe_goal_position"]


class RobotConfig(DeviceConfig):
    """Base of every robot's settings. Its cameras need width, height and fps, since they declare its features."""

    plugin_kind: ClassVar[str] = "robots"
    plugin_base: ClassVar[bool] = True

    @model_validator(mode="after")
    def _cameras_are_complete(self) -> RobotConfig:
        cameras: dict[str, CameraConfig] = getattr(self, "cameras", None) or {}
        problems = [
            ConfigProblem(f"cameras.{name}.{field}", None, "is required for a camera of a robot")
            for name, camera in cameras.items()
            for field in ("width", "height", "fps")
            if getattr(camera, field) is None
        ]
        if problems:
            raise ConfigError(problems, title="cameras")
        return self


class Robot(Device):
    """A robot. Implementers write `_connect`, `_get_observation`, `_send_action` and the properties.

    The base class does the checks. Life cycle: constructed without I/O; `connect`; any number of `get_observation` and
    `send_action`; `disconnect`, which releases torque on every path. Calls block for one exchange with the hardware.
    """

    config_class: ClassVar[type[RobotConfig]]
    partial_actions: ClassVar[bool] = False
    max_frame_age_ms: float = 500.0
    """Oldest picture that `get_observation` accepts; passed to `Camera.read_latest`; control loops may raise it."""
    _calibration_kind: ClassVar[str] = "robots"

    @property
    @abstractmethod
    def observation_features(self) -> Mapping[str, Any]:
        """Key to `float` or (H, W, C) or a FeatureSpec, of what `get_observation` returns. Works while disconnected."""

    @property
    @abstractmethod
    def action_features(self) -> Mapping[str, Any]:
        """Key to `float` or a FeatureSpec, of what `send_action` takes. Works while disconnected."""

    @property
    def robot_type(self) -> str:
        """The type string recorded in datasets."""
        return self.config.type or self.name

    @abstractmethod
    def _get_observation(self) -> RobotObservation:
        """Read the hardware; keys equal `observation_features`."""

    @abstractmethod
    def _send_action(self, action: RobotAction) -> RobotAction:
        """Send a checked action; return what was really sent, after limits."""

    def get_observation(self) -> RobotObservation:
        """Read joints and cameras.

        Returns:
            A value for every key of `observation_features`: joints in their unit, pictures uint8 (H, W, 3).

        Raises:
            DeviceNotConnectedError: Not connected.
            DeviceError: The hardware did not answer within the bounded retries.
        """
        self._require_connected()
        return self._get_observation()

    def send_action(self, action: Mapping[str, Any]) -> RobotAction:
        """Check an action and send it.

        Args:
            action: A finite number for every key of `action_features` (any subset if `partial_actions`). Not changed.

        Returns:
            What was really sent; an empty action sends nothing.

        Raises:
            ActionError: Missing or unknown keys, or a value that is not finite; nothing was sent.
            DeviceNotConnectedError: Not connected.
            DeviceError: The hardware did not answer within the bounded retries.
        """
        self._require_connected()
        if self.partial_actions and not action:
            return {}
        FeatureSpecs.of(self.action_features).check_action(action, partial=self.partial_actions, owner=str(self))
        return self._send_action(dict(action))


def ensure_safe_goal_position(
    goal_present: Mapping[str, tuple[float, float]], max_relative_target: float | Mapping[str, float]
) -> dict[str, float]:
    """Limit how far each goal lies from where the joint is.

    Args:
        goal_present: Joint to (goal, present), in one unit.
        max_relative_target: Largest distance, one for all or one for each joint, in that unit.

    Returns:
        Joint to the goal within reach.

    Raises:
        ActionError: A goal is not finite.
        ValueError: A limit is missing, left over, negative or not finite.
    """
    broken = [n for n, pair in goal_present.items() if not all(math.isfinite(v) for v in pair)]
    if broken:
        raise ActionError(f"Goal or present position is not finite for {', '.join(broken)}.", not_finite=broken)
    if isinstance(max_relative_target, Mapping):
        if set(max_relative_target) != set(goal_present):
            raise ValueError(
                f"max_relative_target names {sorted(max_relative_target)}, the action names {sorted(goal_present)}."
            )
        caps = {n: float(v) for n, v in max_relative_target.items()}
    else:
        caps = dict.fromkeys(goal_present, float(max_relative_target))
    if any(not math.isfinite(c) or c < 0 for c in caps.values()):
        raise ValueError(f"max_relative_target must be finite and not negative, got {max_relative_target!r}.")
    return {n: now + max(-caps[n], min(caps[n], goal - now)) for n, (goal, now) in goal_present.items()}
