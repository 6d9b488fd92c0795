# SPDX-License-Identifier: Apache-2.0
"""The dataset in memory, and loading in other processes: the same samples as from disk, in the same order."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from ulna.core.errors import ConfigError
from ulna.core.factories import make_policy_config
from ulna.data import LeRobotDataset
from ulna.training import (
    DatasetConfig,
    EpisodeAwareSampler,
    InMemoryDataset,
    RankBatches,
    TrainPipelineConfig,
    keep_in_memory,
)
from ulna.training.datasets import open_training_data
from ulna.training.loading import batch_stream, ordered_batches, pictures_as_float

WINDOWS = {"observation.state": [-0.2, 0.0], "action": [i / 10 for i in range(-3, 9)]}


def _open(root: Path, episodes: list[int] | None = None, windows: Any = None) -> LeRobotDataset:
    return LeRobotDataset("corpus/x", root, episodes, delta_timestamps=windows, return_uint8=True)


@pytest.mark.parametrize("episodes", [None, [1], [0, 2]])
@pytest.mark.parametrize("case", ["dataset_env/dataset", "images_dataset"])
def test_same_samples_as_from_disk(case: str, episodes: list[int] | None, golden: Path) -> None:
    """Batches with windows, padding masks, pictures and texts equal those of the dataset itself."""
    root = golden / case
    plain = _open(root, episodes)
    camera = plain.meta.camera_keys[:1]
    wanted = {**WINDOWS, **{key: [-0.1, 0.0] for key in camera}}
    windows = {key: [round(s * 10) / plain.fps for s in seconds] for key, seconds in wanted.items()}
    disk = _open(root, episodes, windows)
    memory = keep_in_memory(plain, windows, limit_bytes=10**9)
    assert len(memory) == len(disk)
    positions = [0, len(disk) - 1, len(disk) // 2, 3]
    want, found = default_collate([disk[p] for p in positions]), memory.batch(positions)
    assert found.keys() == want.keys()
    for key, value in want.items():
        if isinstance(value, torch.Tensor):
            assert found[key].dtype == value.dtype, key
            assert torch.equal(found[key], value), key
        else:
            assert found[key] == list(value)
    one = memory[-1]
    assert torch.equal(one["action"], disk[len(disk) - 1]["action"])
    with pytest.raises(IndexError):
        memory[len(memory)]


def test_too_large_is_refused_before_decoding(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset over the limit is refused with the memory it needs, and nothing is read."""
    plain = _open(golden / "images_dataset")
    monkeypatch.setattr(LeRobotDataset, "__getitem__", lambda *_: pytest.fail("read a frame"))
    monkeypatch.setattr(LeRobotDataset, "__getitems__", lambda *_: pytest.fail("read frames"))
    with pytest.raises(ConfigError, match=r"need \d+\.\d\d GB.*cache_limit_gb"):
        keep_in_memory(plain, None, limit_bytes=1000)


def test_frames_are_kept_on_disk(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: None) -> None:
    """`cache=disk` gives the same batches, and the second pass decodes nothing."""
    monkeypatch.setenv("ULNA_HOME", str(tmp_path))
    root = golden / "images_dataset"
    plain = _open(root)
    policy = make_policy_config("act", n_action_steps=2, chunk_size=2)
    wanted = DatasetConfig(repo_id="corpus/x", root=root, cache="disk", cache_limit_gb=0.1)
    dataset = open_training_data(TrainPipelineConfig(dataset=wanted, policy=policy)).train
    camera = plain.meta.camera_keys[0]
    for _ in range(2):
        for position in (0, 5, 5):
            assert torch.equal(dataset[position][camera], plain[position][camera])
    assert isinstance(dataset, LeRobotDataset)
    assert dataset.frame_cache is not None
    assert dataset.frame_cache.count() == 2 * len(plain.meta.camera_keys)


def test_memory_is_counted(golden: Path) -> None:
    """Pictures stay uint8: the estimate, which is checked against the limit, is what is really taken."""
    plain = _open(golden / "images_dataset")
    memory = keep_in_memory(plain, None, limit_bytes=10**9)
    pictures = sum(memory.batch([0])[key].numel() for key in plain.meta.camera_keys)
    assert len(memory) * pictures < memory.nbytes < len(memory) * (pictures + 200)


@settings(deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.lists(st.integers(-9, 9), min_size=1, max_size=5))
def test_windows_stay_inside_their_episode(lengths: list[int], offsets: list[int]) -> None:
    """Every entry of a window is a frame of the same episode, and the mask tells exactly those moved there."""
    ends = torch.tensor([0, *lengths]).cumsum(0).tolist()
    frames = torch.arange(ends[-1])
    spans = list(pairwise(ends))
    data = InMemoryDataset({"frame": frames, "now": frames}, spans, None, {"frame": offsets})
    batch = data.batch(frames.tolist())
    for now, window, mask in zip(batch["now"], batch["frame"], batch["frame_is_pad"], strict=True):
        start, stop = next(s for s in spans if s[0] <= now < s[1])
        for offset, value, padded in zip(offsets, window, mask, strict=True):
            wanted = int(now) + offset
            assert int(value) == min(max(wanted, start), stop - 1)
            assert bool(padded) == (not start <= wanted < stop)


def test_columns_must_fit() -> None:
    """Columns of other lengths, or episodes with gaps, are refused."""
    for spans in ([(0, 2)], [(0, 1), (2, 3)]):
        with pytest.raises(ValueError, match="episode"):
            InMemoryDataset({"a": torch.zeros(3)}, spans, None)


@pytest.mark.slow
def test_reading_in_other_processes_changes_nothing(golden: Path) -> None:
    """With and without reading processes the same batches come in order, and no global generator is touched."""
    dataset = _open(golden / "images_dataset")
    sampler = EpisodeAwareSampler([0], [len(dataset)], shuffle=True, seed=1)
    found = []
    for workers in (0, 1):
        config = TrainPipelineConfig(
            dataset=DatasetConfig(repo_id="x/y"),
            num_workers=workers,
            prefetch_factor=2,
            dataloader_multiprocessing_context="forkserver",
        )
        state = torch.get_rng_state()
        stream = batch_stream(dataset, RankBatches(sampler, 4), config)
        found.append([next(stream) for _ in range(3)])
        assert torch.equal(torch.get_rng_state(), state)
        del stream
    for here, there in zip(*found, strict=True):
        assert all(torch.equal(here[k], there[k]) for k in here if isinstance(here[k], torch.Tensor))


def test_ordered_batches(helpers: SimpleNamespace) -> None:
    """An evaluation sees its samples once, in order, from memory and from items."""
    data = helpers.copy_data(10)
    items = [data[i] for i in range(10)]
    for source in (data, items):
        batches = list(ordered_batches(source, range(3, 10), 3))
        assert [batch["index"].tolist() for batch in batches] == [[3, 4, 5], [6, 7, 8], [9]]


def test_pictures_become_float() -> None:
    """uint8 pictures become float32 in [0, 1]; what is float already stays; the batch itself is not changed."""
    batch = {"cam": torch.tensor([0, 255], dtype=torch.uint8), "far": torch.tensor([0.5]), "n": torch.tensor([7])}
    found = pictures_as_float(batch, ["cam", "far", "none"], "cpu")
    assert found["cam"].tolist() == [0.0, 1.0]
    assert found["far"] is batch["far"]
    assert batch["cam"].dtype == torch.uint8


def test_random_changes_reach_what_is_learnt_from_only(golden: Path, helpers: SimpleNamespace) -> None:
    """With image_transforms pictures of the training data are changed, those of held-out episodes are not."""
    root = golden / "images_dataset"
    dataset = DatasetConfig(
        repo_id="corpus/x",
        root=root,
        eval_split=0.5,
        image_transforms={
            "enable": True,
            "tfs": {"dark": {"type": "GammaCorrection", "kwargs": {"gamma": [2.0, 2.0]}}},
        },
    )
    data = open_training_data(TrainPipelineConfig(dataset=dataset, policy=helpers.CopyConfig(device="cpu")))
    plain = _open(root)
    key = plain.meta.camera_keys[0]
    train, held = data.train, data.held_out
    assert held is not None
    first = plain[int(train[0]["index"])][key].float() / 255
    assert torch.equal(train[0][key], (first**2 * 255).round().to(torch.uint8))
    assert torch.equal(held[0][key], plain[int(held[0]["index"])][key])
