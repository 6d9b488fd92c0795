# SPDX-License-Identifier: Apache-2.0
"""Cost of reading and writing six servos at once, on simulated wires; LeRobot's beside ours.

    python tests/bench/motor_bus.py [--seconds 2] [--repeat 3]

Set ULNA_LEROBOT_PYTHON to the interpreter of an environment with lerobot[feetech] to measure both. The servos run in a
process of their own, which answers at once or as a 1 Mbaud line would. CPU is that of the client alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

NAMES = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
WORLD = """
import sys, threading
from ulna.sim import Simulation
with Simulation("bench", arms=("follower",), paced=sys.argv[1] == "paced") as sim:
    print(sim.ports["follower"], flush=True)
    threading.Event().wait()
"""


def main() -> int:
    """Measure every implementation on both wires, and print the median of each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--client", nargs=2, metavar=("NAME", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(json.dumps(client(*options.client, options.seconds)))
        return 0
    pythons = {"ulna": sys.executable}
    if os.environ.get("ULNA_LEROBOT_PYTHON"):
        pythons["lerobot"] = os.environ["ULNA_LEROBOT_PYTHON"]
    for wire in ("instant", "paced"):
        for name, python in pythons.items():
            runs = [measure(name, python, wire, options.seconds) for _ in range(options.repeat)]
            figures = {f: sorted(r[f] for r in runs)[len(runs) // 2] for f in runs[0]}
            print(f"{wire:8}{name:9}" + "  ".join(f"{figure} {value:.1f}" for figure, value in figures.items()))
    return 0


def measure(name: str, python: str, wire: str, seconds: float) -> dict[str, float]:
    """Run one client in a process of its own against servos in another.

    Args:
        name: Which client.
        python: Its interpreter.
        wire: `instant` or `paced`.
        seconds: How long each call is repeated.

    Returns:
        Figure to value.
    """
    servos = subprocess.Popen([sys.executable, "-c", WORLD, wire], stdout=subprocess.PIPE, text=True)
    try:
        assert servos.stdout is not None
        port = servos.stdout.readline().strip()
        command = [python, __file__, "--client", name, port, "--seconds", str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds * 4 + 60)
        if done.returncode:
            raise SystemExit(f"{name} failed:\n{done.stderr}")
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found
    finally:
        servos.kill()
        servos.wait()


def client(name: str, port: str, seconds: float) -> dict[str, float]:
    """Read and write the six servos as often as it goes.

    Args:
        name: `ulna` or `lerobot`.
        port: The bus.
        seconds: How long each call is repeated.

    Returns:
        Figure to value.
    """
    bus: Any
    if name == "ulna":
        from ulna.core.motors import Motor, MotorCalibration, MotorNormMode
        from ulna.motors.feetech import FeetechMotorsBus
    else:
        from lerobot.motors import Motor, MotorCalibration, MotorNormMode
        from lerobot.motors.feetech import FeetechMotorsBus
    calibration = {n: MotorCalibration(i, 0, 0, 0, 4095) for i, n in enumerate(NAMES, start=1)}
    motors = {n: Motor(i, "sts3215", MotorNormMode.DEGREES) for i, n in enumerate(NAMES, start=1)}
    bus = FeetechMotorsBus(port=port, motors=motors, calibration=calibration)
    bus.connect()
    goal = dict.fromkeys(NAMES, 10.0)
    try:
        return {
            **_repeated("sync_read", lambda: bus.sync_read("Present_Position"), seconds),
            **_repeated("sync_write", lambda: bus.sync_write("Goal_Position", goal), seconds),
        }
    finally:
        bus.disconnect(disable_torque=False)


def _repeated(label: str, call: Callable[[], object], seconds: float) -> dict[str, float]:
    for _ in range(20):
        call()
    count, cpu, began = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() - began < seconds:
        call()
        count += 1
    spent = time.process_time() - cpu
    return {f"{label} Hz": count / (time.perf_counter() - began), f"{label} us CPU": spent / count * 1e6}


if __name__ == "__main__":
    raise SystemExit(main())
