# SPDX-License-Identifier: Apache-2.0
"""Settings of a Feetech bus that is opened by itself, for scan and setup. Loads no serial library."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ulna.core.motors import MotorsBusConfig

__all__ = ["FeetechMotorsBusConfig"]


class FeetechMotorsBusConfig(MotorsBusConfig):
    """A Feetech bus by itself. Robots make their bus directly and do not use this."""

    implementation: ClassVar[str] = "ulna.motors.feetech.bus:FeetechMotorsBus"

    type: Literal["feetech"] = "feetech"
    port: str = Field(description="Serial device, /dev/ttyACM0 or COM3.")
    protocol_version: Literal[0, 1] = Field(0, description="0 for STS and SMS servos, 1 for SCS.")
