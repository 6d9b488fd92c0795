# SPDX-License-Identifier: Apache-2.0
"""The register tables equal the published ones, name by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ulna.motors.feetech import FeetechMotorsBus, tables

FACTS = json.loads((Path(__file__).parent / "golden" / "motors_feetech.json").read_text())


@pytest.mark.parametrize("model", list(tables.MODEL_PROTOCOL))
def test_registers_of_each_model(model: str) -> None:
    """Every register lies where it should and carries its sign where it should."""
    table = FeetechMotorsBus.model_ctrl_table[model]
    assert {name: [r.address, r.width] for name, r in table.items()} == FACTS["MODEL_CONTROL_TABLE"][model]
    signs = {name: r.sign_bit for name, r in table.items() if r.sign_bit is not None}
    assert signs == {n: b for n, b in FACTS["MODEL_ENCODING_TABLE"][model].items() if n in table}


def test_models_and_speeds() -> None:
    """Numbers, protocols, resolutions and baud codes are the published ones."""
    assert dict(tables.MODEL_NUMBER_TABLE) == FACTS["MODEL_NUMBER_TABLE"]
    assert dict(tables.MODEL_PROTOCOL) == FACTS["MODEL_PROTOCOL"]
    assert dict(tables.MODEL_RESOLUTION) == FACTS["MODEL_RESOLUTION"]
    assert list(tables.SCAN_BAUDRATES) == FACTS["SCAN_BAUDRATES"]
    for model, codes in FACTS["MODEL_BAUDRATE_TABLE"].items():
        assert {str(k): v for k, v in FeetechMotorsBus.model_baudrate_table[model].items()} == codes
    assert sorted(FeetechMotorsBus.normalized_data) == sorted(FACTS["NORMALIZED_DATA"])
