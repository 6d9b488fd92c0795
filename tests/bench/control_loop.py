# SPDX-License-Identifier: Apache-2.0
"""Teleoperation of two SO-101 arms at 60 Hz on simulated wires: rate, jitter, CPU; LeRobot's beside ours.

    python tests/bench/control_loop.py [--seconds 10] [--repeat 3] [--servos SCRIPT]

Set ULNA_LEROBOT_PYTHON to the interpreter of an environment with lerobot[feetech] to measure both. The servos run in
processes of their own: ours (`ulna.sim`, replies paced as on a 1 Mbaud wire), or one process of SCRIPT for each arm,
which must print the path of its port. Jitter is |time between two observations - period|, CPU that of the client alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NAMES = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
FPS = 60
WARM_UP = 10


def main() -> int:
    """Measure every implementation in turns, and print the median of each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--servos", type=Path, help="script that simulates one arm and prints its port")
    parser.add_argument("--client", choices=list(CLIENTS), help=argparse.SUPPRESS)
    parser.add_argument("--ports", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--calibration", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(json.dumps(CLIENTS[options.client](*options.ports, options.calibration, options.seconds)))
        return 0
    pythons = {"ulna": sys.executable}
    if os.environ.get("ULNA_LEROBOT_PYTHON"):
        pythons["lerobot"] = os.environ["ULNA_LEROBOT_PYTHON"]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    for _ in range(options.repeat):
        for name, python in pythons.items():
            with tempfile.TemporaryDirectory() as folder, servos(options.servos, Path(folder)) as ports:
                runs[name].append(measure(name, python, ports, Path(folder), options.seconds))
    figures = list(runs["ulna"][0])
    print(f"{'':10}" + "".join(f"{figure:>16}" for figure in figures))
    for name, found in runs.items():
        print(f"{name:10}" + "".join(f"{sorted(r[f] for r in found)[len(found) // 2]:16.3f}" for f in figures))
    return 0


def measure(name: str, python: str, ports: list[str], calibration: Path, seconds: float) -> dict[str, float]:
    """Run one client in a process of its own.

    Args:
        name: Which client.
        python: Its interpreter.
        ports: Ports of leader and follower.
        calibration: Folder of `leader.json` and `follower.json`.
        seconds: How long.

    Returns:
        Figure to value.
    """
    command = [python, __file__, "--client", name, "--ports", *ports]
    command += ["--calibration", str(calibration), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def servos(script: Path | None, folder: Path) -> Iterator[list[str]]:
    """Run the simulated servos and write calibration files that agree with them.

    Args:
        script: Simulator of one arm, or None for our own.
        folder: Where the calibration files go.

    Yields:
        Ports of leader and follower.
    """
    if script is None:
        commands = [[sys.executable, "-c", WORLD, str(folder)]]
    else:
        commands = [[sys.executable, str(script)]] * 2
        values = {n: _plain_calibration(i) for i, n in enumerate(NAMES, start=1)}
        for arm in ("leader", "follower"):
            (folder / f"{arm}.json").write_text(json.dumps(values))
    children = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True) for c in commands]
    try:
        ports: list[str] = []
        for child in children:
            assert child.stdout is not None
            ports += child.stdout.readline().split()
        yield ports
    finally:
        for child in children:
            child.kill()
            child.wait()


def _plain_calibration(ident: int) -> dict[str, int]:
    return {"id": ident, "drive_mode": 0, "homing_offset": 0, "range_min": 0, "range_max": 4095}


WORLD = """
import sys, threading
from ulna.sim import Simulation
with Simulation("bench", paced=True) as sim:
    sim.write_calibration(sys.argv[1], {"leader": "leader", "follower": "follower"}, nested=False)
    print(sim.ports["leader"], sim.ports["follower"], flush=True)
    threading.Event().wait()
"""


def ulna(leader_port: str, follower_port: str, calibration: Path, seconds: float) -> dict[str, float]:
    """Teleoperate with this project.

    Args:
        leader_port: Port of the leader.
        follower_port: Port of the follower.
        calibration: Folder of the calibration files.
        seconds: How long.

    Returns:
        Figure to value.
    """
    from ulna.control import TeleoperateSettings, run_teleoperation
    from ulna.core.factories import make_robot_from_config, make_teleoperator_from_config
    from ulna.core.robots import RobotConfig
    from ulna.core.teleoperators import TeleoperatorConfig

    place = {"calibration_dir": str(calibration)}
    follower = {"type": "so101_follower", "port": follower_port, "id": "follower", **place}
    leader = {"type": "so101_leader", "port": leader_port, "id": "leader", **place}
    robot = make_robot_from_config(RobotConfig.choose(follower))
    teleop = make_teleoperator_from_config(TeleoperatorConfig.choose(leader))
    with teleop, robot:
        return timed(
            robot, lambda: run_teleoperation(robot, teleop, TeleoperateSettings(fps=FPS, teleop_time_s=seconds))
        )


def lerobot(leader_port: str, follower_port: str, calibration: Path, seconds: float) -> dict[str, float]:
    """Teleoperate with LeRobot's own loop.

    Args:
        leader_port: Port of the leader.
        follower_port: Port of the follower.
        calibration: Folder of the calibration files.
        seconds: How long.

    Returns:
        Figure to value.
    """
    from lerobot.processor import make_default_processors
    from lerobot.robots.so_follower import SO101FollowerConfig, SOFollower
    from lerobot.scripts.lerobot_teleoperate import teleop_loop
    from lerobot.teleoperators.so_leader import SO101LeaderConfig, SOLeader

    robot = SOFollower(SO101FollowerConfig(port=follower_port, id="follower", calibration_dir=calibration))
    teleop = SOLeader(SO101LeaderConfig(port=leader_port, id="leader", calibration_dir=calibration))
    action, sent, seen = make_default_processors()
    with teleop, robot, contextlib.redirect_stdout(sys.stderr):
        return timed(
            robot,
            lambda: teleop_loop(
                teleop=teleop,
                robot=robot,
                fps=FPS,
                teleop_action_processor=action,
                robot_action_processor=sent,
                robot_observation_processor=seen,
                duration=seconds,
            ),
        )


def timed(robot: Any, run: Callable[[], object]) -> dict[str, float]:
    """Note when each observation begins while something runs.

    Args:
        robot: Its `get_observation` is noted.
        run: What runs.

    Returns:
        Figure to value.
    """
    stamps: list[float] = []
    observe = robot.get_observation

    def noted() -> Any:
        stamps.append(time.perf_counter())
        return observe()

    robot.get_observation = noted
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    cores = (time.process_time() - cpu) / (time.perf_counter() - wall)
    stamps = stamps[WARM_UP:]
    gaps = [b - a for a, b in zip(stamps, stamps[1:])]  # noqa: B905, RUF007 - also runs on LeRobot's interpreter
    off = sorted(abs(gap - 1 / FPS) * 1e3 for gap in gaps)
    return {
        "rate Hz": len(gaps) / (stamps[-1] - stamps[0]),
        "jitter p50 ms": off[len(off) // 2],
        "jitter p99 ms": off[int(0.99 * (len(off) - 1))],
        "jitter max ms": off[-1],
        "CPU cores": cores,
    }


CLIENTS: dict[str, Callable[[str, str, Path, float], dict[str, float]]] = {"ulna": ulna, "lerobot": lerobot}

if __name__ == "__main__":
    raise SystemExit(main())
