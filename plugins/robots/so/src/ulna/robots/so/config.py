# SPDX-License-Identifier: Apache-2.0
"""Settings of SO arms, single and in pairs. Loads no serial library."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ulna.core.cameras import CameraConfig
from ulna.core.config import Config
from ulna.core.errors import ConfigError, ConfigProblem
from ulna.core.robots import RobotConfig
from ulna.core.teleoperators import TeleoperatorConfig
from ulna.robots.so.joints import JOINTS

__all__ = [
    "BiSOFollowerConfig",
    "BiSOLeaderConfig",
    "SOFollowerConfig",
    "SOFollowerRobotConfig",
    "SOLeaderConfig",
    "SOLeaderTeleopConfig",
]


class SOLeaderConfig(Config):
    """Settings of one leader arm, without its identity."""

    port: str = Field(description="Serial device, /dev/ttyACM0 or COM3.")
    use_degrees: bool = Field(
        True, description="Joints in degrees instead of -100..100; the gripper is 0..100 either way."
    )
    num_read_retries: int = Field(2, ge=0, description="How often a lost exchange is repeated.")


class SOFollowerConfig(SOLeaderConfig):
    """Settings of one follower arm, without its identity."""

    disable_torque_on_disconnect: bool = Field(True, description="Let the arm go limp when it is disconnected.")
    max_relative_target: float | dict[str, float] | None = Field(
        None, description="Furthest a goal may lie from where a joint is; one for all, or joint to distance."
    )
    cameras: dict[str, CameraConfig] = Field(default_factory=dict, description="Name to camera.")
    position_p_coefficient: int = Field(16, ge=0, le=254, description="P gain; the servo's own 32 makes the arm shake.")
    position_i_coefficient: int = Field(0, ge=0, le=254, description="I gain.")
    position_d_coefficient: int = Field(32, ge=0, le=254, description="D gain.")

    @field_validator("max_relative_target")
    @classmethod
    def _limits_are_sound(cls, value: float | dict[str, float] | None) -> float | dict[str, float] | None:
        if isinstance(value, dict) and set(value) != set(JOINTS):
            raise ValueError(f"one distance, or one for each of {', '.join(JOINTS)}")
        limits = value.values() if isinstance(value, dict) else [] if value is None else [value]
        if not all(math.isfinite(limit) and limit >= 0 for limit in limits):
            raise ValueError("finite distances of zero or more")
        return value


class SOFollowerRobotConfig(RobotConfig, SOFollowerConfig):
    """A follower arm as a robot. SO-100 and SO-101 differ in their parts, not in their settings."""

    implementation: ClassVar[str] = "ulna.robots.so.follower:SOFollower"

    type: Literal["so100_follower", "so101_follower"] = "so101_follower"


class SOLeaderTeleopConfig(TeleoperatorConfig, SOLeaderConfig):
    """A leader arm as a teleoperator."""

    implementation: ClassVar[str] = "ulna.robots.so.leader:SOLeader"

    type: Literal["so100_leader", "so101_leader"] = "so101_leader"


class BiSOFollowerConfig(RobotConfig):
    """A left and a right follower as one robot. Cameras here keep their names, those of an arm get its prefix."""

    implementation: ClassVar[str] = "ulna.robots.so.bimanual:BiSOFollower"

    type: Literal["bi_so_follower"] = "bi_so_follower"
    left_arm_config: SOFollowerConfig = Field(description="The left arm.")
    right_arm_config: SOFollowerConfig = Field(description="The right arm.")
    cameras: dict[str, CameraConfig] = Field(default_factory=dict, description="Cameras of no arm: name to camera.")

    @model_validator(mode="after")
    def _camera_names_differ(self) -> BiSOFollowerConfig:
        arms = {"left": self.left_arm_config, "right": self.right_arm_config}
        for side, arm in arms.items():
            SOFollowerRobotConfig(**_settings(arm))
            taken = [f"{side}_{name}" for name in arm.cameras if f"{side}_{name}" in self.cameras]
            if taken:
                text = f"another name; a camera of the {side} arm becomes {taken[0]} too"
                raise ConfigError([ConfigProblem(f"cameras.{taken[0]}", None, text)], title="cameras")
        return self

    def arm(self, side: Literal["left", "right"]) -> SOFollowerRobotConfig:
        """Return the settings of one arm as a robot of its own, called `<id>_<side>`.

        Args:
            side: Which arm.
        """
        chosen = self.left_arm_config if side == "left" else self.right_arm_config
        return SOFollowerRobotConfig(
            **_settings(chosen), **_identity(self.id, side), calibration_dir=self.calibration_dir
        )


class BiSOLeaderConfig(TeleoperatorConfig):
    """A left and a right leader as one teleoperator."""

    implementation: ClassVar[str] = "ulna.robots.so.bimanual:BiSOLeader"

    type: Literal["bi_so_leader"] = "bi_so_leader"
    left_arm_config: SOLeaderConfig = Field(description="The left arm.")
    right_arm_config: SOLeaderConfig = Field(description="The right arm.")

    def arm(self, side: Literal["left", "right"]) -> SOLeaderTeleopConfig:
        """Return the settings of one arm as a teleoperator of its own, called `<id>_<side>`.

        Args:
            side: Which arm.
        """
        chosen = self.left_arm_config if side == "left" else self.right_arm_config
        return SOLeaderTeleopConfig(
            **_settings(chosen), **_identity(self.id, side), calibration_dir=self.calibration_dir
        )


def _settings(arm: Config) -> dict[str, Any]:
    """Return the fields of a config by name, values untouched: cameras stay what they are."""
    return {name: getattr(arm, name) for name in type(arm).model_fields}


def _identity(id: str | None, side: str) -> dict[str, str | None]:
    return {"id": None if id is None else f"{id}_{side}"}
