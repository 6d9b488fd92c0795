# SPDX-License-Identifier: Apache-2.0
"""The peer: an installed LeRobot in an environment of its own, which tests ask to read, write and compute.

It runs in processes started from the interpreter that `ULNA_LEROBOT_PYTHON` names, never in ours: the two need not
agree on the release of any library. What it is asked lies in scripts beside the tests; this module only runs them.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import pytest

from ulna.core.errors import ConfigError, ConfigProblem

__all__ = ["PEER_VARIABLE", "ItemReader", "Peer", "PeerError", "assert_items_equal", "needs_peer"]

PEER_VARIABLE = "ULNA_LEROBOT_PYTHON"
"""Environment variable that names the interpreter."""

needs_peer = [
    pytest.mark.interop,
    pytest.mark.skipif(
        not os.environ.get(PEER_VARIABLE), reason=f"{PEER_VARIABLE} does not name an interpreter that has LeRobot"
    ),
]
"""Marks of a test that asks the peer; for `pytestmark` or one by one."""


class PeerError(AssertionError):
    """A process of the peer failed; the message carries the end of what it said."""


_LOOP = """
import json, os, runpy, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what a script prints is no answer
for line in sys.stdin:
    sys.argv = json.loads(line)
    problem = None
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except BaseException:
        problem = traceback.format_exc()
    answers.write(json.dumps(problem) + chr(10))
    answers.flush()
"""
"""Runs one script after another in one process: importing LeRobot takes seconds."""


class Peer:
    """An interpreter that has LeRobot installed. The fixture `lerobot_peer` makes one and closes it.

    Args:
        python: Its path.
        timeout_s: After how many seconds it counts as hung.
    """

    def __init__(self, python: Path, timeout_s: float = 240.0) -> None:
        self.python, self.timeout_s = python, timeout_s
        self._loop: subprocess.Popen[str] | None = None

    @classmethod
    def find(cls) -> Peer:
        """Return the peer that the environment names; no process is started yet.

        Returns:
            The peer.

        Raises:
            ConfigError: The variable is not set.
        """
        python = os.environ.get(PEER_VARIABLE)
        if not python:
            problem = ConfigProblem(PEER_VARIABLE, python, "the interpreter of an environment that has lerobot")
            raise ConfigError([problem], title="environment", hint="Build and use one with: nox -s interop")
        return cls(Path(python))

    def __enter__(self) -> Peer:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """End the process that runs scripts, if there is one. A later question starts another."""
        if self._loop is not None:
            self._loop.kill()
            self._loop.communicate()
            self._loop = None

    def start(self, program: str, *arguments: str | Path) -> str:
        """Run a program that lies beside the interpreter to its end.

        Args:
            program: Such as `lerobot-train`.
            *arguments: Its arguments.

        Returns:
            Its standard output and error, in this order.

        Raises:
            PeerError: It does not exit with 0.
        """
        command = [str(self.python.with_name(program)), *map(str, arguments)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=_variables(),
            stdin=subprocess.DEVNULL,
            timeout=self.timeout_s,
            check=False,
        )
        if done.returncode:
            raise PeerError(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}{done.stderr[-3000:]}")
        return done.stdout + done.stderr

    def run(self, script: Path, *arguments: str | Path) -> None:
        """Run a script as `__main__`, in the process that ran the ones before.

        Args:
            script: A Python file.
            *arguments: Its arguments.

        Raises:
            PeerError: It raises or exits, the process dies, or no answer comes in time.
        """
        pipe = subprocess.PIPE
        if self._loop is None:
            command = [str(self.python), "-c", _LOOP]
            self._loop = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=_variables())
        assert self._loop.stdin is not None
        assert self._loop.stdout is not None
        self._loop.stdin.write(json.dumps([str(script), *map(str, arguments)]) + "\n")
        self._loop.stdin.flush()
        ready, _, _ = select.select([self._loop.stdout], [], [], self.timeout_s)
        line = self._loop.stdout.readline() if ready else ""
        problem = json.loads(line) if line else "its process ended" if ready else f"no answer in {self.timeout_s} s"
        if not line:
            self.close()
        if problem is not None:
            raise PeerError(f"{script.name} failed under {self.python}:\n{problem}")

    def ask(self, script: Path, target: Path, **request: Any) -> dict[str, Any]:
        """Run a script with a request and return its answer.

        Args:
            script: A Python file; it is given the path of the answer and the request as JSON.
            target: Where the script writes its answer: an `.npz` file with arrays, and `facts` as JSON text.
            **request: Anything that JSON holds.

        Returns:
            The arrays by name; `facts` is parsed.

        Raises:
            PeerError: The script fails.
        """
        self.run(script, target, json.dumps(request))
        with np.load(target) as arrays:
            answer: dict[str, Any] = dict(arrays)
        answer["facts"] = json.loads(str(answer["facts"]))
        return answer


def _variables() -> dict[str, str]:
    """Return the environment of a process of the peer: offline, on one thread, and nothing that steers our Python."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


class ItemReader(Protocol):
    """What `assert_items_equal` needs of a dataset."""

    def __len__(self) -> int:
        """Return the number of items."""
        ...

    def numpy_item(self, position: int) -> dict[str, Any]:
        """Return one item as NumPy arrays and texts."""
        ...


def assert_items_equal(ours: ItemReader, theirs: dict[str, Any], tolerances: Mapping[str, float] | None = None) -> int:
    """Insist that the peer read every item as we do: same keys, types and values, pictures included.

    Args:
        ours: Our view of the dataset.
        theirs: The peer's answer: arrays under `POSITION|KEY`, texts and lists of rows in `facts` under
            `POSITION/KEY`, and `length`.
        tolerances: Key to how far values may differ; others must be equal.

    Returns:
        How many values were compared.

    Raises:
        AssertionError: One differs, or is missing on either side.
    """
    texts = theirs["facts"]["texts"]
    assert theirs["facts"]["length"] == len(ours)
    compared = 0
    for i in range(len(ours)):
        item = ours.numpy_item(i)
        keys = {k.partition("|")[2] for k in theirs if k.startswith(f"{i}|")}
        keys |= {k.partition("/")[2] for k in texts if k.startswith(f"{i}/")}
        assert keys == set(item), f"item {i}"
        for key, value in item.items():
            if isinstance(value, str | list):
                assert texts[f"{i}/{key}"] == value, f"item {i}, {key}"
            else:
                wanted = theirs[f"{i}|{key}"]
                assert wanted.dtype == value.dtype, f"item {i}, {key}"
                near = (tolerances or {}).get(key, 0.0)
                np.testing.assert_allclose(value.reshape(wanted.shape), wanted, 0, near, err_msg=f"item {i}, {key}")
            compared += 1
    return compared
