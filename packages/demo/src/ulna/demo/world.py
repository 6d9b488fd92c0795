# SPDX-License-Identifier: Apache-2.0
"""The simulated world of the demo and the real drivers connected to it, found through the registry like anybody's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ulna.control import Phase, Runtime
from ulna.core.factories import make_robot_from_config, make_teleoperator_from_config
from ulna.core.robots import Robot, RobotConfig
from ulna.core.teleoperators import Teleoperator, TeleoperatorConfig
from ulna.demo.config import DemoConfig
from ulna.sim import ScriptedExpert, Simulation

__all__ = ["CAMERAS", "DemoWorld", "ExpertSource", "demo_world"]

CAMERAS = ("front", "top")
"""Views that are recorded."""


@dataclass
class DemoWorld:
    """A running simulation, the arms connected to it, and the expert. Made by `demo_world`, which closes it.

    Attributes:
        sim: The simulation, on a virtual clock.
        robot: The follower, not connected.
        teleop: The leader, not connected.
        expert: The scripted operator of the leader.
    """

    sim: Simulation
    robot: Robot
    teleop: Teleoperator
    expert: ScriptedExpert

    def begin(self, seed: int) -> None:
        """Put the arms to rest, draw a new target and let the expert plan.

        Args:
            seed: Draws the target and the expert's style.
        """
        self.sim.reset(seed)
        self.expert.begin()

    def runtime(self, first_seed: int, **options: Any) -> Runtime:
        """Return a runtime on the simulation's clock that gives every episode the next seed.

        Args:
            first_seed: Seed of the first episode; the world is set up for it at once.
            **options: Other fields of `Runtime`; `on_phase` is called too.

        Returns:
            The runtime.
        """
        seeds = iter(range(first_seed + 1, first_seed + 1_000_000))
        told = options.pop("on_phase", None)
        self.begin(first_seed)

        def on_phase(phase: Phase) -> None:
            if phase.name == "reset":
                self.begin(next(seeds))
            if told is not None:
                told(phase)

        return Runtime(clock=self.sim.clock, on_phase=on_phase, **options)


class ExpertSource:
    """Answers observations with the leader's pose while the expert moves it: how good a demonstration is.

    Args:
        world: The world; its leader must be connected.
    """

    def __init__(self, world: DemoWorld) -> None:
        self._world = world

    def reset(self) -> None:
        """Plan anew for the present target."""
        self._world.expert.begin()

    def act(self, observation: Mapping[str, Any]) -> dict[str, float]:
        """Move the leader on by one step and read its pose."""
        self._world.expert.step()
        return self._world.teleop.get_action()


@contextmanager
def demo_world(config: DemoConfig, folder: Path) -> Iterator[DemoWorld]:
    """Start a simulation as fast as possible, with calibrated arms and two cameras.

    Args:
        config: Settings.
        folder: Where calibration files go.

    Yields:
        The world.
    """
    name = f"demo-{config.seed}"
    with Simulation(name, seed=config.seed, realtime=False) as sim:
        sim.write_calibration(folder, {"leader": "demo_leader", "follower": "demo_follower"}, nested=False)
        size = {"width": config.image_size, "height": config.image_size, "fps": config.fps}
        cameras = {view: {"type": "sim", "world": name, "view": view, **size} for view in CAMERAS}
        arms = {"calibration_dir": folder}
        robot = RobotConfig.choose(
            {"type": "so101_follower", "port": sim.ports["follower"], "id": "demo_follower", "cameras": cameras, **arms}
        )
        teleop = TeleoperatorConfig.choose(
            {"type": "so101_leader", "port": sim.ports["leader"], "id": "demo_leader", **arms}
        )
        expert = ScriptedExpert(sim, rate_hz=config.fps, seed=config.seed)
        yield DemoWorld(sim, make_robot_from_config(robot), make_teleoperator_from_config(teleop), expert)
