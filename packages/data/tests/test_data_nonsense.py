# SPDX-License-Identifier: Apache-2.0
"""Arguments that make no sense are refused before anything is stored, and none means something else in silence."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ulna.core.errors import DatasetError, FeatureError
from ulna.data import LeRobotDataset, RGBEncoderConfig, StreamingLeRobotDataset
from ulna.data.index import episode_numbers, frame_offsets
from ulna.data.timing import read_timings

CAMERA = "observation.images.cam"
ONE: dict[str, Any] = {"dtype": "float32", "shape": (1,), "names": None}


def test_the_nearest_frame_is_read_however_large_the_tolerance(scene: Any, tmp_path: Path) -> None:
    """A tolerance of several frames allows deviations; it does not choose another frame."""
    made = scene("video")
    made.record(tmp_path / "set", [5, 7])
    for tolerance_s in (0.02, 0.1, 1e9):
        dataset = made.check(tmp_path / "set", [5, 7], tolerance_s=tolerance_s)
        for position in (3, 11, 0, 6, 5):
            assert made.number(dataset.numpy_item(position)[CAMERA]) == [position, 64 + position - 5][position >= 5]


def test_more_frames_a_second_than_the_tolerance_tells_apart(scene: Any, tmp_path: Path) -> None:
    made, root = scene("video"), tmp_path / "set"
    dataset = LeRobotDataset.create(
        "lab/scene", 20_000, made.features(), root, rgb_encoder=RGBEncoderConfig(vcodec="h264")
    )
    made.add(dataset, 0, 4)
    dataset.finalize()
    opened = LeRobotDataset("lab/scene", root, return_uint8=True)
    assert [made.number(opened.numpy_item(i)[CAMERA]) for i in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("episodes", [[1.5], "1", ["1"], [None], 5, [math.nan], [math.inf], b"1"])
def test_numbers_of_episodes(episodes: Any) -> None:
    with pytest.raises(DatasetError, match="list of whole numbers"):
        episode_numbers(episodes)


def test_numbers_of_episodes_of_every_kind() -> None:
    for given in (np.array([2, 0]), torch.tensor([2, 0]), [np.int64(2), 0.0], iter([2, 0])):
        assert episode_numbers(given) == [2, 0]


@pytest.mark.parametrize("seconds", [[math.nan], [math.inf], ["a"], 0, None])
def test_times_of_windows(seconds: Any) -> None:
    with pytest.raises(DatasetError, match="list of finite numbers of seconds"):
        frame_offsets("action", seconds, 30, 1e-4)


def test_times_of_windows_as_arrays() -> None:
    assert frame_offsets("action", torch.tensor([-0.1, 0.0]), 30, 1e-4) == [-3, 0]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["../outside", "a/../..", "/outside", "", " ", "a/\0", "x" * 300, None, 5])
def test_names_that_lead_elsewhere(scene: Any, tmp_path: Path, name: Any) -> None:
    """A dataset that is made by its name lies in the folder of datasets; nothing is made anywhere else."""
    with pytest.raises(DatasetError):
        LeRobotDataset.create(name, 30, {"a": ONE})
    if name != "/outside":
        with pytest.raises(DatasetError):
            LeRobotDataset(name)
    assert not Path("/outside").exists()


@pytest.mark.parametrize("root", ["/dev/null/set", "/proc/set", "a\0b", "x" * 5000])
def test_folders_that_cannot_be(root: str) -> None:
    with pytest.raises(DatasetError, match="folder"):
        LeRobotDataset.create("lab/scene", 30, {"a": ONE}, root)


@pytest.mark.parametrize(
    "options",
    [{"encoder_queue_maxsize": 0}, {"encoder_queue_maxsize": -1}, {"encoder_queue_maxsize": 2.5}, {"when_full": "x"}],
)
def test_settings_of_recording(scene: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    """A queue without a limit would fill the memory beside a slow encoder."""
    with pytest.raises(DatasetError, match=next(iter(options))):
        scene("video").create(tmp_path / "set", **options)
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    "features", [{"task": ONE}, {"index": {**ONE, "shape": (2,)}}, {"timestamp": {**ONE, "dtype": "float64"}}]
)
def test_names_that_are_taken(tmp_path: Path, features: dict[str, Any]) -> None:
    """They would be replaced by what the recorder counts, in silence."""
    with pytest.raises(FeatureError, match=next(iter(features))):
        LeRobotDataset.create("lab/scene", 30, {"a": ONE, **features}, tmp_path / "set")


def test_frames_that_are_none(scene: Any, tmp_path: Path) -> None:
    """A text that cannot be stored is refused with its frame; later it would cost the episode."""
    with scene().create(tmp_path / "set") as dataset:
        dataset.add_frame(scene().frame(0, 0))
        wrong: list[Any] = [5, None, [], {**scene().frame(0, 1), "task": "half a pair \ud800"}]
        for frame in wrong:
            with pytest.raises(FeatureError):
                dataset.add_frame(frame)
        dataset.save_episode()
    scene().check(tmp_path / "set", [1])


@pytest.mark.parametrize("value", [torch.zeros(6, dtype=torch.bfloat16), torch.zeros(6).to_sparse(), [[1], [1, 2]]])
def test_values_that_are_no_arrays(scene: Any, tmp_path: Path, value: Any) -> None:
    with scene().create(tmp_path / "set") as dataset:
        with pytest.raises(FeatureError, match=r"'action': a (Tensor|list) that numpy cannot hold"):
            dataset.add_frame({**scene().frame(0, 0), "action": value})
        with pytest.raises(FeatureError, match="unknown 5"):
            dataset.add_frame({**scene().frame(0, 0), 5: value})
        scene().add(dataset, 0, 2)
    scene().check(tmp_path / "set", [2])


@pytest.mark.parametrize("kind", [np.float32, torch.tensor, lambda seconds: np.array([seconds], np.float64), int])
def test_times_of_every_kind(scene: Any, tmp_path: Path, kind: Callable[[float], Any]) -> None:
    """They once failed only when the episode was stored, after the robot had moved."""
    with scene().create(tmp_path / "set") as dataset:
        for frame in range(2):
            dataset.add_frame(scene().frame(0, frame), kind(frame * 2.0))
        wrongs: list[Any] = ["a", [], np.zeros(2), math.nan, math.inf, object]
        for wrong in wrongs:
            with pytest.raises(FeatureError, match="time of a frame"):
                dataset.add_frame(scene().frame(0, 2), wrong)
        dataset.save_episode()
    scene().check(tmp_path / "set", [2])
    assert read_timings(tmp_path / "set")[0].measured_fps == 0.5


@pytest.mark.parametrize("name", [".", "..", "a\0b"])
@pytest.mark.parametrize("dtype", ["float32", "video"])
def test_names_that_no_folder_can_have(tmp_path: Path, name: str, dtype: str) -> None:
    """A camera called `..` once wrote its videos outside their folder."""
    with pytest.raises(FeatureError, match="no folder can be called so"):
        LeRobotDataset.create("lab/scene", 30, {name: {**ONE, "dtype": dtype, "shape": (8, 8, 3)}}, tmp_path / "set")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("more", [{"names": np.array(["a"])}, {"gain": np.float32(2)}, {"of": object()}])
def test_declarations_that_json_cannot_hold(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(FeatureError, match=r"'a' is declared with values that info\.json cannot hold"):
        LeRobotDataset.create("lab/scene", 30, {"a": {**ONE, **more}}, tmp_path / "set")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("make", [lambda root: StreamingLeRobotDataset("lab/scene", root, buffer_size=None)])  # type: ignore[arg-type]
def test_settings_of_streams(scene: Any, tmp_path: Path, make: Callable[[Path], Any]) -> None:
    scene().record(tmp_path / "set", [2])
    with pytest.raises(DatasetError, match="buffer_size must be 1 or more, it is None"):
        make(tmp_path / "set")


def test_reused_buffers(tmp_path: Path) -> None:
    """Pictures and numbers are copied when they are added: a driver may write the next one into the same memory."""
    pictures = {"dtype": "image", "shape": (8, 8, 3), "names": ["height", "width", "channels"]}
    features = {"image": pictures, "video": {**pictures, "dtype": "video", "shape": (16, 64, 3)}, "a": ONE}
    small, large, number = np.zeros((8, 8, 3), np.uint8), np.zeros((16, 64, 3), np.uint8), np.zeros(1, np.float32)
    with LeRobotDataset.create("lab/scene", 30, features, tmp_path / "set") as dataset:
        for value in range(0, 200, 20):
            small[:], large[:], number[:] = value, value, value
            dataset.add_frame({"image": small, "video": large, "a": number, "task": "t"})
            small[:], large[:], number[:] = 255, 255, -1
        dataset.save_episode()
    for position, item in enumerate(LeRobotDataset("lab/scene", tmp_path / "set", return_uint8=True)):  # type: ignore[arg-type, var-annotated]
        assert item["a"].item() == item["image"].float().mean() == 20 * position
        assert abs(item["video"].float().mean() - 20 * position) < 3


def test_another_directory_meanwhile(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative folder is the one that it was when the dataset was opened."""
    made = scene("video")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    dataset = made.create(Path("set"))
    dataset.add_frame(made.frame(0, 0))
    monkeypatch.chdir(tmp_path / "elsewhere")
    dataset.add_frame(made.frame(0, 1))
    dataset.save_episode()
    dataset.finalize()
    monkeypatch.chdir(tmp_path)
    opened = LeRobotDataset("lab/scene", Path("set"), return_uint8=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [made.number(opened.numpy_item(i)[CAMERA]) for i in range(2)] == [0, 1]
    assert list((tmp_path / "elsewhere").iterdir()) == []
