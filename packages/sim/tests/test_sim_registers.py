# SPDX-License-Identifier: Apache-2.0
"""Register files: equal to the published control tables, with EEPROM, lock, signs and byte order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.core.errors import ConfigError
from ulna.sim.feetech import BAUD_CODES, MODELS, MULTI_TURN_BIT, SimFeetechServo

FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "motors_feetech.json").read_text())


@pytest.mark.parametrize("model", sorted(MODELS))
def test_tables_equal_the_facts(model: str) -> None:
    spec = MODELS[model]
    assert {name: list(where) for name, where in spec.registers.items()} == FACTS["MODEL_CONTROL_TABLE"][model]
    assert spec.number == FACTS["MODEL_NUMBER_TABLE"][model]
    assert spec.protocol == FACTS["MODEL_PROTOCOL"][model]
    assert spec.resolution == FACTS["MODEL_RESOLUTION"][model]
    assert {str(baud): code for baud, code in BAUD_CODES.items()} == FACTS["MODEL_BAUDRATE_TABLE"][model]
    known = {name: bit for name, bit in FACTS["MODEL_ENCODING_TABLE"][model].items() if name in spec.registers}
    assert known.items() <= spec.sign_bits.items()


def test_every_model_of_the_facts_is_there() -> None:
    assert set(MODELS) == set(FACTS["MODEL_NUMBER_TABLE"])


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_register_can_be_read_by_name_and_address(model: str) -> None:
    servo = SimFeetechServo(7, model)
    for name, (address, width) in servo.spec.registers.items():
        data = servo.read(address, width)
        raw = int.from_bytes(data, "big") if servo.spec.protocol else int.from_bytes(data, "little")
        if name not in servo.spec.sign_bits:
            assert servo.get(name) == raw, name
    assert servo.get("ID") == 7
    assert servo.get("Model_Number") == servo.spec.number
    assert servo.get("Lock") == 1
    assert servo.get("Present_Position") == servo.spec.resolution // 2


@settings(deadline=None)
@given(st.integers(-2047, 2047))
def test_homing_offset_is_sign_magnitude_in_bit_11(offset: int) -> None:
    servo = SimFeetechServo(1)
    servo.set("Homing_Offset", offset)
    raw = int.from_bytes(servo.read(31, 2), "little")
    assert raw == (offset if offset >= 0 else -offset | 1 << 11)
    assert servo.get("Homing_Offset") == offset


@pytest.mark.parametrize("offset", [2048, -2048])
def test_homing_offset_out_of_range_is_refused(offset: int) -> None:
    with pytest.raises(ConfigError, match=r"-2047\.\.2047"):
        SimFeetechServo(1).set("Homing_Offset", offset)


def test_scs_words_are_big_endian() -> None:
    servo = SimFeetechServo(1, "scs0009")
    servo.write(42, b"\x01\x2c")
    assert servo.get("Goal_Position") == 300
    assert servo.read(3, 2) == b"\x05\x04"


def test_locked_eeprom_acts_at_once_but_does_not_last() -> None:
    servo = SimFeetechServo(1)
    servo.set("Min_Position_Limit", 500)
    servo.set("ID", 9)
    assert (servo.get("Min_Position_Limit"), servo.id) == (500, 9)
    servo.power_cycle()
    assert (servo.get("Min_Position_Limit"), servo.id) == (0, 1)


def test_unlocked_eeprom_lasts_and_ram_does_not() -> None:
    servo = SimFeetechServo(1)
    servo.set("Lock", 0)
    servo.set("Homing_Offset", -321)
    servo.set("Maximum_Acceleration", 254)
    servo.set("Acceleration", 77)
    servo.set("Torque_Enable", 1)
    servo.power_cycle()
    assert servo.get("Homing_Offset") == -321
    assert servo.get("Maximum_Acceleration") == 254
    assert servo.get("Acceleration") == 0
    assert not servo.torque_enabled
    assert servo.get("Lock") == 1


def test_scs_lock_is_at_its_own_address() -> None:
    servo = SimFeetechServo(1, "scs0009")
    servo.write(48, b"\0")
    servo.write(5, b"\x08")
    servo.power_cycle()
    assert servo.id == 8


def test_read_only_registers_keep_their_value() -> None:
    servo = SimFeetechServo(1)
    servo.write(0, bytes(5))
    servo.write(56, b"\x34\x12")
    assert servo.get("Firmware_Major_Version") == 3
    assert servo.get("Model_Number") == 777
    assert servo.get("Present_Position") == 2048


def test_torque_limit_follows_the_eeprom_limit_at_power_up() -> None:
    servo = SimFeetechServo(1)
    servo.preset("Max_Torque_Limit", 500)
    servo.power_cycle()
    assert servo.get("Torque_Limit") == 500


def test_baud_register_sets_the_speed() -> None:
    servo = SimFeetechServo(1, baud=115_200)
    assert servo.baud == 115_200
    servo.set("Baud_Rate", BAUD_CODES[500_000])
    assert servo.baud == 500_000


def test_multi_turn_bit_is_delivered_on_request() -> None:
    assert SimFeetechServo(1).get("Phase") & MULTI_TURN_BIT == 0
    assert SimFeetechServo(1, multi_turn=True).get("Phase") & MULTI_TURN_BIT


def test_wrong_settings_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        SimFeetechServo(300, "sts3251", baud=12)
    assert [problem.path for problem in caught.value.problems] == ["model", "id", "baud"]
    assert caught.value.problems[0].suggestion == "sts3250"


def test_unknown_register_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Goal_Position"):
        SimFeetechServo(1).get("Goal_Positon")
