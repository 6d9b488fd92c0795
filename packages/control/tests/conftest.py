# SPDX-License-Identifier: Apache-2.0
"""Small fakes: a robot whose joints obey at once, a leader that plays a function of time, a clock that jumps."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from ulna.core.cameras import Camera, CameraConfig, CameraState, Frame
from ulna.core.errors import DeviceConnectError, DeviceError, DeviceNotConnectedError, FrameTimeoutError
from ulna.core.robots import Robot, RobotConfig
from ulna.core.teleoperators import Teleoperator, TeleoperatorConfig


@pytest.fixture(autouse=True)
def signals_at_their_defaults() -> Iterator[None]:
    """Undo what a shell did: it starts background jobs with Ctrl-C ignored, and nohup ignores a lost terminal."""
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in defaults.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


JOINTS = ("pan.pos", "lift.pos", "gripper.pos")


class JumpClock:
    """Sleeping takes no time: the clock jumps. Work may be simulated by `spend`."""

    def __init__(self) -> None:
        self.time = 100.0
        self.sleeps = 0

    def now(self) -> float:
        return self.time

    def sleep_until(self, deadline: float) -> None:
        self.sleeps += 1
        self.time = max(self.time, deadline)

    def spend(self, seconds: float) -> None:
        self.time += seconds


class FakeRobotConfig(RobotConfig):
    type: str = "fake_robot"


class FakeTeleopConfig(TeleoperatorConfig):
    type: str = "fake_leader"


class FakeCameraConfig(CameraConfig):
    type: str = "fake_camera"


class FakeCamera(Camera):
    """A camera whose capture times a test sets; `age_s` is how old its frame is."""

    def __init__(self, name: str = "front", shape: tuple[int, int, int] = (8, 12, 3)) -> None:
        super().__init__(FakeCameraConfig(type=name, fps=30, width=shape[1], height=shape[0]))
        self.age_s = 0.0
        self.shape, self.count = shape, 0
        self._state = CameraState.CLOSED
        self.connects = 0
        self.connect_error: Exception | None = None

    @staticmethod
    def find_cameras() -> list[dict[str, Any]]:
        return []

    @property
    def state(self) -> CameraState:
        return self._state

    def set_state(self, state: CameraState) -> None:
        self._state = state

    def connect(self, warmup: bool = True) -> None:
        self.connects += 1
        if self.connect_error is not None:
            raise self.connect_error
        self._state, self.age_s = CameraState.LIVE, 0.0

    def disconnect(self) -> None:
        self._state = CameraState.CLOSED

    def _latest(self) -> Frame | None:
        self.count += 1
        return Frame(np.full(self.shape, self.count % 256, np.uint8), -self.age_s, self.count)

    def _wait_newer(self, number: int, timeout_s: float) -> Frame:
        raise FrameTimeoutError("not needed here")

    def _now(self) -> float:
        return 0.0


@dataclass
class Faults:
    """What shall go wrong: call number to error, for observing, sending and (dis)connecting."""

    observe: dict[int, Exception] = field(default_factory=dict)
    send: dict[int, Exception] = field(default_factory=dict)
    connect: Exception | None = None
    disconnect: Exception | None = None


class FakeRobot(Robot):
    """Its joints are where they were sent, at most `reach` from where they were. Logs what happens."""

    config_class = FakeRobotConfig
    name = "fake_robot"

    def __init__(
        self,
        cameras: Mapping[str, FakeCamera] | None = None,
        *,
        joints: tuple[str, ...] = JOINTS,
        reach: float | None = None,
        at: float = 0.0,
        log: list[str] | None = None,
    ) -> None:
        super().__init__(FakeRobotConfig(id="follower"))
        self.faults, self.log = Faults(), [] if log is None else log
        self.positions = dict.fromkeys(joints, at)
        self.reach = reach
        self.torque = False
        self.observed = self.commands = 0
        self.sent: list[dict[str, float]] = []
        self.on_observe: Callable[[], None] | None = None
        if cameras is not None:
            self.cameras = dict(cameras)

    @property
    def observation_features(self) -> dict[str, Any]:
        pictures = {name: camera.shape for name, camera in getattr(self, "cameras", {}).items()}
        return {**dict.fromkeys(self.positions, float), **pictures}

    @property
    def action_features(self) -> dict[str, Any]:
        return dict.fromkeys(self.positions, float)

    @property
    def is_calibrated(self) -> bool:
        return True

    def _connect(self, parts: Any, calibrate: bool) -> None:
        def power() -> None:
            if self.faults.connect is not None:
                raise self.faults.connect
            self.torque = True
            self.log.append("robot on")

        def release() -> None:
            self.torque = False
            self.log.append("robot off")
            if self.faults.disconnect is not None:
                raise self.faults.disconnect

        parts.open("bus", power, release)
        for name, camera in getattr(self, "cameras", {}).items():
            parts.open(f"camera {name}", camera.connect, camera.disconnect)

    def _get_observation(self) -> dict[str, Any]:
        if self.observed in self.faults.observe:
            raise self.faults.observe[self.observed]
        self.observed += 1
        if self.on_observe is not None:
            self.on_observe()
        pictures = {n: c.read_latest(self.max_frame_age_ms) for n, c in getattr(self, "cameras", {}).items()}
        return {**self.positions, **pictures}

    def _send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        if self.commands in self.faults.send:
            raise self.faults.send[self.commands]
        self.commands += 1
        for key, goal in action.items():
            now = self.positions[key]
            step = goal - now if self.reach is None else max(-self.reach, min(self.reach, goal - now))
            self.positions[key] = now + step
        self.sent.append(dict(self.positions))
        return dict(self.positions)


class FakeLeader(Teleoperator):
    """Plays `pose(call number)`."""

    config_class = FakeTeleopConfig
    name = "fake_leader"

    def __init__(
        self,
        pose: Callable[[int], float] = lambda n: 0.1 * n,
        *,
        joints: tuple[str, ...] = JOINTS,
        log: list[str] | None = None,
    ) -> None:
        super().__init__(FakeTeleopConfig(id="leader"))
        self.pose, self.joints, self.calls = pose, joints, 0
        self.log = [] if log is None else log
        self.faults = Faults()

    @property
    def action_features(self) -> dict[str, Any]:
        return dict.fromkeys(self.joints, float)

    @property
    def is_calibrated(self) -> bool:
        return True

    def _connect(self, parts: Any, calibrate: bool) -> None:
        def power() -> None:
            if self.faults.connect is not None:
                raise self.faults.connect
            self.log.append("leader on")

        def release() -> None:
            self.log.append("leader off")
            if self.faults.disconnect is not None:
                raise self.faults.disconnect

        parts.open("bus", power, release)

    def _get_action(self) -> dict[str, Any]:
        value = self.pose(self.calls)
        self.calls += 1
        return dict.fromkeys(self.joints, value)


class ScriptedKeys:
    """Gives a key at the n-th poll."""

    description = "scripted keys"

    def __init__(self, script: Mapping[int, str]) -> None:
        self.script, self.polls = dict(script), 0

    def poll(self) -> str | None:
        """Return the key of this poll; polls that follow a key in the same tick do not count."""
        key = self.script.pop(self.polls, None)
        if key is None:
            self.polls += 1
        return key


class MemoryDataset:
    """Keeps frames in lists; just what recording needs of a dataset."""

    repo_id = "lab/memory"

    def __init__(self, root: Any, robot: Robot, fps: int = 30, episodes: int = 0) -> None:
        from ulna.control import dataset_features

        self.root, self.fps = root, fps
        self.features = dataset_features(robot)
        self.saved: list[list[dict[str, Any]]] = [[] for _ in range(episodes)]
        self.buffer: list[dict[str, Any]] = []
        self.finalized = 0
        self.save_error: Exception | None = None

    @property
    def num_episodes(self) -> int:
        return len(self.saved)

    def add_frame(self, frame: dict[str, Any], timestamp: float | None = None) -> None:
        self.buffer.append(frame)

    def save_episode(self, *, wait: bool = True) -> None:
        if self.save_error is not None:
            raise self.save_error
        assert self.buffer
        self.saved.append(self.buffer)
        self.buffer = []

    def clear_episode_buffer(self) -> None:
        self.buffer = []

    def finalize(self) -> None:
        self.buffer = []
        self.finalized += 1


class _Fakes(SimpleNamespace):
    JOINTS: ClassVar[tuple[str, ...]] = JOINTS
    Camera = FakeCamera
    Clock = JumpClock
    Dataset = MemoryDataset
    Keys = ScriptedKeys
    Leader = FakeLeader
    Robot = FakeRobot
    errors = (DeviceConnectError, DeviceError, DeviceNotConnectedError)


@pytest.fixture
def fakes() -> type[_Fakes]:
    """The fakes above, by short names."""
    return _Fakes


@pytest.fixture
def clock() -> JumpClock:
    """A clock that jumps."""
    return JumpClock()
