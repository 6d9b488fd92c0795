# SPDX-License-Identifier: Apache-2.0
"""Worlds: ports, reset, success, calibration files, the scripted operator, other processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import ulna.sim
from ulna.core.errors import (
    ConfigError,
    DeviceAlreadyConnectedError,
    DeviceConnectError,
    DeviceNotConnectedError,
    FrameTimeoutError,
)
from ulna.sim import ScriptedExpert, Simulation, WorldReader
from ulna.sim.arm import joint_to_ticks
from ulna.sim.clock import VirtualClock
from ulna.sim.commands import app
from ulna.sim.drawing import draw
from ulna.sim.feetech import instruction_packet
from ulna.sim.kinematics import JOINTS, REST_POSE, inverse_kinematics
from ulna.sim.sharing import world_folder
from ulna.testing import leftovers

SYNC_WRITE, BROADCAST = 0x83, 0xFE


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ULNA_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation("test", seed=1, realtime=False) as sim:
        yield sim


def tick(sim: Simulation, seconds: float = 1 / 30) -> None:
    assert isinstance(sim.clock, VirtualClock)
    sim.clock.sleep(seconds)


def group(address: int, width: int, values: dict[int, int]) -> bytes:
    data = b"".join(bytes([id]) + value.to_bytes(width, "little") for id, value in values.items())
    return instruction_packet(BROADCAST, SYNC_WRITE, bytes([address, width]) + data)


class Follower:
    """A minimal driver of the follower: torque on, then goals through the port."""

    def __init__(self, sim: Simulation) -> None:
        self.fd = os.open(sim.ports["follower"], os.O_RDWR | os.O_NOCTTY)
        os.write(self.fd, group(21, 1, dict.fromkeys(range(1, 7), 16)))
        os.write(self.fd, group(41, 1, dict.fromkeys(range(1, 7), 254)))
        os.write(self.fd, group(85, 1, dict.fromkeys(range(1, 7), 254)))
        os.write(self.fd, group(40, 1, dict.fromkeys(range(1, 7), 1)))

    def go(self, joints: dict[str, float]) -> None:
        goals = {k: round(joint_to_ticks(name, joints[name])) for k, name in enumerate(JOINTS, start=1)}
        os.write(self.fd, group(42, 2, goals))

    def close(self) -> None:
        os.close(self.fd)


def test_names_resolve_and_equal_what_is_listed() -> None:
    assert set(dir(ulna.sim)) == set(ulna.sim.__all__)
    for name in ulna.sim.__all__:
        assert getattr(ulna.sim, name) is not None
    with pytest.raises(AttributeError):
        _ = ulna.sim.nothing


def test_it_is_found_by_name_while_it_runs(sim: Simulation) -> None:
    assert Simulation.get("test") is sim
    with pytest.raises(DeviceAlreadyConnectedError, match="running in this process"):
        Simulation("test").start()
    sim.close()
    assert Simulation.find("test") is None
    with pytest.raises(DeviceNotConnectedError, match="No simulated world"):
        Simulation.get("test")


def test_ports_need_a_running_world() -> None:
    with pytest.raises(DeviceNotConnectedError, match="not been started"):
        _ = Simulation("test").ports


def test_arms_are_known_by_name(sim: Simulation) -> None:
    assert set(sim.ports) == {"leader", "follower"}
    with pytest.raises(ConfigError, match="did you mean 'leader'"):
        sim.arm("leder")
    with pytest.raises(ConfigError, match="leader, follower"):
        Simulation("x", arms=["third"])


def test_reset_begins_anew(sim: Simulation) -> None:
    follower = Follower(sim)
    follower.go(inverse_kinematics((*sim.scene.target, 0.05)))
    for _ in range(60):
        tick(sim)
    assert sim.success
    sim.bus("follower").faults.kill(3)
    sim.bus("leader").unplug()
    sim.reset(8)
    assert not sim.success
    assert sim.scene.seed == 8
    assert sim.arm("follower").joints == pytest.approx(dict(REST_POSE))
    assert not sim.bus("follower").faults.dead
    assert sim.bus("leader").plugged
    tick(sim, 1.0)  # torque is still on: it must stay where it was put
    assert sim.arm("follower").joints == pytest.approx(dict(REST_POSE), abs=1.0)
    follower.close()


def test_commands_written_before_time_moves_take_effect_then(sim: Simulation) -> None:
    follower = Follower(sim)
    for k in range(20):
        follower.go({**REST_POSE, "gripper": float(k)})
        tick(sim)
        assert sim.arm("follower").servos["gripper"].get("Goal_Position") == round(joint_to_ticks("gripper", k))
    follower.close()


def test_runs_are_the_same_for_a_seed() -> None:
    def run() -> tuple[list[dict[str, float]], bytes]:
        with Simulation("twin", seed=5, realtime=False, log_wire=True) as sim:
            follower, expert, poses = Follower(sim), ScriptedExpert(sim), []
            while not expert.done:
                expert.step()
                follower.go(sim.arm("leader").joints)
                tick(sim)
                poses.append(sim.arm("follower").joints)
            follower.close()
            return poses, b"".join(record.data for record in sim.bus("follower").wire) + sim.render().tobytes()

    assert run() == run()


def test_the_expert_reaches_the_target_from_fifty_seeds_when_followed_exactly() -> None:
    with Simulation("ideal", realtime=False) as sim:
        expert = ScriptedExpert(sim)
        lengths: list[int] = []
        for seed in range(50):
            sim.reset(seed)
            expert.begin()
            assert not sim.success
            steps = 0
            while not expert.done:
                pose = expert.step()
                assert sim.arm("leader").tip[2] > 0.005
                sim.arm("follower").place(pose)
                tick(sim)
                steps += 1
            assert sim.success, seed
            assert steps == expert.steps
            lengths.append(steps)
    assert 55 <= min(lengths) < max(lengths) <= 90


def test_the_expert_goes_back_the_way_it_came() -> None:
    with Simulation("return", realtime=False) as sim:
        expert, before = ScriptedExpert(sim), dict(sim.arm("leader").joints)
        for again in (True, False):
            while not expert.done:
                expert.step()
                tick(sim)
            assert (sim.arm("leader").joints == pytest.approx(before, abs=1.0)) is not again
            if again:
                expert.retreat()


def test_the_expert_reaches_the_target_through_the_wire() -> None:
    with Simulation("expert", realtime=False) as sim:
        follower, expert = Follower(sim), ScriptedExpert(sim)
        for seed in range(60, 66):
            sim.reset(seed)
            expert.begin()
            while not expert.done:
                expert.step()
                follower.go(sim.arm("leader").joints)
                tick(sim)
            assert sim.success, seed
            assert sim.scene.distance(sim.arm("follower").joints) < 0.015
        follower.close()


def test_the_expert_is_the_same_for_a_seed_and_varies_with_it(sim: Simulation) -> None:
    expert = ScriptedExpert(sim)

    def motion(seed: int) -> list[dict[str, float]]:
        sim.reset(seed)
        expert.begin()
        return [dict(expert.step()) for _ in range(30)]

    assert motion(1) == motion(1)
    assert motion(1) != motion(2)


def test_the_expert_needs_a_leader() -> None:
    with Simulation("lonely", realtime=False, arms=["follower"]) as sim, pytest.raises(ConfigError, match="leader"):
        ScriptedExpert(sim)


def test_the_free_leader_can_be_let_go(sim: Simulation) -> None:
    sim.hand("leader").set(inverse_kinematics((0.2, 0.0, 0.1)))
    sim.hand("leader").release()
    tick(sim, 3.0)
    assert sim.arm("leader").tip[2] < 0.03


def test_calibration_files_agree_with_the_registers(sim: Simulation, tmp_path: Path) -> None:
    written = sim.write_calibration(tmp_path / "calibration", {"leader": "mine", "follower": "yours"})
    assert written["leader"] == tmp_path / "calibration/teleoperators/so_leader/mine.json"
    assert written["follower"] == tmp_path / "calibration/robots/so_follower/yours.json"
    data = json.loads(written["follower"].read_text())
    assert list(data) == list(JOINTS)
    for name, entry in data.items():
        servo = sim.arm("follower").servos[name]
        assert list(entry) == ["id", "drive_mode", "homing_offset", "range_min", "range_max"]
        assert entry["id"] == servo.get("ID")
        assert entry["homing_offset"] == servo.get("Homing_Offset")
        assert entry["range_min"] == servo.get("Min_Position_Limit")
        assert entry["range_max"] == servo.get("Max_Position_Limit")
    flat = sim.write_calibration(tmp_path / "flat", "both", nested=False)
    assert flat["follower"] == tmp_path / "flat/both.json"


def test_real_time_passes_by_itself() -> None:
    with Simulation("live") as sim:
        first = sim.state.time_s
        sim.hand("leader").move_to({"gripper": 80.0}, at_rate=1e6)
        assert sim.clock.now() > first
        threading.Event().wait(0.02)
        assert sim.state.leader["gripper"] == pytest.approx(80.0, abs=0.1)


def test_closing_leaves_nothing_behind(home: Path) -> None:
    with leftovers() as left:
        sim = Simulation("brief")
        sim.start()
        folder = sim.serve()
        assert sorted(path.name for path in folder.iterdir()) == ["follower", "leader", "state"]
        assert str((folder / "leader").readlink()) == sim.ports["leader"]
        sim.close()
        sim.close()
        assert list(folder.iterdir()) == []
    assert not left, left


def test_links_follow_an_unplugged_and_replugged_port() -> None:
    def wait_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "it did not happen within a minute"
            threading.Event().wait(0.01)

    with Simulation("cable") as sim:
        link = sim.serve() / "leader"
        sim.bus("leader").unplug()
        wait_until(lambda: not link.is_symlink())
        port = sim.bus("leader").replug()
        wait_until(lambda: link.is_symlink() and str(link.readlink()) == port)


def test_another_mapping_shows_the_same_picture() -> None:
    with Simulation("shared", seed=4, realtime=False) as sim:
        sim.serve()
        sim.hand("follower").set(inverse_kinematics((*sim.scene.target, 0.05)))
        for _ in range(10):
            tick(sim)
        with WorldReader("shared") as world:
            state = world.read()
            assert state.success
            assert state == sim.state
            assert np.array_equal(draw(state, "front", 64, 64), sim.render("front", 64, 64))


def test_another_process_reads_and_resets() -> None:
    with Simulation("across", realtime=False) as sim:
        sim.serve()
        code = (
            "from ulna.sim import WorldReader\n"
            "with WorldReader('across') as world:\n"
            "    world.reset(77, timeout_s=60)\n"
            "    print(world.read().seed, *world.read().target)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert done.stdout.split() == ["77", *map(str, sim.scene.target)]
        assert sim.scene.seed == 77


def test_readers_never_see_half_a_state() -> None:
    with Simulation("torn", realtime=False) as sim:
        sim.serve()
        stop = threading.Event()

        def move() -> None:
            angle = 0.0
            while not stop.is_set():
                angle = (angle + 1.0) % 90.0
                pose = {"shoulder_pan": angle, "shoulder_lift": angle, "elbow_flex": angle, "wrist_flex": angle}
                with sim._lock:
                    sim.arm("follower").place(pose)
                    sim._publish()

        thread = threading.Thread(target=move)
        thread.start()
        try:
            with WorldReader("torn") as world:
                for _ in range(2000):
                    joints = world.read().joints
                    if joints["shoulder_lift"] != REST_POSE["shoulder_lift"]:
                        pan = joints["shoulder_pan"]
                        assert all(
                            joints[n] == pytest.approx(pan) for n in ("shoulder_lift", "elbow_flex", "wrist_flex")
                        )
        finally:
            stop.set()
            thread.join()


def test_reading_needs_a_served_world(home: Path) -> None:
    with pytest.raises(DeviceConnectError, match="ulna sim start"):
        WorldReader("nowhere")
    folder = home / "sim" / "stale"
    folder.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    (folder / "state").write_bytes(b"ULNASIM1" + int(done.stdout).to_bytes(8, "little") + bytes(4080))
    with pytest.raises(DeviceConnectError):
        WorldReader("stale")
    with Simulation("stale", realtime=False) as sim:  # leftovers of a dead process are replaced
        sim.serve()
        with WorldReader("stale") as world:
            assert world.alive


def test_a_world_served_by_another_process_is_left_alone(home: Path) -> None:
    folder = home / "sim" / "taken"
    folder.mkdir(parents=True)
    (folder / "state").write_bytes(b"ULNASIM1" + os.getppid().to_bytes(8, "little") + bytes(4080))
    with Simulation("taken", realtime=False) as sim, pytest.raises(DeviceAlreadyConnectedError, match="served by"):
        sim.serve()


def test_a_reset_nobody_does_is_an_error(home: Path) -> None:
    folder = home / "sim" / "deaf"
    folder.mkdir(parents=True)
    (folder / "state").write_bytes(b"ULNASIM1" + os.getpid().to_bytes(8, "little") + bytes(4080))
    with WorldReader("deaf") as world, pytest.raises(FrameTimeoutError, match="not reset"):
        world.reset(1, timeout_s=0.02)


def test_command_start_runs_until_it_is_told_to_stop(home: Path) -> None:
    code = "from ulna.sim.commands import app; app()"
    command = [sys.executable, "-c", code, "start", "--name", "cmd", "--calibration", str(home / "cal")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(4)]
        assert [line[0] for line in lines] == ["leader", "follower", "leader", "follower"]
        assert str(Path(lines[0][1]).readlink()) == lines[0][3]
        assert (home / "cal/robots/so_follower/sim.json").exists()
        runner = CliRunner()
        reset = runner.invoke(app, ["reset", "--name", "cmd", "--seed", "9"])
        assert reset.exit_code == 0
        assert reset.stdout.startswith("target ")
        with WorldReader("cmd") as world:
            assert world.read().seed == 9
        picture = home / "frame.png"
        assert runner.invoke(app, ["render", str(picture), "--name", "cmd", "--view", "top"]).exit_code == 0
        assert picture.read_bytes().startswith(b"\x89PNG")
        process.terminate()
        assert process.wait(timeout=120) == 0
    assert list((home / "sim" / "cmd").iterdir()) == []


def test_command_start_with_an_operator_moves_the_leader(home: Path) -> None:
    """And writes calibration files where robots look for them, if no other place is named."""
    code = "from ulna.sim.commands import app; app()"
    command = [sys.executable, "-c", code, "start", "--name", "busy", "--operator", "--seed", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for _ in range(4):
                process.stdout.readline()
            assert (home / "calibration/teleoperators/so_leader/sim.json").exists()
            with WorldReader("busy") as world:
                first = world.read().leader["shoulder_lift"]
                while abs(world.read().leader["shoulder_lift"] - first) < 5.0:
                    assert process.poll() is None
        finally:
            process.terminate()
        assert process.wait(timeout=120) == 0


def test_command_render_draws_a_fresh_scene_when_none_runs(home: Path) -> None:
    result = CliRunner().invoke(
        app, ["render", str(home / "a.png"), "--name", "none", "--width", "64", "--height", "64"]
    )
    assert result.exit_code == 0
    assert "fresh scene" in result.stderr


@pytest.mark.parametrize("name", ["", ".", "..", "../elsewhere", "a/b", "/tmp/world", "snow☃"])
def test_name_of_a_world_names_a_folder_below_home(home: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="names a folder"):
        world_folder(name)
    assert CliRunner().invoke(app, ["start", "--name", name]).exit_code == 2


def test_closed_terminal_removes_the_links(home: Path) -> None:
    command = [sys.executable, "-c", "from ulna.sim.commands import app; app()", "start", "--name", "hup"]
    reset = "import signal, sys, os; signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    with subprocess.Popen([sys.executable, "-c", reset, *command], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "Running" in process.stderr.readline()
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=120) == 0
    assert list((home / "sim/hup").iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [["reset", "--seed", "99999999999999999999"], ["start", "--seed", "-1"], ["render", "a.png", "--width", "100000"]],
)
def test_numbers_out_of_bounds_are_refused(home: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert arguments[-2] in result.stderr


def test_commands_report_errors_cleanly(home: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["reset", "--name", "none"]).exit_code == 1
    wrong = runner.invoke(app, ["render", str(home / "a.png"), "--view", "back"])
    assert wrong.exit_code == 2
    assert "front, top, side, wrist" in wrong.stderr
