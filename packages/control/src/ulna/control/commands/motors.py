# SPDX-License-Identifier: Apache-2.0
"""`ulna motors scan | setup | limits`: what is on a bus, motor ids, how far joints move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.commands import command_group, config_command, message, output_json, output_table

if TYPE_CHECKING:
    from ulna.control.calibrating import LimitsConfig, SetupConfig
    from ulna.control.discovery import ScanConfig

__all__ = ["app", "limits", "scan", "setup"]


def scan(config: ScanConfig) -> int:
    """Run `ulna motors scan`.

    Args:
        config: Settings.

    Returns:
        Exit code: 1 when no motor answered.
    """
    from ulna.control.discovery import scan_motors

    found = scan_motors(config)
    if not found:
        message(f"No motor answers on {config.port}. Is the motor power on, and the first cable plugged in?")
        return 1
    rows = [[f.bus, str(f.baudrate), str(f.id), f.model, str(f.model_number)] for f in found]
    output_table(["bus", "baud rate", "id", "model", "number"], rows)
    return 0


def setup(config: SetupConfig) -> int:
    """Run `ulna motors setup`.

    Args:
        config: Settings.

    Returns:
        Exit code.
    """
    from ulna.control.calibrating import setup_motors
    from ulna.control.commands.console import TerminalDialogue

    device = config.make()
    setup_motors(device, TerminalDialogue(), config.only)
    message("Done.")
    return 0


def limits(config: LimitsConfig) -> int:
    """Run `ulna motors limits`.

    Args:
        config: Settings.

    Returns:
        Exit code.
    """
    from ulna.control.calibrating import watch_limits
    from ulna.control.commands.console import console

    message(f"Move every joint through its range by hand; {config.time_s:g} s, or Ctrl-C when done.")
    with console() as runtime:
        found = watch_limits(config.make(), config, runtime=runtime)
    output_json({joint: {"lowest": low, "highest": high} for joint, (low, _, high) in found.items()})
    return 0


app = command_group("motors", "Find, set up and watch motors.")
for _command in (
    config_command(
        "ulna.control.discovery:ScanConfig",
        scan,
        name="scan",
        help="Look for motors on a port at every baud rate. Nothing on them is changed.",
        examples=("ulna motors scan --port=/dev/ttyACM0",),
    ),
    config_command(
        "ulna.control.calibrating:SetupConfig",
        setup,
        name="setup",
        help="Give each motor its id, plugged in one by one.",
        examples=("ulna motors setup --robot.type=so101_follower --robot.port=/dev/ttyACM0",),
    ),
    config_command(
        "ulna.control.calibrating:LimitsConfig",
        limits,
        name="limits",
        help="Watch how far joints are moved by hand, without torque.",
        examples=("ulna motors limits --teleop.type=so101_leader --teleop.port=/dev/ttyACM1 --teleop.id=left",),
    ),
):
    app.registered_commands += _command.registered_commands
