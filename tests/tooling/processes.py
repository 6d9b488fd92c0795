# SPDX-License-Identifier: Apache-2.0
"""Run code in a fresh interpreter and report what it loaded, how long it took and how much memory it needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPORT = "ulna-modules:"

COMMAND = """
import sys
from importlib.metadata import entry_points
sys.argv = {words!r}
try:
    next(iter(entry_points(group="console_scripts", name="ulna"))).load()()
except SystemExit as stop:
    if stop.code not in (0, None):
        raise
"""


def modules_loaded_by(code: str, env: Mapping[str, str] | None = None) -> set[str]:
    """Run code in a fresh interpreter.

    Args:
        code: Python source.
        env: Environment variables to add.

    Returns:
        Names of the modules that are loaded at its end.

    Raises:
        RuntimeError: If the code fails; the message carries its standard error.
    """
    script = f"{code}\nimport json, sys\nprint({REPORT!r}, json.dumps(sorted(sys.modules)))\n"
    variables = {**os.environ, **(env or {})}
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, env=variables, stdin=subprocess.DEVNULL)
    lines = [line for line in result.stdout.splitlines() if line.startswith(REPORT)]
    if result.returncode != 0 or not lines:
        raise RuntimeError(f"this code exited with {result.returncode}:\n{code}\n{result.stdout}{result.stderr}")
    return set(json.loads(lines[-1].removeprefix(REPORT)))


def modules_loaded_by_command(*words: str, env: Mapping[str, str] | None = None) -> set[str]:
    """Run `ulna` with some arguments inside one interpreter.

    Args:
        *words: The arguments.
        env: Environment variables to add.

    Returns:
        Names of the modules that are loaded when the command has finished.
    """
    return modules_loaded_by(COMMAND.format(words=["ulna", *words]), env)


@dataclass(frozen=True)
class Run:
    """One measured process.

    Attributes:
        wall_s: Seconds from start to exit.
        peak_mb: Largest resident memory in megabytes.
        status: Exit status.
    """

    wall_s: float
    peak_mb: float
    status: int


def measure(command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Run:
    """Run a command once and measure it.

    Args:
        command: Program and arguments.
        env: Its environment; this process's own by default.

    Returns:
        Time, memory and exit status (127 for a program that is not there, as in a shell).
    """
    words = [str(word) for word in command]
    start = time.perf_counter()
    null = subprocess.DEVNULL
    try:
        child = subprocess.Popen(words, stdin=null, stdout=null, stderr=null, env=env)
    except FileNotFoundError:
        return Run(0.0, 0.0, 127)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    scale = 1e6 if sys.platform == "darwin" else 1e3
    return Run(wall, usage.ru_maxrss / scale, child.returncode)
