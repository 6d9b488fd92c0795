# SPDX-License-Identifier: Apache-2.0
"""Registers, models and speeds of Feetech servos, as data. Names are LeRobot's, whatever spelling the vendor uses."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from ulna.core.serial_access import Register

__all__ = [
    "BAUDRATE_TABLE",
    "FAULTS",
    "MODEL_CONTROL_TABLE",
    "MODEL_NUMBER_TABLE",
    "MODEL_PROTOCOL",
    "MODEL_RESOLUTION",
    "MULTI_TURN_BIT",
    "SCAN_BAUDRATES",
    "DriveMode",
    "OperatingMode",
    "TorqueMode",
]


class OperatingMode(IntEnum):
    """What a goal means to the servo."""

    POSITION = 0
    VELOCITY = 1
    PWM = 2
    STEP = 3


class DriveMode(IntEnum):
    """Whether a servo is mounted mirrored."""

    NON_INVERTED = 0
    INVERTED = 1


class TorqueMode(IntEnum):
    """Whether a servo holds torque."""

    ENABLED = 1
    DISABLED = 0


FAULTS: Final[Mapping[int, str]] = MappingProxyType(
    {1: "input voltage", 2: "angle sensor", 4: "overheating", 8: "over-current", 32: "overload"}
)
"""Bit of the status byte to what it means."""

MULTI_TURN_BIT: Final = 0x10
"""Bit of `Phase` with which an STS servo counts turns instead of staying within 0..4095."""

_HEAD: Final[Mapping[str, tuple[int, int]]] = {
    "Firmware_Major_Version": (0, 1),
    "Firmware_Minor_Version": (1, 1),
    "Model_Number": (3, 2),
    "ID": (5, 1),
    "Baud_Rate": (6, 1),
    "Return_Delay_Time": (7, 1),
    "Response_Status_Level": (8, 1),
    "Min_Position_Limit": (9, 2),
    "Max_Position_Limit": (11, 2),
    "Max_Temperature_Limit": (13, 1),
    "Max_Voltage_Limit": (14, 1),
    "Min_Voltage_Limit": (15, 1),
    "Max_Torque_Limit": (16, 2),
    "Phase": (18, 1),
    "Unloading_Condition": (19, 1),
    "LED_Alarm_Condition": (20, 1),
    "P_Coefficient": (21, 1),
    "D_Coefficient": (22, 1),
    "I_Coefficient": (23, 1),
    "Minimum_Startup_Force": (24, 2),
    "CW_Dead_Zone": (26, 1),
    "CCW_Dead_Zone": (27, 1),
}
_PRESENT: Final[Mapping[str, tuple[int, int]]] = {
    "Present_Position": (56, 2),
    "Present_Velocity": (58, 2),
    "Present_Load": (60, 2),
    "Present_Voltage": (62, 1),
    "Present_Temperature": (63, 1),
    "Status": (65, 1),
    "Moving": (66, 1),
}
_STS: Final[Mapping[str, tuple[int, int]]] = {
    **_HEAD,
    "Protection_Current": (28, 2),
    "Angular_Resolution": (30, 1),
    "Homing_Offset": (31, 2),
    "Operating_Mode": (33, 1),
    "Protective_Torque": (34, 1),
    "Protection_Time": (35, 1),
    "Overload_Torque": (36, 1),
    "Velocity_closed_loop_P_proportional_coefficient": (37, 1),
    "Over_Current_Protection_Time": (38, 1),
    "Velocity_closed_loop_I_integral_coefficient": (39, 1),
    "Torque_Enable": (40, 1),
    "Acceleration": (41, 1),
    "Goal_Position": (42, 2),
    "Goal_Time": (44, 2),
    "Goal_Velocity": (46, 2),
    "Torque_Limit": (48, 2),
    "Lock": (55, 1),
    **_PRESENT,
    "Present_Current": (69, 2),
    "Goal_Position_2": (71, 2),
    "Moving_Velocity": (80, 1),
    "Moving_Velocity_Threshold": (80, 1),
    "DTs": (81, 1),
    "Velocity_Unit_factor": (82, 1),
    "Hts": (83, 1),
    "Maximum_Velocity_Limit": (84, 1),
    "Maximum_Acceleration": (85, 1),
    "Acceleration_Multiplier ": (86, 1),
}
_SCS: Final[Mapping[str, tuple[int, int]]] = {
    **_HEAD,
    "Protective_Torque": (37, 1),
    "Protection_Time": (38, 1),
    "Torque_Enable": (40, 1),
    "Acceleration": (41, 1),
    "Goal_Position": (42, 2),
    "Running_Time": (44, 2),
    "Goal_Velocity": (46, 2),
    "Lock": (48, 1),
    **_PRESENT,
    "Sync_Write_Flag": (64, 1),
    "PWM_Maximum_Step": (78, 1),
    "Moving_Velocity_Threshold*50": (79, 1),
    "DTs": (80, 1),
    "Minimum_Velocity_Limit*50": (81, 1),
    "Maximum_Velocity_Limit*50": (82, 1),
    "Acceleration_2": (83, 1),
}
_STS_SIGN_BITS: Final[Mapping[str, int]] = {
    "Present_Load": 10,
    "Homing_Offset": 11,
    "Goal_Position": 15,
    "Goal_Velocity": 15,
    "Present_Position": 15,
    "Present_Velocity": 15,
}


def _registers(table: Mapping[str, tuple[int, int]], signs: Mapping[str, int]) -> Mapping[str, Register]:
    return MappingProxyType({name: Register(*where, signs.get(name)) for name, where in table.items()})


_FAMILIES: Final = (_registers(_STS, _STS_SIGN_BITS), _registers(_SCS, {}))

MODEL_PROTOCOL: Final[Mapping[str, int]] = MappingProxyType(
    {"sts_series": 0, "sms_series": 0, "scs_series": 1, "sts3215": 0, "sts3250": 0, "sm8512bl": 0, "scs0009": 1}
)
"""Model to protocol: 0 is little endian (STS, SMS), 1 is big endian (SCS)."""

MODEL_CONTROL_TABLE: Final[Mapping[str, Mapping[str, Register]]] = MappingProxyType(
    {model: _FAMILIES[protocol] for model, protocol in MODEL_PROTOCOL.items()}
)
"""Model to register name to register."""

MODEL_RESOLUTION: Final[Mapping[str, int]] = MappingProxyType(
    {model: (4096, 1024)[protocol] for model, protocol in MODEL_PROTOCOL.items()}
)
"""Model to ticks of one turn."""

MODEL_NUMBER_TABLE: Final[Mapping[str, int]] = MappingProxyType(
    {"sts3215": 777, "sts3250": 2825, "sm8512bl": 11272, "scs0009": 1284}
)
"""Model to the number it reports; families have none."""

BAUDRATE_TABLE: Final[Mapping[int, int]] = MappingProxyType(
    {1_000_000: 0, 500_000: 1, 250_000: 2, 128_000: 3, 115_200: 4, 57_600: 5, 38_400: 6, 19_200: 7}
)
"""Baud rate to its code; the same for every model."""

SCAN_BAUDRATES: Final = (4800, 9600, 14400, 19200, 38400, 57600, 115_200, 128_000, 250_000, 500_000, 1_000_000)
"""Baud rates tried by a scan."""
