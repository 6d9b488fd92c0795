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
_PROBES = {
    "torch": "import torch as m; d = 'CUDA ' + str(torch_cuda(m))",
    "torchvision": "import torchvision as m; d = ''",
    "numpy": "import numpy as m; d = ''",
    "cv2": "import cv2 as m; d = ''",
    "av": "import av as m; d = 'FFmpeg libavcodec ' + '.'.join(map(str, m.library_versions.get('libavcodec', ())))",
    "pyarrow": "import pyarrow as m; d = ''",
    "serial": "import serial as m; d = ''",
}
_PREAMBLE = """
import json, sys
def torch_cuda(m):
    return [m.cuda.get_device_name(i) for i in range(m.cuda.device_count())] if m.cuda.is_available() else 'none'
try:
    {code}
    report = {{'status': 'ok', 'version': str(getattr(m, '__version__', '')), 'detail': d}}
except BaseException as error:
    report = {{'status': 'broken', 'version': '', 'detail': type(error).__name__ + ': ' + str(error)}}
sys.stderr.write('\\n' + json.dumps(report))
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
    running = {name: _start(_PREAMBLE.format(code=code)) for name, code in _PROBES.items() if _is_there(name)}
    return {
        name: _finish(running[name]) if name in running else {"status": "not installed", "version": "", "detail": ""}
        for name in _PROBES
    }


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(process: subprocess.Popen[str]) -> dict[str, str]:
    with process:
        try:
            said = process.communicate(timeout=_TIMEOUT_S)[1]
            report: dict[str, str] = json.loads(said.splitlines()[-1])
        except subprocess.TimeoutExpired:
            process.kill()
            return {"status": "broken", "version": "", "detail": f"importing it takes more than {_TIMEOUT_S:.0f} s"}
        except (ValueError, IndexError):
            return {"status": "broken", "version": "", "detail": f"importing it ends Python with {process.returncode}"}
    return report


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
        text.append(
            " ".join(part for part in (name, library["version"] or library["status"], library["detail"]) if part)
        )
    return text
