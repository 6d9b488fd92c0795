# SPDX-License-Identifier: Apache-2.0
"""What the commands need beside the loops: light help, the live line, dialogues, ports, motors, cameras."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import struct
import subprocess
import sys
import termios
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from ulna.control import Tick, calibrate, setup_motors, watch_limits
from ulna.control.calibrating import LimitsConfig, OneDeviceConfig
from ulna.control.commands.cameras import find as find_command
from ulna.control.commands.console import StatusLine, TerminalDialogue, console, exit_code
from ulna.control.discovery import FindCamerasConfig, ScanConfig, encode_png, find_cameras, save_pictures, scan_motors
from ulna.control.ports import PortInfo, list_ports, permission_problem, wait_for_change
from ulna.core.calibration import CalibrationStep
from ulna.core.cameras import CameraConfig
from ulna.core.errors import ConfigError, ControlError, DeviceConnectError, PluginNotFoundError
from ulna.core.motors import MotorsBusConfig
from ulna.core.plugins import Registry, use_registry
from ulna.testing import PackagingSuite

HEAVY = ("torch", "cv2", "av", "pyarrow", "serial")
COMMANDS = ("teleoperate", "record", "replay", "rollout", "calibrate", "motors", "cameras", "detect")


class TestControlPackaging(PackagingSuite):
    """The distribution keeps the contracts of Ulna."""

    @pytest.fixture
    def distribution(self) -> str:
        """Its name."""
        return "ulna-control"


def test_help_loads_nothing_heavy():
    """Showing help imports neither torch nor OpenCV, PyAV, Arrow or pyserial."""
    code = (
        "import importlib, sys\nfrom typer.main import get_command\n"
        f"for name in {COMMANDS!r}:\n"
        "    app = importlib.import_module(f'ulna.control.commands.{name}').app\n"
        "    get_command(app).main(['--help'], standalone_mode=False)\n"
        f"heavy = [m for m in {HEAVY!r} if m in sys.modules]\nsys.exit(f'imported {{heavy}}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage:") == len(COMMANDS)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def tick(index, **more):
    values = {"pan.pos": 12.345}
    return Tick("record", index, index / 30, {}, values, values, **more)


class TestStatusLine:
    """The live line."""

    def test_draws_rate_and_values_and_goes_away(self, monkeypatch):
        """Phase, rate and joints are shown; a message first takes the line away."""
        times = iter([10.0, 10.25, 10.26, 10.5])
        monkeypatch.setattr("ulna.control.commands.console.time.perf_counter", lambda: next(times))
        stream = Terminal()
        line = StatusLine(stream, show_values=True)
        for n in range(4):
            line.tick(tick(n, stale=("front",) if n == 3 else ()))
        line.say("saved")
        text = stream.getvalue()
        assert "record" in text
        assert "8.0 Hz" in text
        assert "pan.pos" in text
        assert "12.35" in text or "12.34" in text
        assert "stale: front" in text
        assert text.endswith("\r\x1b[K\x1b[A\r\x1b[Ksaved\n")

    def test_is_silent_where_nobody_looks(self):
        """A log file gets messages but no live line."""
        stream = io.StringIO()
        line = StatusLine(stream)
        line.tick(tick(0))
        line.say("saved")
        line.clear()
        assert stream.getvalue() == "saved\n"

    def test_terminal_that_goes_away_stops_nothing(self):
        """Whoever closes the window gets a robot at rest and a whole dataset, not an error from the live line."""

        class Closing(Terminal):
            gone = False

            def write(self, text: str) -> int:
                if self.gone:
                    raise OSError(errno.EIO, "Input/output error")
                return super().write(text)

        stream = Closing()
        line = StatusLine(stream)
        line.tick(tick(0))
        stream.gone = True
        line.tick(tick(1))
        line.say("saved")
        line.clear()
        silent = StatusLine(None)
        silent.tick(tick(0))
        silent.say("saved")

    def test_fits_a_narrow_terminal(self):
        """Lines are cut where the terminal ends: one that wraps would stay behind when the next is drawn."""
        person, program = os.openpty()
        fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
        with os.fdopen(program, "w") as stream:
            line = StatusLine(stream, show_values=True)
            line.tick(tick(0))
            drawn = os.read(person, 1000).decode()
            line.clear()
        os.close(person)
        assert max(len(part) for part in drawn.split("\r\n")) == 19

    @pytest.mark.parametrize(
        ("reason", "code"),
        [("complete", 0), ("stop key", 0), ("time", 0), ("interrupted", 130), ("received SIGTERM", 130)],
    )
    def test_signal_that_ends_it_early_shows_in_the_exit_code(self, reason, code):
        """A script that records and then trains stops when the recording was interrupted."""
        assert exit_code(reason) == code

    def test_console_says_once_which_keys_there_are(self, monkeypatch):
        """Without a terminal: keys are off, once; phases are told in words."""
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        stream = io.StringIO()
        with console(keys="q stops.", stream=stream) as runtime:
            runtime.phase("record", 0, "Recording episode 0")
            runtime.phase("quiet")
            assert runtime.keys.poll() is None
        assert stream.getvalue() == "Keys are off: there is no standard input.\nRecording episode 0\n"

    def test_console_reads_keys_of_a_terminal(self, monkeypatch):
        """On a terminal the backend and the keys are told, and keys arrive."""
        person, program = os.openpty()
        try:
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: program))
            stream = Terminal()
            with console(keys="q stops.", stream=stream) as runtime:
                os.write(person, b"q")
                key = None
                while key is None:
                    key = runtime.keys.poll()
                assert key == "q"
            assert stream.getvalue() == "Keys are read from the terminal.\nq stops.\n"
        finally:
            os.close(person)
            os.close(program)


@pytest.fixture
def typed(tmp_path):
    """A dialogue whose answers come from a pipe, as when somebody types."""
    read, write = os.pipe()
    answers, screen = os.fdopen(read), Terminal()
    dialogue = TerminalDialogue(answers, screen)
    yield SimpleNamespace(
        dialogue=dialogue, screen=screen, write=lambda t: os.write(write, t), end=lambda: os.close(write)
    )
    answers.close()


class TestTerminalDialogue:
    """Prompts and answers on a terminal."""

    def test_confirm_and_choose(self, typed):
        """Enter confirms; a choice may be abbreviated and is asked for again until it is one."""
        typed.write(b"\n\nx\nR\n")
        assert typed.dialogue(CalibrationStep("Move to the middle")) == ""
        step = CalibrationStep("Failed", "choose", choices=("retry", "skip"))
        assert typed.dialogue(step) == "retry"
        assert typed.screen.getvalue().count("retry / skip") == 3
        typed.end()

    def test_progress_shows_a_table_until_enter(self, typed):
        """The table is redrawn in place; Enter ends it."""
        step = CalibrationStep("Move the joints", "progress", table={"pan": (10, 20, 30)})
        assert typed.dialogue(step) == ""
        assert typed.dialogue(step) == ""
        typed.write(b"\n")
        assert typed.dialogue(step) == "done"
        text = typed.screen.getvalue()
        assert text.count("Move the joints") == 1
        assert re.search(r"pan\s+10\s+20\s+30", text)
        assert text.count("\x1b[2A\x1b[J") == 2
        typed.end()

    def test_end_of_input_is_an_error(self, typed):
        """Nobody there to answer: say so instead of going on."""
        typed.end()
        with pytest.raises(ControlError, match="has ended"):
            typed.dialogue(CalibrationStep("Move to the middle"))


class TestOneDevice:
    """Calibration, setup and limits of one device."""

    def test_calibrate_drives_and_releases(self, fakes):
        """Every step is answered, the device is connected without calibration and released."""

        class Robot(fakes.Robot):
            def calibrate(self):
                assert self.torque
                self.log.append((yield CalibrationStep("one")))
                self.log.append((yield CalibrationStep("two", "choose", choices=("a", "b"))))

        robot = Robot()
        calibrate(robot, lambda step: step.message)
        assert robot.log == ["robot on", "one", "two", "robot off"]

    def test_interrupted_calibration_releases(self, fakes):
        """Ctrl-C while the operator is asked stops at once, torque off."""
        import signal

        class Robot(fakes.Robot):
            def calibrate(self):
                yield CalibrationStep("one")

        robot = Robot()
        with pytest.raises(KeyboardInterrupt):
            calibrate(robot, lambda step: os.kill(os.getpid(), signal.SIGINT) or "")
        assert not robot.torque

    def test_setup_needs_the_ability(self, fakes):
        """A device without it is told so; one with it is led through."""
        with pytest.raises(ControlError, match="no motors"):
            setup_motors(fakes.Robot(), lambda step: "")
        asked = []

        class Robot(fakes.Robot):
            def setup_motors(self, only=None):
                asked.append((yield CalibrationStep(f"plug {only}")))

        setup_motors(Robot(), lambda step: step.message, "lift")
        assert asked == ["plug lift"]

    @pytest.mark.parametrize("kind", ["Robot", "Leader"])
    def test_limits_are_lowest_and_highest(self, fakes, clock, kind):
        """What was seen within the time; torque is off meanwhile where that can be said."""
        from ulna.control import Runtime

        device = fakes.Leader(lambda n: (n - 5) ** 2) if kind == "Leader" else fakes.Robot()
        shown = []
        if kind == "Robot":
            device.on_observe = lambda: device.positions.update(dict.fromkeys(fakes.JOINTS, (device.observed - 6) ** 2))
            type(device).enable_torque = lambda self: None
            type(device).disable_torque = lambda self: self.log.append("limp")
        config = LimitsConfig.model_construct(time_s=0.5, fps=20)
        try:
            limits = watch_limits(device, config, shown.append, Runtime(clock=clock))
        finally:
            if kind == "Robot":
                del type(device).enable_torque, type(device).disable_torque
        assert limits["pan.pos"] == (0, 16, 25)
        assert len(shown) == 10
        assert kind == "Leader" or "limp" in device.log

    def test_exactly_one_device(self):
        """Neither is refused with the flags."""
        with pytest.raises(ConfigError, match="exactly one"):
            OneDeviceConfig()


class TestPorts:
    """Serial ports."""

    def test_ports_know_their_plugins(self, monkeypatch):
        """USB ids in manifests tell what a port is for; USB ports come first."""
        from serial.tools import list_ports as tools

        usb = SimpleNamespace(
            device="/dev/ttyACM9", description="USB Serial", vid=0x1A86, pid=0x55D3, serial_number="A1"
        )
        old = SimpleNamespace(device="/dev/ttyS9", description="n/a", vid=None, pid=None, serial_number=None)
        monkeypatch.setattr(tools, "comports", lambda: [old, usb])
        record = SimpleNamespace(manifest={"hardware_ids": ["1A86:55D3"]}, label="robots/my_arm")
        with use_registry(SimpleNamespace(records=lambda kind=None: [record])):
            found = list_ports()
        assert [p.device for p in found] == ["/dev/ttyACM9", "/dev/ttyS9"]
        assert found[0].fits == ("robots/my_arm",)
        assert (found[0].hardware_id, found[0].serial_number) == ("1a86:55d3", "A1")
        assert (found[1].description, found[1].fits) == ("", ())

    def test_permission_problem_names_the_command(self, tmp_path, monkeypatch):
        """Somebody else's device: which group to join. One's own: nothing."""
        device = tmp_path / "ttyACM0"
        device.touch()
        assert permission_problem(str(device)) == ""
        monkeypatch.setattr(os, "access", lambda *_: False)
        monkeypatch.setattr(sys, "platform", "linux")
        assert "sudo usermod -aG" in permission_problem(str(device))
        assert permission_problem(str(tmp_path / "none")) == ""

    def test_plugging_is_noticed(self, clock):
        """What appears and what goes away is told."""
        a, b = PortInfo("/dev/a"), PortInfo("/dev/b")
        looks = iter([[a], [a], [a, b]])
        assert wait_for_change(lambda: next(looks), clock=clock) == ([b], [])
        looks = iter([[a, b], [b]])
        assert wait_for_change(lambda: next(looks), clock=clock) == ([], [a])

    def test_nothing_plugged_is_an_error_in_time(self, clock):
        """It gives up and says what to check."""
        with pytest.raises(ControlError, match="within 5 s"):
            wait_for_change(lambda: [PortInfo("/dev/a")], timeout_s=5, clock=clock)


class _BusConfig(MotorsBusConfig):
    type: str = "fake_bus"


class _CameraConfig(CameraConfig):
    type: str = "fake_camera"


@pytest.fixture
def plug(monkeypatch):
    """Install a bus and cameras for the test."""
    registry = Registry(list)

    def install(kind, name, config_class, implementation):
        class Made(config_class):
            type: str = name

            @classmethod
            def load_implementation(cls):
                return implementation

        registry.register(kind, name, Made)

    with use_registry(registry):
        yield install


class TestDiscovery:
    """Motors and cameras, whatever is installed."""

    def test_scan_asks_every_bus_that_can(self, plug):
        """A bus without the ability is passed over; models are named."""

        class Scanner:
            model_number_table = {"sts": 777}

            @classmethod
            def scan_port(cls, port, *, baudrates=None, **settings):
                assert (port, baudrates, settings) == ("/dev/a", [1000000], {"protocol_version": 1})
                return {1000000: {1: 777, 9: 5}}

        plug("motors", "can", _BusConfig, object)
        plug("motors", "serial", _BusConfig, Scanner)
        settings = {"protocol_version": 1}
        found = scan_motors(ScanConfig(port="/dev/a", baudrates=[1000000], settings=settings))
        assert [(f.bus, f.baudrate, f.id, f.model) for f in found] == [
            ("serial", 1000000, 1, "sts"),
            ("serial", 1000000, 9, "unknown"),
        ]

    def test_nothing_to_scan_with(self, plug):
        """No bus at all, or an unknown one, is an error with a way out."""
        with pytest.raises(ControlError, match="none"):
            scan_motors(ScanConfig(port="/dev/a"))
        with pytest.raises(PluginNotFoundError):
            scan_motors(ScanConfig(port="/dev/a", type="feetec"))

    def test_one_broken_camera_plugin_does_not_hide_the_others(self, plug, tmp_path, fakes):
        """Cameras found, those that cannot be listed, those that fail; pictures of those that open."""

        class Good(fakes.Camera):
            @staticmethod
            def find_cameras():
                return [{"id": "/dev/video0", "name": "Webcam"}]

            @classmethod
            def from_found(cls, found):
                return cls()

            def read(self):
                return np.full((4, 5, 3), 7, np.uint8)

        class Silent:
            @staticmethod
            def find_cameras():
                raise NotImplementedError

        class Broken:
            @staticmethod
            def find_cameras():
                raise DeviceConnectError("no driver")

        class Shy:
            @staticmethod
            def find_cameras():
                return [{"id": 3}]

        for name, cls in (("good", Good), ("silent", Silent), ("broken", Broken), ("shy", Shy)):
            plug("cameras", name, _CameraConfig, cls)
        found = find_cameras()
        assert [(c["type"], c["id"]) for c in found.cameras] == [("good", "/dev/video0"), ("shy", 3)]
        assert found.problems == {"silent": "cameras of this kind cannot be listed", "broken": "no driver"}
        results = save_pictures(found, tmp_path)
        assert results["good__dev_video0"] == str(tmp_path / "good__dev_video0.png")
        assert "no picture" in results["shy_3"]
        assert find_command(FindCamerasConfig(output_dir=tmp_path)) == 0
        (tmp_path / "file").write_text("in the way")
        assert find_command(FindCamerasConfig(output_dir=tmp_path / "file")) == 1

    def test_png_is_a_png(self):
        """The encoder writes what any reader understands."""
        pixels = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
        data = encode_png(pixels)
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", data[16:24]) == (5, 4)
        at = data.index(b"IDAT")
        (size,) = struct.unpack(">I", data[at - 4 : at])
        rows = zlib.decompress(data[at + 4 : at + 4 + size])
        assert rows == b"".join(b"\x00" + row.tobytes() for row in pixels)
