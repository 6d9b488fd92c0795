# SPDX-License-Identifier: Apache-2.0
"""Real files against a reference that writes every frame down: subsets x windows x files x several datasets x streams.

Two datasets, each of several data, episode and video files in several chunk folders. Every value and picture tells its
dataset, episode and frame.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ulna.data import LeRobotDataset, MultiLeRobotDataset, RGBEncoderConfig, StreamingLeRobotDataset

LENGTHS = {"zero": [3, 1, 4, 2, 5], "one": [2, 6, 1]}
FPS, CAMERA = 30, "observation.images.cam"
QUICK = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Frame(NamedTuple):
    dataset: int
    episode: int
    frame: int
    index: int

    @property
    def value(self) -> int:
        return 10_000 * self.dataset + 100 * self.episode + self.frame

    @property
    def picture(self) -> int:
        return 64 * (8 * self.dataset + self.episode) + self.frame


class Case(NamedTuple):
    """What is opened: the episodes of each dataset, and a window of values and one of pictures."""

    episodes: dict[str, list[int] | None]
    values: list[int]
    pictures: list[int] | None

    @property
    def delta_timestamps(self) -> dict[str, list[float]]:
        asked = {"observation.state": self.values, CAMERA: self.pictures}
        return {key: [n / FPS for n in offsets] for key, offsets in asked.items() if offsets}

    def frames(self, names: list[str]) -> list[Frame]:
        """Every opened frame in order, by brute force."""
        rows = []
        for number, name in enumerate(LENGTHS):
            index = 0
            for episode, length in enumerate(LENGTHS[name]):
                chosen = self.episodes[name] is None or episode in self.episodes[name]
                for frame in range(length):
                    if name in names and chosen:
                        rows.append(Frame(number, episode, frame, index))
                    index += 1
        return rows


def window(frame: Frame, offsets: list[int]) -> tuple[list[Frame], list[bool]]:
    """The frames of a window and which are padding, by brute force."""
    length = list(LENGTHS.values())[frame.dataset][frame.episode]
    inside = [0 <= frame.frame + n < length for n in offsets]
    return [frame._replace(frame=min(max(frame.frame + n, 0), length - 1)) for n in offsets], [not i for i in inside]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    chosen = {
        name: draw(st.none() | st.lists(st.sampled_from(range(len(lengths))), min_size=1, max_size=6))
        for name, lengths in LENGTHS.items()
    }
    offsets = st.lists(st.integers(-7, 7), min_size=1, max_size=4)
    return Case(chosen, draw(offsets), draw(st.none() | offsets))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(autouse=True)
def recorded(folder: Path, scene: Any) -> None:
    if not (folder / "one").exists():
        for number, name in enumerate(LENGTHS):
            record(folder / name, number, scene)


def record(root: Path, number: int, scene: Any) -> None:
    camera = {"dtype": "video", "shape": (48, 64, 3), "names": ["height", "width", "channels"]}
    features = {"observation.state": {"dtype": "int64", "shape": (2,), "names": None}, CAMERA: camera}
    sizes = {"chunks_size": 1, "data_files_size_in_mb": 0.012, "video_files_size_in_mb": 0.006}
    encoder = RGBEncoderConfig(vcodec="h264")
    with LeRobotDataset.create(root.name, FPS, features, root, rgb_encoder=encoder, **sizes) as dataset:
        for episode, length in enumerate(LENGTHS[root.name]):
            for frame in range(length):
                at = Frame(number, episode, frame, 0)
                picture = scene().picture(8 * number + episode, frame)
                state = np.full(2, at.value)
                dataset.add_frame({"observation.state": state, CAMERA: picture, "task": f"{root.name} {episode}"})
            dataset.save_episode()


def check(item: dict[str, Any], frame: Frame, case: Case, number: Any) -> None:
    """Compare values, pad flags, numbers, task and pictures of an item with the reference."""
    where = (int(item["episode_index"]), int(item["frame_index"]), int(item["index"]))
    assert where == (frame.episode, frame.frame, frame.index)
    assert item["task"] == f"{list(LENGTHS)[frame.dataset]} {frame.episode}"
    assert float(item["timestamp"]) == np.float32(frame.frame / FPS)
    frames, is_pad = window(frame, case.values)
    assert item["observation.state"].tolist() == [[f.value] * 2 for f in frames]
    assert item["observation.state_is_pad"].tolist() == is_pad
    if case.pictures is None:
        assert number(item[CAMERA].numpy()) == frame.picture
        return
    frames, is_pad = window(frame, case.pictures)
    assert [number(picture) for picture in item[CAMERA].numpy()] == [f.picture for f in frames]
    assert item[f"{CAMERA}_is_pad"].tolist() == is_pad


def test_files_are_several(folder: Path) -> None:
    """What follows would show nothing with one file of each kind."""
    for kind in ("data/chunk-*/*", f"videos/{CAMERA}/chunk-*/*"):
        found = list((folder / "zero").glob(kind))
        assert len({path.parent for path in found}) > 1, found


@QUICK
@given(cases())
def test_every_subset_and_window_of_a_dataset(folder: Path, scene: Any, case: Case) -> None:
    """Choosing episodes, in any order, with a window around each frame, never reads a frame of another episode."""
    dataset = LeRobotDataset(
        "zero",
        folder / "zero",
        case.episodes["zero"],
        delta_timestamps=case.delta_timestamps,
        return_uint8=True,
    )
    wanted = case.frames(["zero"])
    assert len(dataset) == dataset.num_frames == len(wanted)
    for position, frame in enumerate(wanted):
        check(dataset[position], frame, case, scene().number)


@QUICK
@given(cases(), st.randoms(use_true_random=False))
def test_every_subset_and_window_of_several_datasets(folder: Path, scene: Any, case: Case, random: Any) -> None:
    """Several datasets in a row, read in a random order at once, are their frames one after the other."""
    both = MultiLeRobotDataset(
        list(LENGTHS), folder, case.episodes, delta_timestamps=case.delta_timestamps, return_uint8=True
    )
    wanted = case.frames(list(LENGTHS))
    assert len(both) == len(wanted)
    order = random.sample(range(len(wanted)), len(wanted))
    for position, item in zip(order, both.__getitems__(order), strict=True):
        assert int(item["dataset_index"]) == wanted[position].dataset
        check(item, wanted[position], case, scene().number)


@QUICK
@given(cases(), st.integers(1, 5), st.booleans(), st.integers(1, 20), st.integers(1, 3))
def test_every_subset_and_window_of_a_stream(
    folder: Path, scene: Any, case: Case, parts: int, shuffle: bool, buffer_size: int, shards: int
) -> None:
    """However a stream is shared out and mixed, it gives the items of the dataset, each once; in order if asked."""
    stream = StreamingLeRobotDataset(
        "zero",
        folder / "zero",
        case.episodes["zero"],
        delta_timestamps=case.delta_timestamps,
        shuffle=shuffle,
        buffer_size=buffer_size,
        max_num_shards=shards,
        return_uint8=True,
    )
    wanted = case.frames(["zero"])
    items = [item for part in range(parts) for item in stream.read_part(part, parts, epoch=1)]
    if shuffle:
        items.sort(key=lambda item: int(item["index"]))
    assert len(items) == len(wanted) == stream.num_frames
    for item, frame in zip(items, wanted, strict=True):
        check(item, frame, case, scene().number)


@pytest.mark.parametrize("episode", range(5))
def test_a_single_episode_is_its_own_frames(folder: Path, episode: int) -> None:
    """Any one episode can be opened alone and walked through by position, as a viewer does."""
    dataset = LeRobotDataset("zero", folder / "zero", [episode])
    index = dataset.reader.index
    assert index.positions(episode) == range(LENGTHS["zero"][episode])
    items = [dataset[position] for position in index.positions(episode)]
    assert [int(item["frame_index"]) for item in items] == list(range(LENGTHS["zero"][episode]))
    assert {int(item["episode_index"]) for item in items} == {episode}
    batches = torch.utils.data.DataLoader(dataset, batch_size=2, shuffle=True)
    assert sorted(int(i) for batch in batches for i in batch["frame_index"]) == list(range(len(items)))
