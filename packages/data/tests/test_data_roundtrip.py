# SPDX-License-Identifier: Apache-2.0
"""Whatever features are declared and whatever values are recorded: what is read is what was given."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.core.errors import DatasetError
from ulna.data import LeRobotDataset, LeRobotDatasetMetadata, language_feature_info
from ulna.data.language import LANGUAGE_COLUMNS
from ulna.data.open_episode import EndedEpisode

GOLDEN = Path(__file__).parent / "golden"
NUMBERS = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool"]
STYLES = {"language_persistent": ("subtask", "plan", "memory"), "language_events": ("interjection", None)}

names = st.text("abcxyz_.0", min_size=1, max_size=8).map(lambda text: f"f.{text}")
shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def declaration(draw: st.DrawFn) -> dict[str, Any]:
    """Draw one feature."""
    kind = draw(st.sampled_from(["number", "number", "string", "image", "depth"]))
    if kind == "string":
        return {"dtype": "string", "shape": (1,), "names": None}
    if kind == "number":
        return {"dtype": draw(st.sampled_from(NUMBERS)), "shape": draw(shapes), "names": None}
    size = draw(st.tuples(st.integers(2, 9), st.integers(2, 9)))
    camera = {"dtype": "image", "names": ["height", "width", "channels"]}
    if kind == "image":
        return {**camera, "shape": (*size, 3)}
    return {**camera, "shape": (*size, 1), "info": {"is_depth_map": True}}


@st.composite
def declarations(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Draw features: numbers of any shape and dtype, texts, pictures, depth maps, perhaps language."""
    features = {name: draw(declaration()) for name in draw(st.lists(names, min_size=1, max_size=5, unique=True))}
    return {**features, **(language_feature_info() if draw(st.booleans()) else {})}


def value(rng: np.random.Generator, name: str, feature: Mapping[str, Any], words: str) -> Any:
    """Return a value of one frame, whose extremes are those of its dtype."""
    dtype, shape = feature["dtype"], feature["shape"]
    if dtype == "string":
        return words
    if dtype == "language":
        rows = [{"role": "user", "content": words, "style": style} for style in STYLES[name]]
        return rows[: rng.integers(0, 3)]
    if dtype == "image":
        return rng.integers(0, 65_536 if shape[2] == 1 else 256, shape).astype("u2" if shape[2] == 1 else "u1")
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.kind == "f":
        return rng.normal(0, 1000, shape).astype(kind)
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)


def as_read(name: str, feature: Mapping[str, Any], given_value: Any) -> Any:
    """Return a recorded value in the form in which items have it: float32, int64, bool, pictures (C, H, W)."""
    if feature["dtype"] == "image":
        turned = given_value.transpose(2, 0, 1)
        return turned.astype(np.float32) if feature["shape"][2] == 1 else turned
    if isinstance(given_value, np.ndarray):
        read = {"f": "float32", "b": "bool"}.get(given_value.dtype.kind, "int64")
        return given_value.astype(read)
    return given_value


@settings(max_examples=10, deadline=None)
@given(declarations(), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 2**31), texts)
def test_everything_comes_back(declared: dict[str, dict[str, Any]], lengths: list[int], seed: int, words: str) -> None:
    """Values, dtypes and shapes, before finalizing and after, of episodes recorded at once and appended later."""
    rng = np.random.default_rng(seed)
    episodes = [
        [{n: value(rng, n, f, words + str(i)) for n, f in declared.items()} for i in range(length)]
        for length in lengths
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "set"
        dataset = LeRobotDataset.create("lab/any", 10, declared, root)
        for number, frames in enumerate(episodes):
            for i, frame in enumerate(frames):
                dataset.add_frame({**frame, "task": f"task {i % 2}"})
            dataset.save_episode()
            if number == 0:
                compare(LeRobotDataset("lab/any", root, return_uint8=True), declared, episodes[:1])
                dataset.finalize()
                dataset = LeRobotDataset.resume("lab/any", root)
        dataset.finalize()
        compare(LeRobotDataset("lab/any", root, return_uint8=True), declared, episodes)


def compare(
    dataset: LeRobotDataset, declared: Mapping[str, Mapping[str, Any]], episodes: list[list[dict[str, Any]]]
) -> None:
    assert {name: dataset.features[name] for name in declared}.keys() == declared.keys()
    for name, feature in declared.items():
        assert dataset.meta.shapes[name] == feature["shape"]
    items = [dataset.numpy_item(position) for position in range(len(dataset))]
    expected = [(frame, i) for frames in episodes for i, frame in enumerate(frames)]
    assert len(items) == len(expected)
    for item, (frame, i) in zip(items, expected, strict=True):
        assert item["task"] == f"task {i % 2}"
        assert item["frame_index"] == i
        for name, feature in declared.items():
            wanted, got = as_read(name, feature, frame[name]), item[name]
            if name in LANGUAGE_COLUMNS:
                check_rows(name, got, wanted)
            elif isinstance(wanted, str):
                assert got == wanted
            else:
                assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), name
                np.testing.assert_array_equal(got, wanted, err_msg=name)


def check_rows(column: str, got: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    said = [(row["content"], row["style"]) for row in wanted]
    heard = [(row["content"], row["style"]) for row in got]
    assert said == heard if column == "language_events" else set(said) <= set(heard)


def test_vectors_of_one_and_scalars_stay_apart_in_a_batch(tmp_path: Path) -> None:
    """Four frames give (4, 1) and (4,), through torch's loader too."""
    from torch.utils.data import DataLoader

    features = {
        "x": {"dtype": "float32", "shape": (1,), "names": ["only"]},
        "y": {"dtype": "float32", "shape": (), "names": None},
    }
    with LeRobotDataset.create("lab/one", 10, features, tmp_path / "set") as dataset:
        for i in range(4):
            dataset.add_frame({"x": np.array([i]), "y": i, "task": "t"})
        dataset.save_episode()
    (batch,) = DataLoader(LeRobotDataset("lab/one", tmp_path / "set"), batch_size=4)
    assert (tuple(batch["x"].shape), tuple(batch["y"].shape)) == ((4, 1), (4,))
    assert batch["x"].flatten().tolist() == batch["y"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("stamp", [0.1, np.float32(0.1), np.array([0.1]), [0.1]])
def test_frames_may_bring_the_columns_that_are_filled_here(scene: Any, tmp_path: Path, stamp: Any) -> None:
    """A time in any form, an item's index and masks of windows neither disturb nor count; lists are shapes too."""
    declared = {name: {**f, "shape": list(f["shape"])} for name, f in scene().features().items()}
    with LeRobotDataset.create("lab/scene", 30, declared, tmp_path / "set") as dataset:
        for i in range(3):
            own = {"timestamp": stamp, "index": 77, "frame_index": 5, "episode_index": 3, "action_is_pad": [True]}
            dataset.add_frame({**scene().frame(0, i), **own})
        dataset.save_episode()
    with LeRobotDataset.resume("lab/scene", tmp_path / "set") as dataset:
        scene().add(dataset, 1, 2)
    scene().check(tmp_path / "set", [3, 2])


def test_pictures_that_were_read_channel_first_fit_their_declaration(tmp_path: Path) -> None:
    """LeRobot's own pictures can be copied, whichever way round their camera is declared."""
    source = LeRobotDataset("a/b", GOLDEN / "images/dataset", return_uint8=True)
    with LeRobotDataset.create("lab/copy", source.fps, source.features, tmp_path / "set") as copy:
        for i in range(4):
            copy.add_frame(source[i])
        copy.save_episode()
    again = LeRobotDataset("lab/copy", tmp_path / "set", return_uint8=True)
    for i in range(4):
        for camera in source.meta.camera_keys:
            np.testing.assert_array_equal(again.numpy_item(i)[camera], source.numpy_item(i)[camera])


@pytest.mark.parametrize("camera", ["image", "video"])
def test_an_interrupted_loop_leaves_no_pictures_behind(
    scene: Any, tmp_path: Path, camera: str, files_below: Any
) -> None:
    """After an exception before saving nothing is left, and the next episode has none of its frames."""
    made = scene(camera)

    def session() -> None:
        with made.create(tmp_path / "set") as dataset:
            for i in range(10):
                dataset.add_frame(made.frame(9, i))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session()
    assert set(files_below(tmp_path / "set")) <= {"meta/info.json", "meta/tasks.parquet"}
    with LeRobotDataset.resume("lab/scene", tmp_path / "set") as dataset:
        made.add(dataset, 0, 2)
    made.check(tmp_path / "set", [2])


def test_an_episode_with_a_picture_missing_is_not_accepted(scene: Any, tmp_path: Path) -> None:
    """Rows and pictures are counted before an episode counts, so that no later frame shows its neighbour."""
    made = scene("image")
    dataset = made.create(tmp_path / "set")
    for i in range(3):
        dataset.add_frame(made.frame(0, i))
    recorder = dataset._recorder
    assert recorder is not None
    current = recorder._current
    assert current is not None
    whole = current.ended

    def without_the_last_row(meta: LeRobotDatasetMetadata) -> EndedEpisode:
        ended = whole(meta)
        episode = ended.finished
        assert episode is not None
        return replace(ended, finished=replace(episode, tasks=episode.tasks[:2], values=episode.values[:2]))

    current.ended = without_the_last_row  # type: ignore[method-assign]
    with pytest.raises(DatasetError, match=r"has 2 rows but 3 pictures of 'observation\.images\.cam'"):
        dataset.save_episode()
    made.add(dataset, 0, 2)
    dataset.finalize()
    made.check(tmp_path / "set", [2])


def test_row_groups_and_descriptions_survive_joining(tmp_path: Path) -> None:
    """One row group an episode and the description for generic readers, whatever the columns hold."""
    import json

    import pyarrow.parquet as pq

    shutil.copytree(GOLDEN / "extra_features/dataset", tmp_path / "set")
    source = LeRobotDataset("a/b", GOLDEN / "extra_features/dataset")
    with LeRobotDataset.resume("a/b", tmp_path / "set") as more:
        for length in (2, 3):
            for i in range(length):
                more.add_frame(source[i])
            more.save_episode()
    first, last = sorted((tmp_path / "set/data").rglob("*.parquet"))
    files = [pq.ParquetFile(path) for path in (first, last)]
    groups = [[f.metadata.row_group(i).num_rows for i in range(f.metadata.num_row_groups)] for f in files]
    assert groups[1] == [2, 3]
    described = [json.loads(f.schema_arrow.metadata[b"huggingface"])["info"]["features"] for f in files]
    assert described[0] == described[1]
    assert files[0].schema_arrow.equals(files[1].schema_arrow)
