# SPDX-License-Identifier: Apache-2.0
"""The Teleoperator contract: something a person moves, whose pose becomes the robot's action."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar

from ulna.core.devices import Device, DeviceConfig
from ulna.core.features import FeatureSpecs
from ulna.core.types import RobotAction

__all__ = ["TeleopEvents", "Teleoperator", "TeleoperatorConfig"]


class TeleopEvents(str, Enum):
    """Events an operator can signal besides the pose."""

    SUCCESS = "success"
    FAILURE = "failure"
    RERECORD_EPISODE = "rerecord_episode"
    IS_INTERVENTION = "is_intervention"
    TERMINATE_EPISODE = "terminate_episode"


class TeleoperatorConfig(DeviceConfig):
    """Base of every teleoperator's settings."""

    plugin_kind: ClassVar[str] = "teleoperators"
    plugin_base: ClassVar[bool] = True


class Teleoperator(Device):
    """A teleoperator. Implementers write `_connect`, `_get_action`, `_send_feedback` and the properties.

    Life cycle as for a Robot. A leader arm is passive by default: it can be moved by hand, and always so after
    `disconnect`.
    """

    config_class: ClassVar[type[TeleoperatorConfig]]
    _calibration_kind: ClassVar[str] = "teleoperators"

    @property
    @abstractmethod
    def action_features(self) -> Mapping[str, Any]:
        """Key to `float` or a FeatureSpec, of what `get_action` returns. Works while disconnected."""

    @property
    def feedback_features(self) -> Mapping[str, Any]:
        """Key to `float` or a FeatureSpec, of what `send_feedback` takes; empty when there is no feedback."""
        return {}

    @abstractmethod
    def _get_action(self) -> RobotAction:
        """Read the hardware; keys equal `action_features`."""

    def _send_feedback(self, feedback: dict[str, Any]) -> None:
        """Send checked feedback to the hardware."""
        raise NotImplementedError(f"{type(self).__name__} declares no feedback.")

    def get_action(self) -> RobotAction:
        """Read the pose the operator holds.

        Returns:
            A value for every key of `action_features`.

        Raises:
            DeviceNotConnectedError: Not connected.
            DeviceError: The hardware did not answer within the bounded retries.
        """
        self._require_connected()
        return self._get_action()

    def send_feedback(self, feedback: Mapping[str, Any]) -> None:
        """Send feedback to the operator's hand.

        Args:
            feedback: A finite number for every key of `feedback_features`.

        Raises:
            ActionError: Missing or unknown keys, or a value that is not finite.
            DeviceNotConnectedError: Not connected.
        """
        self._require_connected()
        FeatureSpecs.of(self.feedback_features).check_action(feedback, owner=str(self))
        self._send_feedback(dict(feedback))
