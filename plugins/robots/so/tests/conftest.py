# SPDX-License-Identifier: Apache-2.0
"""Simulated SO arms with calibration files, and drivers made for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ulna.motors.feetech import FeetechMotorsBus
from ulna.robots.so import SOFollower, SOFollowerRobotConfig, SOLeader, SOLeaderTeleopConfig
from ulna.sim.settling import settled_ports
from ulna.sim.simulation import Simulation


@pytest.fixture(autouse=True)
def times_of_the_simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A simulated bus answers at once: what it has not answered when it has settled is lost."""
    monkeypatch.setattr(FeetechMotorsBus, "scan_window_s", 0.02)
    monkeypatch.setattr(FeetechMotorsBus, "reply_timeout_s", 0.02)
    with settled_ports():
        yield


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Simulation]:
    """A leader and a follower on simulated time, with calibration files for the id `sim` in `tmp_path`."""
    with Simulation(f"so-{tmp_path.name}", realtime=False, log_wire=True) as world:
        world.write_calibration(tmp_path / "calibration", nested=True)
        yield world


@pytest.fixture
def settings(sim: Simulation, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Make the settings of a simulated arm by its name in the simulation."""
    folders = {"follower": "robots/so_follower", "leader": "teleoperators/so_leader"}

    def make(arm: str, **more: Any) -> dict[str, Any]:
        folder = tmp_path / "calibration" / folders[arm]
        return {"port": sim.ports[arm], "id": "sim", "calibration_dir": folder, **more}

    return make


@pytest.fixture
def make_follower(settings: Callable[..., dict[str, Any]]) -> Iterator[Callable[..., SOFollower]]:
    """Make followers of the simulated arm; they are closed after the test."""
    made: list[SOFollower] = []

    def make(**more: Any) -> SOFollower:
        made.append(SOFollower(SOFollowerRobotConfig(**settings("follower", **more))))
        return made[-1]

    yield make
    for robot in made:
        robot.bus.serial.close()


@pytest.fixture
def leader(settings: Callable[..., dict[str, Any]]) -> Iterator[SOLeader]:
    """A leader of the simulated arm, not connected."""
    leader = SOLeader(SOLeaderTeleopConfig(**settings("leader")))
    yield leader
    leader.bus.serial.close()
