# SPDX-License-Identifier: Apache-2.0
"""Depth maps: codes and units, recording into videos and tables, reading in either unit, and what is refused."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from safetensors.numpy import load_file

from ulna.core.errors import DatasetError, DatasetFormatError, FeatureError
from ulna.data import DepthEncoderConfig, LeRobotDataset, LeRobotDatasetMetadata
from ulna.data.depth import DepthCodec
from ulna.data.features import hw_features_to_dataset_features, parse_features

GOLDEN = Path(__file__).parent / "golden" / "depth"
VIDEO, TABLE = "observation.images.depth", "observation.images.depth_mm"
SIZE = (48, 64)
HALF_STEP = 9.1e-4  # of the codes, at 2 m


def features(**dtypes: str) -> dict[str, dict[str, Any]]:
    names = {"video": VIDEO, "image": TABLE}
    declared = {"dtype": "", "shape": (*SIZE, 1), "names": ["height", "width", "channels"]}
    return {names[key]: {**declared, "dtype": dtype, "info": {"is_depth_map": True}} for key, dtype in dtypes.items()}


BOTH = features(video="video", image="image")


def metres(frame: int) -> np.ndarray:
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    return (0.3 + 0.02 * frame + 0.01 * rows + 0.1 * np.sin(columns / 7)).astype(np.float32)[..., None]


def millimetres(frame: int) -> np.ndarray:
    return np.rint(metres(frame) * 1000).astype(np.uint16)


def record(root: Path, lengths: tuple[int, ...] = (3, 1, 4), **options: Any) -> LeRobotDataset:
    with LeRobotDataset.create("lab/depth", 15, BOTH, root, **options) as dataset:
        for length in lengths:
            for frame in range(length):
                dataset.add_frame({VIDEO: metres(frame), TABLE: millimetres(frame), "task": "measure"})
            dataset.save_episode()
    return dataset


def test_codes_are_those_of_lerobot() -> None:
    """The maps that were recorded become exactly the codes that stand in LeRobot's video."""
    truth = load_file(GOLDEN / "golden.safetensors")
    meta = LeRobotDatasetMetadata("a/b", GOLDEN / "dataset")
    codec = DepthCodec.from_feature(meta.parsed_features[VIDEO])
    with av.open(str(meta.get_video_file_path(0, VIDEO))) as container:
        stored = [frame.to_ndarray() for frame in container.decode(video=0)]
    for frame in (0, 3):
        np.testing.assert_array_equal(codec.encode(truth[f"truth/{frame}/{VIDEO}"])[0], stored[frame])


@pytest.mark.parametrize("use_log", [True, False])
def test_every_code_survives_its_distance(use_log: bool) -> None:
    codec, codes = DepthCodec(unit="m", use_log=use_log), np.arange(4096, dtype=np.uint16)
    distances = codec.decode(codes, "m")
    assert distances[0] == pytest.approx(0.01, abs=1e-6)
    assert distances[-1] == pytest.approx(10.0, abs=2e-6)
    assert (np.diff(distances) > 0).all()
    np.testing.assert_array_equal(codec.encode(distances), codes)
    np.testing.assert_allclose(codec.decode(codes, "mm"), distances * 1000, atol=0.501)


def test_distances_out_of_range_get_the_nearest_code() -> None:
    codec = DepthCodec()
    assert codec.encode(np.array([0.0, 0.005, 10.0, 60.0], np.float32)).tolist() == [0, 0, 4095, 4095]
    assert codec.encode(np.array([0, 5, 10_000, 65_535], np.uint16)).tolist() == [0, 0, 4095, 4095]


def test_integers_are_millimetres_and_floats_metres() -> None:
    """The same distances get the same codes, up to the rounding of the one that lies between two."""
    codec = DepthCodec()
    given = codec.encode(millimetres(0)).astype(int), codec.encode(millimetres(0) / 1000).astype(int)
    np.testing.assert_allclose(*given, atol=1)


def test_what_was_recorded_is_read_in_either_unit(tmp_path: Path) -> None:
    record(tmp_path / "set")
    inside = LeRobotDataset("lab/depth", tmp_path / "set", depth_output_unit="m")
    assert inside.meta.depth_keys == [VIDEO, TABLE]
    usual = LeRobotDataset("lab/depth", tmp_path / "set", return_uint8=True)
    for position, frame in enumerate([0, 1, 2, 0, 0, 1, 2, 3]):
        far, near = inside.numpy_item(position), usual.numpy_item(position)
        assert {far[k].dtype for k in (VIDEO, TABLE)} == {near[k].dtype for k in (VIDEO, TABLE)} == {np.dtype("f4")}
        assert far[VIDEO].shape == near[TABLE].shape == (1, *SIZE)
        np.testing.assert_allclose(far[VIDEO][0], metres(frame)[..., 0], atol=HALF_STEP)
        np.testing.assert_array_equal(near[TABLE][0], millimetres(frame)[..., 0])
        np.testing.assert_array_equal(far[TABLE], (near[TABLE] / 1000).astype(np.float32))
        np.testing.assert_allclose(near[VIDEO], far[VIDEO] * 1000, atol=0.5)
    assert usual[0][VIDEO].numpy().dtype == np.float32


def test_metadata_is_what_lerobot_writes(tmp_path: Path) -> None:
    """The keys and values that describe a depth camera are those of LeRobot's own dataset."""
    record(tmp_path / "set", depth_encoder=DepthEncoderConfig())
    ours = json.loads((tmp_path / "set/meta/info.json").read_text())["features"]
    theirs = json.loads((GOLDEN / "dataset/meta/info.json").read_text())["features"]
    assert ours[VIDEO] == theirs[VIDEO]
    assert ours[TABLE] == theirs[TABLE]


def test_statistics_are_kept_as_recorded_and_read_in_the_asked_unit(tmp_path: Path) -> None:
    record(tmp_path / "set")
    maps = np.stack([metres(frame) for frame in [0, 1, 2, 0, 0, 1, 2, 3]]).astype(np.float64)
    stored = json.loads((tmp_path / "set/meta/stats.json").read_text())
    for name, unit in ((VIDEO, 1.0), (TABLE, 1000.0)):
        found = {key: np.asarray(value) for key, value in stored[name].items()}
        wanted = maps if name == VIDEO else np.rint(maps * 1000)
        assert found["mean"].shape == (1, 1, 1)
        assert found["count"].tolist() == [8]
        np.testing.assert_allclose(found["mean"].item(), wanted.mean(), rtol=1e-6)
        np.testing.assert_allclose(found["std"].item(), wanted.std(), rtol=1e-6)
        np.testing.assert_allclose([found["min"].item(), found["max"].item()], [wanted.min(), wanted.max()], rtol=1e-6)
        np.testing.assert_allclose(found["q50"].item(), np.median(wanted), atol=0.01 * unit)
    alone = LeRobotDatasetMetadata("lab/depth", tmp_path / "set").stats
    usual = LeRobotDataset("lab/depth", tmp_path / "set").meta.stats
    inside = LeRobotDataset("lab/depth", tmp_path / "set", depth_output_unit="m").meta.stats
    assert alone is not None
    assert usual is not None
    assert inside is not None
    assert alone[VIDEO]["max"].item() == inside[VIDEO]["max"].item() == pytest.approx(maps.max())
    assert usual[VIDEO]["max"].item() == pytest.approx(maps.max() * 1000)
    assert usual[TABLE]["max"].item() == pytest.approx(inside[TABLE]["max"].item() * 1000)
    assert usual[VIDEO]["count"].tolist() == [8]


def test_going_on_keeps_statistics_in_the_recorded_unit(tmp_path: Path) -> None:
    record(tmp_path / "set", (2,))
    with LeRobotDataset.resume("lab/depth", tmp_path / "set") as more:
        more.add_frame({VIDEO: metres(9), TABLE: millimetres(9), "task": "measure"})
        more.save_episode()
    stats = LeRobotDatasetMetadata("lab/depth", tmp_path / "set").stats
    assert stats is not None
    assert stats[VIDEO]["max"].item() == pytest.approx(metres(9).max())
    assert stats[VIDEO]["min"].item() == pytest.approx(metres(0).min())


def test_frames_that_were_read_can_be_recorded_again(tmp_path: Path) -> None:
    """Copying item by item changes no code when the maps are read in the unit they are recorded in."""
    record(tmp_path / "set", (3,))
    source = LeRobotDataset("lab/depth", tmp_path / "set", depth_output_unit="m")
    with LeRobotDataset.create("lab/copy", 15, features(video="video"), tmp_path / "copy") as copy:
        for position in range(3):
            item = source[position]
            del item[TABLE]
            copy.add_frame(item)
        copy.save_episode()
    again = LeRobotDataset("lab/copy", tmp_path / "copy", depth_output_unit="m")
    for position in range(3):
        np.testing.assert_array_equal(again.numpy_item(position)[VIDEO], source.numpy_item(position)[VIDEO])


def test_float_maps_in_millimetres_are_refused(tmp_path: Path) -> None:
    """An item read in millimetres is float: taken for metres, it would silently lie behind the farthest distance."""
    record(tmp_path / "set", (1,))
    item = LeRobotDataset("lab/depth", tmp_path / "set")[0]
    with LeRobotDataset.create("lab/copy", 15, BOTH, tmp_path / "copy") as copy:
        with pytest.raises(FeatureError, match=r"metres \(floats\) must lie in 0 to 200(?s:.*)depth_output_unit"):
            copy.add_frame(item)
        assert not copy.has_pending_frames


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((*SIZE, 1), np.uint8), "dtype uint8 cannot hold distances"),
        (np.zeros((*SIZE, 1), bool), "dtype bool cannot hold distances"),
        (np.full((*SIZE, 1), np.nan, np.float32), "must lie in 0 to 200, got values from nan"),
        (np.full((*SIZE, 1), -1, np.int32), "must lie in 0 to 65535, got values from -1"),
        (np.zeros((*SIZE, 3), np.uint16), "expected shape"),
        (np.zeros((*SIZE, 1), np.uint16), "is recorded in 'm' since its first frame, got uint16"),
    ],
)
@pytest.mark.parametrize("kind", ["video", "image"])
def test_maps_that_do_not_fit_are_refused_at_once(tmp_path: Path, kind: str, value: np.ndarray, message: str) -> None:
    """An unsupported map is refused when it is added, not noticed when the episode is saved."""
    declared = features(**{kind: kind})
    (name,) = declared
    with LeRobotDataset.create("lab/depth", 15, declared, tmp_path / "set") as dataset:
        dataset.add_frame({name: metres(0), "task": "t"})
        with pytest.raises(FeatureError, match=message.replace("(", r"\(").replace(")", r"\)")):
            dataset.add_frame({name: value, "task": "t"})
        dataset.add_frame({name: metres(1), "task": "t"})
        dataset.save_episode()
    read = LeRobotDataset("lab/depth", tmp_path / "set", depth_output_unit="m")
    np.testing.assert_allclose(read.numpy_item(1)[name][0], metres(1)[..., 0], atol=HALF_STEP)


def test_maps_may_come_in_any_usual_layout(tmp_path: Path) -> None:
    declared = features(image="image")
    with LeRobotDataset.create("lab/depth", 15, declared, tmp_path / "set") as dataset:
        given = millimetres(0)
        for value in (given, given[..., 0], given.transpose(2, 0, 1), given.astype(np.int32)):
            dataset.add_frame({TABLE: value, "task": "t"})
        dataset.save_episode()
    read = LeRobotDataset("lab/depth", tmp_path / "set")
    for position in range(4):
        np.testing.assert_array_equal(read.numpy_item(position)[TABLE][0], given[..., 0])


def test_a_discarded_first_episode_does_not_fix_the_unit(tmp_path: Path) -> None:
    with LeRobotDataset.create("lab/depth", 15, features(video="video"), tmp_path / "set") as dataset:
        dataset.add_frame({VIDEO: metres(0), "task": "t"})
        dataset.clear_episode_buffer()
        dataset.add_frame({VIDEO: millimetres(0), "task": "t"})
        dataset.save_episode()
    read = LeRobotDataset("lab/depth", tmp_path / "set")
    assert read.meta.parsed_features[VIDEO].camera_info["depth_unit"] == "mm"
    np.testing.assert_allclose(read.numpy_item(0)[VIDEO][0], millimetres(0)[..., 0], atol=1.0)


def test_the_steps_of_a_camera_never_change(tmp_path: Path) -> None:
    """Going on with other steps than the first episodes is refused; without settings the recorded ones are used."""
    near = DepthEncoderConfig(depth_max=4.0, shift=1.0)
    record(tmp_path / "set", (2,), depth_encoder=near)
    with pytest.raises(DatasetError, match=r"(?s)recorded with .*'depth_max': 4.0.*Leave depth_encoder out"):
        LeRobotDataset.resume("lab/depth", tmp_path / "set", depth_encoder=DepthEncoderConfig(depth_max=9.0))
    with LeRobotDataset.resume("lab/depth", tmp_path / "set") as more:
        more.add_frame({VIDEO: metres(5), TABLE: millimetres(5), "task": "measure"})
        more.save_episode()
    read = LeRobotDataset("lab/depth", tmp_path / "set", depth_output_unit="m")
    np.testing.assert_allclose(read.numpy_item(2)[VIDEO][0], metres(5)[..., 0], atol=4.5e-4)


def test_depth_of_unknown_unit_is_given_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(GOLDEN / "dataset", tmp_path / "set")
    path = tmp_path / "set/meta/info.json"
    info = json.loads(path.read_text())
    for name in (VIDEO, TABLE):
        del info["features"][name]["info"]["depth_unit"]
    path.write_text(json.dumps(info))
    with caplog.at_level(logging.WARNING):
        dataset = LeRobotDataset("a/b", tmp_path / "set", depth_output_unit="m")
    assert all(text in caplog.text for text in ("depth_unit", VIDEO, TABLE))
    item, known = dataset.numpy_item(0), LeRobotDataset("a/b", GOLDEN / "dataset").numpy_item(0)
    np.testing.assert_array_equal(item[TABLE], known[TABLE])
    assert item[VIDEO].max() < 10  # codes mean metres, whatever was recorded
    assert dataset.meta.stats == dataset.meta.recorded_stats


def test_old_marks_of_depth_are_understood() -> None:
    base = {"dtype": "video", "shape": (*SIZE, 1), "names": None}
    for mark in ({"info": {"video.is_depth_map": True}}, {"video_info": {"video.is_depth_map": True}}):
        assert parse_features({"cam": {**base, **mark}})["cam"].is_depth
    assert not parse_features({"cam": {**base, "info": {"is_depth_map": False}}})["cam"].is_depth


def test_a_camera_with_one_channel_is_a_depth_camera() -> None:
    mapped = hw_features_to_dataset_features({"depth": (48, 64, 1), "front": (48, 64, 3)})
    parsed = parse_features(mapped)
    assert parsed["observation.images.depth"].is_depth
    assert not parsed["observation.images.front"].is_depth


@pytest.mark.parametrize(
    ("info", "channels", "message"),
    [
        ({}, 1, "has 1 channel, but is not declared to hold depth maps"),
        ({"is_depth_map": True}, 3, "with 3 channels cannot be recorded; depth maps have 1"),
        ({}, 4, "with 4 channels cannot be recorded; colour pictures have 3"),
    ],
)
def test_channels_must_fit_the_kind_of_camera(
    tmp_path: Path, info: dict[str, Any], channels: int, message: str
) -> None:
    declared = {"cam": {"dtype": "video", "shape": (*SIZE, channels), "names": None, "info": info}}
    with pytest.raises(FeatureError, match=message):
        LeRobotDataset.create("lab/depth", 15, declared, tmp_path / "set")


def test_wrong_units_and_wrong_descriptions_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="read in 'mm' or 'm', not in 'cm'"):
        LeRobotDataset("a/b", GOLDEN / "dataset", depth_output_unit="cm")  # type: ignore[arg-type]
    feature = parse_features(features(video="video"))[VIDEO]
    feature.extra["info"]["depth_unit"] = "inch"
    with pytest.raises(DatasetFormatError, match="depth_unit is 'inch'; expected 'mm' or 'm'"):
        DepthCodec.from_feature(feature)
    with pytest.raises(DatasetFormatError, match="cannot be quantised"):
        DepthCodec(depth_min=5, depth_max=1)


def test_a_colour_video_is_not_taken_for_depth(tmp_path: Path) -> None:
    """A file without the codes that info.json promises is named, instead of giving distances made of colours."""
    source = Path(__file__).parent / "golden/videos_h264/dataset"
    shutil.copytree(source, tmp_path / "set")
    path = tmp_path / "set/meta/info.json"
    info = json.loads(path.read_text())
    camera = next(name for name, f in info["features"].items() if f["dtype"] == "video")
    info["features"][camera]["info"]["is_depth_map"] = True
    path.write_text(json.dumps(info))
    with pytest.raises(DatasetFormatError, match="should hold depth codes, but its pixel format is yuv420p"):
        LeRobotDataset("a/b", tmp_path / "set").numpy_item(0)


def test_picture_transforms_leave_depth_alone(tmp_path: Path) -> None:
    record(tmp_path / "set", (1,))
    seen: list[int] = []
    dataset = LeRobotDataset("lab/depth", tmp_path / "set", image_transforms=lambda picture: seen.append(1) or picture)
    np.testing.assert_array_equal(dataset[0][TABLE].numpy()[0], millimetres(0)[..., 0])
    assert seen == []


def test_an_interrupted_recording_of_depth_loses_at_most_the_last_map(tmp_path: Path) -> None:
    """All others that were added before the process died are recovered, with their statistics and unit."""
    root = tmp_path / "set"
    child = f"""
import os, shutil, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import numpy as np
from ulna.data import LeRobotDataset
from ulna.data.recovery import find_unfinished
from test_data_depth import BOTH, VIDEO, TABLE, metres, millimetres
dataset = LeRobotDataset.create("lab/depth", 15, BOTH, {str(root)!r})
for frame in range(4):
    dataset.add_frame({{VIDEO: metres(frame), TABLE: millimetres(frame), "task": "measure"}})
copy, frames, deadline = Path({str(tmp_path / "copy")!r}), 0, time.monotonic() + 60
while frames < 3 and time.monotonic() < deadline:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(dataset.root, copy)
    frames = sum(left.frames for left in find_unfinished(copy))
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", child], check=False).returncode == 9
    LeRobotDataset.resume("lab/depth", root, recover=True).finalize()
    read = LeRobotDataset("lab/depth", root, depth_output_unit="m")
    assert 3 <= len(read) <= 4
    for frame in range(len(read)):
        item = read.numpy_item(frame)
        np.testing.assert_allclose(item[VIDEO][0], metres(frame)[..., 0], atol=HALF_STEP)
        np.testing.assert_allclose(item[TABLE][0], millimetres(frame)[..., 0] / 1000, rtol=1e-6)
    assert read.meta.stats is not None
    assert read.meta.stats[VIDEO]["count"].tolist() == [len(read)]
    assert read.meta.stats[VIDEO]["max"].item() == pytest.approx(metres(len(read) - 1).max(), abs=HALF_STEP)


def test_float_maps_in_a_table_keep_every_bit(tmp_path: Path) -> None:
    with LeRobotDataset.create("lab/depth", 15, features(image="image"), tmp_path / "set") as dataset:
        dataset.add_frame({TABLE: metres(0), "task": "t"})
        dataset.save_episode()
    for unit, scale in (("m", 1.0), ("mm", 1000.0)):
        read = LeRobotDataset("lab/depth", tmp_path / "set", depth_output_unit=unit)  # type: ignore[arg-type]
        wanted = (metres(0).astype(np.float64) * scale).astype(np.float32)
        np.testing.assert_array_equal(read.numpy_item(0)[TABLE][0], wanted[..., 0])
        np.testing.assert_array_equal(read.get_raw_item(0)[TABLE].numpy()[0], wanted[..., 0])
