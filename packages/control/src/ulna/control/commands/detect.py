# SPDX-License-Identifier: Apache-2.0
"""`ulna detect`: which serial port is which device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from ulna.core.commands import config_command, message, output, output_table
from ulna.core.config import Config

if TYPE_CHECKING:
    from ulna.control.ports import PortInfo

__all__ = ["DetectConfig", "app", "run"]


class DetectConfig(Config):
    """Settings of `ulna detect`."""

    watch: bool = Field(False, description="Wait until a device is plugged in or out, and say which port it has.")
    timeout_s: float = Field(60, gt=0, allow_inf_nan=False, description="How long to wait, seconds.")


def run(config: DetectConfig) -> int:
    """Run the command.

    Args:
        config: Settings.

    Returns:
        Exit code: 1 when there is no port.
    """
    from ulna.control.ports import list_ports, wait_for_change

    if config.watch:
        message("Plug the device out (or in) now.")
        new, gone = wait_for_change(timeout_s=config.timeout_s)
        for port in (*new, *gone):
            message(f"{'Appeared' if port in new else 'Went away'}: {port.description or 'serial port'}")
            output(port.device)
        return 0
    ports = list_ports()
    if not ports:
        message("No serial port. Check that the cable carries data and the board is powered, then: ulna detect --watch")
        return 1
    rows = [[p.device, p.description, p.hardware_id, p.serial_number, ", ".join(p.fits)] for p in ports]
    output_table(["port", "description", "usb", "serial number", "fits"], rows)
    _tell_problems(ports)
    return 0


def _tell_problems(ports: list[PortInfo]) -> None:
    for port in ports:
        if port.problem:
            message(f"{port.device}: {port.problem}")


app = config_command(
    DetectConfig,
    run,
    name="detect",
    help="""List serial ports, or find out which port a device has.

    With --watch, plug the device out or in and read its port.
    """,
    examples=("ulna detect", "ulna detect --watch"),
)
