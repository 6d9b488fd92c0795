# SPDX-License-Identifier: Apache-2.0
"""A whole simulated world: leader and follower arm on their ports, a table with a target, one clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from ulna.core import files
from ulna.core.clock import Clock, MonotonicClock
from ulna.core.errors import (
    ConfigError,
    ConfigProblem,
    DeviceAlreadyConnectedError,
    DeviceNotConnectedError,
    nearest,
)
from ulna.sim.arm import Hand, SimArm
from ulna.sim.bus import SimFeetechBus
from ulna.sim.clock import VirtualClock
from ulna.sim.kinematics import REST_POSE
from ulna.sim.scene import Scene, SceneState
from ulna.sim.sharing import WorldWriter, world_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CALIBRATION_FOLDERS", "Simulation"]

CALIBRATION_FOLDERS: Final[Mapping[str, str]] = {"leader": "teleoperators/so_leader", "follower": "robots/so_follower"}
"""Where the calibration files of each arm lie below a calibration root."""

_HOUSEKEEPING_S: Final = 0.01
_running: dict[str, Simulation] = {}
_running_lock = threading.Lock()


class Simulation:
    """A world in this process: use it as a context manager, or call `start` and `close`.

    In real time it runs by itself. Otherwise its clock is a `VirtualClock`: time passes only when somebody sleeps on
    it, and everything that clients have written before is acted upon first, so a run is the same each time.

    Args:
        name: Name under which `get` finds it; one world of a name at a time.
        seed: Seed of the first scene.
        realtime: Whether time passes by itself.
        arms: Which arms there are: `leader`, `follower` or both.
        calibrated: Whether the servos hold a calibration, or factory values.
        paced: Whether replies take the time they would take on a real wire (in real time).
        log_wire: Keep every packet in each bus's `wire`.

    Attributes:
        name: See above.
        clock: The world's time.
        scene: Target and task.

    Raises:
        ConfigError: An arm's name is unknown.

    Example:
        >>> with Simulation("example", realtime=False) as sim:
        ...     sorted(sim.ports)
        ['follower', 'leader']
    """

    def __init__(
        self,
        name: str = "table",
        *,
        seed: int = 0,
        realtime: bool = True,
        arms: Sequence[str] = ("leader", "follower"),
        calibrated: bool = True,
        paced: bool = False,
        log_wire: bool = False,
    ) -> None:
        unknown = [arm for arm in arms if arm not in CALIBRATION_FOLDERS]
        if unknown or not arms:
            expected = f"one or more of {', '.join(CALIBRATION_FOLDERS)}"
            raise ConfigError([ConfigProblem("arms", list(arms), expected)], title="simulation")
        self.name = name
        self.clock: Clock = MonotonicClock() if realtime else VirtualClock()
        self.scene = Scene(seed)
        self._time = self.clock.now()
        self._lock = threading.RLock()
        self._arms = {
            arm: SimArm(seed=number, calibrated=calibrated, lock=self._lock) for number, arm in enumerate(arms, start=1)
        }
        self._paced, self._log_wire = paced, log_wire
        self._buses: dict[str, SimFeetechBus] = {}
        self._stop = threading.Event()
        self._housekeeper: threading.Thread | None = None
        self._writer: WorldWriter | None = None
        self._links: dict[Path, str | None] = {}
        self._leave_clock: Callable[[], None] | None = None
        self._pose(REST_POSE)

    @classmethod
    def get(cls, name: str = "table") -> Simulation:
        """Return the running world of this process with a name.

        Args:
            name: Its name.

        Raises:
            DeviceNotConnectedError: None of that name is running here.
        """
        found = cls.find(name)
        if found is None:
            close = nearest(name, list(_running))
            raise DeviceNotConnectedError(
                f"No simulated world {name!r} is running in this process.",
                device=name,
                hint=f"Did you mean {close!r}?" if close else f"Start one: with Simulation({name!r}) as sim: ...",
            )
        return found

    @classmethod
    def find(cls, name: str = "table") -> Simulation | None:
        """Return the running world of this process with a name, or None.

        Args:
            name: Its name.
        """
        with _running_lock:
            return _running.get(name)

    @classmethod
    def running(cls) -> list[str]:
        """Return the names of the worlds that run in this process."""
        with _running_lock:
            return sorted(_running)

    def __enter__(self) -> Simulation:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Open the ports.

        Raises:
            DeviceAlreadyConnectedError: A world of this name runs in this process already.
            DeviceConnectError: A pseudo terminal could not be opened; nothing stays open.
        """
        with _running_lock:
            if self.name in _running:
                raise DeviceAlreadyConnectedError(
                    f"A simulated world {self.name!r} is running in this process already.",
                    device=self.name,
                    hint="Use Simulation.get(name), close it, or choose another name.",
                )
            _running[self.name] = self
        self._stop.clear()
        try:
            for name, arm in self._arms.items():
                self._buses[name] = SimFeetechBus(
                    list(arm.servos.values()),
                    clock=self.clock,
                    advance=self._advance,
                    lock=self._lock,
                    paced=self._paced,
                    log_wire=self._log_wire,
                )
        except BaseException:
            self.close()
            raise
        self._advance(self.clock.now())
        if isinstance(self.clock, VirtualClock):
            self._leave_clock = self.clock.on_advance(self._before_time_moves)

    def close(self) -> None:
        """Close ports, stop serving, forget the name. Safe to call again."""
        self._stop.set()
        if self._housekeeper is not None:
            self._housekeeper.join()
            self._housekeeper = None
        if self._leave_clock is not None:
            self._leave_clock()
            self._leave_clock = None
        for link in self._links:
            link.unlink(missing_ok=True)
        self._links.clear()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for bus in self._buses.values():
            bus.close()
        self._buses.clear()
        with _running_lock:
            if _running.get(self.name) is self:
                del _running[self.name]

    @property
    def ports(self) -> dict[str, str]:
        """Arm name to the path of its serial port.

        Raises:
            DeviceNotConnectedError: It has not been started, or a bus is unplugged.
        """
        return {name: self.bus(name).port for name in self._arms}

    def arm(self, name: str = "follower") -> SimArm:
        """Return an arm.

        Args:
            name: `leader` or `follower`.

        Raises:
            ConfigError: There is no such arm.
        """
        return self._arms[self._known(name)]

    def bus(self, name: str = "follower") -> SimFeetechBus:
        """Return an arm's bus, which has the fault plan.

        Args:
            name: `leader` or `follower`.

        Raises:
            ConfigError: There is no such arm.
            DeviceNotConnectedError: The simulation has not been started.
        """
        bus = self._buses.get(self._known(name))
        if bus is None:
            raise DeviceNotConnectedError(
                f"The simulated world {self.name!r} has not been started.",
                device=self.name,
                hint="Call start(), or use it in a with statement.",
            )
        return bus

    def hand(self, name: str = "leader") -> Hand:
        """Return the hand on an arm.

        Args:
            name: `leader` or `follower`.

        Raises:
            ConfigError: There is no such arm.
        """
        return self.arm(name).hand

    @property
    def success(self) -> bool:
        """Whether the tip is over the target and has been for long enough."""
        with self._lock:
            self._advance(self.clock.now())
            return self.scene.success

    @property
    def state(self) -> SceneState:
        """A snapshot of what frames show, at the present time."""
        with self._lock:
            self._advance(self.clock.now())
            return self._snapshot()

    def reset(self, seed: int) -> None:
        """Begin anew: another target, both arms in rest pose, a hand on the leader, plugged in and without faults.

        Registers (torque, gains, calibration) stay; goals become the rest pose, so powered motors stay there.

        Args:
            seed: Draws the target.

        Raises:
            DeviceConnectError: A bus that was unplugged could not be opened again.
        """
        for bus in self._buses.values():
            bus.replug()
            bus.settle()
        with self._lock:
            self._advance(self.clock.now())
            for bus in self._buses.values():
                bus.faults.clear()
            self._pose(REST_POSE)
            self.scene.reset(seed)
            self._publish()

    def render(self, view: str = "front", width: int = 640, height: int = 480) -> NDArray[np.uint8]:
        """Draw the scene as it is now.

        Args:
            view: `front`, `top`, `side` or `wrist`.
            width: Pixels.
            height: Pixels.

        Returns:
            (height, width, 3) uint8 RGB.

        Raises:
            ConfigError: The view is unknown or the size is not positive.
            MissingDependencyError: OpenCV is not installed.
        """
        from ulna.sim.drawing import draw

        return draw(self.state, view, width, height)

    def write_calibration(
        self, folder: Path | str, ids: Mapping[str, str] | str = "sim", *, nested: bool = True
    ) -> dict[str, Path]:
        """Write calibration files that agree with the servos, and the registers too: the arms then count as calibrated.

        Args:
            folder: The calibration root, or with `nested=False` the folder for the files themselves.
            ids: Arm name to device id, or one id for every arm.
            nested: Put each file where its device looks: `robots/so_follower/<id>.json` for the follower,
                `teleoperators/so_leader/<id>.json` for the leader.

        Returns:
            Arm name to the file written.

        Raises:
            ConfigError: There is no such arm.
        """
        chosen = dict.fromkeys(self._arms, ids) if isinstance(ids, str) else dict(ids)
        written = {}
        for name, id in chosen.items():
            arm = self.arm(name)
            arm.calibrate()
            place = Path(folder) / CALIBRATION_FOLDERS[name] if nested else Path(folder)
            written[name] = place / f"{id}.json"
            files.write_json(written[name], arm.calibration)
        return written

    def serve(self, folder: Path | str | None = None) -> Path:
        """Let other processes take part: publish the state, keep links to the ports, accept resets. Ends with `close`.

        Args:
            folder: Where; `<ULNA_HOME>/sim/<name>` when None.

        Returns:
            The folder, with a link for each arm.

        Raises:
            DeviceAlreadyConnectedError: Another process serves this world.
            DeviceNotConnectedError: The simulation has not been started.
        """
        ports = self.ports
        if self._writer is not None:
            raise DeviceAlreadyConnectedError(f"The world {self.name!r} is being served already.", device=self.name)
        place = world_folder(self.name) if folder is None else Path(folder)
        self._writer = WorldWriter(place)
        self._links = {place / name: None for name in ports}
        self._relink()
        with self._lock:
            self._publish()
        self._housekeeper = threading.Thread(target=self._keep_house, name=f"ulna-sim-{self.name}", daemon=True)
        self._housekeeper.start()
        return place

    def _known(self, name: str) -> str:
        if name not in self._arms:
            close = nearest(name, list(self._arms))
            problem = ConfigProblem("arm", name, f"one of {', '.join(self._arms)}", close)
            raise ConfigError([problem], title="simulation")
        return name

    def _pose(self, joints: Mapping[str, float]) -> None:
        for name, arm in self._arms.items():
            arm.hand.release()
            arm.place(joints)
            if name == "leader":
                arm.hand.set(joints)

    def _before_time_moves(self, _: float, new: float) -> None:
        for bus in self._buses.values():
            bus.settle()
        self._advance(new)

    def _advance(self, now: float) -> None:
        with self._lock:
            self._time = now
            for arm in self._arms.values():
                arm.advance(now)
            self.scene.observe(now, self._visible.joints)
            self._publish()

    @property
    def _visible(self) -> SimArm:
        """The arm that stands in the scene."""
        return self._arms.get("follower") or next(iter(self._arms.values()))

    def _snapshot(self) -> SceneState:
        leader = self._arms.get("leader")
        return SceneState(
            time_s=self._time,
            seed=self.scene.seed,
            target=self.scene.target,
            joints=self._visible.joints,
            leader=leader.joints if leader is not None else dict(REST_POSE),
            success=self.scene.success,
        )

    def _publish(self) -> None:
        if self._writer is not None:
            self._writer.publish(self._snapshot())

    def _keep_house(self) -> None:
        while not self._stop.wait(_HOUSEKEEPING_S):
            writer = self._writer
            if writer is None:
                return
            self._advance(self.clock.now())
            request = writer.requested_reset()
            if request is not None:
                self.reset(request[1])
            self._relink()
            if request is not None:
                writer.reset_done(request[0])

    def _relink(self) -> None:
        """Let the links follow the ports: a port that is unplugged has none."""
        for link, shown in self._links.items():
            port: str | None
            try:
                port = self.bus(link.name).port
            except DeviceNotConnectedError:
                port = None
            if port != shown:
                link.unlink(missing_ok=True)
                if port is not None:
                    link.symlink_to(port)
                self._links[link] = port
