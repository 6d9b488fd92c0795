# SPDX-License-Identifier: Apache-2.0
"""Connecting is atomic, disconnecting safe, and bad actions never reach a driver."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ulna.core.calibration import MotorCalibration
from ulna.core.devices import OpenParts
from ulna.core.errors import (
    ActionError,
    CalibrationError,
    ConfigError,
    DeviceAlreadyConnectedError,
    DeviceDisconnectError,
    DeviceNotConnectedError,
)
from ulna.core.robots import Robot, RobotConfig, ensure_safe_goal_position
from ulna.core.teleoperators import Teleoperator, TeleoperatorConfig


class ArmConfig(RobotConfig):
    """Settings of the arm below."""

    type: str = "arm"


class Arm(Robot):
    """An arm of three parts, each of which may fail to open or close."""

    config_class = ArmConfig
    name = "arm"

    def __init__(self, config: ArmConfig, *, fails_to_open: str = "", fails_to_close: tuple[str, ...] = ()) -> None:
        super().__init__(config)
        self.log: list[str] = []
        self.sent: list[dict[str, float]] = []
        self.fails_to_open, self.fails_to_close = fails_to_open, fails_to_close

    def _part(self, parts: OpenParts, name: str) -> None:
        def opening() -> None:
            if name == self.fails_to_open:
                raise OSError(f"no {name}")
            self.log.append(f"open {name}")

        def closing() -> None:
            self.log.append(f"close {name}")
            if name in self.fails_to_close:
                raise OSError(f"{name} stuck")

        parts.open(name, opening, closing)

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        for name in ("bus", "torque", "camera"):
            self._part(parts, name)

    @property
    def is_calibrated(self) -> bool:
        return True

    @property
    def observation_features(self) -> Mapping[str, Any]:
        return {"a.pos": float}

    @property
    def action_features(self) -> Mapping[str, Any]:
        return {"a.pos": float, "b.pos": float}

    def _get_observation(self) -> dict[str, Any]:
        return {"a.pos": 0.0}

    def _send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        self.sent.append(action)
        return {k: min(v, 10.0) for k, v in action.items()}


def test_a_part_that_fails_to_open_closes_the_others_in_reverse() -> None:
    arm = Arm(ArmConfig(), fails_to_open="camera", fails_to_close=("torque",))
    with pytest.raises(OSError, match="no camera") as caught:
        arm.connect()
    assert arm.log == ["open bus", "open torque", "close torque", "close bus"]
    assert not arm.is_connected
    assert "torque stuck" in "".join(caught.value.__notes__)
    arm.fails_to_open = ""
    arm.connect()
    assert arm.is_connected


def test_disconnect_tries_every_part_reports_all_and_may_be_repeated() -> None:
    arm = Arm(ArmConfig(), fails_to_close=("camera", "torque"))
    arm.connect()
    with pytest.raises(DeviceDisconnectError) as caught:
        arm.disconnect()
    assert set(caught.value.failures) == {"camera", "torque"}
    assert arm.log[-3:] == ["close camera", "close torque", "close bus"]
    arm.disconnect()
    assert len(arm.log) == 6


def test_the_error_in_the_block_is_kept_when_disconnecting_fails_too() -> None:
    arm = Arm(ArmConfig(), fails_to_close=("bus",))
    with pytest.raises(ZeroDivisionError) as caught, arm:
        raise ZeroDivisionError
    assert "bus stuck" in "".join(caught.value.__notes__)


def test_ctrl_c_while_closing_still_closes_the_rest() -> None:
    parts, log = OpenParts("arm"), []
    parts.on_close("first", lambda: log.append("first"))

    def interrupted() -> None:
        raise KeyboardInterrupt

    parts.on_close("second", interrupted)
    with pytest.raises(KeyboardInterrupt):
        parts.close()
    assert log == ["first"]


def test_calls_in_the_wrong_state_are_refused() -> None:
    arm = Arm(ArmConfig())
    for call in (arm.get_observation, lambda: arm.send_action({"a.pos": 0.0, "b.pos": 0.0})):
        with pytest.raises(DeviceNotConnectedError, match="connect"):
            call()
    arm.connect()
    with pytest.raises(DeviceAlreadyConnectedError):
        arm.connect()


@pytest.mark.parametrize(
    "action",
    [
        {"a.pos": math.nan, "b.pos": 0.0},
        {"a.pos": 0.0},
        {"a.pos": 0.0, "b.pos": 0.0, "c.pos": 1.0},
        {"a.pos": None, "b.pos": 0},
    ],
)
def test_a_bad_action_reaches_no_driver(action: dict[str, Any]) -> None:
    arm = Arm(ArmConfig())
    arm.connect()
    with pytest.raises(ActionError):
        arm.send_action(action)
    assert arm.sent == []


def test_what_was_really_sent_is_returned_and_the_argument_kept() -> None:
    arm = Arm(ArmConfig())
    arm.connect()
    action = {"a.pos": 20.0, "b.pos": 1.0}
    assert arm.send_action(action) == {"a.pos": 10.0, "b.pos": 1.0}
    assert action == {"a.pos": 20.0, "b.pos": 1.0}


def test_constructing_touches_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ULNA_HOME", str(tmp_path / "home"))
    Arm(ArmConfig(id="x"))
    assert not (tmp_path / "home").exists()


def test_an_id_that_is_no_file_name_is_refused() -> None:
    for wrong in ("../x", "a/b", "", ".hidden"):
        with pytest.raises(ConfigError, match="id"):
            ArmConfig(id=wrong)


def test_calibration_files_of_ulna_come_before_lerobots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ULNA_HOME", str(tmp_path / "ulna"))
    monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path / "lerobot"))
    monkeypatch.delenv("HF_LEROBOT_CALIBRATION", raising=False)
    arm = Arm(ArmConfig(id="mine"))
    assert arm.load_calibration() == {}
    theirs = tmp_path / "lerobot" / "calibration" / "robots" / "arm" / "mine.json"
    theirs.parent.mkdir(parents=True)
    values = {"id": 1, "drive_mode": 0, "homing_offset": 5, "range_min": 10, "range_max": 20}
    theirs.write_text(json.dumps({"a": values}))
    assert arm.load_calibration()["a"].homing_offset == 5
    path = arm.save_calibration({"a": MotorCalibration(1, 0, 7, 10, 20)})
    assert path == tmp_path / "ulna" / "calibration" / "robots" / "arm" / "mine.json"
    assert arm.load_calibration()["a"].homing_offset == 7


def test_saving_without_an_id_says_what_to_do() -> None:
    with pytest.raises(CalibrationError, match=r"--robot\.id"):
        Arm(ArmConfig()).save_calibration({"a": MotorCalibration(1, 0, 7, 10, 20)})


def test_goals_are_limited_around_the_present_position() -> None:
    pairs = {"a": (50.0, 0.0), "b": (-3.0, 0.0)}
    assert ensure_safe_goal_position(pairs, 5) == {"a": 5.0, "b": -3.0}
    assert ensure_safe_goal_position(pairs, {"a": 1.0, "b": 1.0}) == {"a": 1.0, "b": -1.0}
    with pytest.raises(ValueError, match="max_relative_target"):
        ensure_safe_goal_position(pairs, {"a": 1.0})
    with pytest.raises(ValueError, match="not negative"):
        ensure_safe_goal_position(pairs, -1)
    with pytest.raises(ActionError, match="not finite for a"):
        ensure_safe_goal_position({"a": (math.nan, 0.0)}, 5)


class HandConfig(TeleoperatorConfig):
    """Settings of the teleoperator below."""

    type: str = "hand"


class Hand(Teleoperator):
    """A teleoperator with feedback."""

    config_class = HandConfig
    name = "hand"
    felt: dict[str, Any] | None = None

    def _connect(self, parts: OpenParts, calibrate: bool) -> None:
        return

    @property
    def is_calibrated(self) -> bool:
        return True

    @property
    def action_features(self) -> Mapping[str, Any]:
        return {"a.pos": float}

    @property
    def feedback_features(self) -> Mapping[str, Any]:
        return {"a.force": float}

    def _get_action(self) -> dict[str, Any]:
        return {"a.pos": 1.0}

    def _send_feedback(self, feedback: dict[str, Any]) -> None:
        self.felt = feedback


def test_feedback_is_checked_like_an_action() -> None:
    hand = Hand(HandConfig())
    with pytest.raises(DeviceNotConnectedError):
        hand.get_action()
    hand.connect()
    with pytest.raises(ActionError):
        hand.send_feedback({"a.force": math.inf})
    assert hand.felt is None
    hand.send_feedback({"a.force": 1.0})
    assert hand.felt == {"a.force": 1.0}
