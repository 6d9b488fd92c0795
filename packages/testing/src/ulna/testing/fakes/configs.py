# SPDX-License-Identifier: Apache-2.0
"""Settings of the fakes that need no torch. Nothing is registered here: see `fake_plugins`."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from ulna.core.cameras import CameraConfig
from ulna.core.envs import EnvConfig
from ulna.core.features import FeatureType, PolicyFeature
from ulna.core.motors import MotorsBusConfig
from ulna.core.robots import RobotConfig
from ulna.core.teleoperators import TeleoperatorConfig

__all__ = [
    "FakeCameraConfig",
    "FakeEnvConfig",
    "FakeMotorsBusConfig",
    "FakeRobotConfig",
    "FakeTeleoperatorConfig",
]

_JOINTS = ["shoulder", "elbow", "gripper"]


class FakeCameraConfig(CameraConfig):
    """Settings of a fake camera: pictures that count its frames."""

    implementation: ClassVar[str] = "ulna.testing.fakes.camera:FakeCamera"

    type: str = "fake_camera"
    fps: int | None = Field(30, gt=0, description="Frames per second.")
    width: int | None = Field(8, gt=0, description="Columns of a frame.")
    height: int | None = Field(6, gt=0, description="Rows of a frame.")
    real_time: bool = Field(False, description="Whether frames come in real time, or as fast as they are asked for.")


class FakeMotorsBusConfig(MotorsBusConfig):
    """Settings of a fake bus opened by itself."""

    implementation: ClassVar[str] = "ulna.testing.fakes.motors:FakeMotorsBus"

    type: str = "fake_motors"
    port: str = Field("fake://bus", description="Name of the port; nothing is opened.")


class FakeRobotConfig(RobotConfig):
    """Settings of a fake robot: joints on a fake bus, and cameras of any kind."""

    implementation: ClassVar[str] = "ulna.testing.fakes.robot:FakeRobot"

    type: str = "fake_robot"
    joints: list[str] = Field(default_factory=lambda: list(_JOINTS), min_length=1, description="Names of the joints.")
    cameras: dict[str, CameraConfig] = Field(default_factory=dict, description="Name to camera.")
    max_relative_target: float | None = Field(None, gt=0, description="Largest step of a joint, in its unit.")
    disable_torque_on_disconnect: bool = Field(True, description="Whether the joints go limp in the end.")


class FakeTeleoperatorConfig(TeleoperatorConfig):
    """Settings of a fake teleoperator: its pose is set by the test."""

    implementation: ClassVar[str] = "ulna.testing.fakes.teleoperator:FakeTeleoperator"

    type: str = "fake_teleop"
    joints: list[str] = Field(default_factory=lambda: list(_JOINTS), min_length=1, description="Names of the joints.")
    feedback: bool = Field(True, description="Whether it takes feedback.")


class FakeEnvConfig(EnvConfig):
    """Settings of a fake environment: walk to a point; done when near."""

    type: str = "fake_env"
    task: str | None = Field("reach", description="Which task of the suite.")
    size: int = Field(2, gt=0, description="Number of coordinates.")
    episode_length: int = Field(20, gt=0, description="Steps after which an episode is cut off.")
    features: dict[str, PolicyFeature] = Field(
        default_factory=lambda: {
            "action": PolicyFeature(FeatureType.ACTION, (2,)),
            "agent_pos": PolicyFeature(FeatureType.STATE, (4,)),
        },
        description="Environment key to feature.",
    )
    features_map: dict[str, str] = Field(
        default_factory=lambda: {"action": "action", "agent_pos": "observation.state"},
        description="Environment key to policy key.",
    )

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        """Arguments of the environment's constructor."""
        return {"size": self.size, "episode_length": self.episode_length}

    def create_envs(self, n_envs: int, use_async_envs: bool = False) -> dict[str, dict[int, Any]]:
        """Make one vector environment.

        Args:
            n_envs: Copies in it.
            use_async_envs: Ignored; the copies run in this process.

        Returns:
            Suite to task number to vector environment.
        """
        from ulna.testing.fakes.env import FakeEnv

        return {self.type: {0: FakeEnv(n_envs, **self.gym_kwargs)}}
