# SPDX-License-Identifier: Apache-2.0
"""Every problem of a configuration is reported at once, with its path and the nearest name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import pytest
from pydantic import Field

from ulna.core.cameras import CameraConfig
from ulna.core.config import Config, PluginConfig
from ulna.core.errors import ConfigError
from ulna.core.plugins import Registry, use_registry
from ulna.core.robots import RobotConfig


class EyeConfig(CameraConfig):
    """A camera."""

    type: Literal["eye"] = "eye"
    index: int = 0


class ArmConfig(RobotConfig):
    """A robot with two type strings."""

    implementation: ClassVar[str] = "collections:OrderedDict"
    type: Literal["arm_a", "arm_b"] = "arm_b"
    port: str
    cameras: dict[str, CameraConfig] = Field(default_factory=dict)


class CellConfig(Config):
    """Something with a robot in it."""

    robot: RobotConfig
    fps: int = 30


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    registry = Registry(list, environ={})
    registry.register("robots", "arm_a", ArmConfig)
    registry.register("robots", "arm_b", ArmConfig)
    registry.register("cameras", "eye", EyeConfig)
    with use_registry(registry):
        yield


def test_a_mapping_becomes_the_plugins_class_and_keeps_its_type() -> None:
    data = {"robot": {"type": "arm_a", "port": "/dev/x"}}
    cell = CellConfig.build(data)
    assert isinstance(cell.robot, ArmConfig)
    assert cell.robot.type == "arm_a"
    assert cell.to_dict()["robot"]["port"] == "/dev/x"
    assert CellConfig.build(cell.to_dict()) == cell


def test_nested_plugins_are_chosen_too() -> None:
    eye = {"type": "eye", "width": 4, "height": 3, "fps": 5, "index": 2}
    robot = RobotConfig.choose({"type": "arm_b", "port": "p", "cameras": {"front": eye}})
    assert isinstance(robot, ArmConfig)
    assert isinstance(robot.cameras["front"], EyeConfig)
    assert robot.to_dict()["cameras"]["front"]["index"] == 2


def test_everything_wrong_is_reported_at_once() -> None:
    cameras = {"front": {"type": "eye", "idnex": 1}, "top": {"type": "eie"}}
    with pytest.raises(ConfigError) as caught:
        CellConfig.build({"robot": {"type": "arm_a", "cameras": cameras}, "fsp": 5, "fps": "fast"})
    found = {p.path: p for p in caught.value.problems}
    assert {"robot.port", "robot.cameras.front.idnex", "robot.cameras.top.type", "fsp", "fps"} <= set(found)
    assert found["robot.cameras.front.idnex"].suggestion == "index"
    assert found["robot.cameras.top.type"].suggestion == "eye"
    assert found["fsp"].suggestion == "fps"


def test_a_missing_type_lists_what_is_installed() -> None:
    with pytest.raises(ConfigError, match="arm_a, arm_b"):
        RobotConfig.choose({"port": "p"})
    with pytest.raises(ConfigError, match="arm_a, arm_b"):
        CellConfig.build({"robot": "arm_a"})


def test_cameras_of_a_robot_need_their_size_and_rate() -> None:
    with pytest.raises(ConfigError, match=r"cameras\.front\.height"):
        ArmConfig(port="p", cameras={"front": EyeConfig(width=4, fps=5)})


def test_constructing_and_assigning_report_the_same_way() -> None:
    with pytest.raises(ConfigError, match="port"):
        ArmConfig()  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="type"):
        ArmConfig(port="p", type="arm_c")  # type: ignore[arg-type]


def test_the_implementation_is_found_by_its_name() -> None:
    from collections import OrderedDict

    assert ArmConfig(port="p").load_implementation() is OrderedDict


def test_a_base_cannot_be_mistaken_for_a_plugin() -> None:
    assert RobotConfig.plugin_base
    assert not ArmConfig.__dict__.get("plugin_base", False)
    assert issubclass(ArmConfig, PluginConfig)
