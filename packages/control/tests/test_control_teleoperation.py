# SPDX-License-Identifier: Apache-2.0
"""Teleoperation and what all sessions share: rate, stopping, torque, guard, cameras."""

from __future__ import annotations

import os
import signal
from itertools import pairwise

import pytest

from ulna.control import (
    IncompatibleError,
    Interrupts,
    JumpError,
    JumpGuardConfig,
    RestConfig,
    Runtime,
    StopRequest,
    TeleoperateSettings,
    run_teleoperation,
)
from ulna.core.cameras import CameraState
from ulna.core.errors import (
    ConfigError,
    DeviceConnectError,
    DeviceDisconnectError,
    DeviceError,
    MotorCommunicationError,
)


def settings(**changes):
    return TeleoperateSettings(**{"teleop_time_s": 1.0, **changes})


def test_follows_the_leader_at_the_asked_rate(fakes, clock):
    """Sixty commands a second, each what the leader said, and every device closed at the end."""
    robot, leader, ticks = fakes.Robot(), fakes.Leader(), []
    result = run_teleoperation(robot, leader, settings(), Runtime(clock=clock, on_tick=ticks.append))
    assert result.stop_reason == "time"
    assert result.stats.rate_hz == pytest.approx(60)
    assert [s["pan.pos"] for s in robot.sent] == pytest.approx([0.1 * n for n in range(60)])
    assert ticks[7].sent == ticks[7].action
    assert ticks[7].time_s == pytest.approx(7 / 60)
    assert not robot.torque
    assert not leader.is_connected


def test_without_looking_the_robot_is_read_once_for_the_guard(fakes, clock):
    """With observe off, only the guard looks, at the first command."""
    robot = fakes.Robot()
    run_teleoperation(robot, fakes.Leader(), settings(observe=False), Runtime(clock=clock))
    assert robot.observed == 1
    assert robot.commands == 60


@pytest.mark.parametrize("key", ["q", "esc"])
def test_stop_key_ends_it(fakes, clock, key):
    """Esc and q stop; other keys mean nothing here."""
    keys = fakes.Keys({5: "x", 9: key})
    result = run_teleoperation(fakes.Robot(), fakes.Leader(), settings(), Runtime(clock=clock, keys=keys))
    assert result.stop_reason == "stop key"
    assert result.stats.ticks == 10


def test_devices_open_leader_first_and_close_in_reverse(fakes, clock):
    """The robot gets torque last and loses it first."""
    log = []
    run_teleoperation(fakes.Robot(log=log), fakes.Leader(log=log), settings(), Runtime(clock=clock))
    assert log == ["leader on", "robot on", "robot off", "leader off"]


def test_failing_robot_closes_the_leader_again(fakes, clock):
    """When the robot cannot connect, nothing stays open and the first error is the one raised."""
    log = []
    robot, leader = fakes.Robot(log=log), fakes.Leader(log=log)
    robot.faults.connect = DeviceConnectError("no such port")
    with pytest.raises(DeviceConnectError, match="no such port"):
        run_teleoperation(robot, leader, settings(), Runtime(clock=clock))
    assert log == ["leader on", "leader off"]


def test_devices_connected_before_stay_connected(fakes, clock):
    """Who connects closes."""
    robot = fakes.Robot()
    with robot:
        run_teleoperation(robot, fakes.Leader(), settings(), Runtime(clock=clock))
        assert robot.torque
    assert not robot.torque


def test_dead_motor_releases_torque_on_both(fakes, clock):
    """An error in the loop leaves as it is, after everything was released."""
    log = []
    robot, leader = fakes.Robot(log=log), fakes.Leader(log=log)
    robot.faults.send[30] = MotorCommunicationError("lift does not answer", motors=("lift",))
    with pytest.raises(MotorCommunicationError, match="lift does not answer"):
        run_teleoperation(robot, leader, settings(), Runtime(clock=clock))
    assert log[-2:] == ["robot off", "leader off"]


def test_failing_disconnect_does_not_keep_the_other_device(fakes, clock):
    """Both are tried; the original error stays first and the other is a note on it."""
    log = []
    robot, leader = fakes.Robot(log=log), fakes.Leader(log=log)
    robot.faults.send[3] = MotorCommunicationError("lost")
    robot.faults.disconnect = DeviceError("port is gone")
    with pytest.raises(MotorCommunicationError) as caught:
        run_teleoperation(robot, leader, settings(), Runtime(clock=clock))
    assert log[-1] == "leader off"
    assert "port is gone" in "".join(caught.value.__notes__)


def test_failing_disconnect_alone_is_raised(fakes, clock):
    """A session that went well but could not let go is an error, with both failures in it."""
    robot, leader = fakes.Robot(), fakes.Leader()
    robot.faults.disconnect = DeviceError("robot port is gone")
    leader.faults.disconnect = DeviceError("leader port is gone")
    with pytest.raises(DeviceDisconnectError, match="robot port is gone") as caught:
        run_teleoperation(robot, leader, settings(), Runtime(clock=clock))
    assert "leader port is gone" in "".join(caught.value.__notes__)


def test_first_ctrl_c_stops_in_order(fakes, clock):
    """SIGINT in the loop ends it after the present tick, and the handler found is put back."""
    before = signal.getsignal(signal.SIGINT)
    robot = fakes.Robot()
    robot.on_observe = lambda: os.kill(os.getpid(), signal.SIGINT) if robot.observed == 20 else None
    result = run_teleoperation(robot, fakes.Leader(), settings(), Runtime(clock=clock))
    assert result.stop_reason == "interrupted"
    assert robot.commands == 20
    assert not robot.torque
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_termination_releases_torque(fakes, clock, number):
    """SIGTERM and a lost terminal stop in order as well."""
    robot = fakes.Robot()
    robot.on_observe = lambda: os.kill(os.getpid(), number) if robot.observed == 20 else None
    result = run_teleoperation(robot, fakes.Leader(), settings(), Runtime(clock=clock))
    assert result.stop_reason == f"received {number.name}"
    assert not robot.torque


def test_second_ctrl_c_is_immediate_and_still_releases_torque(fakes, clock):
    """The second SIGINT raises at once; torque is off all the same."""
    robot, leader = fakes.Robot(), fakes.Leader()

    def twice():
        if robot.observed == 20:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    robot.on_observe = twice
    with pytest.raises(KeyboardInterrupt):
        run_teleoperation(robot, leader, settings(), Runtime(clock=clock))
    assert robot.commands == 19
    assert not robot.torque
    assert not leader.is_connected


def test_ctrl_c_while_releasing_waits_for_it(fakes, clock):
    """Signals during the release of torque do not cut it short."""
    robot, leader = fakes.Robot(), fakes.Leader()
    robot.on_observe = lambda: os.kill(os.getpid(), signal.SIGINT) if robot.observed == 5 else None

    class Impatient(type(robot)):
        def disconnect(self):
            os.kill(os.getpid(), signal.SIGINT)
            super().disconnect()

    robot.__class__ = Impatient
    with pytest.raises(KeyboardInterrupt):
        run_teleoperation(robot, leader, settings(), Runtime(clock=clock))
    assert not robot.torque
    assert not leader.is_connected


def test_stop_request_from_outside(fakes, clock):
    """A user interface stops the loop through the request it gave."""
    stop = StopRequest()
    runtime = Runtime(clock=clock, stop=stop, on_tick=lambda t: stop.request("window closed") if t.index == 7 else None)
    result = run_teleoperation(fakes.Robot(), fakes.Leader(), settings(), runtime)
    assert result.stop_reason == "window closed"
    stop.request("later")
    assert stop.reason == "window closed"


def test_interrupts_do_nothing_in_another_thread():
    """Handlers can only be set by the main thread; elsewhere the block just runs."""
    import threading

    seen = []

    def body():
        with Interrupts() as stop:
            seen.append(bool(stop))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [False]


@pytest.mark.parametrize(
    ("joints", "words"),
    [
        (("pan.pos", "lift.pos", "gripper.position"), "gripper.pos' (nearest: 'gripper.position')"),
        (("pan.pos", "lift.pos"), "does not give 'gripper.pos'"),
        (("x.vel", "theta.vel"), "does not take 'x.vel'"),
        ((), "gives: nothing"),
    ],
)
def test_incompatible_pair_is_refused_before_connecting(fakes, clock, joints, words):
    """The reason names the keys and the nearest ones; nothing was opened."""
    log = []
    with pytest.raises(IncompatibleError) as caught:
        run_teleoperation(fakes.Robot(log=log), fakes.Leader(joints=joints, log=log), settings(), Runtime(clock=clock))
    assert words in str(caught.value)
    assert log == []


def test_partial_robot_takes_a_subset(fakes, clock):
    """A robot that declares partial actions is driven by a leader with some of its keys."""
    robot = fakes.Robot()
    type(robot).partial_actions = True
    try:
        run_teleoperation(robot, fakes.Leader(joints=("pan.pos",)), settings(), Runtime(clock=clock))
    finally:
        type(robot).partial_actions = False
    assert robot.positions["pan.pos"] > 5
    assert robot.positions["lift.pos"] == 0


def test_guard_approaches_at_limited_speed(fakes, clock):
    """Leader at 60, arm at 0: no step larger than speed / fps until they meet, then the leader itself."""
    robot = fakes.Robot()
    run_teleoperation(
        robot, fakes.Leader(lambda n: 60.0), settings(guard=JumpGuardConfig(speed=120)), Runtime(clock=clock)
    )
    path = [0.0] + [s["pan.pos"] for s in robot.sent]
    steps = [b - a for a, b in pairwise(path)]
    assert max(steps) <= 120 / 60 + 1e-9
    assert path[30] == pytest.approx(60)
    assert path[-1] == 60


def test_guard_can_refuse(fakes, clock):
    """In abort mode the joints are named, and nothing was sent."""
    robot = fakes.Robot()
    with pytest.raises(JumpError, match=r"pan\.pos: 60\.0") as caught:
        run_teleoperation(
            robot, fakes.Leader(lambda n: 60.0), settings(guard=JumpGuardConfig(mode="abort")), Runtime(clock=clock)
        )
    assert robot.sent == []
    assert set(caught.value.gaps) == set(fakes.JOINTS)
    assert not robot.torque


def test_guard_off_and_near_leader_pass(fakes, clock):
    """Off, or within the threshold, the first command goes out as it is."""
    far = fakes.Robot()
    run_teleoperation(
        far, fakes.Leader(lambda n: 60.0), settings(guard=JumpGuardConfig(mode="off")), Runtime(clock=clock)
    )
    assert far.sent[0]["pan.pos"] == 60
    near = fakes.Robot()
    run_teleoperation(near, fakes.Leader(lambda n: 4.0), settings(), Runtime(clock=clock))
    assert near.sent[0]["pan.pos"] == 4


def test_return_to_start_pose_before_release(fakes, clock):
    """With rest on, the arm goes back to where it was, bounded in time, before torque is off."""
    robot = fakes.Robot(at=3.0)
    run_teleoperation(
        robot, fakes.Leader(lambda n: 3 + n), settings(rest=RestConfig(enabled=True)), Runtime(clock=clock)
    )
    assert robot.sent[59]["pan.pos"] == 62
    assert robot.sent[-1] == dict.fromkeys(fakes.JOINTS, 3.0)
    assert clock.now() < 100 + 1 + 3.1
    assert not robot.torque


def test_return_to_rest_uses_the_robots_own_way(fakes):
    """A robot that declares a rest pose is asked to go there."""

    class Resting(type(fakes.Robot())):
        rested = 0.0

        def return_to_rest(self, duration_s):
            assert self.torque
            self.rested = duration_s

    robot = Resting()
    short = settings(teleop_time_s=0.01, rest=RestConfig(enabled=True, duration_s=2))
    run_teleoperation(robot, fakes.Leader(), short)
    assert robot.rested == 2


def test_return_to_rest_is_skipped_when_the_bus_is_dead(fakes, clock):
    """After a device error the arm is released where it is, without another command."""
    robot = fakes.Robot()
    robot.faults.send[10] = MotorCommunicationError("lost")
    with pytest.raises(MotorCommunicationError):
        run_teleoperation(robot, fakes.Leader(), settings(rest=RestConfig(enabled=True)), Runtime(clock=clock))
    assert robot.commands == 10
    assert not robot.torque


def test_failing_return_to_rest_still_releases(fakes, clock):
    """The way home may fail: the session ends well and torque is off."""
    robot = fakes.Robot()
    robot.faults.send[60] = MotorCommunicationError("lost on the way home")
    result = run_teleoperation(robot, fakes.Leader(), settings(rest=RestConfig(enabled=True)), Runtime(clock=clock))
    assert result.stop_reason == "time"
    assert not robot.torque


def test_return_to_rest_is_bounded_in_time(fakes, clock):
    """An arm that cannot get home in time is released on the way."""
    robot = fakes.Robot()
    rest = RestConfig(enabled=True, duration_s=0.5, speed=10)
    run_teleoperation(robot, fakes.Leader(lambda n: n), settings(rest=rest), Runtime(clock=clock))
    assert robot.positions["pan.pos"] == pytest.approx(59 - 5, abs=0.5)
    assert not robot.torque


def test_short_camera_gap_is_tolerated_and_counted(fakes, clock):
    """A picture of 300 ms is used, flagged and counted."""
    camera = fakes.Camera()
    robot, stale = fakes.Robot({"front": camera}), []

    def age():
        camera.age_s = 0.3 if 10 < robot.observed <= 20 else 0.01

    robot.on_observe = age
    result = run_teleoperation(
        robot, fakes.Leader(), settings(), Runtime(clock=clock, on_tick=lambda t: stale.append(t.stale))
    )
    assert result.stale_frames == {"front": 10}
    assert stale[9] == ()
    assert stale[10] == ("front",)


def test_lasting_camera_loss_is_an_error_with_the_cameras_name(fakes, clock):
    """A camera frozen for good ends the session; a broken motor is not taken for a camera."""
    from ulna.control import CameraLostError

    camera = fakes.Camera()
    robot = fakes.Robot({"front": camera})
    robot.on_observe = lambda: setattr(camera, "age_s", robot.observed / 10)
    with pytest.raises(CameraLostError, match="front") as caught:
        run_teleoperation(robot, fakes.Leader(), settings(), Runtime(clock=clock))
    assert caught.value.cameras == ("front",)
    assert robot.observed == 21
    broken = fakes.Robot({"front": fakes.Camera()})
    broken.faults.observe[3] = MotorCommunicationError("lost", device="/dev/ttyACM0")
    with pytest.raises(MotorCommunicationError):
        run_teleoperation(broken, fakes.Leader(), settings(), Runtime(clock=clock))


def test_unplugged_camera_is_told_from_a_dead_robot(fakes, clock):
    """A camera that is gone raises CameraLostError at once."""
    from ulna.control import CameraLostError

    camera = fakes.Camera()
    robot = fakes.Robot({"front": camera})
    robot.on_observe = lambda: camera.set_state(CameraState.LOST) if robot.observed == 5 else None
    with pytest.raises(CameraLostError, match="lost"):
        run_teleoperation(robot, fakes.Leader(), settings(), Runtime(clock=clock))


def test_processors_change_what_is_sent(fakes, clock):
    """An operator whose keys differ is fine when a processor maps them."""
    from ulna.control import Processors

    robot = fakes.Robot()
    change = Processors(
        observation=lambda o: {**o, "extra": 1.0},
        teleop_action=lambda a, o: dict.fromkeys(robot.positions, a["x"] + o["extra"]),
        robot_action=lambda a, o: {k: v * 2 for k, v in a.items()},
    )
    run_teleoperation(robot, fakes.Leader(lambda n: 1.0, joints=("x",)), settings(), Runtime(clock=clock), change)
    assert robot.sent[-1] == dict.fromkeys(robot.positions, 4.0)


@pytest.mark.parametrize("fps", [float("nan"), float("inf"), 1e300, 1e-300, 0, -1])
def test_rate_that_no_loop_can_keep_is_refused(fps):
    """Instead of a division by zero, or a sleep beyond the end of time, in the middle of the motion."""
    with pytest.raises(ConfigError, match="fps"):
        TeleoperateSettings(fps=fps)


def test_times_are_finite():
    """No limit is None, not infinity."""
    with pytest.raises(ConfigError, match="teleop_time_s"):
        TeleoperateSettings(teleop_time_s=float("inf"))
