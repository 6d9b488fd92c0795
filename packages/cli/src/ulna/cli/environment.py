# SPDX-License-Identifier: Apache-2.0
"""What `ulna info` reports. Libraries are tried in processes of their own: one that breaks or crashes is a line."""

from __future__ import annotations

import importlib.util
import json
import platform
import shutil
import subprocess
import sys
from collections import Counter
from typing import Any

from ulna.core.plugins import installed, registry

__all__ = ["collect", "lines"]

_TIMEOUT_S = 60.0
_CUDA = "[m.cuda.get_device_name(i) for i in range(m.cuda.device_count())] if m.cuda.is_available() else 'none'"
_PROBES: tuple[dict[str, str], ...] = (
    {"torch": f"import torch as m; detail = 'CUDA ' + str({_CUDA})", "torchvision": "import torchvision as m"},
    {"numpy": "import numpy as m", "cv2": "import cv2 as m"},
    {"av": "import av as m; detail = 'libavcodec ' + '.'.join(map(str, m.library_versions.get('libavcodec', ())))"},
    {"pyarrow": "import pyarrow as m", "serial": "import serial as m"},
)
"""Library to the code that tries it, those of one process together: torchvision imports torch anyway."""
_TRY = """
import json, sys
for name, code in json.loads(sys.argv[1]).items():
    found = {"detail": ""}
    try:
        exec(code, found)
        report = {"status": "ok", "version": str(getattr(found["m"], "__version__", "")), "detail": found["detail"]}
    except BaseException as error:
        report = {"status": "broken", "version": "", "detail": type(error).__name__ + ": " + str(error)}
    print("\\n" + json.dumps([name, report]), flush=True)
"""


def collect() -> dict[str, Any]:
    """Report interpreter, platform, distributions, plugins and libraries. Never fails because one of them is broken.

    Returns:
        A JSON value.
    """
    records = registry().records()
    names = sorted({r.distribution for r in records} | {"ulna-core", "ulna-cli"})
    found = {name: installed(name) for name in names}
    return {
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
            "prefix": sys.prefix,
        },
        "platform": {"system": platform.platform(), "machine": platform.machine()},
        "distributions": {name: hit[0] for name, hit in found.items() if hit is not None},
        "plugins": dict(sorted(Counter(r.status for r in records).items())),
        "libraries": {**_libraries(), "ffmpeg": _ffmpeg()},
    }


def _libraries() -> dict[str, dict[str, str]]:
    there = [{name: code for name, code in group.items() if _is_there(name)} for group in _PROBES]
    running = [(group, _start(group)) for group in there if group]
    found = {name: report for group, process in running for name, report in _finish(group, process).items()}
    absent = {"status": "not installed", "version": "", "detail": ""}
    return {name: found.get(name, absent) for group in _PROBES for name in group}


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _start(group: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _TRY, json.dumps(group)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _finish(group: dict[str, str], process: subprocess.Popen[str]) -> dict[str, dict[str, str]]:
    """Take the reports of one process; libraries it did not come to are broken."""
    with process:
        try:
            said, why = process.communicate(timeout=_TIMEOUT_S)[0], ""
        except subprocess.TimeoutExpired:
            process.kill()
            said, why = process.communicate()[0], f"importing it takes more than {_TIMEOUT_S:.0f} s"
    reports: dict[str, dict[str, str]] = dict(json.loads(line) for line in said.splitlines() if line.startswith('["'))
    lost = {"status": "broken", "version": "", "detail": why or f"importing it ends Python with {process.returncode}"}
    return {name: reports.get(name, lost) for name in group}


def _ffmpeg() -> dict[str, str]:
    program = shutil.which("ffmpeg")
    if program is None:
        return {"status": "not installed", "version": "", "detail": "not needed: video goes through PyAV"}
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
        words = done.stdout.split()
        return {"status": "ok", "version": words[2] if len(words) > 2 else "", "detail": program}
    except (OSError, subprocess.SubprocessError) as error:
        return {"status": "broken", "version": "", "detail": f"{program}: {error}"}


def lines(report: dict[str, Any]) -> list[str]:
    """Write a report as text.

    Args:
        report: What `collect` returned.
    """
    python, system = report["python"], report["platform"]
    plugins = ", ".join(f"{count} {status}" for status, count in report["plugins"].items()) or "none"
    text = [
        f"Python {python['version']} ({python['implementation']}), {python['executable']}",
        f"Platform {system['system']}",
        f"Plugins {plugins}",
        "",
        *(f"{name} {version}" for name, version in report["distributions"].items()),
        "",
    ]
    for name, library in report["libraries"].items():
        detail = f" ({library['detail']})" if library["detail"] else ""
        text.append(f"{name} {library['version'] or library['status']}{detail}")
    return text
