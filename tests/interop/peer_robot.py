# SPDX-License-Identifier: Apache-2.0
"""Run by an interpreter that has LeRobot: connects its SO-101 arms to ports and tells what they read."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import draccus
import numpy as np
from lerobot.robots.config import RobotConfig
from lerobot.robots.so_follower import SO101FollowerConfig, SOFollower
from lerobot.teleoperators.so_leader import SO101LeaderConfig, SOLeader


def connect(device: SOFollower | SOLeader) -> None:
    """LeRobot asks each motor once whether it is there, and on a busy machine a simulated one may answer too late."""
    for attempt in range(10):
        try:
            device.connect(calibrate=False)
        except (RuntimeError, ConnectionError):
            if attempt == 9:
                raise
            device.bus.port_handler.closePort()
        else:
            return


def main() -> None:
    target, request = sys.argv[1], json.loads(sys.argv[2])
    facts = {}
    if "config" in request:
        config = draccus.decode(RobotConfig, request["config"])
    else:
        place = {"id": "sim", "calibration_dir": Path(request["follower_calibration"])}
        config = SO101FollowerConfig(port=request["follower"], use_degrees=request["use_degrees"], **place)
    facts["config"] = draccus.encode(config, RobotConfig)
    robot = SOFollower(config)
    connect(robot)
    try:
        facts["is_calibrated"] = robot.is_calibrated
        facts["observation"] = robot.get_observation()
        facts["registers"] = {name: asdict(values) for name, values in robot.bus.read_calibration().items()}
        facts["file"] = {name: asdict(values) for name, values in robot.calibration.items()}
    finally:
        robot.disconnect()
    if "leader" in request:
        place = {"id": "sim", "calibration_dir": Path(request["leader_calibration"])}
        leader = SOLeader(SO101LeaderConfig(port=request["leader"], use_degrees=request["use_degrees"], **place))
        connect(leader)
        try:
            facts["leader_is_calibrated"] = leader.is_calibrated
            facts["action"] = leader.get_action()
        finally:
            leader.disconnect()
    np.savez(target, facts=np.array(json.dumps(facts, default=str)))


if __name__ == "__main__":
    main()
