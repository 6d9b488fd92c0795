# SPDX-License-Identifier: Apache-2.0
"""Homing at the seam, ranges over the seam, directions: the calibration dialogue with a scripted operator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest

from ulna.core.calibration import CalibrationStep, drive
from ulna.core.errors import CalibrationError
from ulna.core.motors import Motor, MotorCalibration, MotorNormMode
from ulna.motors.feetech import FeetechMotorsBus
from ulna.sim.bus import SimFeetechBus
from ulna.sim.feetech import SimFeetechServo

MakeWire = Callable[..., SimFeetechBus]
PERCENT = MotorNormMode.RANGE_0_100


def _bus(wire: SimFeetechBus, names: Sequence[str] = ("joint",)) -> FeetechMotorsBus:
    return FeetechMotorsBus(wire.port, {n: Motor(k + 1, "sts3215", PERCENT) for k, n in enumerate(names)})


@pytest.mark.parametrize("multi_turn", [False, True])
@pytest.mark.parametrize("ticks", [0, 1, 2047, 2048, 4094, 4095, 4096, 5000, 9000, -700])
def test_homing_is_right_at_the_seam(make_wire: MakeWire, ticks: int, multi_turn: bool) -> None:
    """Wherever the encoder stands, the pose reads half a turn (one tick off where the register cannot hold it)."""
    wire = make_wire(SimFeetechServo(1, multi_turn=multi_turn))
    wire.servos[0].position = ticks
    with _bus(wire) as bus:
        offsets = bus.set_half_turn_homings()
        assert -2047 <= offsets["joint"] <= 2047
        assert abs(bus.read("Present_Position", "joint", normalize=False) - 2047) <= 1
        wire.servos[0].power_cycle()
        assert abs(bus.read("Present_Position", "joint", normalize=False) - 2047) <= 1


def test_homing_of_some_motors_leaves_the_others_alone(make_wire: MakeWire) -> None:
    """The calibration of motors that are not homed is kept."""
    wire = make_wire(SimFeetechServo(1, position=100), SimFeetechServo(2, position=300))
    with _bus(wire, ("a", "b")) as bus:
        bus.write_calibration({n: MotorCalibration(i, 0, 0, 0, 1000) for i, n in ((1, "a"), (2, "b"))})
        bus.set_half_turn_homings("a")
        assert list(bus.calibration) == ["b"]
        assert bus.read("Max_Position_Limit", "b") == 1000


def test_a_motor_that_keeps_counting_is_told(make_wire: MakeWire, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the pose does not read half a turn after homing, calibration stops instead of going on with nonsense."""
    wire = make_wire(SimFeetechServo(1, multi_turn=True))
    wire.servos[0].position = 9000
    with _bus(wire) as bus:
        monkeypatch.setattr(bus, "_stay_within_a_turn", lambda names: None)
        with pytest.raises(CalibrationError, match=r"joint reads .* instead of 2047"):
            bus.set_half_turn_homings()


def _record(bus: FeetechMotorsBus, wire: SimFeetechBus, path: Sequence[int]) -> dict[str, tuple[int, int]]:
    dialogue = bus.record_ranges_of_motion()
    next(dialogue)
    try:
        for k, ticks in enumerate(path):
            wire.servos[0].position = ticks
            dialogue.send("done" if k == len(path) - 1 else "")
    except StopIteration as finished:
        return dict(finished.value)
    raise AssertionError("the dialogue did not end")


def test_a_sweep_over_the_seam(make_wire: MakeWire) -> None:
    """3900 -> 4095 -> 0 -> 300 is 496 ticks, not a whole turn; recentring makes it fit the register."""
    wire = make_wire(SimFeetechServo(1, position=3900))
    with _bus(wire) as bus:
        ranges = _record(bus, wire, [3900, 4000, 4090, 4095 + 50, 4096 + 200, 4096 + 300, 4096 + 100])
        assert ranges == {"joint": (3900, 4396)}
        (low, high) = bus.recentre(ranges)["joint"]
        assert high - low == 496
        assert 0 <= low < 2047 < high <= 4095
        wire.servos[0].position = 3900
        assert bus.read("Present_Position", "joint", normalize=False) == low
        wire.servos[0].position = 300
        assert bus.read("Present_Position", "joint", normalize=False) == high


def test_a_sweep_down_over_the_seam(make_wire: MakeWire) -> None:
    """The other direction works as well, and with an offset that was there before."""
    wire = make_wire(SimFeetechServo(1, position=200))
    with _bus(wire) as bus:
        bus.write_if_different("Homing_Offset", {"joint": 150})
        ranges = _record(bus, wire, [200, 100, 0, -100, -300])
        assert ranges == {"joint": (-450, 50)}
        low, high = bus.recentre(ranges)["joint"]
        wire.servos[0].position = -300
        assert bus.read("Present_Position", "joint", normalize=False) == low
        wire.servos[0].position = 200
        assert bus.read("Present_Position", "joint", normalize=False) == high


def test_a_range_that_fits_is_left_alone(make_wire: MakeWire) -> None:
    """No offset is touched when the sweep stays within the register."""
    wire = make_wire(SimFeetechServo(1, position=2000))
    with _bus(wire) as bus:
        start = len(wire.wire)
        assert bus.recentre({"joint": (1000, 3000)}) == {"joint": (1000, 3000)}
        assert len(wire.wire) == start


def test_nearly_a_whole_turn_is_warned_about(make_wire: MakeWire, caplog: pytest.LogCaptureFixture) -> None:
    """Such a range says little about the joint's stops; more than a turn becomes the whole register."""
    wire = make_wire(SimFeetechServo(1, position=100))
    with _bus(wire) as bus, caplog.at_level(logging.WARNING):
        assert _record(bus, wire, list(range(100, 4050, 300))) == {"joint": (100, 4000)}
        assert "nearly a whole turn: joint" in caplog.text
        wire.servos[0].position = 0
        assert _record(bus, wire, list(range(0, 6000, 500))) == {"joint": (0, 4095)}


def test_a_joint_that_was_not_moved(make_wire: MakeWire) -> None:
    """Noise of a few ticks is no range."""
    wire = make_wire(SimFeetechServo(1, position=2000))
    with _bus(wire) as bus, pytest.raises(CalibrationError, match=r"joint \(3 ticks\)") as caught:
        _record(bus, wire, [2000, 2003, 2001])
    assert caught.value.motors == ("joint",)


class Operator:
    """Answers a dialogue: middle pose, a sweep of each joint, then the gripper closed."""

    def __init__(self, wire: SimFeetechBus, sweeps: Sequence[tuple[int, int]], closed: int) -> None:
        self.wire, self.sweeps, self.closed = wire, sweeps, closed
        self.steps: list[CalibrationStep] = []

    def __call__(self, step: CalibrationStep) -> str:
        self.steps.append(step)
        if step.kind == "progress":
            done = sum(s.kind == "progress" for s in self.steps)
            share = min(1.0, (done - 1) / 8)
            self._place([low + share * (high - low) for low, high in self.sweeps])
            return "done" if done == 10 else ""
        if "Close" in step.message:
            self.wire.servos[1].position = self.closed
        else:
            self._place([(low + high) / 2 for low, high in self.sweeps])
        return ""

    def _place(self, positions: Sequence[float]) -> None:
        for servo, ticks in zip(self.wire.servos, positions, strict=True):
            servo.position = round(ticks)


@pytest.mark.parametrize(("closed", "mirrored"), [(1000, 0), (2500, 1)])
def test_the_whole_dialogue_measures_the_direction(make_wire: MakeWire, closed: int, mirrored: int) -> None:
    """Two grippers, one mounted mirrored: 0 % closes both, because closing was measured and stored."""
    wire = make_wire(SimFeetechServo(1), SimFeetechServo(2), SimFeetechServo(3))
    operator = Operator(wire, [(3500, 4800), (1000, 2500), (0, 3000)], closed)
    with _bus(wire, ("arm", "gripper", "roll")) as bus:
        result: dict[str, MotorCalibration] = {}

        def run() -> object:
            result.update((yield from bus.calibrate(full_turn=["roll"], closing={"gripper": "Close it."})))

        drive(run(), operator)  # type: ignore[arg-type]
        assert bus.calibration == result
        assert bus.is_calibrated
        assert {n: c.drive_mode for n, c in result.items()} == {"arm": 0, "gripper": mirrored, "roll": 0}
        assert (result["roll"].range_min, result["roll"].range_max) == (0, 4095)
        assert result["arm"].range_max - result["arm"].range_min == 1300
        wire.servos[1].position = closed
        assert bus.read("Present_Position", "gripper") == 0.0
        bus.write("Goal_Position", "gripper", 0.0)
        assert bus.read("Goal_Position", "gripper", normalize=False) == bus.read(
            "Present_Position", "gripper", normalize=False
        )
    kinds = [step.kind for step in operator.steps]
    assert kinds == ["confirm", *["progress"] * 10, "confirm"]
    table = operator.steps[10].table
    assert table is not None
    assert set(table) == {"arm", "gripper"}
