# SPDX-License-Identifier: Apache-2.0
"""A simulated world's state in a small memory-mapped file, so that other processes can draw it and ask for a reset.

One process writes, any number read without waiting for one another: a counter is odd while the writer is at work, and
a reader that saw it change reads again (a sequence lock). Nothing here simulates.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from ulna.core import files
from ulna.core.errors import (
    ConfigError,
    ConfigProblem,
    DeviceAlreadyConnectedError,
    DeviceConnectError,
    DeviceError,
    FrameTimeoutError,
)
from ulna.core.paths import ulna_home
from ulna.sim.kinematics import JOINTS
from ulna.sim.scene import SceneState

__all__ = ["STATE_FILE", "WorldReader", "WorldWriter", "served_worlds", "world_folder"]

STATE_FILE: Final = "state"
_MAGIC: Final = b"ULNASIM1"
_SIZE: Final = 4096
_HEAD: Final = struct.Struct("<8sq")  # magic, process id
_SEQUENCE: Final = struct.Struct("<Q")
_STATE: Final = struct.Struct(f"<dqdd{2 * len(JOINTS)}d?")
_REQUEST: Final = struct.Struct("<Qq")  # count, seed
_SEQUENCE_AT: Final = 64
_STATE_AT: Final = 128
_REQUEST_AT: Final = 1024
_DONE_AT: Final = 1088
_POLL_S: Final = 0.005
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def world_folder(name: str) -> Path:
    """Return the folder of a served world, `<ULNA_HOME>/sim/<name>`. It need not exist.

    Args:
        name: The world's name.

    Raises:
        ConfigError: The name cannot be that of a folder.
    """
    if not _NAME.fullmatch(name):
        problem = ConfigProblem("name", name, "letters, digits, '.', '_' and '-', since it names a folder")
        raise ConfigError([problem], title="simulation")
    return ulna_home() / "sim" / name


def served_worlds() -> list[str]:
    """Return the names of the worlds that living processes serve in the usual place."""
    paths = (ulna_home() / "sim").glob(f"*/{STATE_FILE}")
    return sorted(path.parent.name for path in paths if _serving(path) is not None)


class _Mapping:
    """The mapped file, opened by the classes below."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)

    def close(self) -> None:
        """Unmap the file. Safe to call again."""
        self._map.close()

    def _get(self, layout: struct.Struct, at: int) -> tuple[int, ...]:
        return layout.unpack_from(self._map, at)


class WorldWriter(_Mapping):
    """The serving side. Created by `Simulation.serve`, closed with the simulation.

    Args:
        folder: The world's folder; created.

    Raises:
        DeviceAlreadyConnectedError: Another living process serves this world.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / STATE_FILE
        pid = _serving(path)
        if pid is not None and pid != os.getpid():
            raise DeviceAlreadyConnectedError(
                f"The simulated world in {folder} is already served by process {pid}.",
                device=str(folder),
                hint="Use it, stop that process, or start a world with another name.",
            )
        files.write_bytes(path, _HEAD.pack(_MAGIC, os.getpid()).ljust(_SIZE, b"\0"))
        super().__init__(path)
        self._path = path
        self._sequence = 0

    def publish(self, state: SceneState) -> None:
        """Make a state visible to readers.

        Args:
            state: What they shall see.
        """
        joints = [state.joints[name] for name in JOINTS] + [state.leader[name] for name in JOINTS]
        packed = _STATE.pack(state.time_s, state.seed, *state.target, *joints, state.success)
        _SEQUENCE.pack_into(self._map, _SEQUENCE_AT, self._sequence + 1)
        self._map[_STATE_AT : _STATE_AT + _STATE.size] = packed
        self._sequence += 2
        _SEQUENCE.pack_into(self._map, _SEQUENCE_AT, self._sequence)

    def requested_reset(self) -> tuple[int, int] | None:
        """Return number and seed of a reset that a reader has asked for and that has not been done, or None."""
        count, seed = self._get(_REQUEST, _REQUEST_AT)
        return (count, seed) if count != self._get(_SEQUENCE, _DONE_AT)[0] else None

    def reset_done(self, number: int) -> None:
        """Tell the reader that its reset has been carried out.

        Args:
            number: As returned by `requested_reset`.
        """
        _SEQUENCE.pack_into(self._map, _DONE_AT, number)

    def close(self) -> None:
        """Unmap and remove the file. Safe to call again."""
        if not self._map.closed:
            super().close()
            self._path.unlink(missing_ok=True)


class WorldReader(_Mapping):
    """A view on a world that another process serves. Whoever opens it closes it.

    Args:
        name: The world's name.
        folder: Its folder, when it is not the usual one.

    Raises:
        DeviceConnectError: No such world is being served.
    """

    def __init__(self, name: str = "table", *, folder: Path | None = None) -> None:
        self.name = name
        self.folder = world_folder(name) if folder is None else folder
        path = self.folder / STATE_FILE
        if _serving(path) is None:
            raise DeviceConnectError(
                f"No simulated world {name!r} is being served in {self.folder}.",
                device=name,
                hint=f"Start it with: ulna sim start --name {name}",
            )
        super().__init__(path)

    def __enter__(self) -> WorldReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the serving process still runs and serves."""
        return _serving(self.folder / STATE_FILE) is not None

    def read(self) -> SceneState:
        """Return the newest whole state.

        Raises:
            DeviceError: The writer stopped in the middle of writing.
        """
        for _ in range(10_000):
            before = self._get(_SEQUENCE, _SEQUENCE_AT)[0]
            data = self._map[_STATE_AT : _STATE_AT + _STATE.size]
            if before % 2 == 0 and self._get(_SEQUENCE, _SEQUENCE_AT)[0] == before:
                return _unpack(data)
            time.sleep(0)
        raise DeviceError(f"The state of the simulated world {self.name!r} is never complete.", device=self.name)

    def reset(self, seed: int, *, timeout_s: float = 5.0) -> None:
        """Ask for a reset and wait until it has been done.

        Args:
            seed: Seed of the new scene.
            timeout_s: How long to wait.

        Raises:
            FrameTimeoutError: The serving process did not react.
        """
        number = self._get(_SEQUENCE, _DONE_AT)[0] + 1
        self._map[_REQUEST_AT : _REQUEST_AT + _REQUEST.size] = _REQUEST.pack(number, seed)
        deadline = time.monotonic() + timeout_s
        while self._get(_SEQUENCE, _DONE_AT)[0] != number:
            if time.monotonic() > deadline:
                raise FrameTimeoutError(
                    f"The simulated world {self.name!r} was not reset within {timeout_s:g} s.",
                    device=self.name,
                    hint="Is the process that serves it still running?",
                )
            time.sleep(_POLL_S)


def _unpack(data: bytes) -> SceneState:
    time_s, seed, x, y, *rest, success = _STATE.unpack(data)
    count = len(JOINTS)
    return SceneState(
        time_s=time_s,
        seed=seed,
        target=(x, y),
        joints=dict(zip(JOINTS, rest[:count], strict=True)),
        leader=dict(zip(JOINTS, rest[count:], strict=True)),
        success=success,
    )


def _serving(path: Path) -> int | None:
    """Return the process that serves the state file, or None when there is none."""
    try:
        head = path.read_bytes()[: _HEAD.size]
    except FileNotFoundError:
        return None
    if len(head) < _HEAD.size:
        return None
    magic, pid = _HEAD.unpack(head)
    if magic != _MAGIC:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return int(pid)
    return int(pid)
