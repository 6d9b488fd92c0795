# SPDX-License-Identifier: Apache-2.0
"""Measure how long the commands take to start and how much memory they need, beside LeRobot's where it is installed.

Prints a table, then one JSON object a line. LeRobot is measured when ULNA_LEROBOT_PYTHON names the interpreter of an
environment that has it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tooling import crowds, processes

Case = tuple[str, str, list[str], dict[str, str]]
PLUGINS = 40


def ulna_cases(crowd: Path) -> Iterator[Case]:
    """Yield the measured uses of Ulna: program, label, command and variables."""
    python, command = sys.executable, str(Path(sys.executable).with_name("ulna"))
    many = {"PYTHONPATH": str(crowd)}
    yield "python", "start and exit", [python, "-c", "pass"], {}
    yield "ulna", "import ulna.core", [python, "-c", "import ulna.core"], {}
    yield "ulna", "ulna --help", [command, "--help"], {}
    yield "ulna", "ulna plugins list", [command, "plugins", "list"], {}
    yield "ulna", f"ulna plugins list ({PLUGINS} more plugins)", [command, "plugins", "list"], many
    yield "ulna", "ulna train --policy.type=act --help", [command, "train", "--policy.type=act", "--help"], {}
    yield "ulna", "ulna record --help", [command, "record", "--help"], {}
    yield "ulna", "ulna teleoperate --help", [command, "teleoperate", "--help"], {}


def lerobot_cases(python: str) -> Iterator[Case]:
    """Yield the same uses of LeRobot, as far as it has them."""
    folder = Path(python).parent
    yield "lerobot", "import lerobot", [python, "-c", "import lerobot"], {}
    for name in ("lerobot-train", "lerobot-record", "lerobot-teleoperate", "lerobot-find-cameras"):
        options = ["--policy.type=act", "--help"] if name == "lerobot-train" else ["--help"]
        yield "lerobot", " ".join([name, *options]), [str(folder / name), *options], {}


def main() -> int:
    """Measure everything and print it.

    Returns:
        0 when every command exited with 0.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="measured runs of each command, after one to warm up")
    runs = parser.parse_args().runs
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        crowds.install(Path(scratch), PLUGINS)
        cases = list(ulna_cases(Path(scratch)))
        if python := os.environ.get("ULNA_LEROBOT_PYTHON"):
            cases += lerobot_cases(python)
        print(
            f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, median of {runs} runs\n"
        )
        print(f"{'command':48} {'ms':>7} {'peak MB':>8}")
        for program, label, command, extra in cases:
            variables = {**os.environ, **extra}
            measured = [processes.measure(command, variables) for _ in range(runs + 1)][1:]
            wall = statistics.median(run.wall_s for run in measured) * 1e3
            peak = statistics.median(run.peak_mb for run in measured)
            status = max(abs(run.status) for run in measured)
            print(f"{label:48} {wall:7.0f} {peak:8.0f}{'' if status == 0 else f'   exit {status}'}", flush=True)
            results.append({"program": program, "command": label, "wall_ms": wall, "peak_mb": peak, "status": status})
    print()
    for result in results:
        print(json.dumps(result))
    return 0 if all(result["status"] == 0 for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
