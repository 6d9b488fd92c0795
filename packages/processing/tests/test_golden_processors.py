# SPDX-License-Identifier: Apache-2.0
"""Every pipeline that LeRobot 0.6.1 saved loads here and gives the same outputs; saved again, it is the same file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ulna.core.errors import ProcessorError
from ulna.core.features import PipelineFeatureType, PolicyFeature
from ulna.core.pipeline import DataProcessorPipeline
from ulna.core.transitions import create_transition
from ulna.core.types import EnvTransition

GOLDEN = Path(__file__).parent / "golden"
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32, "float64": torch.float64}


def _value(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, dict):
        if "$tensor" in value:
            tensor = tensors[value["$tensor"]]
            return tensor.to(DTYPES[value["dtype"]]) if value["dtype"] in DTYPES else tensor
        if "$array" in value:
            return tensors[value["$array"]].numpy().astype(value["dtype"])
        return {k: _value(v, tensors) for k, v in value.items()}
    return [_value(v, tensors) for v in value] if isinstance(value, list) else value


def calls(case: str) -> list[dict[str, Any]]:
    """The recorded calls of a case, arrays in place."""
    folder = GOLDEN / case
    info = json.loads((folder / "golden.json").read_text())
    path = folder / "golden.safetensors"
    tensors = load_file(path) if path.exists() else {}
    return [{k: _value(v, tensors) if k in ("in", "out") else v for k, v in call.items()} for call in info["calls"]]


def info(case: str) -> dict[str, Any]:
    """The facts of a case."""
    found: dict[str, Any] = json.loads((GOLDEN / case / "golden.json").read_text())
    return found


def as_transition(recorded: dict[str, Any]) -> EnvTransition:
    """A recorded transition with enum keys."""
    return create_transition(**recorded)


def assert_same(got: Any, want: Any, where: str, tolerance: float = 1e-6) -> None:
    """Equal structure, dtype and values within the tolerance, relative to the largest value."""
    if isinstance(want, dict):
        assert isinstance(got, dict), f"{where}: {type(got)}"
        assert {str(getattr(k, "value", k)) for k in got} == set(want), where
        by_name = {str(getattr(k, "value", k)): v for k, v in got.items()}
        for key, value in want.items():
            assert_same(by_name[key], value, f"{where}/{key}", tolerance)
    elif isinstance(want, torch.Tensor):
        assert isinstance(got, torch.Tensor), f"{where}: {type(got)}"
        assert (got.dtype, got.shape) == (want.dtype, want.shape), where
        scale = max(1.0, float(want.double().abs().max()) if want.numel() else 1.0)
        assert torch.allclose(got.double(), want.double(), rtol=0, atol=tolerance * scale, equal_nan=True), where
    elif isinstance(want, np.ndarray):
        assert isinstance(got, np.ndarray), where
        assert got.shape == want.shape, where
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)
    else:
        assert got == want, f"{where}: {got!r} != {want!r}"


CASES = sorted(p.parent.name for p in GOLDEN.glob("*/golden.json"))
FORGOTTEN = {"torch2numpy_action_processor_keep": {"torch2numpy_action_processor": {"squeeze_batch_dim": False}}}
"""Options that LeRobot 0.6.1 leaves out of the files it saves."""


def load(folder: Path) -> DataProcessorPipeline[EnvTransition, EnvTransition]:
    return DataProcessorPipeline.from_pretrained(
        folder,
        config_filename="processor.json",
        overrides=FORGOTTEN.get(folder.name, {}),
        to_transition=lambda t: t,
        to_output=lambda t: t,
    )


def linked(pipeline: DataProcessorPipeline[Any, Any]) -> DataProcessorPipeline[Any, Any]:
    for step in pipeline.steps:
        if hasattr(step, "link"):
            step.link(pipeline.steps)
    return pipeline


@pytest.mark.parametrize("case", CASES)
def test_outputs_equal(case: str) -> None:
    pipeline = linked(load(GOLDEN / case))
    for number, call in enumerate(calls(case)):
        if call["reset_before"]:
            pipeline.reset()
        if "raises" in call:
            with pytest.raises(ProcessorError):
                pipeline(as_transition(call["in"]))
            continue
        assert_same(pipeline(as_transition(call["in"])), call["out"], f"{case}[{number}]")


@pytest.mark.parametrize("case", CASES)
def test_saved_form_equal(case: str, tmp_path: Path) -> None:
    pipeline = load(GOLDEN / case)
    pipeline.save_pretrained(tmp_path, config_filename="processor.json")
    ours = json.loads((tmp_path / "processor.json").read_text())
    theirs = json.loads((GOLDEN / case / "processor.json").read_text())
    for mine, their in zip(ours["steps"], theirs["steps"], strict=True):
        assert mine["registry_name"] == their["registry_name"]
        assert their["config"].items() <= mine["config"].items()
        assert mine.get("state_file") == their.get("state_file")
    again = linked(load(tmp_path))
    for call in calls(case):
        if call["reset_before"]:
            again.reset()
        if "out" in call:
            assert_same(again(as_transition(call["in"])), call["out"], case)


@pytest.mark.parametrize("case", [c for c in CASES if "features_in" in info(c)])
def test_features_equal(case: str) -> None:
    recorded = info(case)

    def side(features: dict[str, Any]) -> dict[PipelineFeatureType, dict[str, PolicyFeature]]:
        return {PipelineFeatureType(s): {k: PolicyFeature(**f) for k, f in fs.items()} for s, fs in features.items()}

    given = side(recorded["features_in"])
    before = side(recorded["features_in"])
    assert load(GOLDEN / case).transform_features(given) == side(recorded["features_out"])
    assert given == before
