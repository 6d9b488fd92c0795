# SPDX-License-Identifier: Apache-2.0
"""`ulna calibrate`: leads the operator through the calibration of a robot or teleoperator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.commands import config_command, message

if TYPE_CHECKING:
    from ulna.control.calibrating import OneDeviceConfig

__all__ = ["app", "run"]


def run(config: OneDeviceConfig) -> int:
    """Run the command.

    Args:
        config: Settings.

    Returns:
        Exit code.
    """
    from ulna.control.calibrating import calibrate
    from ulna.control.commands.console import TerminalDialogue

    device = config.make()
    calibrate(device, TerminalDialogue())
    path = device.calibration_file()
    message(f"{device} is calibrated; the file is {path}" if path else f"{device} needs no calibration.")
    return 0


app = config_command(
    "ulna.control.calibrating:OneDeviceConfig",
    run,
    name="calibrate",
    help="""Calibrate a robot or a teleoperator.

    Give it an id: the calibration is kept under that name.
    """,
    examples=("ulna calibrate --robot.type=so101_follower --robot.port=/dev/ttyACM0 --robot.id=left",),
)
