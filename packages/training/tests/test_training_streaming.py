# SPDX-License-Identifier: Apache-2.0
"""Training on streams and on several datasets: it learns, and a run resumes exactly where it was."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from ulna.core.errors import FeatureError
from ulna.data import LeRobotDataset, StreamingLeRobotDataset
from ulna.training import DatasetConfig, TrainPipelineConfig, read_metrics, train
from ulna.training.datasets import episode_spans
from ulna.training.loading import batch_stream
from ulna.training.sampling import EpisodeAwareSampler, SamplerState
from ulna.training.streams import EndlessReader, StreamBatches, StreamOrder, TrainingStream

Make = Callable[..., TrainPipelineConfig]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """45 frames in 3 episodes, whose action equals their state."""
    return record(tmp_path / "me/toy", (20, 10, 15))


def record(folder: Path, lengths: tuple[int, ...]) -> Path:
    vector = {"dtype": "float32", "shape": (3,), "names": None}
    random = np.random.default_rng(0)
    with LeRobotDataset.create("me/toy", 10, {"observation.state": vector, "action": vector}, folder) as dataset:
        for length in lengths:
            for _ in range(length):
                state = random.uniform(-1, 1, 3).astype(np.float32)
                dataset.add_frame({"observation.state": state, "action": state, "task": "copy"})
            dataset.save_episode()
    return folder


def settings(root: Path, **options: Any) -> DatasetConfig:
    return DatasetConfig(repo_id="me/toy", root=root, streaming=True, **options)


def test_a_stream_is_learnt_from(toy_config: Make, root: Path, recorder: Any) -> None:
    """`dataset.streaming` trains as well as reading by position, and counts epochs."""
    result = train(toy_config(dataset=settings(root), steps=80), observers=[recorder])
    assert recorder.losses[-1] < recorder.losses[0] / 5
    lines = list(read_metrics(result.output_dir))
    assert lines[-1]["epoch"] == pytest.approx(80 * 8 / 45)


def test_windows_and_last_frames_are_the_policys(toy_config: Make, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream has the windows that the policy asks for, and leaves out the frames it does not want."""
    seen: list[Any] = []
    read = StreamingLeRobotDataset.read_part

    def noted(self: Any, *args: Any, **options: Any) -> Any:
        for item in read(self, *args, **options):
            seen.append(item)
            yield item

    monkeypatch.setattr(StreamingLeRobotDataset, "read_part", noted)
    config = toy_config(dataset=settings(root), steps=6, batch_size=6, policy_drop_n_last_frames=3)
    train(config)
    assert len(seen) == 36
    assert len({int(item["index"]) for item in seen}) == 36
    assert max(int(item["frame_index"]) for item in seen) == 16


@pytest.mark.parametrize("steps", [3, 8])
def test_a_run_resumes_exactly(
    toy_config: Make, root: Path, helpers: SimpleNamespace, tmp_path: Path, steps: int
) -> None:
    """The losses after a break are those of the run without one, within a pass and in the next."""
    options = {"dataset": settings(root), "policy_dropout": 0.2}
    whole = helpers.Recorder()
    train(toy_config(steps=14, output_dir=tmp_path / "whole", **options), observers=[whole])
    train(toy_config(steps=steps, output_dir=tmp_path / "broken", **options))
    rest = helpers.Recorder()
    train(TrainPipelineConfig.from_checkpoint(tmp_path / "broken", steps=14), observers=[rest])
    assert rest.losses == whole.losses[steps:]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 2, 3])
def test_batches_go_on_with_any_number_of_processes(root: Path, workers: int) -> None:
    """After any number of batches a new loader gives the batches that the old one would have given."""
    stream = StreamingLeRobotDataset("me/toy", root, buffer_size=5)

    def batches(done: int) -> Any:
        options: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
        loader: Any = DataLoader(EndlessReader(stream, 4, done), batch_size=4, **options)
        return [batch["index"].tolist() for batch in itertools.islice(loader, 14 - done)]

    whole = batches(0)
    assert all(len(batch) == 4 for batch in whole)
    for done in (1, 5, 12):
        assert batches(done) == whole[done:]
    if workers == 0:
        assert sorted(list(itertools.chain(*whole))[:45]) == list(range(45))


def test_place_in_the_stream() -> None:
    """Epoch and samples seen follow from batches, and say how many batches there were."""
    batches = StreamBatches(StreamOrder(45, 3), 8, SamplerState(1, 11))
    assert batches.batches_done == 7
    assert batches.state_after(0) == SamplerState(1, 11)
    assert batches.state_after(5) == SamplerState(2, 6)


def test_a_stream_of_the_caller(toy_config: Make, root: Path) -> None:
    """A stream can be given as the dataset; it must have the windows the policy needs, and has no positions."""
    stream = StreamingLeRobotDataset("me/toy", root)
    assert train(toy_config(steps=2), dataset=stream).step == 2
    with pytest.raises(FeatureError, match=r"learns from 4 actions a sample; the dataset gives single actions"):
        train(toy_config(steps=2, policy_window=4, output_dir=root.parent / "other"), dataset=stream)
    stream.set_delta_timestamps({"action": [0.0, 0.1, 0.2]})
    with pytest.raises(FeatureError, match=r"learns from 4 actions a sample; the dataset gives 3 actions"):
        train(toy_config(steps=2, policy_window=4, output_dir=root.parent / "other"), dataset=stream)
    with pytest.raises(TypeError, match="one after the other"):
        TrainingStream(stream)[0]
    assert TrainingStream(stream).episode_spans() == [(0, 20), (20, 30), (30, 45)]


def test_more_processes_than_frames(root: Path, toy_config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is started that would have no frame to read."""
    stream = TrainingStream(StreamingLeRobotDataset("me/toy", root, episodes=[1], drop_n_last_frames=9))
    monkeypatch.setattr("ulna.training.loading.useful_workers", lambda asked, cameras: asked)
    config = toy_config(num_workers=4, batch_size=2, dataloader_multiprocessing_context="fork")
    batch = next(batch_stream(stream, StreamBatches(StreamOrder(1, 0), 2), config))
    assert batch["index"].tolist() == [20, 20]
    assert isinstance(batch["action"], torch.Tensor)


def test_several_datasets(toy_config: Make, root: Path, recorder: Any, tmp_path: Path) -> None:
    """Names of several datasets train on all of them, with windows and statistics of what they have in common."""
    record(tmp_path / "me/more", (12,))
    several = DatasetConfig(repo_id=["me/toy", "me/more"], root=tmp_path)
    result = train(toy_config(dataset=several, steps=60, policy_drop_n_last_frames=2), observers=[recorder])
    assert recorder.losses[-1] < recorder.losses[0] / 5
    # 49 frames are 7 batches.
    assert list(read_metrics(result.output_dir))[-1]["epoch"] == pytest.approx(8 + 4 * 8 / 49)
    resumed = TrainPipelineConfig.from_checkpoint(result.output_dir, steps=62)
    assert resumed.dataset.repo_id == ["me/toy", "me/more"]
    assert train(resumed).step == 62


@pytest.mark.parametrize("episode", range(3))
def test_the_sampler_of_a_single_episode(root: Path, episode: int) -> None:
    """A sampler over a dataset opened with one episode gives positions of that dataset, for every episode."""
    dataset = LeRobotDataset("me/toy", root, [episode])
    starts, stops = zip(*episode_spans(dataset), strict=True)
    for sampler in (
        EpisodeAwareSampler(starts, stops, shuffle=True),
        EpisodeAwareSampler(
            dataset.meta.episodes["dataset_from_index"],
            dataset.meta.episodes["dataset_to_index"],
            [episode],
            absolute_to_relative={int(dataset[i]["index"]): i for i in range(len(dataset))},
        ),
    ):
        items = [dataset[position] for position in sampler]
        assert {int(item["episode_index"]) for item in items} == {episode}
        assert sorted(int(item["frame_index"]) for item in items) == list(range((20, 10, 15)[episode]))
