# SPDX-License-Identifier: Apache-2.0
"""A fresh environment as a user has it: wheels, a home folder, a working folder, and commands run in them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tooling import environments


@dataclass(frozen=True)
class Answer:
    """What a command said.

    Attributes:
        status: Exit status.
        out: Standard output.
        err: Standard error.
    """

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Workshop:
    """An environment with a home and a working folder of its own.

    Attributes:
        python: Interpreter of the environment.
        folder: Working folder; `home` below it is the home of the user and of Ulna.
    """

    python: Path
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of every command: no network, everything written below `folder`."""
        home = str(self.folder / "home")
        return {
            **environments.clean_variables(),
            "HOME": home,
            "ULNA_HOME": f"{home}/ulna",
            "HF_HOME": f"{home}/hub",
            "XDG_CACHE_HOME": f"{home}/cache",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "120",
            "NO_COLOR": "1",
        }

    def program(self, name: str) -> Path:
        """Return a program of the environment.

        Args:
            name: Such as `ulna`.

        Returns:
            Its path.
        """
        return self.python.with_name(name)

    def ask(self, *words: str, timeout_s: float = 540.0) -> Answer:
        """Run `ulna` with some arguments and return what it said.

        Args:
            *words: The arguments.
            timeout_s: After how many seconds it counts as hung.

        Returns:
            Status and output.
        """
        return self.start(self.program("ulna"), *words, timeout_s=timeout_s)

    def start(self, program: Path, *words: str, timeout_s: float = 540.0) -> Answer:
        """Run a program of the environment to its end.

        Args:
            program: Path of the program.
            *words: Its arguments.
            timeout_s: After how many seconds it counts as hung.

        Returns:
            Status and output.
        """
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        result = subprocess.run(
            [str(program), *words],
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        return Answer(result.returncode, result.stdout, result.stderr)

    def do(self, *words: str, timeout_s: float = 540.0) -> str:
        """Run `ulna` with some arguments and insist that it succeeds.

        Args:
            *words: The arguments.
            timeout_s: After how many seconds it counts as hung.

        Returns:
            Its standard output.

        Raises:
            AssertionError: If it exits with anything but 0.
        """
        answer = self.ask(*words, timeout_s=timeout_s)
        assert answer.status == 0, f"ulna {' '.join(words)} exited with {answer.status}\n{answer.out}\n{answer.err}"
        return answer.out

    def read(self, *words: str) -> Any:
        """Run `ulna` with some arguments that make it print JSON.

        Args:
            *words: The arguments.

        Returns:
            The parsed document.
        """
        return json.loads(self.do(*words))

    def run_code(self, code: str) -> Answer:
        """Run Python code in the environment.

        Args:
            code: Source.

        Returns:
            Status and output.
        """
        return self.start(self.python, "-c", code)

    @contextmanager
    def simulated_arms(self) -> Iterator[tuple[list[str], list[str]]]:
        """Run `ulna sim start` in the background.

        Yields:
            The settings of follower and leader, as options of a command.

        Raises:
            AssertionError: If the simulator stops before its ports are open.
        """
        home = Path(self.variables["ULNA_HOME"])
        command = [str(self.program("ulna")), "sim", "start", "--calibration", str(home / "calibration")]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=self.variables, stdout=pipe, stderr=pipe, text=True) as sim:
            assert sim.stdout is not None
            assert sim.stderr is not None
            try:
                while not (line := sim.stderr.readline()).startswith("Running"):
                    assert line, "the simulator stopped early"
                follower, leader = home / "sim" / "table" / "follower", home / "sim" / "table" / "leader"
                yield (
                    ["--robot.type=so101_follower", f"--robot.port={follower}", "--robot.id=sim"],
                    ["--teleop.type=so101_leader", f"--teleop.port={leader}", "--teleop.id=sim"],
                )
            finally:
                sim.send_signal(signal.SIGINT)
                try:
                    sim.communicate(timeout=60)
                except subprocess.TimeoutExpired:
                    sim.kill()  # leaving the block waits for it, without a limit
                    raise
