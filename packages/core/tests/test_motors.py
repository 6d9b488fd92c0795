# SPDX-License-Identifier: Apache-2.0
"""Ticks and user units, exactly; calibrations that cannot work are refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.core.calibration import CalibrationStep, MotorCalibration, check_calibration, drive, load_calibration
from ulna.core.errors import CalibrationError
from ulna.core.motors import MotorNormMode, normalize, unnormalize

DEGREES, PERCENT, SIGNED = MotorNormMode.DEGREES, MotorNormMode.RANGE_0_100, MotorNormMode.RANGE_M100_100
ranges = st.tuples(st.integers(0, 4000), st.integers(1, 4095)).map(
    lambda p: MotorCalibration(1, 0, 0, p[0], p[0] + p[1])
)


@settings(deadline=None)
@given(ranges, st.sampled_from(list(MotorNormMode)), st.booleans(), st.data())
def test_ticks_survive_the_round_trip(
    calibration: MotorCalibration, mode: MotorNormMode, inverted: bool, data: st.DataObject
) -> None:
    ticks = data.draw(st.integers(calibration.range_min, calibration.range_max))
    value = normalize(ticks, calibration, mode, 4096, inverted=inverted)
    assert abs(unnormalize(value, calibration, mode, 4096, inverted=inverted) - ticks) <= 1


@pytest.mark.parametrize(
    ("ticks", "mode", "inverted", "want"),
    [
        (1000, SIGNED, False, -100.0),
        (3000, SIGNED, False, 100.0),
        (2000, SIGNED, True, 0.0),
        (1500, SIGNED, True, 50.0),
        (9999, SIGNED, False, 100.0),
        (1500, PERCENT, False, 25.0),
        (1500, PERCENT, True, 75.0),
        (0, PERCENT, False, 0.0),
        (2000, DEGREES, False, 0.0),
        (4000, DEGREES, True, 2000 * 360 / 4095),
    ],
)
def test_known_values(ticks: int, mode: MotorNormMode, inverted: bool, want: float) -> None:
    assert normalize(ticks, MotorCalibration(1, 0, 0, 1000, 3000), mode, 4096, inverted=inverted) == pytest.approx(want)


@pytest.mark.parametrize("mode", list(MotorNormMode))
def test_values_that_are_no_number_raise(mode: MotorNormMode) -> None:
    calibration = MotorCalibration(1, 0, 0, 1000, 3000)
    with pytest.raises(ValueError, match="NaN"):
        unnormalize(math.nan, calibration, mode, 4096)
    with pytest.raises(OverflowError):
        unnormalize(math.inf, calibration, mode, 4096)


@pytest.mark.parametrize("mode", list(MotorNormMode))
def test_an_empty_range_is_an_error_and_no_division(mode: MotorNormMode) -> None:
    calibration = MotorCalibration(3, 0, 0, 2000, 2000)
    with pytest.raises(CalibrationError, match="Motor 3"):
        normalize(2000, calibration, mode, 4096)
    with pytest.raises(CalibrationError, match="Motor 3"):
        unnormalize(0, calibration, mode, 4096)


def test_degenerate_calibrations_name_the_joints() -> None:
    good = MotorCalibration(1, 0, 0, 0, 10)
    with pytest.raises(CalibrationError, match="elbow: range_min 5, range_max 5") as caught:
        check_calibration(
            {"pan": good, "elbow": MotorCalibration(2, 0, 0, 5, 5), "lift": MotorCalibration(3, 0, 0, 9, 1)}
        )
    assert caught.value.motors == ("elbow", "lift")
    with pytest.raises(CalibrationError, match=r"(?s)share an id: pan and lift.*calibrate again"):
        check_calibration({"pan": good, "lift": good})


@pytest.mark.parametrize("text", ["", "[]", '{"a": {"id": 1}}', '{"a": {"id": 1.5, "drive_mode": 0}}', "{"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "arm.json"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=r"arm\.json") as caught:
        load_calibration(path)
    assert caught.value.hint == "Delete it and calibrate again."


def test_fields_of_the_file_are_lerobots(tmp_path: Path) -> None:
    path = tmp_path / "arm.json"
    values = {"id": 1, "drive_mode": 0, "homing_offset": -3, "range_min": 1, "range_max": 9}
    path.write_text(json.dumps({"pan": values}))
    assert load_calibration(path) == {"pan": MotorCalibration(**values)}


def test_a_dialogue_is_driven_to_its_end_and_closed() -> None:
    seen, closed = [], []

    def dialogue():  # type: ignore[no-untyped-def]
        try:
            seen.append((yield CalibrationStep("one")))
            seen.append((yield CalibrationStep("two", "choose", ("a", "b"))))
        finally:
            closed.append(True)

    drive(dialogue(), lambda step: step.choices[1] if step.choices else "ok")
    assert seen == ["ok", "b"]
    with pytest.raises(KeyboardInterrupt):
        drive(dialogue(), lambda step: (_ for _ in ()).throw(KeyboardInterrupt))
    assert closed == [True, True]
