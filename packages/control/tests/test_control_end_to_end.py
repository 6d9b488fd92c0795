# SPDX-License-Identifier: Apache-2.0
"""The loops and commands on a simulated SO-101: the real driver, the vendor's protocol, a real serial device."""

from __future__ import annotations

import io
import json
import math
import sys

import pytest

from ulna.control import (
    EpisodePlan,
    RecordingInterruptedError,
    ReplaySettings,
    RestConfig,
    Runtime,
    TeleoperateSettings,
    run_recording,
    run_replay,
    run_teleoperation,
)
from ulna.control.frames import read_actions
from ulna.core.factories import make_robot_from_config, make_teleoperator_from_config
from ulna.core.plugins import registry
from ulna.core.robots import RobotConfig
from ulna.core.teleoperators import TeleoperatorConfig

pytest.importorskip("ulna.sim", reason="ulna-sim is not installed")
pytest.importorskip("ulna.robots.so", reason="ulna-robots-so is not installed")

from ulna.control.calibrating import calibrate
from ulna.control.recording import DatasetTarget, open_dataset
from ulna.sim import ScriptedExpert, Simulation
from ulna.sim.kinematics import JOINT_LIMITS
from ulna.sim.settling import settled_ports


@pytest.fixture(autouse=True)
def no_reply_is_late():
    """On a busy machine the simulated bus may answer too late for the driver's patience."""
    with settled_ports():
        yield


class World:
    """A simulated leader and follower with calibration files."""

    def __init__(self, sim, root):
        self.sim = sim
        sim.write_calibration(root)
        self.folders = {"leader": root / "teleoperators/so_leader", "follower": root / "robots/so_follower"}

    def settings(self, arm):
        """Return the settings of one arm, as flags would give them."""
        kind = {"leader": "so101_leader", "follower": "so101_follower"}[arm]
        return {"type": kind, "port": self.sim.ports[arm], "id": "sim", "calibration_dir": str(self.folders[arm])}

    def follower(self, **more):
        return make_robot_from_config(RobotConfig.choose({**self.settings("follower"), **more}))

    def leader(self):
        return make_teleoperator_from_config(TeleoperatorConfig.choose(self.settings("leader")))

    def torque(self, arm="follower"):
        """Return the torque registers of an arm."""
        return [servo.torque_enabled for servo in self.sim.arm(arm).servos.values()]


@pytest.fixture
def world(tmp_path):
    """A world whose time passes only when the loop sleeps."""
    with Simulation("control", realtime=False) as sim:
        yield World(sim, tmp_path)


def test_follower_follows_and_is_limp_afterwards(world):
    """The scripted leader is followed at 60 Hz of simulated time; torque is on meanwhile and off afterwards."""
    sim, on = world.sim, []
    expert = ScriptedExpert(sim, rate_hz=60)

    def step(tick):
        on.append(all(world.torque()))
        expert.step()

    settings = TeleoperateSettings(teleop_time_s=3)
    result = run_teleoperation(world.follower(), world.leader(), settings, Runtime(clock=sim.clock, on_tick=step))
    assert result.stats.rate_hz == pytest.approx(60, abs=0.01)
    assert all(on)
    assert world.torque() == [False] * 6
    leader, follower = sim.arm("leader").joints, sim.arm("follower").joints
    assert follower["shoulder_pan"] == pytest.approx(leader["shoulder_pan"], abs=4)
    assert result.robot_bus["exchanges"] > 180
    assert result.robot_bus["lost"] == 0


def test_lost_packets_are_retried_and_counted(world):
    """Every 50th reply dropped: the session does not notice, the counters do."""
    sim = world.sim
    sim.bus("follower").faults.drop(every=50)
    result = run_teleoperation(
        world.follower(), world.leader(), TeleoperateSettings(teleop_time_s=2), Runtime(clock=sim.clock)
    )
    assert result.stop_reason == "time"
    assert result.robot_bus["retries"] > 0
    assert world.torque() == [False] * 6


def test_dead_motor_in_mid_episode_keeps_the_episodes_before(world, tmp_path):
    """A motor dies in the second episode: it is named, the others are limp, the first episode is safe and resumed."""
    sim = world.sim
    plan = EpisodePlan(single_task="reach", num_episodes=2, episode_time_s=1, reset_time_s=0)
    target = DatasetTarget(repo_id="lab/reach", root=tmp_path / "set")
    robot = world.follower()

    def break_it(tick):
        if tick.phase == "record" and tick.index == 10 and sessions["saved"]:
            sim.bus("follower").faults.kill(4)

    sessions = {"saved": 0}

    def on_phase(phase):
        sessions["saved"] += phase.name == "save"

    runtime = Runtime(clock=sim.clock, on_tick=break_it, on_phase=on_phase)
    with pytest.raises(RecordingInterruptedError, match="wrist_flex"):
        run_recording(robot, world.leader(), lambda: open_dataset(target, robot, 30), plan, runtime)
    alive = [value for number, value in enumerate(world.torque(), start=1) if number != 4]
    assert alive == [False] * 5
    sim.bus("follower").faults.clear()
    again = run_recording(
        robot, world.leader(), lambda: open_dataset(target, robot, 30, resume=True), plan, Runtime(clock=sim.clock)
    )
    assert (again.before, again.total) == (1, 2)


def test_recorded_reach_is_replayed(world, tmp_path):
    """What the expert demonstrates is recorded as sent, and the replay brings the tip to the target again."""
    sim, robot = world.sim, world.follower()
    sim.reset(7)
    expert = ScriptedExpert(sim)
    plan = EpisodePlan(single_task="reach", num_episodes=1, episode_time_s=expert.steps / 30 + 0.3, reset_time_s=0)
    target = DatasetTarget(repo_id="lab/reach", root=tmp_path / "set")
    runtime = Runtime(clock=sim.clock, on_tick=lambda tick: expert.step() if tick.phase == "record" else None)
    run_recording(robot, world.leader(), lambda: open_dataset(target, robot, 30), plan, runtime)
    assert sim.success
    sim.reset(7)
    assert not sim.success
    actions, fps = read_actions("lab/reach", 0, tmp_path / "set")
    reached = []
    run_replay(
        robot, actions, fps, ReplaySettings(), Runtime(clock=sim.clock, on_tick=lambda t: reached.append(sim.success))
    )
    assert any(reached)
    assert world.torque() == [False] * 6


def test_arm_returns_to_rest_before_it_goes_limp(world):
    """Stopped in a raised pose with rest on, the arm is back at rest when torque goes."""
    sim = world.sim
    start = dict(sim.arm("follower").joints)
    expert = ScriptedExpert(sim, rate_hz=60)
    settings = TeleoperateSettings(teleop_time_s=2.5, rest=RestConfig(enabled=True))
    last = {}

    def before_release(old, new):
        if all(world.torque()):
            last.update(sim.arm("follower").joints)

    sim.clock.on_advance(before_release)
    run_teleoperation(
        world.follower(), world.leader(), settings, Runtime(clock=sim.clock, on_tick=lambda t: expert.step())
    )
    assert max(abs(last[name] - start[name]) for name in start) < 4
    assert max(abs(sim.arm("leader").joints[n] - start[n]) for n in start) > 15
    assert world.torque() == [False] * 6


@pytest.fixture
def live(tmp_path, monkeypatch):
    """A world in real time, as commands see one."""
    monkeypatch.setenv("ULNA_HOME", str(tmp_path / "home"))
    with Simulation("control-live", realtime=True) as sim:
        yield World(sim, tmp_path)


def flags(group, settings):
    return [f"--{group}.{name}={value}" for name, value in settings.items()]


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command as the `ulna` program does; returns exit code, stdout and stderr."""
    import typer

    def invoke(name, *arguments, answers=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answers))
        command = typer.main.get_command(registry().load("commands", name))
        code = 0
        try:
            code = command.main(list(arguments), prog_name=f"ulna {name}", standalone_mode=False) or 0
        except SystemExit as stop:
            code = stop.code or 0
        out = capsys.readouterr()
        return code, out.out, out.err

    return invoke


def test_command_teleoperate(live, run):
    """The summary tells rate, jitter and bus counters; keys are off and that is said once."""
    code, out, err = run(
        "teleoperate",
        *flags("robot", live.settings("follower")),
        *flags("teleop", live.settings("leader")),
        "--teleop_time_s=0.4",
    )
    assert (code, out) == (0, "")
    assert err.count("eys are off") == 1
    assert "of 60 Hz, jitter p50" in err
    assert "Bus of the robot:" in err
    assert live.torque() == [False] * 6


def test_commands_record_and_replay(live, run, tmp_path):
    """Record two short episodes, get a clear summary, replay one."""
    where = f"--dataset.root={tmp_path / 'set'}"
    code, _, err = run(
        "record",
        *flags("robot", live.settings("follower")),
        *flags("teleop", live.settings("leader")),
        "--dataset.repo_id=lab/demo",
        "--dataset.single_task=reach",
        where,
        "--dataset.num_episodes=2",
        "--dataset.episode_time_s=0.3",
        "--dataset.reset_time_s=0.1",
    )
    assert code == 0
    assert "Episodes recorded: 2" in err
    assert "Recording episode 1 (2 of 2)" in err
    code, _, err = run(
        "replay", *flags("robot", live.settings("follower")), "--dataset.repo_id=lab/demo", where, "--dataset.episode=1"
    )
    assert code == 0
    assert "actions replayed (complete)" in err


def test_command_record_fails_clearly_with_a_dead_motor(live, run, tmp_path):
    """A missing motor is exit code 1 and named; nothing was made."""
    live.sim.bus("follower").faults.kill(3)
    code, _, err = run(
        "record",
        *flags("robot", live.settings("follower")),
        *flags("teleop", live.settings("leader")),
        "--dataset.repo_id=lab/demo",
        "--dataset.single_task=reach",
        f"--dataset.root={tmp_path / 'set'}",
    )
    assert code == 1
    assert "elbow_flex" in err
    assert not (tmp_path / "set").exists()


def test_calibration_on_the_simulated_arm(live, tmp_path):
    """Confirm, move every joint, done: the file is written, and torque is off."""
    settings = {**live.settings("follower"), "id": "fresh", "calibration_dir": str(tmp_path / "new")}
    hand, shares = live.sim.hand("follower"), iter([-1.0, 1.0, 0.0])

    def answer(step):
        if step.kind != "progress":
            return step.choices[0] if step.choices else ""
        share = next(shares, None)
        if share is None:
            return "done"
        hand.set({n: (lo + hi) / 2 + share * (hi - lo) / 2.5 for n, (lo, hi) in JOINT_LIMITS.items()})
        return ""

    hand.set({n: (lo + hi) / 2 for n, (lo, hi) in JOINT_LIMITS.items()})
    calibrate(make_robot_from_config(RobotConfig.choose(settings)), answer)
    written = json.loads((tmp_path / "new" / "fresh.json").read_text())
    assert len(written) == 6
    assert all(c["range_min"] < c["range_max"] for c in written.values())
    assert live.torque() == [False] * 6


def test_command_motors_scan_and_limits(live, run):
    """All six motors are found with their model; limits are watched without torque."""
    code, out, _ = run("motors", "scan", f"--port={live.sim.ports['follower']}", "--baudrates=[1000000]")
    assert code == 0
    assert [line.split()[2] for line in out.splitlines()[1:]] == list("123456")
    assert "sts3215" in out
    code, out, _ = run("motors", "limits", *flags("teleop", live.settings("leader")), "--time_s=0.2")
    assert code == 0
    limits = json.loads(out)
    assert set(limits) == {f"{name}.pos" for name in live.sim.arm("leader").joints}
    assert all(math.isfinite(v["lowest"]) and v["lowest"] <= v["highest"] for v in limits.values())


def test_command_cameras_find_takes_pictures(live, run, tmp_path):
    """Every view of the simulated world is listed, and a picture of each is saved."""
    pytest.importorskip("ulna.cameras.sim")
    code, out, err = run("cameras", "find", "--type=sim", f"--output_dir={tmp_path / 'pictures'}")
    assert code == 0
    assert "control-live/front" in out
    pictures = list((tmp_path / "pictures").glob("*.png"))
    assert len(pictures) == len(out.splitlines()) - 1
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    assert "no picture" not in err


def test_command_needs_exactly_one_device(run):
    """Neither is a usage error that names the flags."""
    code, _, err = run("calibrate")
    assert code == 2
    assert "--robot.type" in err


@pytest.mark.slow
def test_act_checkpoint_drives_the_simulated_arm(world, tmp_path):
    """A saved ACT policy is loaded by path, fits the robot by name and drives it in two recorded episodes."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("ulna.policies.act")
    pytest.importorskip("ulna.cameras.sim")
    from ulna.control import RolloutConfig, read_reports, rollout
    from ulna.control.recording import dataset_features
    from ulna.core.factories import dataset_to_policy_features, make_policy_config, make_pre_post_processors
    from ulna.core.features import FeatureType

    sim = world.sim
    camera = {"type": "sim", "world": sim.name, "view": "front", "width": 64, "height": 48, "fps": 30}
    flags = {**world.settings("follower"), "cameras": {"front": camera}}
    features = dataset_to_policy_features(dataset_features(make_robot_from_config(RobotConfig.choose(flags))))
    inputs = {k: f for k, f in features.items() if f.type is not FeatureType.ACTION}
    small = {"dim_model": 16, "dim_feedforward": 16, "n_heads": 2, "n_encoder_layers": 1, "use_vae": False}
    chunk = {"chunk_size": 5, "n_action_steps": 5, "pretrained_backbone_weights": None, "device": "cpu"}
    settings = make_policy_config(
        "act", **small, **chunk, input_features=inputs, output_features={"action": features["action"]}
    )
    torch.manual_seed(0)
    policy = settings.load_implementation()(settings)
    stats = {
        k: {"mean": [0.0] * f.shape[0], "std": [1.0] * f.shape[0]} for k, f in features.items() if len(f.shape) == 1
    }
    stats["observation.images.front"] = {"mean": [[[0.5]]] * 3, "std": [[[0.5]]] * 3}
    for part in (policy, *make_pre_post_processors(settings, dataset_stats=stats)):
        part.save_pretrained(tmp_path / "checkpoint")
    config = RolloutConfig.build(
        {
            "robot": flags,
            "policy": {"type": "act", **settings.to_dict(), "pretrained_path": str(tmp_path / "checkpoint")},
            "strategy": "episodic",
            "num_episodes": 2,
            "episode_time_s": 0.5,
            "task": "reach",
            "dataset": {"repo_id": "lab/rollout", "root": str(tmp_path / "set")},
        }
    )
    result = rollout(config, Runtime(clock=sim.clock), judge=lambda: sim.success)
    assert [e.frames for e in result.episodes] == [15, 15]
    assert [e.success for e in result.episodes] == [False, False]
    assert [r.success for r in read_reports(tmp_path / "set")] == [False, False]
    assert world.torque() == [False] * 6
