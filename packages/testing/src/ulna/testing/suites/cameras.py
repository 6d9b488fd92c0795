# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of cameras."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ulna.core.cameras import Camera, CameraState
from ulna.core.errors import (
    DeviceConnectError,
    DeviceError,
    DeviceNotConnectedError,
    FrameTimeoutError,
    StaleFrameError,
)
from ulna.testing import configs, devices
from ulna.testing.checks import NotExercised, Suite, check, expect, refused
from ulna.testing.isolation import leftovers

__all__ = ["CameraSuite"]


class CameraSuite(Suite):
    """Checks of a camera. Override the fixture `camera`; it returns one that is not connected.

    Override `freeze`, `thaw`, `unplug` and `replug` where the camera is simulated, to exercise stalls and losses.

    Attributes:
        vendor_modules: Libraries of the vendor that its configuration module must not import.
        cycles: How often the stop race connects and disconnects.
        stalled_after_ms: After this long without a frame the camera must say so, milliseconds.
        patience_s: How long a reader may take to notice that the camera was closed, seconds.
    """

    subject: ClassVar[str] = "camera"
    vendor_modules: ClassVar[tuple[str, ...]] = ()
    cycles: ClassVar[int] = 20
    stalled_after_ms: ClassVar[float] = 1000
    patience_s: ClassVar[float] = 10

    @pytest.fixture
    def camera(self) -> Camera:
        """Give a disconnected camera. The one thing an author overrides."""
        made: Camera = self.missing_fixture()
        return made

    def _faults(self, camera: Camera) -> Any:
        faults = getattr(camera, "faults", None)
        if faults is None:
            raise NotExercised("the camera cannot be disturbed; override freeze(), thaw(), unplug() and replug()")
        return faults

    def freeze(self, camera: Camera) -> None:
        """Let the camera deliver no new frame. Default: through its `faults`.

        Args:
            camera: The camera.
        """
        self._faults(camera).freeze()

    def thaw(self, camera: Camera) -> None:
        """Let it deliver frames again.

        Args:
            camera: The camera.
        """
        self._faults(camera).thaw()

    def unplug(self, camera: Camera) -> None:
        """Take the camera away.

        Args:
            camera: The camera.
        """
        self._faults(camera).unplug()

    def replug(self, camera: Camera) -> None:
        """Bring the camera back.

        Args:
            camera: The camera.
        """
        self._faults(camera).replug()

    @check(
        "C01-pure-constructor",
        "Making a camera opens no device, starts no thread and creates no file or folder.",
        "Move such work from __init__ into connect.",
    )
    def test_c01_pure_constructor(self, camera: Camera, tmp_path: Path) -> None:
        devices.construction_is_pure(lambda: devices.fresh(camera), tmp_path)

    @check(
        "C02-failed-connect-closes",
        "Connecting a camera that is not there raises DeviceConnectError and leaves it closed, no thread or file open.",
        "Undo in connect everything done so far before the error leaves it.",
    )
    def test_c02_failed_connect_closes(self, camera: Camera) -> None:
        self.unplug(camera)
        with devices.closing(camera), leftovers() as left:
            with refused(DeviceConnectError, "connect() of an unplugged camera"):
                camera.connect()
            expect(camera.state is CameraState.CLOSED, f"its state is {camera.state.value}, expected closed")
        expect(not left, f"after the failed connect() there is still {left}")
        self.replug(camera)
        with devices.closing(camera):
            camera.connect()

    @check(
        "C03-connect-twice",
        "connect on a connected camera raises DeviceAlreadyConnectedError and leaves it connected.",
        "Raise it at the start of connect when is_connected.",
    )
    def test_c03_connect_twice(self, camera: Camera) -> None:
        devices.refuses_second_connect(camera)

    @check(
        "C04-disconnect-idempotent",
        "disconnect can be called at any time, any number of times, and the camera connects again after it.",
        "Return early from disconnect when there is nothing to close, and reset the state in connect.",
    )
    def test_c04_disconnect_idempotent(self, camera: Camera) -> None:
        devices.disconnect_is_idempotent(camera)
        expect(camera.state is CameraState.CLOSED, f"its state after disconnect() is {camera.state.value}")

    @check(
        "C05-disconnect-releases",
        "After disconnect no thread and no open file or device of the camera is left.",
        "Join the reading thread and release the device in disconnect.",
    )
    def test_c05_disconnect_releases(self, camera: Camera) -> None:
        devices.disconnect_releases(camera, lambda one: one.read())

    @check(
        "C06-not-connected-errors",
        "Every way to read raises DeviceNotConnectedError before connect and after disconnect.",
        "Leave the read methods to the base class and let state tell the truth.",
    )
    def test_c06_not_connected_errors(self, camera: Camera) -> None:
        for _ in range(2):
            for name, read in _readers(camera).items():
                with refused(DeviceNotConnectedError, f"{name}() while disconnected"):
                    read()
            with devices.closing(camera):
                camera.connect()
                camera.read()

    @check(
        "C07-frame-format",
        "Frames are uint8 of shape (height, width, 3), height and width being those of the settings.",
        "Convert, rotate and check frames before handing them out; refuse in connect a size the device does not give.",
    )
    def test_c07_frame_format(self, camera: Camera) -> None:
        with devices.closing(camera):
            camera.connect()
            images = {"read": camera.read(), "async_read": camera.async_read(self.patience_s * 1e3)}
            images["read_latest"] = camera.read_latest(self.patience_s * 1e3)
        for name, image in images.items():
            expect(str(image.dtype) == "uint8", f"{name}() gave {image.dtype}, expected uint8")
            expect(image.ndim == 3 and image.shape[2] == 3, f"{name}() gave the shape {image.shape}")
            wanted = (camera.config.height or image.shape[0], camera.config.width or image.shape[1])
            expect(image.shape[:2] == wanted, f"{name}() gave the size {image.shape[:2]}, the settings say {wanted}")

    @check(
        "C08-read-waits-for-new",
        "read_frame returns a frame captured after the call: numbers count up and capture times never go back.",
        "Let _wait_newer(number, ...) return only frames with a larger number.",
    )
    def test_c08_read_waits_for_new(self, camera: Camera) -> None:
        with devices.closing(camera):
            camera.connect()
            frames = [camera.read_frame() for _ in range(4)]
        for one, next_one in pairwise(frames):
            expect(next_one.number > one.number, f"frame {next_one.number} came after frame {one.number}")
            expect(next_one.captured_at_s > one.captured_at_s, "two frames in a row have the same capture time")

    @check(
        "C09-async-read-consumes",
        "async_read never returns the same frame twice.",
        "Leave async_read to the base class; let _latest return the frame with its own number.",
    )
    def test_c09_async_read_consumes(self, camera: Camera) -> None:
        with devices.closing(camera):
            camera.connect()
            numbers = []
            for _ in range(4):
                camera.async_read(self.patience_s * 1e3)
                numbers.append(camera._consumed)
        expect(len(set(numbers)) == 4, f"four calls of async_read returned the frames {numbers}")

    @check(
        "C10-stale-error",
        "latest_frame and read_latest raise StaleFrameError, with the age, when the newest frame is too old.",
        "Leave both to the base class, and stamp frames with the clock that _now reads.",
    )
    def test_c10_stale_error(self, camera: Camera) -> None:
        with devices.closing(camera):
            camera.connect()
            camera.read()
            for name, read in (("latest_frame", camera.latest_frame), ("read_latest", camera.read_latest)):
                with refused(StaleFrameError, f"{name}(max_age_ms=-1)"):
                    read(-1.0)
            try:
                camera.latest_frame(-1.0)
            except StaleFrameError as error:
                expect(0 <= error.age_ms < self.patience_s * 1e3, f"the error says an age of {error.age_ms} ms")

    @check(
        "C11-frame-age",
        "The capture time of a frame lies between the call before it and now, on the camera's own clock.",
        "Stamp a frame when it is grabbed, with the clock that _now reads.",
    )
    def test_c11_frame_age(self, camera: Camera) -> None:
        with devices.closing(camera):
            camera.connect()
            before = camera._now()
            frame = camera.read_frame()
            age_s, since_s = camera._now() - frame.captured_at_s, camera._now() - before
        slack_s = 2 / (camera.config.fps or 30)
        expect(age_s >= 0, f"the frame comes from the future: its age is {age_s * 1e3:.1f} ms")
        text = f"a frame waited for {since_s * 1e3:.0f} ms says that it is {age_s * 1e3:.0f} ms old"
        expect(age_s <= since_s + slack_s, text)

    @check(
        "C12-stall-is-seen",
        "A camera that delivers nothing says so: reading times out, its state is no longer live, old frames are stale.",
        "Compute state from the age of the newest frame; never hand out the last frame as a new one.",
    )
    def test_c12_stall_is_seen(self, camera: Camera) -> None:
        with devices.closing(camera):
            camera.connect()
            camera.read()
            self.freeze(camera)
            camera._latest()
            with refused(DeviceError, "read_frame() of a frozen camera, twice in a row"):
                for _ in range(2):
                    camera.read_frame(self.stalled_after_ms)
            state = camera.state
            expect(state in (CameraState.STALLED, CameraState.LOST), f"the frozen camera says it is {state.value}")
            with refused(DeviceError, "read_latest() of a frozen camera"):
                camera.read_latest(self.stalled_after_ms / 2)
            self.thaw(camera)
            if camera.is_connected:
                camera.read()
                expect(camera.state is CameraState.LIVE, f"after the stall its state is {camera.state.value}")

    @check(
        "C13-loss-is-seen",
        "An unplugged camera is lost: it is not live, reading raises, and plugged in again it connects again.",
        "Set the state to LOST when the reading thread gives up, and let connect start over from there.",
    )
    def test_c13_loss_is_seen(self, camera: Camera) -> None:
        with devices.closing(camera):
            camera.connect()
            camera.read()
            self.unplug(camera)
            with refused(DeviceError, "reading an unplugged camera"):
                for _ in range(100):
                    camera.read_frame(self.stalled_after_ms)
            expect(camera.state is not CameraState.LIVE, "the unplugged camera says it is live")
            camera.disconnect()
            self.replug(camera)
            camera.connect()
            camera.read()

    @check(
        "C14-frames-are-owned",
        "A returned picture belongs to the caller: changing it does not change what others read.",
        "Return a copy of the newest frame from _latest.",
    )
    def test_c14_frames_are_owned(self, camera: Camera) -> None:
        import numpy as np

        with devices.closing(camera):
            camera.connect()
            camera.read()
            pairs = [(camera.latest_frame(1e6), camera.latest_frame(1e6)) for _ in range(50)]
            same = next((p for p in pairs if p[0].number == p[1].number), None)
        if same is None:
            raise NotExercised("its frames come faster than they can be read twice")
        expect(not np.shares_memory(same[0].image, same[1].image), "two readers got the same memory")
        expect(same[0].image.flags.writeable, "the picture cannot be changed by its reader")

    @check(
        "C15-stop-race",
        "Connecting and disconnecting many times raises nothing and leaves no thread.",
        "Give every start a stop event of its own, and join the thread before forgetting it.",
    )
    def test_c15_stop_race(self, camera: Camera) -> None:
        raised: list[threading.ExceptHookArgs] = []
        with devices.patched(threading, "excepthook", raised.append), devices.closing(camera), leftovers() as left:
            for index in range(self.cycles):
                camera.connect(warmup=index % 2 == 0)
                if index % 3 == 0:
                    camera.read()
                camera.disconnect()
        expect(not raised, f"a thread of the camera raised {raised[0].exc_value!r}" if raised else "")
        expect(not left, f"after {self.cycles} rounds there is still {left}")

    @check(
        "C16-disconnect-while-reading",
        "Disconnecting while another thread reads ends that read, with a frame or a DeviceError.",
        "Wake readers up in disconnect, and let _wait_newer look at the state after each wait.",
    )
    def test_c16_disconnect_while_reading(self, camera: Camera) -> None:
        ended: list[BaseException | None] = []
        reading = threading.Event()

        def read() -> None:
            try:
                while True:
                    camera.read_frame()
                    reading.set()
            except BaseException as error:  # noqa: BLE001 - what ends the reader is what is checked
                ended.append(error)
                reading.set()

        with devices.closing(camera):
            camera.connect()
            thread = threading.Thread(target=read, daemon=True, name="conformance reader")
            thread.start()
            reading.wait(self.patience_s)
            camera.disconnect()
        thread.join(self.patience_s)
        expect(not thread.is_alive(), f"the reader still waits {self.patience_s:.0f} s after disconnect()")
        accepted = (DeviceNotConnectedError, FrameTimeoutError, StaleFrameError)
        expect(isinstance(ended[0], accepted), f"the reader was ended by {ended[0]!r}")

    @check(
        "C17-finds-cameras",
        "find_cameras returns a list of dicts that each have name, type and id.",
        "Return [] where none is there; leave out what cannot be told but these three.",
    )
    def test_c17_finds_cameras(self, camera: Camera) -> None:
        found = type(camera).find_cameras()
        expect(isinstance(found, list), f"find_cameras() returned {type(found).__name__}")
        for item in found:
            lacking = [key for key in ("name", "type", "id") if key not in item]
            expect(not lacking, f"{item!r} lacks {', '.join(lacking)}")

    @check(
        "C18-config-round-trip",
        "The settings are the same after they were written as JSON and read again.",
        "Use types that pydantic writes and reads; avoid private state that changes fields.",
    )
    def test_c18_config_round_trip(self, camera: Camera) -> None:
        configs.survives_json(camera.config)

    @check(
        "C19-config-names-implementation",
        "The configuration class names, as `module:Class`, the camera it configures.",
        "Set implementation: ClassVar[str] in the configuration class.",
    )
    def test_c19_config_names_implementation(self, camera: Camera) -> None:
        configs.implementation_fits(camera.config, camera)

    @check(
        "C20-lean-config",
        "Importing the configuration class imports neither torch nor a vendor's library.",
        "Keep the configuration in a module of its own and import libraries where they are used.",
    )
    def test_c20_lean_config(self, camera: Camera) -> None:
        configs.module_is_lean(type(camera.config), self.vendor_modules)

    @check(
        "C21-runs-without-torch",
        "The camera's module can be imported where torch is not installed.",
        "Import torch nowhere in a camera; use numpy.",
    )
    def test_c21_runs_without_torch(self, camera: Camera) -> None:
        configs.runs_without(type(camera), ("torch", "torchvision"))


def _readers(camera: Camera) -> dict[str, Callable[[], Any]]:
    names = ("read", "read_frame", "async_read", "latest_frame", "read_latest")
    return {name: getattr(camera, name) for name in names}
