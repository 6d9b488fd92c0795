# SPDX-License-Identifier: Apache-2.0
"""Register maps and factory values of the simulated Feetech models, as data. No behaviour lives here.

Addresses are those of the vendor's memory tables; the spelling of the names (a trailing space included) is the one used
by existing drivers. Mechanical figures (speed, torque, current) are rounded from data sheets and only plausible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = [
    "BAUD_CODES",
    "EEPROM_END",
    "FACTORY_START",
    "MODELS",
    "SCS_REGISTERS",
    "STS_REGISTERS",
    "STS_SIGN_BITS",
    "ModelSpec",
]

STS_REGISTERS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
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
        "Present_Position": (56, 2),
        "Present_Velocity": (58, 2),
        "Present_Load": (60, 2),
        "Present_Voltage": (62, 1),
        "Present_Temperature": (63, 1),
        "Status": (65, 1),
        "Moving": (66, 1),
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
)

SCS_REGISTERS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
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
        "Protective_Torque": (37, 1),
        "Protection_Time": (38, 1),
        "Torque_Enable": (40, 1),
        "Acceleration": (41, 1),
        "Goal_Position": (42, 2),
        "Running_Time": (44, 2),
        "Goal_Velocity": (46, 2),
        "Lock": (48, 1),
        "Present_Position": (56, 2),
        "Present_Velocity": (58, 2),
        "Present_Load": (60, 2),
        "Present_Voltage": (62, 1),
        "Present_Temperature": (63, 1),
        "Sync_Write_Flag": (64, 1),
        "Status": (65, 1),
        "Moving": (66, 1),
        "PWM_Maximum_Step": (78, 1),
        "Moving_Velocity_Threshold*50": (79, 1),
        "DTs": (80, 1),
        "Minimum_Velocity_Limit*50": (81, 1),
        "Maximum_Velocity_Limit*50": (82, 1),
        "Acceleration_2": (83, 1),
    }
)

STS_SIGN_BITS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "Present_Load": 10,
        "Homing_Offset": 11,
        "Goal_Position": 15,
        "Goal_Velocity": 15,
        "Present_Position": 15,
        "Present_Velocity": 15,
        "Goal_Time": 10,
    }
)
"""Bit that carries the sign of a sign-magnitude register (`Goal_Time` holds the duty cycle in PWM mode)."""

BAUD_CODES: Final[Mapping[int, int]] = MappingProxyType(
    {1_000_000: 0, 500_000: 1, 250_000: 2, 128_000: 3, 115_200: 4, 57_600: 5, 38_400: 6, 19_200: 7}
)
"""Baud rate to the code held by the `Baud_Rate` register; the same for both families."""

EEPROM_END: Final = 40
"""Registers below this address survive a power cycle (when they were written with Lock = 0)."""

FACTORY_START: Final = 78
"""Registers from this address on are factory settings, kept like EEPROM."""

_STS_FACTORY: Final[Mapping[str, int]] = MappingProxyType(
    {
        "Return_Delay_Time": 250,
        "Response_Status_Level": 1,
        "Max_Temperature_Limit": 70,
        "Max_Voltage_Limit": 140,
        "Min_Voltage_Limit": 40,
        "Max_Torque_Limit": 1000,
        "Phase": 0x0C,
        "Unloading_Condition": 0x2C,
        "LED_Alarm_Condition": 0x2F,
        "P_Coefficient": 32,
        "D_Coefficient": 32,
        "I_Coefficient": 0,
        "Minimum_Startup_Force": 16,
        "CW_Dead_Zone": 1,
        "CCW_Dead_Zone": 1,
        "Protection_Current": 500,
        "Angular_Resolution": 1,
        "Protective_Torque": 20,
        "Protection_Time": 200,
        "Overload_Torque": 80,
        "Velocity_closed_loop_P_proportional_coefficient": 10,
        "Over_Current_Protection_Time": 200,
        "Velocity_closed_loop_I_integral_coefficient": 10,
        "Moving_Velocity_Threshold": 10,
        "DTs": 10,
        "Velocity_Unit_factor": 1,
        "Maximum_Acceleration": 100,
        "Acceleration_Multiplier ": 1,
    }
)

_SCS_FACTORY: Final[Mapping[str, int]] = MappingProxyType(
    {
        "Return_Delay_Time": 250,
        "Response_Status_Level": 1,
        "Max_Temperature_Limit": 80,
        "Max_Voltage_Limit": 80,
        "Min_Voltage_Limit": 40,
        "Max_Torque_Limit": 1000,
        "Phase": 0x0C,
        "Unloading_Condition": 0x24,
        "LED_Alarm_Condition": 0x25,
        "P_Coefficient": 15,
        "D_Coefficient": 15,
        "Minimum_Startup_Force": 16,
        "CW_Dead_Zone": 1,
        "CCW_Dead_Zone": 1,
        "Protective_Torque": 20,
        "Protection_Time": 200,
        "DTs": 10,
    }
)


@dataclass(frozen=True)
class ModelSpec:
    """What distinguishes one servo model.

    Attributes:
        name: Model name as drivers spell it.
        number: Value of the `Model_Number` register.
        protocol: 0 (STS/SMS, little endian) or 1 (SCS, big endian in each word).
        resolution: Positions of the encoder's range.
        turn_deg: Degrees that the range spans.
        registers: Register name to (address, bytes).
        sign_bits: Register name to sign bit.
        factory: Register values as delivered (ID, baud, limits and model are set elsewhere).
        max_speed: Free speed in ticks per second.
        stall_current: Current at stall in units of 6.5 mA.
        supply_v: Usual supply voltage.
    """

    name: str
    number: int
    protocol: int
    resolution: int
    turn_deg: float
    registers: Mapping[str, tuple[int, int]]
    sign_bits: Mapping[str, int]
    factory: Mapping[str, int]
    max_speed: float
    stall_current: float
    supply_v: float


def _sts(name: str, number: int, max_speed: float, stall_current: float, supply_v: float) -> ModelSpec:
    return ModelSpec(
        name, number, 0, 4096, 360.0, STS_REGISTERS, STS_SIGN_BITS, _STS_FACTORY, max_speed, stall_current, supply_v
    )


MODELS: Final[Mapping[str, ModelSpec]] = MappingProxyType(
    {
        "sts3215": _sts("sts3215", 777, 3400.0, 400.0, 7.4),
        "sts3250": _sts("sts3250", 2825, 5100.0, 480.0, 12.0),
        "sm8512bl": _sts("sm8512bl", 11272, 3600.0, 490.0, 12.0),
        "scs0009": ModelSpec(
            "scs0009", 1284, 1, 1024, 300.0, SCS_REGISTERS, MappingProxyType({}), _SCS_FACTORY, 2000.0, 150.0, 6.0
        ),
    }
)
"""The models that can be simulated, by name."""
