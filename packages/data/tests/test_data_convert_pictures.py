# SPDX-License-Identifier: Apache-2.0
"""Cameras that become videos, are encoded again or are cropped: the right frames, complete metadata, nothing lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from typer.testing import CliRunner

from ulna.core.errors import DatasetError, DatasetFormatError
from ulna.data import DepthEncoderConfig, LeRobotDataset, RGBEncoderConfig
from ulna.data.commands import app
from ulna.data.editing.convert_images import convert_image_to_video_dataset
from ulna.data.editing.crop import Region, crop_dataset_roi
from ulna.data.editing.reencode import reencode_dataset

GOLDEN = Path(__file__).parent / "golden"
IMAGES, VIDEOS, DEPTH = (GOLDEN / case / "dataset" for case in ("images", "videos_h264", "depth"))
FRONT, WRIST = "observation.images.front", "observation.images.wrist"
DEPTH_VIDEO, DEPTH_PICTURES = "observation.images.depth", "observation.images.depth_mm"
H264 = RGBEncoderConfig(vcodec="h264", crf=18)
QUANTILES = {"q01", "q10", "q50", "q90", "q99"}


def golden(case: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((GOLDEN / case / "golden.json").read_text())
    return facts


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pictures(dataset: LeRobotDataset, key: str) -> np.ndarray:
    return np.stack([dataset.numpy_item(i)[key] for i in range(len(dataset))])


def others_equal(new: LeRobotDataset, old: LeRobotDataset, but: set[str]) -> None:
    """Compare every item but some cameras."""
    assert len(new) == len(old)
    for i in range(len(old)):
        item, wanted = new.numpy_item(i), old.numpy_item(i)
        assert set(item) == set(wanted)
        for name in wanted.keys() - but:
            np.testing.assert_array_equal(item[name], wanted[name], err_msg=f"{i}/{name}")


def key_frames(path: Path) -> list[int]:
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    return [i for i, packet in enumerate(packets) if packet.is_keyframe]


@pytest.fixture(scope="module")
def as_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("video") / "new"
    convert_image_to_video_dataset(IMAGES, root, rgb_encoder=H264)
    return root


def test_pictures_become_videos_with_the_same_frames(as_video: Path, scene: Any) -> None:
    new, old = LeRobotDataset("a/b", as_video), LeRobotDataset("a/b", IMAGES)
    others_equal(new, old, {FRONT, WRIST})
    for camera, numbers in golden("edit_image_to_video")["frame_numbers"].items():
        read = pictures(new, camera)
        assert [scene().number(picture * 255) for picture in read] == numbers
        assert np.abs(read - pictures(old, camera)).mean() < 0.04


def test_the_metadata_of_new_videos_is_complete(as_video: Path) -> None:
    """Tasks, the place of each row, and statistics of the cameras are there, where LeRobot's result lacks them."""
    meta, info = LeRobotDataset("a/b", as_video).meta, golden("edit_image_to_video")
    assert meta.findings == []
    assert {n: {**f, "shape": list(f["shape"])} for n, f in meta.features.items()} == info["features"]
    rows = [*meta.episodes]
    for row, theirs in zip(rows, info["episodes"], strict=True):
        assert {key: row[key] for key in theirs} == theirs
        assert row["meta/episodes/chunk_index"] == row["meta/episodes/file_index"] == 0
    assert [row["tasks"] for row in rows] == LeRobotDataset("a/b", IMAGES).meta.episodes["tasks"]
    before = json.loads((IMAGES / "meta/stats.json").read_text())
    for camera in (FRONT, WRIST):
        found = meta.stats[camera] if meta.stats else {}
        assert found.keys() >= QUANTILES
        for stat in ("min", "max", "mean", "std"):
            np.testing.assert_allclose(found[stat], before[camera][stat], atol=2e-4, err_msg=stat)


def test_chosen_episodes_are_numbered_anew(tmp_path: Path, scene: Any) -> None:
    new = convert_image_to_video_dataset(IMAGES, tmp_path / "new", rgb_encoder=H264, episode_indices=[2, 1])
    assert new.meta.findings == []
    assert new.meta.episodes["episode_index"] == [0, 1]
    assert new.meta.episodes["length"] == [15, 10]
    numbers = golden("edit_image_to_video")["frame_numbers"][FRONT][12:]
    assert [scene().number(picture * 255) for picture in pictures(new, FRONT)] == numbers
    assert [int(new.numpy_item(i)["index"]) for i in range(len(new))] == list(range(25))
    assert list(new.meta.tasks) == ["put the cube in the box", "pick up the cube"]


def test_one_camera_can_stay_as_it_is(tmp_path: Path) -> None:
    new = convert_image_to_video_dataset(IMAGES, tmp_path / "new", rgb_encoder=H264, cameras=[WRIST])
    others_equal(new, LeRobotDataset("a/b", IMAGES), {WRIST})
    assert (new.meta.video_keys, new.meta.image_keys) == ([WRIST], [FRONT])
    assert new.meta.stats is not None
    assert new.meta.stats[FRONT].keys() >= QUANTILES


def test_depth_maps_become_video_within_half_a_step(tmp_path: Path) -> None:
    new, old = convert_image_to_video_dataset(DEPTH, tmp_path / "new"), LeRobotDataset("a/b", DEPTH)
    others_equal(new, old, {DEPTH_PICTURES})
    assert np.abs(pictures(new, DEPTH_PICTURES) - pictures(old, DEPTH_PICTURES)).max() <= 1.0
    info = new.meta.features[DEPTH_PICTURES]["info"]
    assert (info["depth_unit"], info["is_depth_map"], info["video.pix_fmt"]) == ("mm", True, "gray12le")
    stored = json.loads((new.root / "meta/stats.json").read_text())[DEPTH_PICTURES]
    before = json.loads((DEPTH / "meta/stats.json").read_text())[DEPTH_PICTURES]
    np.testing.assert_allclose(stored["mean"], before["mean"], rtol=1e-4)


@pytest.mark.parametrize(
    ("root", "options", "words"),
    [
        (VIDEOS, {}, ["no camera", FRONT]),
        (IMAGES, {"cameras": ["observation.images.fornt"]}, ["fornt", f"Did you mean '{FRONT}'"]),
        (IMAGES, {"episode_indices": [3]}, ["no episode 3", "0 to 2"]),
        (IMAGES, {"episode_indices": []}, ["No episode"]),
    ],
)
def test_what_cannot_become_video_is_refused(
    tmp_path: Path, root: Path, options: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(DatasetError) as refused:
        convert_image_to_video_dataset(root, tmp_path / "new", **options)
    assert [word for word in words if word not in str(refused.value)] == []
    assert list(tmp_path.iterdir()) == []


def test_an_odd_size_is_refused_before_anything_is_written(tmp_path: Path, scene: Any) -> None:
    scene("image", size=(48, 63)).record(tmp_path / "old", [2])
    before = contents(tmp_path / "old")
    with pytest.raises(DatasetError, match="even height and width"):
        convert_image_to_video_dataset(tmp_path / "old", rgb_encoder=H264)
    assert contents(tmp_path / "old") == before
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_some_episodes_do_not_replace_all(tmp_path: Path, scene: Any) -> None:
    scene("image").record(tmp_path / "old", [2, 3])
    with pytest.raises(DatasetError, match="would delete the others"):
        convert_image_to_video_dataset(tmp_path / "old", rgb_encoder=H264, episode_indices=[0])
    scene("image").check(tmp_path / "old", [2, 3])


def test_pictures_become_videos_in_place(tmp_path: Path, scene: Any) -> None:
    """One frame an episode, and a second recording behind it: the result can be continued."""
    made = scene("image", size=(48, 64))
    made.record(tmp_path / "old", [1, 4, 1])
    seen: list[tuple[int, int]] = []
    convert_image_to_video_dataset(
        tmp_path / "old", rgb_encoder=H264, progress=lambda done, total: seen.append((done, total))
    )
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert seen[-1] == (3, 3)
    video = scene("video")
    video.check(tmp_path / "old", [1, 4, 1])
    with LeRobotDataset.resume("lab/scene", tmp_path / "old", rgb_encoder=H264) as more:
        video.add(more, 3, 2)
    video.check(tmp_path / "old", [1, 4, 1, 2])


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("again") / "new"
    config = RGBEncoderConfig(vcodec="h264", crf=20, g=10)
    reencode_dataset(VIDEOS, config, output_dir=root)
    return root


def test_videos_encoded_again_show_the_same_frames(again: Path, scene: Any) -> None:
    new, old = LeRobotDataset("a/b", again), LeRobotDataset("a/b", VIDEOS)
    others_equal(new, old, {FRONT, WRIST})
    for camera, numbers in golden("edit_reencode")["frame_numbers"].items():
        read = pictures(new, camera)
        assert [scene().number(picture * 255) for picture in read] == numbers
        assert np.abs(read - pictures(old, camera)).mean() < 0.04


def test_info_tells_how_videos_are_encoded_now(again: Path) -> None:
    """And every number of the episode table, tasks and statistics are LeRobot's."""
    meta, info = LeRobotDataset("a/b", again).meta, golden("edit_reencode")
    assert meta.findings == []
    assert {n: {**f, "shape": list(f["shape"])} for n, f in meta.features.items()} == info["features"]
    assert [*meta.episodes] == info["episodes"]
    assert list(meta.tasks) == info["tasks"]
    assert {f: {s: v.tolist() for s, v in values.items()} for f, values in (meta.stats or {}).items()} == info["stats"]


def test_each_episode_begins_with_a_key_frame(again: Path) -> None:
    """So that it can be cut out without encoding it another time."""
    assert {0, 20, 65} <= set(key_frames(again / f"videos/{FRONT}/chunk-000/file-000.mp4"))


def test_other_cameras_and_tables_share_their_files(tmp_path: Path, scene: Any) -> None:
    scene("video").record(tmp_path / "old", [3, 2])
    table = "data/chunk-000/file-000.parquet"
    reencode_dataset(tmp_path / "old", RGBEncoderConfig(vcodec="h264", g=4), output_dir=tmp_path / "new")
    assert (tmp_path / "new" / table).samefile(tmp_path / "old" / table)
    scene("video").check(tmp_path / "new", [3, 2])
    scene("video").check(tmp_path / "old", [3, 2])


def test_one_camera_is_encoded_again_in_place(tmp_path: Path) -> None:
    root = tmp_path / "set"
    LeRobotDataset("a/b", VIDEOS)
    for name, data in contents(VIDEOS).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    seen: list[tuple[int, int]] = []
    new = reencode_dataset(
        root, RGBEncoderConfig(g=8), cameras=[FRONT], progress=lambda done, total: seen.append((done, total))
    )
    assert (new.root, seen) == (root, [(1, 1)])
    others_equal(new, LeRobotDataset("a/b", VIDEOS), {FRONT})
    assert new.meta.features[FRONT]["info"]["video.codec"] == "av1"
    assert new.meta.features[WRIST]["info"]["video.codec"] == "h264"
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_depth_keeps_every_distance(tmp_path: Path) -> None:
    new = reencode_dataset(DEPTH, depth_encoder=DepthEncoderConfig(g=4), output_dir=tmp_path / "new")
    others_equal(new, LeRobotDataset("a/b", DEPTH), set())
    assert new.meta.features[DEPTH_VIDEO]["info"]["video.g"] == 4


def test_depth_with_other_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"'depth_max': 10\.0.*'depth_max': 5\.0"):
        reencode_dataset(DEPTH, depth_encoder=DepthEncoderConfig(depth_max=5.0), output_dir=tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_camera_that_is_no_video_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="images-to-video"):
        reencode_dataset(IMAGES, output_dir=tmp_path / "new")
    with pytest.raises(DatasetError, match=f"Did you mean '{FRONT}'"):
        reencode_dataset(VIDEOS, cameras=["observation.images.frnt"], output_dir=tmp_path / "new")


def test_a_lost_frame_stops_the_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes out is counted before it counts; nothing is left behind."""
    from ulna.data.video_encoding import mux_packets as honest

    def loses_one(output: Any, packets: Any) -> int:
        return honest(output, list(packets)[1:])

    monkeypatch.setattr("ulna.data.editing.reencode.mux_packets", loses_one)
    with pytest.raises(DatasetError, match=r"98 frames, of which \d+ came out"):
        reencode_dataset(VIDEOS, H264, output_dir=tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_video_is_named_and_nothing_changes(tmp_path: Path, scene: Any) -> None:
    scene("video").record(tmp_path / "old", [30])
    video = tmp_path / "old/videos/observation.images.cam/chunk-000/file-000.mp4"
    data = bytearray(video.read_bytes())
    start = data.index(b"mdat") + 200
    data[start : start + 1500] = bytes(1500)
    video.write_bytes(bytes(data))
    before = contents(tmp_path / "old")
    with pytest.raises((DatasetError, DatasetFormatError), match=r"file-000\.mp4"):
        reencode_dataset(tmp_path / "old", H264)
    assert contents(tmp_path / "old") == before
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("root", [IMAGES, VIDEOS])
def test_a_region_is_cut_out_of_every_picture(tmp_path: Path, root: Path) -> None:
    new = crop_dataset_roi(root, {FRONT: (10, 20, 32, 36)}, output_dir=tmp_path / "new")
    old = LeRobotDataset("a/b", root)
    others_equal(new, old, {FRONT})
    wanted, read = pictures(old, FRONT)[:, :, 10:42, 20:56], pictures(new, FRONT)
    assert np.abs(read - wanted).mean(axis=(1, 2, 3)).max() < (0.04 if root is VIDEOS else 1e-9)
    assert new.meta.findings == []
    assert new.meta.features[FRONT]["shape"] == (32, 36, 3)
    if root is VIDEOS:
        info = new.meta.features[FRONT]["info"]
        assert (info["video.height"], info["video.width"], info["video.codec"]) == (32, 36, "h264")
    assert json.loads((tmp_path / "new/meta/crop_params.json").read_text()) == {FRONT: [10, 20, 32, 36]}
    assert new.meta.stats is not None
    np.testing.assert_allclose(new.meta.stats[FRONT]["mean"].ravel(), wanted.mean(axis=(0, 2, 3)), atol=1e-3)
    assert new.meta.stats[WRIST].keys() >= QUANTILES


def test_a_region_is_scaled(tmp_path: Path) -> None:
    new = crop_dataset_roi(IMAGES, {FRONT: (8, 8, 40, 48)}, (20, 24), tmp_path / "new")
    wanted = pictures(LeRobotDataset("a/b", IMAGES), FRONT)[:, :, 8:48, 8:56]
    halved = wanted.reshape(37, 3, 20, 2, 24, 2).mean(axis=(3, 5))
    assert np.abs(pictures(new, FRONT) - halved).mean() < 0.02


def test_every_camera_is_scaled_when_none_is_named(tmp_path: Path) -> None:
    new = crop_dataset_roi(IMAGES, {}, (24, 32), tmp_path / "new")
    assert {new.meta.shapes[key] for key in new.meta.camera_keys} == {(24, 32, 3)}


def test_a_region_of_depth_keeps_its_distances(tmp_path: Path) -> None:
    """Scaling picks distances and never mixes them: no point hangs between an edge and what is behind it."""
    regions = {DEPTH_VIDEO: (8, 4, 16, 20), DEPTH_PICTURES: (8, 4, 16, 20)}
    new, old = crop_dataset_roi(DEPTH, regions, output_dir=tmp_path / "new"), LeRobotDataset("a/b", DEPTH)
    for key in regions:
        np.testing.assert_array_equal(pictures(new, key), pictures(old, key)[:, :, 8:24, 4:24])
        assert new.meta.stats is not None
        np.testing.assert_allclose(new.meta.stats[key]["max"].max(), pictures(new, key).max(), atol=0.5)
    picture = np.arange(48).reshape(6, 8, 1).astype(np.uint16)
    assert Region(0, 0, 6, 8, (3, 4))(picture)[..., 0].tolist() == picture[1::2, 1::2, 0].tolist()


@pytest.mark.parametrize(
    ("regions", "resize", "words"),
    [
        ({}, None, ["nothing to do"]),
        ({"observation.images.fornt": (0, 0, 8, 8)}, None, ["fornt", f"Did you mean '{FRONT}'"]),
        ({FRONT: (0, 0, 49, 8)}, None, [FRONT, "rows 0 to 49", "48 rows"]),
        ({FRONT: (0, 60, 8, 8)}, None, [FRONT, "columns 60 to 68"]),
        ({FRONT: (-1, 0, 8, 8)}, None, [FRONT, "-1"]),
        ({FRONT: (0, 0, 8)}, None, [FRONT, "top, left, height, width"]),
        ({FRONT: (0, 0, 8, 8)}, (0, 8), ["resize"]),
    ],
)
def test_a_region_that_makes_no_sense_is_refused(
    tmp_path: Path, regions: dict[str, Any], resize: Any, words: list[str]
) -> None:
    with pytest.raises(DatasetError) as refused:
        crop_dataset_roi(IMAGES, regions, resize, tmp_path / "new")
    assert [word for word in words if word not in str(refused.value)] == []
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def invoke() -> Callable[..., Any]:
    def run(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["edit", *map(str, arguments)])

    return run


def test_commands_write_beside_the_dataset_unless_told_otherwise(
    tmp_path: Path, scene: Any, invoke: Callable[..., Any]
) -> None:
    root = tmp_path / "set"
    scene("image").record(root, [2, 1])
    before = contents(root)
    for command, suffix in [
        (("images-to-video", root, "--codec", "h264"), "video"),
        (("crop", root, "--roi", "observation.images.cam=0,0,24,32"), "cropped"),
    ]:
        result = invoke(*command)
        assert result.exit_code == 0, result.output
        assert result.stdout == f"{tmp_path / f'set_{suffix}'}\n"
    assert contents(root) == before
    result = invoke("reencode", tmp_path / "set_video", "--codec", "h264", "--g", 4, "--in-place")
    assert result.exit_code == 0, result.output
    scene("video").check(tmp_path / "set_video", [2, 1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set", "set_cropped", "set_video"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["images-to-video", IMAGES, "--codec", "h265x"], ["h265x"]),
        (["crop", IMAGES, "--roi", f"{FRONT}=1,2,3"], ["4 whole numbers", "1,2,3"]),
        (["crop", IMAGES, "--resize", "big"], ["--resize", "big"]),
        (["reencode", VIDEOS, "--in-place", "--output", "x"], ["exclude one another"]),
    ],
)
def test_wrong_options_end_in_a_message(
    arguments: list[object],
    words: list[str],
    invoke: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert result.exit_code != 0
    assert [word for word in words if word not in result.output] == []
