# SPDX-License-Identifier: Apache-2.0
"""Simulated Feetech servos: registers, motion and packets. The pseudo terminal that carries them is `ulna.sim.bus`."""

from __future__ import annotations

from ulna.sim.feetech.line import FeetechLine, Packet, checksum, instruction_packet, status_packet
from ulna.sim.feetech.servo import (
    ERROR_ANGLE,
    ERROR_CURRENT,
    ERROR_HEAT,
    ERROR_OVERLOAD,
    ERROR_VOLTAGE,
    MULTI_TURN_BIT,
    SimFeetechServo,
)
from ulna.sim.feetech.tables import BAUD_CODES, MODELS, SCS_REGISTERS, STS_REGISTERS, STS_SIGN_BITS, ModelSpec

__all__ = [
    "BAUD_CODES",
    "ERROR_ANGLE",
    "ERROR_CURRENT",
    "ERROR_HEAT",
    "ERROR_OVERLOAD",
    "ERROR_VOLTAGE",
    "MODELS",
    "MULTI_TURN_BIT",
    "SCS_REGISTERS",
    "STS_REGISTERS",
    "STS_SIGN_BITS",
    "FeetechLine",
    "ModelSpec",
    "Packet",
    "SimFeetechServo",
    "checksum",
    "instruction_packet",
    "status_packet",
]
