# SPDX-License-Identifier: Apache-2.0
"""Two SO arms as one device. Everything about a single arm is in `follower` and `leader`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from ulna.core.calibration import CalibrationStep
from ulna.core.cameras import Camera, make_cameras_from_configs
from ulna.core.devices import Device, OpenParts
from ulna.core.features import FeatureSpecs, image_spec
from ulna.core.robots import Robot
from ulna.core.teleoperators import Teleoperator
from ulna.core.types import RobotAction, RobotObservation
from ulna.robots.so.arm import SOArm
from ulna.robots.so.config import BiSOFollowerConfig, BiSOLeaderConfig
from ulna.robots.so.follower import SOFollower, move_to_rest
from ulna.robots.so.leader import SOLeader

__all__ = ["BiSOFollower", "BiSOLeader"]

_Arm = TypeVar("_Arm", bound=SOArm)


class _Pair(Device, Generic[_Arm]):
    """Two arms that connect together or not at all, and are both closed whatever happens to one."""

    left: _Arm
    right: _Arm

    @property
    def _arms(self) -> dict[str, _Arm]:
        return {"left": self.left, "right": self.right}

    @property
    def is_calibrated(self) -> bool:
        """Whether the motors of both arms hold the calibration in use."""
        return self.left.is_calibrated and self.right.is_calibrated

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        for side, arm in self._arms.items():
            parts.open(f"{side} arm", lambda arm=arm: arm.connect(calibrate), arm.disconnect)  # type: ignore[misc]

    def calibrate(self) -> Generator[CalibrationStep, str, None]:
        """Calibrate the left arm, then the right one; see `SOArm.calibrate`.

        Yields:
            The next step for the operator.
        """
        for arm in self._arms.values():
            yield from arm.calibrate()

    def configure(self) -> None:
        """Configure both arms; idempotent."""
        for arm in self._arms.values():
            arm.configure()

    def setup_motors(self, only: str | None = None) -> Generator[CalibrationStep, str, None]:
        """Give the motors of both arms their ids; see `SOArm.setup_motors`.

        Args:
            only: Do this joint alone, `left_gripper`.

        Yields:
            The next step for the operator.

        Raises:
            ValueError: There is no such joint.
        """
        if only is not None:
            side, _, joint = only.partition("_")
            if side not in self._arms:
                raise ValueError(f"No joint {only!r}; joints are left_... and right_..., such as left_gripper.")
            yield from self._arms[side].setup_motors(joint)
            return
        for arm in self._arms.values():
            yield from arm.setup_motors()

    def enable_torque(self) -> None:
        """Make both arms hold where they are."""
        for arm in self._arms.values():
            arm.enable_torque()

    def disable_torque(self) -> None:
        """Let both arms go limp, the second also when the first does not answer.

        Raises:
            MotorCommunicationError: A motor did not answer; all were tried.
        """
        try:
            self.left.disable_torque()
        finally:
            self.right.disable_torque()


class BiSOFollower(_Pair[SOFollower], Robot):
    """A left and a right follower. Keys of the arms carry `left_` and `right_`; cameras of no arm keep their names.

    Args:
        config: Its settings.
    """

    config_class = BiSOFollowerConfig
    name: ClassVar[str] = "bi_so_follower"

    def __init__(self, config: BiSOFollowerConfig) -> None:
        super().__init__(config)
        self.left, self.right = SOFollower(config.arm("left")), SOFollower(config.arm("right"))
        self._own_cameras = make_cameras_from_configs(config.cameras)
        own = {name: image_spec(name, c.height or 0, c.width or 0) for name, c in config.cameras.items()}
        seen = _prefixed({side: arm.observation_features.plain for side, arm in self._arms.items()})
        self._observation_features = FeatureSpecs.of({**seen, **own})
        self._action_features = FeatureSpecs.of(
            _prefixed({side: arm.action_features.plain for side, arm in self._arms.items()})
        )

    @property
    def cameras(self) -> dict[str, Camera]:
        """Every camera by the name it has in observations."""
        return _prefixed({side: arm.cameras for side, arm in self._arms.items()}) | self._own_cameras

    @property
    def observation_features(self) -> FeatureSpecs:
        """Positions and pictures of both arms and the cameras of no arm; works while disconnected."""
        return self._observation_features

    @property
    def action_features(self) -> FeatureSpecs:
        """Positions of the joints of both arms; works while disconnected."""
        return self._action_features

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        super()._connect(parts, calibrate)
        for name, camera in self._own_cameras.items():
            parts.open(f"camera {name}", camera.connect, camera.disconnect)

    def _get_observation(self) -> RobotObservation:
        self.left.max_frame_age_ms = self.right.max_frame_age_ms = self.max_frame_age_ms
        observation = _prefixed({side: arm.get_observation() for side, arm in self._arms.items()})
        observation.update(
            {name: camera.read_latest(self.max_frame_age_ms) for name, camera in self._own_cameras.items()}
        )
        return observation

    def _send_action(self, action: RobotAction) -> RobotAction:
        return _prefixed({side: arm.send_action(_of(side, action)) for side, arm in self._arms.items()})

    def return_to_rest(self, duration_s: float) -> None:
        """Move both arms to rest at the same time; see `SOFollower.return_to_rest`.

        Args:
            duration_s: How long it takes, seconds.

        Raises:
            DeviceNotConnectedError: Not connected.
        """
        self._require_connected()
        move_to_rest(list(self._arms.values()), duration_s)


class BiSOLeader(_Pair[SOLeader], Teleoperator):
    """A left and a right leader. Keys of the arms carry `left_` and `right_`.

    Args:
        config: Its settings.
    """

    config_class = BiSOLeaderConfig
    name: ClassVar[str] = "bi_so_leader"

    def __init__(self, config: BiSOLeaderConfig) -> None:
        super().__init__(config)
        self.left, self.right = SOLeader(config.arm("left")), SOLeader(config.arm("right"))
        self._features = FeatureSpecs.of(
            _prefixed({side: arm.action_features.plain for side, arm in self._arms.items()})
        )

    @property
    def action_features(self) -> FeatureSpecs:
        """Positions of the joints of both arms; works while disconnected."""
        return self._features

    @property
    def feedback_features(self) -> FeatureSpecs:
        """Positions of the joints of both arms, followed when torque is enabled."""
        return self._features

    def _get_action(self) -> RobotAction:
        return _prefixed({side: arm.get_action() for side, arm in self._arms.items()})

    def _send_feedback(self, feedback: dict[str, Any]) -> None:
        for side, arm in self._arms.items():
            arm.send_feedback(_of(side, feedback))


def _prefixed(sides: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{side}_{key}": value for side, part in sides.items() for key, value in part.items()}


def _of(side: str, values: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{side}_"
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
