# SPDX-License-Identifier: Apache-2.0
"""Serial ports of this computer: what is plugged in, which plugin knows it, and which one appears or goes away."""

from __future__ import annotations

import getpass
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ulna.core.clock import Clock, MonotonicClock
from ulna.core.errors import ControlError, MissingDependencyError

__all__ = ["PortInfo", "list_ports", "wait_for_change"]


@dataclass(frozen=True)
class PortInfo:
    """One serial port.

    Attributes:
        device: What to give as `port`: `/dev/ttyACM0`, `COM3`.
        description: What the system calls it.
        hardware_id: USB vendor and product, `1a86:55d3`; empty when it is no USB device.
        serial_number: Serial number of the adapter, which tells two of one kind apart.
        fits: Plugins whose manifest names this hardware, `robots/so101_follower`.
        problem: Why it cannot be opened, with what to do; empty when it can.
    """

    device: str
    description: str = ""
    hardware_id: str = ""
    serial_number: str = ""
    fits: tuple[str, ...] = ()
    problem: str = ""


def list_ports() -> list[PortInfo]:
    """List the serial ports; opens none.

    Returns:
        Ports sorted by name, USB adapters first.

    Raises:
        MissingDependencyError: pyserial is not installed.
    """
    if importlib.util.find_spec("serial") is None:
        raise MissingDependencyError("pyserial", "Listing serial ports", "pip install 'ulna-control[serial]'")
    from serial.tools import list_ports as pyserial_ports

    known = _known_hardware()
    found = []
    for port in pyserial_ports.comports():
        ident = "" if port.vid is None else f"{port.vid:04x}:{port.pid:04x}"
        found.append(
            PortInfo(
                device=port.device,
                description=port.description if port.description not in (None, "n/a") else "",
                hardware_id=ident,
                serial_number=port.serial_number or "",
                fits=known.get(ident, ()),
                problem=permission_problem(port.device),
            )
        )
    return sorted(found, key=lambda p: (not p.hardware_id, p.device))


def _known_hardware() -> dict[str, tuple[str, ...]]:
    """Return USB id to the plugins that name it in their manifest."""
    from ulna.core.plugins import registry

    known: dict[str, tuple[str, ...]] = {}
    for record in registry().records():
        for ident in (record.manifest or {}).get("hardware_ids", ()):
            known[str(ident).lower()] = (*known.get(str(ident).lower(), ()), record.label)
    return known


def permission_problem(device: str) -> str:
    """Say why a port cannot be opened by this user.

    Args:
        device: The port.

    Returns:
        The reason and the command that helps; empty when there is no problem.
    """
    if os.name == "nt" or not Path(device).exists() or os.access(device, os.R_OK | os.W_OK):
        return ""
    if sys.platform != "linux":
        return "no permission to open it"
    import grp

    group = grp.getgrgid(Path(device).stat().st_gid).gr_name
    return f"no permission: sudo usermod -aG {group} {getpass.getuser()}, then log in again"


def wait_for_change(
    ports: Callable[[], list[PortInfo]] = list_ports,
    *,
    timeout_s: float = 60.0,
    clock: Clock | None = None,
    period_s: float = 0.25,
) -> tuple[list[PortInfo], list[PortInfo]]:
    """Wait until a port appears or goes away.

    Args:
        ports: Lists the ports.
        timeout_s: Give up after so long, seconds.
        clock: Time.
        period_s: Time between two looks, seconds.

    Returns:
        Ports that appeared, and ports that went away.

    Raises:
        ControlError: Nothing changed in time.
    """
    clock = clock or MonotonicClock()
    before = {port.device: port for port in ports()}
    began = clock.now()
    while clock.now() - began < timeout_s:
        clock.sleep_until(clock.now() + period_s)
        now = {port.device: port for port in ports()}
        if now.keys() != before.keys():
            new = [port for name, port in now.items() if name not in before]
            gone = [port for name, port in before.items() if name not in now]
            return new, gone
    raise ControlError(
        f"No serial port appeared or went away within {timeout_s:g} s.",
        hint="Check that the cable carries data, not only power, and that the board is powered.",
    )
