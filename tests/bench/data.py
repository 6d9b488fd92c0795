# SPDX-License-Identifier: Apache-2.0
"""Measure recording and reading of datasets, beside LeRobot where it is installed; each case in a fresh process.

Prints a table, then one JSON object a line. LeRobot is measured when ULNA_LEROBOT_PYTHON names the interpreter of an
environment that has it. Datasets for reading are written once into a folder that `--scratch` keeps.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from data_cases import CASES

Figures = dict[str, tuple[float, str]]
BUILD = "build"
TIMEOUT_S = 900


def run(python: str, library: str, case: str, scratch: Path) -> Figures:
    """Run one case in a fresh process and return its figures; a failure is a figure too."""
    for old in scratch.glob(f"{library}_*"):
        shutil.rmtree(old)
    script = Path(__file__).with_name("data_cases.py")
    offline = {"HF_HUB_OFFLINE": "1", "HF_LEROBOT_HOME": str(scratch / "home"), "HF_HOME": str(scratch / "home" / "hf")}
    done = subprocess.run(
        [python, str(script), "--library", library, "--scratch", str(scratch), case],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **offline, "ULNA_HOME": str(scratch / "home" / "ulna")},
        check=False,
    )
    figures: Figures = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            figures[row["metric"]] = (row["value"], row["unit"])
    if done.returncode != 0:
        print(f"{library}: {case}: exit {done.returncode}\n{done.stderr[-1500:]}", file=sys.stderr)
        figures["FAILED"] = (float(done.returncode), "")
    return figures


def median(runs: list[Figures]) -> Figures:
    """Return the median of every figure."""
    names = dict.fromkeys(name for figures in runs for name in figures)
    found = {name: [figures[name] for figures in runs if name in figures] for name in names}
    return {name: (statistics.median(v for v, _ in pairs), pairs[0][1]) for name, pairs in found.items()}


def show(case: str, measured: dict[str, Figures]) -> list[dict[str, Any]]:
    """Print the rows of a case and return them."""
    ours, theirs = measured["ulna"], measured.get("lerobot", {})
    rows = []
    for name in dict.fromkeys([*ours, *theirs]):
        (a, unit), (b, other) = ours.get(name, (float("nan"), "")), theirs.get(name, (float("nan"), ""))
        unit = unit or other
        more = unit.endswith("/s") or unit == "Hz"
        ratio = (a / b if more else b / a) if a and b else float("nan")
        print(f"{case:30} {name:40} {a:10.4g} {b:10.4g} {ratio:8.2f}x  {unit}", flush=True)
        rows.append({"case": case, "metric": name, "ulna": a, "lerobot": b, "unit": unit})
    return rows


def main() -> int:
    """Measure everything and print it.

    Returns:
        0 when every case ran.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="runs of each case, whose median counts")
    parser.add_argument("--only", default="", help="only the cases whose name contains this text")
    parser.add_argument("--scratch", type=Path, help="folder for the datasets, kept for the next time")
    chosen = parser.parse_args()
    pythons = {"ulna": sys.executable}
    if peer := os.environ.get("ULNA_LEROBOT_PYTHON"):
        pythons["lerobot"] = peer
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        scratch = (chosen.scratch or Path(temporary)).resolve()
        scratch.mkdir(parents=True, exist_ok=True)
        if "FAILED" in run(sys.executable, "ulna", BUILD, scratch):
            return 1
        print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores\n")
        print(f"{'case':30} {'figure':40} {'ulna':>10} {'lerobot':>10} {'better':>9}")
        for case in CASES:
            if case == BUILD or chosen.only not in case:
                continue
            measured = {
                name: median([run(python, name, case, scratch) for _ in range(chosen.runs)])
                for name, python in pythons.items()
            }
            rows.extend(show(case, measured))
    print()
    for row in rows:
        print(json.dumps(row))
    return int(any(row["metric"] == "FAILED" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
