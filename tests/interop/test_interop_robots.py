# SPDX-License-Identifier: Apache-2.0
"""LeRobot's SO-101 and ours on the same simulated servos: settings and calibration files exchanged, same readings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ulna.core import make_robot_from_config, make_teleoperator_from_config
from ulna.core.robots import RobotConfig
from ulna.core.teleoperators import TeleoperatorConfig
from ulna.sim import Simulation
from ulna.sim.kinematics import JOINT_LIMITS
from ulna.testing.peer import Peer, needs_peer

pytestmark = [*needs_peer, pytest.mark.xdist_group("interop")]

ROBOT = Path(__file__).parent / "peer_robot.py"


@pytest.fixture
def sim() -> Iterator[Simulation]:
    """Both arms in a pose that is nowhere near the middle; no time passes, so nothing moves between two readings."""
    with Simulation("interop", realtime=False) as world:
        share = {"leader": 0.3, "follower": 0.7}
        for arm, part in share.items():
            world.hand(arm).set({joint: low + part * (high - low) for joint, (low, high) in JOINT_LIMITS.items()})
        world.clock.sleep(0.5)
        yield world


@pytest.mark.parametrize("use_degrees", [True, False])
def test_same_readings_from_one_bus(use_degrees: bool, sim: Simulation, lerobot_peer: Peer, tmp_path: Path) -> None:
    """One calibration file, one bus: each project reads the same registers and the same joint values."""
    files = sim.write_calibration(tmp_path, nested=True)
    places = {arm: str(file.parent) for arm, file in files.items()}
    request = {arm: sim.ports[arm] for arm in files} | {f"{arm}_calibration": place for arm, place in places.items()}
    theirs = lerobot_peer.ask(ROBOT, tmp_path / "peer.npz", use_degrees=use_degrees, **request)["facts"]
    assert theirs["is_calibrated"]
    assert theirs["leader_is_calibrated"]
    common = {"id": "sim", "use_degrees": use_degrees}
    follower = {"type": "so101_follower", "port": sim.ports["follower"], "calibration_dir": places["follower"]}
    leader = {"type": "so101_leader", "port": sim.ports["leader"], "calibration_dir": places["leader"]}
    with make_robot_from_config(RobotConfig.choose({**follower, **common})) as robot:
        assert robot.is_calibrated
        observation = robot.get_observation()
        assert {name: vars(values) for name, values in robot.calibration.items()} == theirs["file"]
    assert json.loads(files["follower"].read_text()) == theirs["file"]
    assert theirs["registers"] == theirs["file"]
    with make_teleoperator_from_config(TeleoperatorConfig.choose({**leader, **common})) as teleop:
        action = teleop.get_action()
    assert observation == pytest.approx(theirs["observation"], abs=1e-9)
    assert action == pytest.approx(theirs["action"], abs=1e-9)
    assert list(observation) == list(theirs["observation"])
    assert list(action) == list(theirs["action"])
    assert max(abs(value) for value in observation.values()) > 10


def test_settings_of_a_robot_travel_both_ways(sim: Simulation, lerobot_peer: Peer, tmp_path: Path) -> None:
    """Settings that we write, LeRobot opens and drives the arm with; those that it writes are ours again."""
    files = sim.write_calibration(tmp_path, nested=True)
    given: dict[str, Any] = {"port": sim.ports["follower"], "id": "sim", "position_p_coefficient": 20}
    given |= {"type": "so101_follower", "calibration_dir": str(files["follower"].parent), "max_relative_target": 7.5}
    camera = {"type": "opencv", "index_or_path": 0, "width": 640, "height": 480, "fps": 30}
    ours = RobotConfig.choose(given)
    theirs = lerobot_peer.ask(ROBOT, tmp_path / "peer.npz", config=ours.to_dict())["facts"]
    assert set(theirs["config"]) == set(ours.to_dict())
    back = RobotConfig.choose(theirs["config"])
    assert back.to_dict() | {"type": "so101_follower"} == ours.to_dict()
    assert RobotConfig.choose({**theirs["config"], "cameras": {"front": camera}}).cameras["front"].width == 640
