# SPDX-License-Identifier: Apache-2.0
"""Depth maps while training: in the unit that is asked for, never with the statistics of colour pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ulna.data import LeRobotDataset, RGBEncoderConfig
from ulna.training import DatasetConfig, InMemoryDataset, TrainPipelineConfig, training_stats
from ulna.training.datasets import IMAGENET_MEAN, open_training_data

DEPTH, COLOUR, STATE = "observation.images.depth", "observation.images.front", "observation.state"
LENGTHS = (3, 4, 2, 3)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four episodes of one depth and one colour camera; the map of every frame is flat and tells its place."""
    root = tmp_path_factory.mktemp("depth") / "set"
    names = ["height", "width", "channels"]
    features: dict[str, dict[str, Any]] = {
        STATE: {"dtype": "float32", "shape": (3,), "names": None},
        "action": {"dtype": "float32", "shape": (3,), "names": None},
        DEPTH: {"dtype": "video", "shape": (16, 16, 1), "names": names, "info": {"is_depth_map": True}},
        COLOUR: {"dtype": "image", "shape": (16, 16, 3), "names": names},
    }
    with LeRobotDataset.create("lab/depth", 10, features, root, rgb_encoder=RGBEncoderConfig(vcodec="h264")) as data:
        for episode, length in enumerate(LENGTHS):
            for frame in range(length):
                values = np.full(3, episode + 0.1 * frame, np.float32)
                flat = np.full((16, 16, 1), 1.0 + 0.1 * frame, np.float32)
                picture = np.full((16, 16, 3), 10 * episode, np.uint8)
                data.add_frame({STATE: values, "action": values, DEPTH: flat, COLOUR: picture, "task": "measure"})
            data.save_episode()
    return root


def settings(make: Callable[..., TrainPipelineConfig], root: Path, **dataset: Any) -> TrainPipelineConfig:
    return make(dataset=DatasetConfig(repo_id="lab/depth", root=root, **dataset))


@pytest.mark.parametrize("cache", ["none", "ram", "disk"])
@pytest.mark.parametrize("eval_split", [0.0, 0.5])
@pytest.mark.parametrize(("unit", "scale"), [("mm", 1000.0), ("m", 1.0)])
def test_the_asked_unit_holds_everywhere(
    toy_config: Callable[..., TrainPipelineConfig],
    recorded: Path,
    cache: str,
    eval_split: float,
    unit: str,
    scale: float,
) -> None:
    """Values and statistics are in the asked unit, with held-out episodes and without, from files and from memory."""
    config = settings(toy_config, recorded, cache=cache, eval_split=eval_split, depth_output_unit=unit)
    data = open_training_data(config)
    parts = [data.train] if data.held_out is None else [data.train, data.held_out]
    assert len(parts) == (2 if eval_split else 1)
    for part in parts:
        for position in range(len(part)):
            sample = part[position]
            frame = int(sample["frame_index"])
            assert sample[DEPTH].dtype == torch.float32
            np.testing.assert_allclose(sample[DEPTH].numpy(), scale * (1.0 + 0.1 * frame), rtol=1e-3)
            assert sample[COLOUR].dtype == torch.uint8
        stats = training_stats(part.meta, use_imagenet=True, rename_map={})
        frames = [1.0 + 0.1 * frame for length in LENGTHS for frame in range(length)]
        assert stats[DEPTH]["mean"].shape == (1, 1, 1)
        assert stats[DEPTH]["mean"].item() == pytest.approx(scale * np.mean(frames), rel=1e-6)
        assert stats[DEPTH]["max"].item() == pytest.approx(scale * 1.3, rel=1e-6)
        np.testing.assert_allclose(stats[COLOUR]["mean"].ravel(), IMAGENET_MEAN)


def test_memory_counts_four_bytes_for_every_distance(
    toy_config: Callable[..., TrainPipelineConfig], recorded: Path
) -> None:
    from ulna.training.memory import _frame_bytes

    kept = open_training_data(settings(toy_config, recorded, cache="ram")).train
    assert isinstance(kept, InMemoryDataset)
    needed = len(kept) * _frame_bytes(kept.meta.features, kept.meta.depth_keys)
    assert needed == pytest.approx(kept.nbytes, rel=0.05)
