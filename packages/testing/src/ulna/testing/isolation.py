# SPDX-License-Identifier: Apache-2.0
"""Watching code under test: private home folders, a recorder of file and network access, fresh interpreters."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

__all__ = [
    "HEAVY_MODULES",
    "IoLog",
    "assert_not_imported",
    "importing",
    "isolated_home",
    "leftovers",
    "open_files",
    "recorded_io",
    "side_effects",
]

HEAVY_MODULES = (
    "av",
    "can",
    "cv2",
    "diffusers",
    "dynamixel_sdk",
    "gymnasium",
    "lerobot",
    "matplotlib",
    "pygame",
    "pynput",
    "pyrealsense2",
    "scservo_sdk",
    "serial",
    "torch",
    "torchvision",
    "transformers",
    "zmq",
)
"""Libraries that no module with a configuration class may import."""

PATIENCE_S = 2.0
"""How long threads may take to end after something was closed, seconds."""

_HOMES = ("ULNA_HOME", "HF_LEROBOT_HOME", "HF_LEROBOT_CALIBRATION", "HF_HOME")


@contextmanager
def isolated_home(folder: Path) -> Iterator[Path]:
    """Point Ulna's and LeRobot's home folders into `folder` for the block; the folders themselves are not created.

    Args:
        folder: A scratch folder.

    Yields:
        Ulna's home.
    """
    before = {name: os.environ.get(name) for name in _HOMES}
    os.environ.update(
        ULNA_HOME=str(folder / "ulna"), HF_LEROBOT_HOME=str(folder / "lerobot"), HF_HOME=str(folder / "huggingface")
    )
    os.environ.pop("HF_LEROBOT_CALIBRATION", None)
    try:
        yield folder / "ulna"
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass
class IoLog:
    """What the recorded block did to the world.

    Attributes:
        events: One line each: `open /dev/ttyACM0`, `os.mkdir /home/...`.
    """

    events: list[str] = field(default_factory=list)


_WATCHED = {
    "open",
    "os.listdir",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.scandir",
    "os.symlink",
    "socket.__new__",
    "socket.connect",
    "socket.getaddrinfo",
    "sqlite3.connect",
    "subprocess.Popen",
}
_recording: IoLog | None = None
_recording_thread = 0
_installed = False


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if _recording is None or event not in _WATCHED or threading.get_ident() != _recording_thread:
        return
    target = str(arguments[0]) if arguments else ""
    if event in ("open", "os.listdir", "os.scandir") and _is_import(target):
        return
    _recording.events.append(f"{event} {target}".strip())


def _is_import(target: str) -> bool:
    """Tell whether reading `target` is Python's own doing: modules, and the linecache of warnings and tracebacks."""
    if target.endswith((".py", ".pyc", ".so", ".pyd", ".pth")) or "__pycache__" in target:
        return True
    return any(target == folder or target.startswith(folder + os.sep) for folder in sys.path if folder)


@contextmanager
def recorded_io() -> Iterator[IoLog]:
    """Record what the block opens, creates, starts and connects to in this thread, imports left out.

    It works through Python's audit events, so that what a C library opens by itself is not seen.

    Yields:
        The log, filled while the block runs.
    """
    global _recording, _recording_thread, _installed
    if not _installed:
        sys.addaudithook(_audit)
        _installed = True
    log = IoLog()
    _recording, _recording_thread = log, threading.get_ident()
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        if threading.get_ident() == _recording_thread:
            log.events.append(f"start of the thread {thread.name}")
        start(thread)

    threading.Thread.start = noted  # type: ignore[method-assign, assignment]
    try:
        yield log
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
        _recording = None


def open_files() -> set[str]:
    """Name what this process holds open, so that two moments can be compared: `open_files() - before`.

    A number of open files would not do: one that was forgotten earlier and is closed meanwhile hides a new one.

    Returns:
        One entry for each file, port and socket, `7 /dev/ttyACM0`; empty where the system has no `/proc/self/fd`.
    """
    folder = Path("/proc/self/fd")
    found = set()
    for link in list(folder.iterdir()) if folder.exists() else ():
        with suppress(FileNotFoundError):  # the listing itself, which is closed again
            found.add(f"{link.name} {link.readlink()}")
    return found


@dataclass
class Leftovers:
    """What a block left behind in this process.

    Attributes:
        threads: Names of threads that are still alive.
        files: Files, ports and sockets that are open and were not before, `7 /dev/ttyACM0`.
    """

    threads: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.threads or self.files)

    def __str__(self) -> str:
        parts = [f"{len(self.threads)} thread(s): {', '.join(self.threads)}"] if self.threads else []
        named = ", ".join(name.partition(" ")[2] for name in self.files)
        parts += [f"{len(self.files)} open file(s) or port(s): {named}"] if self.files else []
        return " and ".join(parts) or "nothing"


@contextmanager
def leftovers(patience_s: float | None = None) -> Iterator[Leftovers]:
    """Tell which threads and files the block left open.

    Args:
        patience_s: How long threads may take to end, seconds; default: `PATIENCE_S`.

    Yields:
        Filled when the block ends.
    """
    found = Leftovers()
    threads, files = set(threading.enumerate()), open_files()
    yield found
    deadline = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    while True:
        alive = [t.name for t in threading.enumerate() if t not in threads]
        more = sorted(open_files() - files)
        if not (alive or more) or time.monotonic() > deadline:
            break
        gc.collect()
        time.sleep(0.01)
    found.threads, found.files = alive, more


_PROBE = """
import importlib, json, sys
wanted, watched, blocked, sys.path[:] = json.loads(sys.argv[1])
for name in blocked:
    sys.modules[name] = None
problem = missing = None
try:
    for name in wanted:
        importlib.import_module(name)
except BaseException as error:
    problem, missing = f"{type(error).__name__}: {error}", getattr(error, "name", None)
loaded = [name for name in watched if sys.modules.get(name) is not None]
print("\\n" + json.dumps([loaded, problem, missing]))
"""


def importing(
    modules: tuple[str, ...], *, watched: tuple[str, ...] = HEAVY_MODULES, blocked: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], str | None, str | None]:
    """Import modules in a fresh interpreter and tell what came with them.

    Args:
        modules: What to import.
        watched: Names looked for in `sys.modules` afterwards.
        blocked: Modules made as if they were not installed.

    Returns:
        The watched names that were loaded; the error, if importing failed; the module that was missing, if one was.
    """
    return _imported_by(modules, watched, blocked, tuple(sys.path))


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, check=False)


@lru_cache(maxsize=256)
def _imported_by(
    modules: tuple[str, ...], watched: tuple[str, ...], blocked: tuple[str, ...], path: tuple[str, ...]
) -> tuple[tuple[str, ...], str | None, str | None]:
    done = _run(_PROBE, json.dumps([modules, watched, blocked, path]))
    if not done.stdout.strip():
        return (), f"the interpreter ended with {done.returncode}: {done.stderr.strip()[-500:]}", None
    loaded, problem, missing = json.loads(done.stdout.strip().splitlines()[-1])
    return tuple(loaded), problem, missing


_EFFECTS = """
import importlib, json, sys
wanted, libraries, sys.path[:] = json.loads(sys.argv[1])
for name in libraries:
    try:
        importlib.import_module(name)
    except BaseException:
        pass
import locale, logging, os, random, signal, threading, warnings
def world():
    root = logging.getLogger()
    found = {
        "logging (root level, handlers)": [root.level, [repr(h) for h in root.handlers], logging.root.manager.disable],
        "the random seed": random.getstate()[1][:3],
        "environment variables": sorted(os.environ.items()),
        "the working directory": os.getcwd(),
        "signal handlers": [repr(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM)],
        "threads": [t.name for t in threading.enumerate()],
        "warning filters": [repr(f) for f in warnings.filters],
        "the locale": locale.setlocale(locale.LC_ALL),
    }
    if "numpy" in sys.modules:
        found["numpy's random seed"] = sys.modules["numpy"].random.get_state()[1][:3].tolist()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        found["torch's settings"] = [
            torch.get_num_threads(), str(torch.get_default_dtype()), torch.are_deterministic_algorithms_enabled(),
            torch.is_grad_enabled(), torch.initial_seed(),
        ]
    return found
before, changed, broken = world(), [], []
for name in wanted:
    try:
        importlib.import_module(name)
    except BaseException as error:
        broken.append(f"{name} ({type(error).__name__}: {error})")
    now = world()
    for key in now:
        if key in before and now[key] != before[key]:
            changed.append(f"{key} by {name}")
    before = now
print("\\n" + json.dumps([changed, broken]))
"""
_INNOCENT = (
    "numpy",
    "pydantic",
    "torch",
    "torchvision",
    "cv2",
    "gymnasium",
    "serial",
    "av",
    "pyarrow",
    "huggingface_hub",
    "safetensors",
)


def side_effects(modules: tuple[str, ...], libraries: tuple[str, ...] = _INNOCENT) -> tuple[list[str], list[str]]:
    """Import modules one after the other in a fresh interpreter and tell what that changed in the process.

    Args:
        modules: What to import.
        libraries: Imported first, so that what they do is not blamed on the modules.

    Returns:
        What changed and by which module; modules that cannot be imported, with the error.
    """
    used = [name for name in libraries if _is_used(modules, name)]
    done = _run(_EFFECTS, json.dumps([modules, used, sys.path]))
    if not done.stdout.strip():
        return [], [f"the interpreter ended with {done.returncode}: {done.stderr.strip()[-500:]}"]
    changed, broken = json.loads(done.stdout.strip().splitlines()[-1])
    return changed, broken


def _is_used(modules: tuple[str, ...], library: str) -> bool:
    """Tell whether importing the modules loads a library at all, so that heavy ones are not loaded in vain."""
    return library in importing(modules, watched=_INNOCENT)[0]


def assert_not_imported(modules: Iterable[str], code: str) -> None:
    """Run code in a fresh interpreter and check which modules it loaded: the guard for lean imports.

    Args:
        modules: Names that must not be in `sys.modules` afterwards, `("torch", "cv2")`.
        code: Python source, `import ulna.robots.my_arm`.

    Raises:
        AssertionError: A module was loaded, or the code failed.
    """
    __tracebackhide__ = True
    ending = (
        f"\nimport sys as _s\nprint('\\n' + ' '.join(n for n in {list(modules)!r} if _s.modules.get(n) is not None))\n"
    )
    done = _run(code + ending)
    if done.returncode:
        raise AssertionError(f"The code ended with {done.returncode}:\n{done.stderr.strip()[-2000:]}")
    loaded = done.stdout.splitlines()[-1].split() if done.stdout.splitlines() else []
    if loaded:
        raise AssertionError(f"These modules were loaded, and must not be: {', '.join(loaded)}.")
