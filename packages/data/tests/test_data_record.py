# SPDX-License-Identifier: Apache-2.0
"""Recording: what goes in comes out, wrong frames are refused by name, and the folder holds what the format says."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ulna.core.errors import ConfigError, DatasetError, DatasetFormatError, FeatureError
from ulna.data import LeRobotDataset, RGBEncoderConfig

CAMERA = "observation.images.cam"
KINDS = [(None, "h264"), ("image", "h264"), ("video", "h264"), ("video", "libsvtav1")]


@pytest.mark.parametrize(("camera", "codec"), KINDS)
@pytest.mark.parametrize("finalize", [True, False])
def test_round_trip(scene: Any, tmp_path: Path, camera: str | None, codec: str, finalize: bool) -> None:
    """Also episodes of one frame, first, in the middle and last (h264 of LeRobot 0.6.1 fails there)."""
    lengths = [1, 7, 1, 12, 1]
    made = scene(camera, codec)
    dataset = made.record(tmp_path / "set", lengths, finalize=finalize)
    made.check(tmp_path / "set", lengths)
    assert dataset.num_episodes == 5
    assert dataset[-1]["episode_index"] == 4
    dataset.finalize()
    made.check(tmp_path / "set", lengths)


def test_finalize_joins_files_and_leaves_nothing(scene: Any, tmp_path: Path, files_below: Any) -> None:
    scene("video").record(tmp_path / "set", [3, 4, 5])
    assert files_below(tmp_path / "set") == [
        "data/chunk-000/file-000.parquet",
        "meta/episodes/chunk-000/file-000.parquet",
        "meta/info.json",
        "meta/sketches/chunk-000/file-000.parquet",
        "meta/stats.json",
        "meta/tasks.parquet",
        "meta/ulna_recording.jsonl",
        f"videos/{CAMERA}/chunk-000/file-000.mp4",
    ]


def test_table_looks_like_the_format(scene: Any, tmp_path: Path) -> None:
    scene("image").record(tmp_path / "set", [3, 4, 5])
    parquet = pq.ParquetFile(tmp_path / "set/data/chunk-000/file-000.parquet")
    groups = [parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups)]
    assert [g.num_rows for g in groups] == [3, 4, 5]
    assert {g.column(0).compression for g in groups} == {"SNAPPY"}
    schema = parquet.schema_arrow
    assert str(schema.field("action").type) == "fixed_size_list<element: float>[6]"
    assert str(schema.field(CAMERA).type) == "struct<bytes: binary, path: string>"
    described = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert described[CAMERA] == {"_type": "Image"}
    assert described["index"] == {"dtype": "int64", "_type": "Value"}
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    assert info["splits"] == {"train": "0:3"}
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (3, 12, 2)


def test_video_info_is_written(scene: Any, tmp_path: Path) -> None:
    dataset = scene("video", "libsvtav1").record(tmp_path / "set", [2])
    info = dataset.features[CAMERA]["info"]
    assert info == {
        "video.height": 48,
        "video.width": 64,
        "video.codec": "av1",
        "video.pix_fmt": "yuv420p",
        "video.fps": 30,
        "video.channels": 3,
        "has_audio": False,
        "video.g": 2,
        "video.crf": 30,
        "video.preset": 12,
        "video.fast_decode": 0,
        "video.video_backend": "pyav",
        "video.extra_options": {},
        "is_depth_map": False,
    }


def test_size_limits_make_several_files(scene: Any, tmp_path: Path, files_below: Any) -> None:
    made, lengths = scene("video"), [6, 7, 8, 9, 10]
    dataset = made.record(
        tmp_path / "set", lengths, chunks_size=2, data_files_size_in_mb=0.012, video_files_size_in_mb=0.007
    )
    names = files_below(tmp_path / "set")
    assert sum(name.startswith("data/") for name in names) > 1
    assert sum(name.startswith("videos/") for name in names) > 1
    assert "data/chunk-000/file-002.parquet" not in names
    made.check(tmp_path / "set", lengths)
    assert dataset.meta.info.data_files_size_in_mb == 0.012


def test_resume_appends_at_the_right_index(scene: Any, tmp_path: Path) -> None:
    made = scene("video")
    made.record(tmp_path / "set", [3, 4])
    for more in (5, 6):
        with LeRobotDataset.resume(
            "lab/scene", tmp_path / "set", rgb_encoder=RGBEncoderConfig(vcodec="h264")
        ) as dataset:
            made.add(dataset, dataset.num_episodes, more)
    opened = made.check(tmp_path / "set", [3, 4, 5, 6])
    assert opened.meta.stats is not None
    assert opened.meta.stats["index"]["count"].tolist() == [18]
    assert opened.meta.stats["index"]["max"].tolist() == [17.0]


def every_kind() -> dict[str, dict[str, Any]]:
    shapes = {"one": (1,), "scalar": (), "vector": (3,), "grid": (2, 3), "cube": (2, 1, 3)}
    features: dict[str, dict[str, Any]] = {
        f"{dtype}.{name}": {"dtype": dtype, "shape": shape, "names": None}
        for dtype in ("float16", "float32", "float64", "uint8", "int32", "int64", "bool")
        for name, shape in shapes.items()
    }
    return {**features, "note": {"dtype": "string", "shape": (1,), "names": None}}


def test_declared_shapes_and_dtypes_come_back(tmp_path: Path) -> None:
    """(1,) stays (1,), a scalar stays a scalar, also in windows and after reopening."""
    features = every_kind()
    rng = np.random.default_rng(0)
    rows = []
    with LeRobotDataset.create("lab/kinds", 10, features, tmp_path / "set") as dataset:
        for i in range(4):
            values = {n: rng.integers(0, 2, f["shape"]).astype(f["dtype"]) for n, f in features.items() if n != "note"}
            rows.append({**values, "note": f"räksmörgås {i}", "task": "t"})
            dataset.add_frame(rows[-1])
        dataset.save_episode()
    opened = LeRobotDataset("lab/kinds", tmp_path / "set")
    windowed = LeRobotDataset("lab/kinds", tmp_path / "set", delta_timestamps={n: [-0.1, 0.0] for n in features})
    assert {n: tuple(f["shape"]) for n, f in opened.features.items() if n in features} == {
        n: f["shape"] for n, f in features.items()
    }
    read_as = {"f": np.float32, "i": np.int64, "u": np.int64, "b": np.bool_}
    for i, row in enumerate(rows):
        item, window = opened.numpy_item(i), windowed.numpy_item(i)
        assert item["note"] == row["note"]
        for name, feature in features.items():
            if name == "note":
                continue
            assert item[name].shape == feature["shape"]
            assert item[name].dtype == read_as[np.dtype(feature["dtype"]).kind]
            np.testing.assert_array_equal(item[name], row[name])
            assert window[name].shape == (2, *feature["shape"])
            np.testing.assert_array_equal(window[name][1], row[name])
        tensors = opened[i]
        assert tensors["float32.one"].shape == (1,)
        assert tensors["float32.scalar"].shape == ()


@pytest.mark.parametrize("camera", ["image", "video"])
def test_copy_loop(scene: Any, tmp_path: Path, camera: str) -> None:
    """An item that was read can be added to another dataset, pictures channel-first and all."""
    made = scene(camera)
    source = made.record(tmp_path / "a", [3, 4])
    with made.create(tmp_path / "b") as target:
        for i in range(len(source)):
            target.add_frame(source[i])
            if i in {2, 6}:
                target.save_episode()
    made.check(tmp_path / "b", [3, 4])


def test_picture_layouts_and_types(scene: Any, tmp_path: Path) -> None:
    from PIL import Image

    made = scene("image")
    picture = made.picture(0, 5)
    forms = [
        picture,
        picture.transpose(2, 0, 1),
        picture / 255.0,
        Image.fromarray(picture),
        picture.astype(np.float32) / 255,
    ]
    with made.create(tmp_path / "set") as dataset:
        for form in forms:
            dataset.add_frame({**made.frame(0, 0), CAMERA: form})
        dataset.save_episode()
    for item in dataset[:]:
        np.testing.assert_array_equal((item[CAMERA].numpy() * 255).round().astype(np.uint8), picture.transpose(2, 0, 1))


def test_channel_first_declaration(tmp_path: Path) -> None:
    features = {"cam": {"dtype": "video", "shape": [3, 48, 64], "names": ["channels", "height", "width"]}}
    with LeRobotDataset.create(
        "lab/chw", 30, features, tmp_path / "set", rgb_encoder=RGBEncoderConfig(vcodec="h264")
    ) as d:
        d.add_frame({"cam": np.zeros((48, 64, 3), np.uint8), "task": "t"})
        d.add_frame({"cam": np.zeros((3, 48, 64), np.uint8), "task": "t"})
        d.save_episode()
    assert d[1]["cam"].shape == (3, 48, 64)


def test_caller_may_reuse_everything(scene: Any, tmp_path: Path) -> None:
    made = scene("image")
    with made.create(tmp_path / "set") as dataset:
        frame = made.frame(0, 0)
        keys = list(frame)
        for i in range(3):
            frame["observation.state"][:] = i
            frame["action"][:] = np.arange(6) + i
            frame[CAMERA][:] = made.picture(0, i)
            dataset.add_frame(frame)
            assert list(frame) == keys
            assert isinstance(frame[CAMERA], np.ndarray)
        dataset.save_episode()
    made.check(tmp_path / "set", [3])


def bad_frames() -> list[tuple[str, dict[str, Any], str]]:
    state, camera = "observation.state", CAMERA
    return [
        ("missing", {state: None}, r"missing 'observation.state'"),
        ("unknown", {"observation.stat": np.zeros(6)}, r"unknown 'observation.stat' \(nearest: 'observation.state'\)"),
        ("no task", {"task": None}, r"missing 'task'"),
        ("empty task", {"task": " "}, r"'task' must be a text"),
        ("shape", {state: np.zeros(5, np.float32)}, r"'observation.state': expected shape \(6,\), got \(5,\)"),
        ("text", {state: ["a"] * 6}, r"'observation.state': expected dtype float32, got <U1"),
        ("bool", {state: np.zeros(6, bool)}, r"expected dtype float32, got bool"),
        ("nan", {state: np.array([0, 0, np.nan, 0, 0, 0], np.float32)}, r"not a finite number at joint_2.pos"),
        ("overflow", {state: np.full(6, 1e300)}, r"does not fit float32"),
        ("picture shape", {camera: np.zeros((64, 48, 3), np.uint8)}, r"expected shape \(48, 64, 3\) or \(3, 48, 64\)"),
        (
            "picture dtype",
            {camera: np.zeros((48, 64, 3), np.int64)},
            r"expected dtype uint8 or float in \[0, 1\], got int64",
        ),
        ("picture range", {camera: np.full((48, 64, 3), 255.0)}, r"must lie in \[0, 1\], got values from 255 to 255"),
        ("picture nan", {camera: np.full((48, 64, 3), np.nan)}, r"must lie in \[0, 1\]"),
    ]


@pytest.mark.parametrize(("change", "message"), [b[1:] for b in bad_frames()], ids=[b[0] for b in bad_frames()])
def test_wrong_frame_is_refused_whole(scene: Any, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    made = scene("video")
    with made.create(tmp_path / "set") as dataset:
        for i in range(4):
            frame = {k: v for k, v in {**made.frame(0, i), **change}.items() if v is not None}
            with pytest.raises(FeatureError, match=message):
                dataset.add_frame(frame)
            dataset.add_frame(made.frame(0, i))
        dataset.save_episode()
    made.check(tmp_path / "set", [4])


def test_integer_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    features = {"byte": {"dtype": "uint8", "shape": (1,), "names": None}}
    with LeRobotDataset.create("lab/byte", 30, features, tmp_path / "set") as dataset:
        with pytest.raises(FeatureError, match="does not fit uint8"):
            dataset.add_frame({"byte": 256, "task": "t"})
        with pytest.raises(FeatureError, match="expected dtype uint8, got float64"):
            dataset.add_frame({"byte": 1.0, "task": "t"})


@pytest.mark.parametrize("fps", [29.97, 0, -1, float("nan")])
def test_odd_frame_rates_are_refused(scene: Any, tmp_path: Path, fps: float) -> None:
    with pytest.raises(DatasetFormatError, match="fps must be a positive whole number"):
        LeRobotDataset.create("lab/x", fps, scene().features(), tmp_path / "set")  # type: ignore[arg-type]
    assert not (tmp_path / "set").exists()


def test_camera_that_cannot_be_encoded_is_refused_at_creation(scene: Any, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"(?s)cannot be encoded with libx264.*even height and width"):
        scene("video", size=(47, 63)).create(tmp_path / "set")
    assert not (tmp_path / "set").exists()
    with pytest.raises(ConfigError, match="has no 'nonsense'"):
        scene("video", "nonsense").create(tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_folder_that_is_taken_is_refused(scene: Any, tmp_path: Path) -> None:
    scene().record(tmp_path / "set", [2])
    with pytest.raises(DatasetError, match=r"(?s)holds a dataset.*resume"):
        scene().create(tmp_path / "set")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("mine")
    with pytest.raises(DatasetError, match="exists already"):
        scene().create(tmp_path / "other")
    assert (tmp_path / "other/file").read_text() == "mine"


def test_two_recorders_are_refused(scene: Any, tmp_path: Path) -> None:
    dataset = scene().record(tmp_path / "set", [2], finalize=False)
    with pytest.raises(DatasetError, match="Another recorder"):
        LeRobotDataset.resume("lab/scene", tmp_path / "set")
    dataset.finalize()
    LeRobotDataset.resume("lab/scene", tmp_path / "set").finalize()


def test_discarding_leaves_nothing(scene: Any, tmp_path: Path, files_below: Any) -> None:
    """A discarded episode gives its number, its task and its disk space back, also when finalize does it."""
    for camera in ("image", "video"):
        made, root = scene(camera), tmp_path / camera
        dataset = made.create(root)
        for i in range(5):
            dataset.add_frame({**made.frame(7, i), "task": "never saved"})
        assert dataset.has_pending_frames
        dataset.clear_episode_buffer()
        assert not dataset.has_pending_frames
        assert not list((root / ".ulna/staging").iterdir())
        made.add(dataset, 0, 3)
        for i in range(3):
            dataset.add_frame(made.frame(8, i))
        dataset.finalize()
        made.check(root, [3])
        assert list(LeRobotDataset("lab/scene", root).meta.tasks) == ["task 0"]
        assert not [n for n in files_below(root) if n.startswith((".ulna", "images"))]


def test_saving_nothing_is_refused(scene: Any, tmp_path: Path) -> None:
    with scene().create(tmp_path / "set") as dataset, pytest.raises(DatasetError, match="no frame to save"):
        dataset.save_episode()


def test_adding_to_a_closed_or_read_dataset_is_refused(scene: Any, tmp_path: Path) -> None:
    dataset = scene().record(tmp_path / "set", [2])
    dataset.finalize()
    with pytest.raises(DatasetError, match="closed"):
        dataset.add_frame(scene().frame(0, 0))
    with pytest.raises(DatasetError, match=r"(?s)opened for reading.*resume"):
        LeRobotDataset("lab/scene", tmp_path / "set").add_frame(scene().frame(0, 0))


def test_exception_in_the_loop_keeps_finished_episodes(scene: Any, tmp_path: Path, files_below: Any) -> None:
    made = scene("video")

    def session() -> None:
        with made.create(tmp_path / "set") as dataset:
            made.add(dataset, 0, 5)
            made.add(dataset, 1, 4)
            dataset.add_frame(made.frame(2, 0))
            raise ConnectionError("robot lost")

    with pytest.raises(ConnectionError):
        session()
    made.check(tmp_path / "set", [5, 4])
    assert not [n for n in files_below(tmp_path / "set") if n.startswith(".ulna")]


def test_background_saving_keeps_order(scene: Any, tmp_path: Path) -> None:
    made = scene("video")
    with made.create(tmp_path / "set") as dataset:
        for episode, length in enumerate([6, 1, 8]):
            made.add(dataset, episode, length, wait=False)
        dataset.flush()
        assert dataset.num_episodes == 3
    made.check(tmp_path / "set", [6, 1, 8])


@pytest.mark.parametrize("wait", [True, False])
def test_failing_encoder_surfaces_and_loses_nothing_finished(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: bool
) -> None:
    import ulna.data.video_encoding as encoding

    made = scene("video")
    dataset = made.create(tmp_path / "set")
    made.add(dataset, 0, 4)
    real = encoding.PictureStats.add

    def fail(self: Any, picture: np.ndarray) -> None:
        if made.number(picture.transpose(2, 0, 1)) == 64 + 2:
            raise OSError(28, "No space left on device")
        real(self, picture)

    monkeypatch.setattr(encoding.PictureStats, "add", fail)
    with pytest.raises(
        DatasetError, match=r"(?s)'observation.images.cam' failed.*No space left.*Finished episodes are safe"
    ):
        record_one(made, dataset, wait)
    dataset.clear_episode_buffer()
    monkeypatch.undo()
    made.add(dataset, 1, 3)
    dataset.finalize()
    made.check(tmp_path / "set", [4, 3])


def record_one(made: Any, dataset: LeRobotDataset, wait: bool) -> None:
    made.add(dataset, 1, 40, wait=wait)
    dataset.flush()


def test_failing_disk_while_storing_loses_nothing_finished(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ulna.data.episode_store as store

    made = scene("video")
    dataset = made.create(tmp_path / "set")
    made.add(dataset, 0, 4)
    for place in ("write_row_groups", "write_rows"):

        def full(*args: Any, **kwargs: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(store, place, full)
            with pytest.raises(DatasetError, match=r"(?s)Episode 1 could not be stored.*episodes before it are safe"):
                made.add(dataset, 1, 3)
        made.check(tmp_path / "set", [4])
        dataset.clear_episode_buffer(unsaved=True)
    made.add(dataset, 1, 2)
    dataset.finalize()
    made.check(tmp_path / "set", [4, 2])


def test_failing_compaction_leaves_a_whole_dataset(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ulna.data.compaction as compaction

    made = scene("video")
    dataset = made.record(tmp_path / "set", [4, 3], finalize=False)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "concatenate", full)
        with pytest.raises(DatasetError, match="whole as it is"):
            dataset.finalize()
    made.check(tmp_path / "set", [4, 3])
    LeRobotDataset.resume("lab/scene", tmp_path / "set", rgb_encoder=RGBEncoderConfig(vcodec="h264")).finalize()
    made.check(tmp_path / "set", [4, 3])
    assert not (tmp_path / "set/data/chunk-000/file-001.parquet").exists()


def test_full_queue_drops_whole_frames(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows and pictures stay together when the encoder cannot keep up."""
    import threading

    import ulna.data.video_encoding as encoding

    made, gate = scene("video"), threading.Event()
    real = encoding.PictureStats.add

    def slow(self: Any, picture: np.ndarray) -> None:
        gate.wait(30)
        real(self, picture)

    dataset = made.create(tmp_path / "set", encoder_queue_maxsize=2, when_full="drop")
    monkeypatch.setattr(encoding.PictureStats, "add", slow)
    with caplog.at_level(logging.ERROR):
        stored = [i for i in range(12) if dataset.add_frame(made.frame(0, i))]
    assert dataset.dropped_frames == 12 - len(stored) > 0
    gate.set()
    dataset.save_episode()
    dataset.finalize()
    opened = LeRobotDataset("lab/scene", tmp_path / "set", return_uint8=True)
    items = [opened.numpy_item(i) for i in range(len(opened))]
    assert [int(item["observation.state"][0]) for item in items] == stored
    assert [made.number(item[CAMERA]) for item in items] == stored


def test_several_tasks_keep_their_order(tmp_path: Path) -> None:
    features = {"x": {"dtype": "float32", "shape": (1,), "names": None}}
    with LeRobotDataset.create("lab/tasks", 30, features, tmp_path / "set") as dataset:
        for task in ("pour", "stop", "pour", "wait"):
            dataset.add_frame({"x": 0.5, "task": task})
        dataset.save_episode()
    assert dataset.meta.tasks == {"pour": 0, "stop": 1, "wait": 2}
    assert dataset.meta.episodes[0]["tasks"] == ["pour", "stop", "wait"]
    assert [item["task"] for item in dataset[:]] == ["pour", "stop", "pour", "wait"]
    assert dataset.meta.get_task_index("stop") == 1
    assert dataset.meta.get_task_index("nothing") is None
