# SPDX-License-Identifier: Apache-2.0
"""The simulated camera: conformance, faults, virtual time, other processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ulna.cameras.sim import SimCamera, SimCameraConfig
from ulna.core.cameras import CameraConfig, CameraState, ColorMode, make_cameras_from_configs
from ulna.core.errors import (
    ConfigError,
    DeviceConnectError,
    DeviceNotConnectedError,
    FrameTimeoutError,
    StaleFrameError,
)
from ulna.sim import Simulation
from ulna.sim.clock import VirtualClock
from ulna.sim.kinematics import inverse_kinematics
from ulna.testing.suites.cameras import CameraSuite


@pytest.fixture(autouse=True, scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        patch.setenv("ULNA_HOME", str(home))
        yield home


@contextmanager
def serving(name: str) -> Iterator[str]:
    """A world in another process."""
    command = [sys.executable, "-c", "from ulna.sim.commands import app; app()", "start", "--name", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "Running" in process.stderr.readline()
        try:
            yield name
        finally:
            process.terminate()
            process.wait(timeout=120)


@pytest.fixture(scope="module")
def served(home: Path) -> Iterator[str]:
    with serving("far") as name:
        yield name


def config(world: str = "cam", **settings: object) -> SimCameraConfig:
    return SimCameraConfig.build({"world": world, "fps": 100, "width": 64, "height": 48, **settings})


class TestInRealTime(CameraSuite):
    vendor_modules = ("cv2", "ulna.sim")
    stalled_after_ms = 200

    @pytest.fixture
    def camera(self) -> Iterator[SimCamera]:
        with Simulation("cam"):
            yield SimCamera(config())


class TestFromAnotherProcess(CameraSuite):
    stalled_after_ms = 200
    cycles = 5

    @pytest.fixture
    def camera(self, served: str) -> SimCamera:
        return SimCamera(config(served))


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation("cam", realtime=False) as sim:
        yield sim


def sleep(sim: Simulation, seconds: float) -> None:
    assert isinstance(sim.clock, VirtualClock)
    sim.clock.sleep(seconds)


def test_it_is_found_by_type() -> None:
    made = CameraConfig.choose({"type": "sim", "view": "wrist", "world": "cam"})
    assert isinstance(made, SimCameraConfig)
    assert isinstance(make_cameras_from_configs({"a": made})["a"], SimCamera)
    with pytest.raises(ConfigError, match="view"):
        config(view="behind")


def test_defaults_apply_while_connected(sim: Simulation) -> None:
    camera = SimCamera(SimCameraConfig(world="cam"))
    assert (camera.fps, camera.width, camera.height) == (None, None, None)
    with camera:
        assert (camera.fps, camera.width, camera.height) == (30, 640, 480)
        assert camera.read_latest().shape == (480, 640, 3)


def test_it_shows_what_the_world_renders(sim: Simulation) -> None:
    with SimCamera(config(view="top")) as camera, SimCamera(config(view="top", color_mode="bgr")) as swapped:
        picture = sim.render("top", 64, 48)
        assert np.array_equal(camera.read_latest(), picture)
        assert np.array_equal(swapped.read_latest(), picture[:, :, ::-1])
        assert swapped._settings.color_mode is ColorMode.BGR
        sim.hand("follower").set(inverse_kinematics((0.2, 0.0, 0.1)))
        sleep(sim, 0.02)
        assert np.array_equal(camera.read_latest(), sim.render("top", 64, 48))
        assert not np.array_equal(camera.read_latest(), picture)


def test_frames_come_at_their_rate_on_a_virtual_clock(sim: Simulation) -> None:
    with SimCamera(config(fps=30)) as camera:
        numbers = []
        for _ in range(60):
            sleep(sim, 1 / 30)
            frame = camera.latest_frame()
            assert frame.captured_at_s == sim.clock.now()
            numbers.append(frame.number)
        assert numbers == list(range(1, 61))
        sleep(sim, 0.01)
        assert camera.latest_frame().number == 60
        assert camera.frame_age_ms == pytest.approx(10)


def test_waiting_moves_a_virtual_clock(sim: Simulation) -> None:
    with SimCamera(config(fps=50)) as camera:
        camera.read()
        camera.read()
        assert sim.clock.now() == pytest.approx(0.04)
        camera.faults.freeze()
        with pytest.raises(FrameTimeoutError, match="100 ms"):
            camera.read_frame(100)
        assert sim.clock.now() == pytest.approx(0.14)


def test_a_short_stall_is_seen_and_survived(sim: Simulation) -> None:
    with SimCamera(config()) as camera:
        camera.faults.stall(0.3)
        sleep(sim, 0.2)
        assert camera.state is CameraState.STALLED
        assert camera.is_connected
        with pytest.raises(StaleFrameError):
            camera.read_latest(100)
        sleep(sim, 0.2)
        assert camera.state is CameraState.LIVE
        assert camera.frame_age_ms == 0


def test_an_unplugged_camera_stays_lost_until_it_is_connected_again(sim: Simulation) -> None:
    with SimCamera(config()) as camera:
        camera.faults.unplug()
        camera.faults.replug()
        assert camera.state is CameraState.LIVE  # nobody looked meanwhile
        camera.faults.unplug()
        assert camera.state is CameraState.LOST
        camera.faults.replug()
        assert camera.state is CameraState.LOST
        with pytest.raises(DeviceNotConnectedError, match="lost"):
            camera.read()
        camera.connect()
        assert camera.state is CameraState.LIVE


def test_it_is_lost_when_its_world_ends() -> None:
    with Simulation("cam", realtime=False):
        camera = SimCamera(config())
        camera.connect()
    assert camera.state is CameraState.LOST
    camera.disconnect()
    with pytest.raises(DeviceConnectError, match="ulna sim start"):
        camera.connect()
    assert camera.state is CameraState.CLOSED


def test_views_of_running_worlds_are_found(sim: Simulation, served: str) -> None:
    found = SimCamera.find_cameras()
    assert {item["id"] for item in found} >= {"cam/front", "cam/wrist", "far/top"}


def test_it_is_lost_when_the_other_process_ends() -> None:
    with serving("brief") as name:
        camera = SimCamera(config(name))
        camera.connect()
        camera.read()
    assert camera.state is CameraState.LOST
    with pytest.raises(DeviceNotConnectedError, match="lost"):
        camera.read()
    camera.disconnect()


def test_many_readers_share_a_camera() -> None:
    with Simulation("cam"), SimCamera(config()) as camera:
        shapes: list[tuple[int, ...]] = []
        threads = [threading.Thread(target=lambda: shapes.append(camera.read().shape)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert shapes == [(48, 64, 3)] * 8
