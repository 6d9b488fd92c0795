# SPDX-License-Identifier: Apache-2.0
"""Calibration as data and as a dialogue: per-motor values, LeRobot's files, the steps an operator is led through."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ulna.core.errors import CalibrationError
from ulna.core.files import write_json

__all__ = ["CalibrationStep", "MotorCalibration", "check_calibration", "drive", "load_calibration", "save_calibration"]

_AGAIN = "Delete it and calibrate again."
_FIELDS = ("id", "drive_mode", "homing_offset", "range_min", "range_max")


@dataclass(frozen=True)
class MotorCalibration:
    """Calibration of one motor, in raw register units.

    Attributes:
        id: Id of the motor on its bus.
        drive_mode: 1 when the motor is mounted mirrored, else 0.
        homing_offset: Offset written to the motor, ticks.
        range_min: Lowest position reached, ticks.
        range_max: Highest position reached, ticks.
    """

    id: int
    drive_mode: int
    homing_offset: int
    range_min: int
    range_max: int


@dataclass(frozen=True)
class CalibrationStep:
    """One step of a calibration dialogue, shown by whoever drives it.

    Attributes:
        message: What the operator shall do.
        kind: `confirm` waits for the operator; `choose` takes one of `choices`; `progress` needs no answer, is repeated
            while the operator moves the joints, and is answered with "done" to end it or "" to go on.
        choices: Answers accepted by a `choose` step.
        table: Motor name to (lowest, now, highest) position in ticks, for a `progress` step.
    """

    message: str
    kind: str = "confirm"
    choices: tuple[str, ...] = ()
    table: Mapping[str, tuple[int, int, int]] | None = None


def drive(dialogue: Generator[CalibrationStep, str, None], answer: Callable[[CalibrationStep], str]) -> None:
    """Run a calibration dialogue to its end.

    Args:
        dialogue: What `calibrate` returned.
        answer: Called for each step; returns the operator's answer.
    """
    try:
        step = next(dialogue)
        while True:
            step = dialogue.send(answer(step))
    except StopIteration:
        return
    finally:
        dialogue.close()


def check_calibration(calibration: Mapping[str, MotorCalibration], *, source: str = "calibration") -> None:
    """Refuse values that would divide by zero or turn a joint around.

    Args:
        calibration: Motor name to its calibration.
        source: Where it comes from, for the message.

    Raises:
        CalibrationError: Equal or inverted limits, or two motors with one id; the motors are named.
    """
    bad = {n: c for n, c in calibration.items() if c.range_min >= c.range_max}
    if bad:
        lines = "; ".join(f"{n}: range_min {c.range_min}, range_max {c.range_max}" for n, c in bad.items())
        raise CalibrationError(
            f"{source}: range_min must be below range_max: {lines}.",
            motors=tuple(bad),
            hint="Calibrate again and move every joint through its whole range.",
        )
    by_id: dict[int, list[str]] = {}
    for name, values in calibration.items():
        by_id.setdefault(values.id, []).append(name)
    twice = [names for names in by_id.values() if len(names) > 1]
    if twice:
        raise CalibrationError(
            f"{source}: motors share an id: {', '.join(' and '.join(names) for names in twice)}.",
            motors=tuple(n for names in twice for n in names),
            hint=_AGAIN,
        )


def load_calibration(path: Path) -> dict[str, MotorCalibration]:
    """Read a calibration file: a JSON object of motor name to the five integers (LeRobot's layout).

    Args:
        path: The file.

    Returns:
        Motor name to its calibration, in file order.

    Raises:
        CalibrationError: Not readable, not this layout, or degenerate.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CalibrationError(f"Cannot read the calibration {path}: {error}", hint=_AGAIN) from error
    if not isinstance(data, dict):
        raise CalibrationError(f"{path}: expected an object of motor names, got {type(data).__name__}.", hint=_AGAIN)
    calibration = {}
    for name, values in data.items():
        wrong = not isinstance(values, dict) or any(type(values.get(f)) is not int for f in _FIELDS)
        if wrong:
            raise CalibrationError(
                f"{path}: motor {name!r} needs the integers {', '.join(_FIELDS)}; got {values!r}.",
                motors=(name,),
                hint=_AGAIN,
            )
        calibration[name] = MotorCalibration(**{f: values[f] for f in _FIELDS})
    check_calibration(calibration, source=str(path))
    return calibration


def save_calibration(path: Path, calibration: Mapping[str, MotorCalibration]) -> None:
    """Write a calibration file atomically, in LeRobot's layout.

    Args:
        path: The file; its folder is created.
        calibration: Motor name to its calibration.

    Raises:
        CalibrationError: The calibration is degenerate.
    """
    check_calibration(calibration, source=str(path))
    write_json(path, {name: asdict(values) for name, values in calibration.items()})
