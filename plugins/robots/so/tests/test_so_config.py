# SPDX-License-Identifier: Apache-2.0
"""Settings of SO arms: names, defaults and aliases are those that files and commands of others use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ulna.core.config import PluginConfig
from ulna.core.errors import ConfigError
from ulna.core.plugins import registry
from ulna.core.robots import RobotConfig
from ulna.core.teleoperators import TeleoperatorConfig
from ulna.robots.so import (
    BiSOFollower,
    BiSOFollowerConfig,
    BiSOLeader,
    BiSOLeaderConfig,
    SOFollower,
    SOFollowerRobotConfig,
    SOLeader,
    SOLeaderTeleopConfig,
)

FACTS = json.loads((Path(__file__).parent / "golden" / "so_configs.json").read_text())
CAMERA = {"type": "opencv", "index_or_path": 0, "width": 64, "height": 48, "fps": 30}


@pytest.mark.parametrize(("kind", "type_"), [(kind, name) for kind, names in FACTS.items() for name in names])
def test_fields_and_defaults(kind: str, type_: str) -> None:
    """Every published field exists with its default; a required one is required."""
    cls = registry().config_class(kind, type_)
    for field in FACTS[kind][type_]["fields"]:
        info = cls.model_fields[field["name"]]
        if isinstance(field["default"], dict) and field["default"].get("required"):
            assert info.is_required()
        else:
            assert info.get_default(call_default_factory=True) == field["default"]


@pytest.mark.parametrize("type_", ["so100_follower", "so101_follower"])
def test_a_follower_keeps_the_type_that_was_asked_for(type_: str) -> None:
    """Two types share a class; the settings and the robot still say which one it is."""
    config = RobotConfig.choose({"type": type_, "port": "/dev/ttyACM0"})
    assert isinstance(config, SOFollowerRobotConfig)
    assert config.type == config.to_dict()["type"] == type_
    robot = SOFollower(config)
    assert robot.robot_type == type_
    assert robot.name == "so_follower"


@pytest.mark.parametrize("type_", ["so100_leader", "so101_leader"])
def test_a_leader_keeps_the_type_that_was_asked_for(type_: str) -> None:
    """The same for leaders."""
    config = TeleoperatorConfig.choose({"type": type_, "port": "/dev/ttyACM0"})
    assert isinstance(config, SOLeaderTeleopConfig)
    assert config.type == type_
    assert SOLeader(config).name == "so_leader"


@pytest.mark.parametrize(
    ("config", "implementation"),
    [
        (SOFollowerRobotConfig, SOFollower),
        (SOLeaderTeleopConfig, SOLeader),
        (BiSOFollowerConfig, BiSOFollower),
        (BiSOLeaderConfig, BiSOLeader),
    ],
)
def test_configs_lead_to_their_devices(config: type[PluginConfig], implementation: type) -> None:
    """The implementation that a config names exists and names the config."""
    assert config.load_implementation() is implementation
    assert implementation.config_class is config  # type: ignore[attr-defined]


def test_a_camera_needs_its_size() -> None:
    """A robot's camera declares features, so width, height and fps are asked for."""
    with pytest.raises(ConfigError, match=r"cameras\.front\.width"):
        SOFollowerRobotConfig(port="p", cameras={"front": {**CAMERA, "width": None}})


def test_a_limit_for_each_joint_names_joints() -> None:
    """A misspelled joint is noticed when the settings are read, not while the arm moves."""
    with pytest.raises(ConfigError, match="max_relative_target"):
        SOFollowerRobotConfig(port="p", max_relative_target={"gripper": 5.0})
    with pytest.raises(ConfigError, match="max_relative_target"):
        SOFollowerRobotConfig(port="p", max_relative_target=-1.0)


def test_a_pair_gives_each_arm_its_own_settings() -> None:
    """Ids get a suffix, the calibration folder is shared, the other settings are the arm's."""
    config = RobotConfig.choose(
        {
            "type": "bi_so_follower",
            "id": "two",
            "calibration_dir": "/tmp/x",
            "left_arm_config": {"port": "/dev/l", "max_relative_target": 5},
            "right_arm_config": {"port": "/dev/r", "use_degrees": False, "cameras": {"wrist": CAMERA}},
            "cameras": {"top": CAMERA},
        }
    )
    assert isinstance(config, BiSOFollowerConfig)
    left, right = config.arm("left"), config.arm("right")
    assert (left.id, left.port, left.max_relative_target, left.cameras) == ("two_left", "/dev/l", 5.0, {})
    assert (right.id, right.port, right.use_degrees, list(right.cameras)) == ("two_right", "/dev/r", False, ["wrist"])
    assert left.calibration_dir == right.calibration_dir == Path("/tmp/x")
    robot = BiSOFollower(config)
    assert list(robot.cameras) == ["right_wrist", "top"]
    assert robot.observation_features["right_wrist"].plain == (48, 64, 3)
    assert list(robot.action_features)[:1] == ["left_shoulder_pan.pos"]
    assert len(robot.action_features) == 12


def test_a_pair_without_an_id() -> None:
    """No id stays no id."""
    arms: dict[str, Any] = {"left_arm_config": {"port": "l"}, "right_arm_config": {"port": "r"}}
    assert BiSOLeaderConfig(**arms).arm("left").id is None


def test_camera_names_of_a_pair_must_differ() -> None:
    """A camera of no arm must not take the name that a camera of an arm gets."""
    arms: dict[str, Any] = {
        "left_arm_config": {"port": "l", "cameras": {"wrist": CAMERA}},
        "right_arm_config": {"port": "r"},
    }
    with pytest.raises(ConfigError, match=r"cameras\.left_wrist: another name"):
        BiSOFollowerConfig(**arms, cameras={"left_wrist": CAMERA})
