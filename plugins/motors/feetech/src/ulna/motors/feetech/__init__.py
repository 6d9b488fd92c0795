# SPDX-License-Identifier: Apache-2.0
"""Feetech serial bus servos. Names load on use, so that looking at this package opens no serial library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ulna.motors.feetech.bus import FeetechMotorsBus
    from ulna.motors.feetech.config import FeetechMotorsBusConfig
    from ulna.motors.feetech.tables import DriveMode, OperatingMode, TorqueMode

__all__ = ["DriveMode", "FeetechMotorsBus", "FeetechMotorsBusConfig", "OperatingMode", "TorqueMode"]

_HOMES = {
    "DriveMode": "tables",
    "FeetechMotorsBus": "bus",
    "FeetechMotorsBusConfig": "config",
    "OperatingMode": "tables",
    "TorqueMode": "tables",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
