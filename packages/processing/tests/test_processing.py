# SPDX-License-Identifier: Apache-2.0
"""What the golden cases do not show: round trips, refusals, custom keys, and that inputs are left alone."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.core.errors import ProcessorError
from ulna.core.features import FeatureType, NormalizationMode, PolicyFeature
from ulna.core.pipeline import DataProcessorPipeline
from ulna.core.transitions import create_transition
from ulna.core.types import TransitionKey
from ulna.processing.batch import AddBatchDimensionProcessorStep
from ulna.processing.device import DeviceProcessorStep
from ulna.processing.gym_action import Torch2NumpyActionProcessorStep
from ulna.processing.normalize import NormalizerProcessorStep, UnnormalizerProcessorStep, check_stats
from ulna.processing.rename import RenameObservationsProcessorStep

ACTION = {"action": PolicyFeature(FeatureType.ACTION, (3,))}
STATS = {
    "action": {
        "mean": [0.0, 1.0, -5.0],
        "std": [1.0, 2.0, 0.5],
        "min": [-1.0, -2.0, -9.0],
        "max": [1.0, 4.0, 0.0],
        "q01": [-0.9, -1.9, -8.0],
        "q99": [0.9, 3.0, -1.0],
        "q10": [-0.5, -1.0, -7.0],
        "q90": [0.5, 2.0, -2.0],
    }
}


@settings(deadline=None)
@given(
    st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3),
    st.sampled_from(list(NormalizationMode)),
)
def test_unnormalize_takes_normalize_back(values: list[float], mode: NormalizationMode) -> None:
    forward = NormalizerProcessorStep(ACTION, {FeatureType.ACTION: mode}, STATS)
    back = UnnormalizerProcessorStep(ACTION, {FeatureType.ACTION: mode}, STATS)
    action = torch.tensor(values, dtype=torch.float64)
    result = back(forward(create_transition(action=action)))[TransitionKey.ACTION]
    assert torch.allclose(result, action, atol=1e-5)


@pytest.mark.parametrize("mode", [NormalizationMode.MEAN_STD, NormalizationMode.MIN_MAX])
def test_a_constant_dimension_gives_finite_values_and_one_warning(
    mode: NormalizationMode, caplog: pytest.LogCaptureFixture
) -> None:
    stats = {"action": {"mean": [2.0], "std": [0.0], "min": [2.0], "max": [2.0]}}
    feature = {"action": PolicyFeature(FeatureType.ACTION, (1,))}
    with caplog.at_level(logging.WARNING):
        step = NormalizerProcessorStep(feature, {FeatureType.ACTION: mode}, stats)
        for _ in range(3):
            out = step(create_transition(action=torch.tensor([2.0])))[TransitionKey.ACTION]
        UnnormalizerProcessorStep(feature, {FeatureType.ACTION: mode}, stats)
    assert torch.isfinite(out).all()
    assert [r.getMessage() for r in caplog.records] == [
        "action never changes in dimension(s) [0]; they carry no information."
    ]


def test_missing_statistics_are_found_before_training_with_the_nearest_key() -> None:
    features = {"observation.images.front": PolicyFeature(FeatureType.VISUAL, (3, 8, 8))}
    stats = {"observation.images.front_cam": {"mean": [0.0], "std": [1.0]}}
    with pytest.raises(ProcessorError, match=r"observation.images.front: no statistics \(nearest key: .*front_cam\)"):
        check_stats(features, {FeatureType.VISUAL: NormalizationMode.MEAN_STD}, stats)


def test_custom_keys_of_a_batch_survive() -> None:
    pipeline: DataProcessorPipeline[dict, dict] = DataProcessorPipeline(
        [RenameObservationsProcessorStep({"observation.a": "observation.b"}), AddBatchDimensionProcessorStep()]
    )
    batch = {
        "observation.a": torch.zeros(2),
        "observation.a_is_pad": torch.zeros(2),
        "frame_index": 7,
        "my.key": "kept",
    }
    out = pipeline(batch)
    assert (out["frame_index"], out["my.key"]) == (7, "kept")
    assert {"observation.b", "observation.b_is_pad"} <= out.keys()
    assert "observation.a" not in out


def test_steps_leave_their_input_alone() -> None:
    pipeline: DataProcessorPipeline[dict, dict] = DataProcessorPipeline(
        [
            RenameObservationsProcessorStep({"observation.state": "observation.s"}),
            AddBatchDimensionProcessorStep(),
            DeviceProcessorStep(float_dtype="float64"),
            NormalizerProcessorStep(ACTION, {FeatureType.ACTION: NormalizationMode.MIN_MAX}, STATS),
        ]
    )
    batch = {"observation.state": torch.ones(3), "action": torch.ones(3), "task": "pick"}
    before = copy.deepcopy(batch)
    pipeline(batch)
    assert batch.keys() == before.keys()
    assert all(torch.equal(batch[k], before[k]) for k in ("observation.state", "action"))


def test_options_survive_saving(tmp_path: Path) -> None:
    step = Torch2NumpyActionProcessorStep(squeeze_batch_dim=False)
    DataProcessorPipeline([step], "gym").save_pretrained(tmp_path)
    again = DataProcessorPipeline.from_pretrained(tmp_path, config_filename="gym.json").steps[0]
    assert isinstance(again, Torch2NumpyActionProcessorStep)
    assert again.squeeze_batch_dim is False


def test_a_file_cannot_name_code_to_import(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"name": "p", "steps": [{"class": "os.system", "config": {}}]}')
    with pytest.raises(ProcessorError, match="not imported"):
        DataProcessorPipeline.from_pretrained(tmp_path, config_filename="p.json")


def test_an_unknown_step_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(
        '{"name": "p", "steps": [{"registry_name": "normaliser_processor", "config": {}}]}'
    )
    with pytest.raises(ProcessorError, match="nearest is 'normalizer_processor'"):
        DataProcessorPipeline.from_pretrained(tmp_path, config_filename="p.json")


@pytest.mark.parametrize("bad", ["/etc/passwd", "../x.safetensors", "C:\\x"])
def test_state_outside_the_folder_is_refused(tmp_path: Path, bad: str) -> None:
    entry = json.dumps({"registry_name": "device_processor", "config": {}, "state_file": bad})
    (tmp_path / "p.json").write_text(f'{{"name": "p", "steps": [{entry}]}}')
    with pytest.raises(ProcessorError, match="must lie inside"):
        DataProcessorPipeline.from_pretrained(tmp_path, config_filename="p.json")


def test_unused_overrides_are_refused(tmp_path: Path) -> None:
    DataProcessorPipeline([DeviceProcessorStep()], "p").save_pretrained(tmp_path)
    with pytest.raises(ProcessorError, match="rename_observations_processor"):
        DataProcessorPipeline.from_pretrained(
            tmp_path, config_filename="p.json", overrides={"rename_observations_processor": {"rename_map": {}}}
        )


def test_stats_given_as_override_win_over_saved_ones(tmp_path: Path) -> None:
    norm = {FeatureType.ACTION: NormalizationMode.MEAN_STD}
    DataProcessorPipeline([NormalizerProcessorStep(ACTION, norm, STATS)], "p").save_pretrained(tmp_path)
    new = {"action": {"mean": [9.0] * 3, "std": [1.0] * 3}}
    overrides = {"normalizer_processor": {"stats": new}}
    step = DataProcessorPipeline.from_pretrained(tmp_path, config_filename="p.json", overrides=overrides).steps[0]
    assert isinstance(step, NormalizerProcessorStep)
    assert step.stats["action"]["mean"].tolist() == [9.0] * 3
