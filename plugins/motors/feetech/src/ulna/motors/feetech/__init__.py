# SPDX-License-Identifier: Apache-2.0
"""Feetech serial bus servos. Names load on use, so that looking at this package opens no serial library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(globals(), _HOMES)
