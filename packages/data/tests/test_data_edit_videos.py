# SPDX-License-Identifier: Apache-2.0
"""Videos of edited datasets: every frame the right one, copied where it can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pytest

from ulna.data import (
    LeRobotDataset,
    LeRobotDatasetMetadata,
    RGBEncoderConfig,
    delete_episodes,
    merge_datasets,
)
from ulna.data.arrow_schema import column_array
from ulna.data.checks.validation import validate
from ulna.data.editing import DatasetBuilder, NewEpisode, VideoPiece
from ulna.data.editing.video_cutting import can_copy, encode_cut
from ulna.data.features import parse_features
from ulna.data.info import DatasetInfo
from ulna.data.video_decoding import decoder_pool

GOLDEN = Path(__file__).parent / "golden"
CAMERA = "observation.images.cam"


def sound(root: Path) -> bool:
    problems = [str(problem) for problem in validate("a/b", root).problems]
    assert problems == []
    return True


@pytest.mark.parametrize("codec", ["h264", "libsvtav1", "hevc"])
def test_cutting_shared_videos(scene: Any, tmp_path: Path, codec: str) -> None:
    """Episodes of one frame anywhere, first, last, neighbours; frame-exact after several cuts."""
    made, root = scene("video", codec), tmp_path / "set"
    made.record(root, [1, 3, 1, 1, 4, 2, 1])
    assert len(list((root / "videos").rglob("*.mp4"))) == 1
    kept = [0, 1, 2, 3, 4, 5, 6]
    for gone in (0, 2, 3, 1):
        delete_episodes(root, [gone])
        del kept[gone]
        edited = LeRobotDataset("a/b", root, return_uint8=True)
        numbers = [made.number(edited.numpy_item(i)[CAMERA]) for i in range(len(edited))]
        lengths = [[1, 3, 1, 1, 4, 2, 1][episode] for episode in kept]
        assert numbers == [64 * e + f for e, n in zip(kept, lengths, strict=True) for f in range(n)]
    assert sound(root)


def with_one_key_frame(made: Any, root: Path, lengths: list[int]) -> None:
    """A dataset whose episodes lie in one video that has a key frame at its very beginning only."""
    path, fps = root.with_name("source.mp4"), 30
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=fps, options={"g": "999", "crf": "10", "bf": "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for episode, length in enumerate(lengths):
            for frame in range(length):
                picture = av.VideoFrame.from_ndarray(made.picture(episode, frame), format="rgb24")
                container.mux(stream.encode(picture))
        container.mux(stream.encode())
    features, start = parse_features(made.features(), add_defaults=True), 0
    with DatasetBuilder(root, DatasetInfo(fps, features)) as builder:
        for episode, length in enumerate(lengths):
            rows = np.full((length, 6), episode, np.float32)
            columns = {name: column_array(features[name], rows) for name in ("observation.state", "action")}
            piece = VideoPiece(path, start / fps, length)
            builder.add(NewEpisode(pa.table(columns), ["task"] * length, {CAMERA: piece}))
            start += length
        builder.finish()


@pytest.mark.parametrize("gone", [0, 1])
def test_videos_that_cannot_be_cut_are_encoded_again(scene: Any, tmp_path: Path, gone: int) -> None:
    """Episodes that begin between key frames need frames before them, and cannot be taken out as packets."""
    made, root, lengths = scene("video"), tmp_path / "set", [5, 4, 6]
    with_one_key_frame(made, root, lengths)
    source = LeRobotDatasetMetadata("a/b", root)
    pieces = [
        VideoPiece(source.get_video_file_path(e, CAMERA), source.episodes[f"videos/{CAMERA}/from_timestamp"][e], n)
        for e, n in enumerate(lengths)
    ]
    assert [can_copy(piece, 30) for piece in pieces] == [True, False, False]
    edited = delete_episodes(root, [gone], tmp_path / "out")
    dataset = LeRobotDataset("a/b", edited.root, return_uint8=True)
    expected = [64 * e + f for e, n in enumerate(lengths) if e != gone for f in range(n)]
    assert [made.number(dataset.numpy_item(i)[CAMERA]) for i in range(len(dataset))] == expected
    assert sound(edited.root)


def test_frames_that_depend_on_later_ones_are_copied_whole(scene: Any, tmp_path: Path) -> None:
    """With B-frames the order in the file is not the order of the pictures."""
    made = scene("video")
    options = {"g": "12", "crf": "20", "bf": "2", "x264-params": "b-adapt=0"}
    features = parse_features(made.features(), add_defaults=True)
    root = tmp_path / "set"
    with DatasetBuilder(root, DatasetInfo(30, features)) as builder:
        for episode, length in enumerate((9, 7, 8)):
            path = tmp_path / f"{episode}.mp4"
            with av.open(str(path), "w") as container:
                stream = container.add_stream("libx264", rate=30, options=options)
                stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
                for frame in range(length):
                    picture = av.VideoFrame.from_ndarray(made.picture(episode, frame), format="rgb24")
                    container.mux(stream.encode(picture))
                container.mux(stream.encode())
            rows = np.full((length, 6), episode, np.float32)
            columns = {name: column_array(features[name], rows) for name in ("observation.state", "action")}
            builder.add(NewEpisode(pa.table(columns), ["task"] * length, {CAMERA: VideoPiece(path, 0.0, length)}))
        builder.finish()
    assert len(list((root / "videos").rglob("*.mp4"))) == 1
    edited = delete_episodes(root, [1], tmp_path / "out")
    merged = merge_datasets([edited, root], "a/b", tmp_path / "merged")
    dataset = LeRobotDataset("a/b", merged.root, return_uint8=True)
    expected = [64 * e + f for e, n in ((0, 9), (2, 8), (0, 9), (1, 7), (2, 8)) for f in range(n)]
    assert [made.number(dataset.numpy_item(i)[CAMERA]) for i in range(len(dataset))] == expected
    assert sound(merged.root)


@pytest.mark.parametrize("first", [0, 1, 2, 5])
def test_any_run_of_frames_can_be_encoded_again(tmp_path: Path, first: int) -> None:
    """Depth maps, whose frames depend on earlier and later ones, come out as they were."""
    dataset = LeRobotDataset("a/b", GOLDEN / "depth" / "dataset")
    (camera,) = (key for key in dataset.meta.depth_keys if key in dataset.meta.video_keys)
    path = dataset.meta.get_video_file_path(0, camera)
    encode_cut(VideoPiece(path, first / dataset.fps, 4), tmp_path / "cut.mp4", dataset.fps, {})
    times = [frame / dataset.fps for frame in range(first, first + 4)]
    before = decoder_pool().read(path, times, 1e-4, "gray16")
    after = decoder_pool().read(tmp_path / "cut.mp4", [frame / dataset.fps for frame in range(4)], 1e-4, "gray16")
    np.testing.assert_array_equal(before, after)


def test_depth_videos_are_cut_without_a_loss(tmp_path: Path) -> None:
    """Codes of depth maps are the same before and after."""
    before = LeRobotDataset("a/b", GOLDEN / "depth" / "dataset")
    total = before.num_episodes
    edited = delete_episodes(before, [0], tmp_path / "out")
    kept = LeRobotDataset("a/b", before.root, list(range(1, total)))
    assert len(kept) == len(edited) > 0
    for i in range(len(kept)):
        for camera in kept.meta.camera_keys:
            np.testing.assert_array_equal(edited.numpy_item(i)[camera], kept.numpy_item(i)[camera])


def test_encodings_that_differ_are_merged_into_files_of_their_own(scene: Any, tmp_path: Path) -> None:
    """Files of one codec with other decoder settings cannot share a file; the settings become unknown."""
    made = scene("video")
    made.record(tmp_path / "a", [2, 3])
    made.record(tmp_path / "b", [4], rgb_encoder=RGBEncoderConfig(vcodec="h264", crf=20))
    merged = merge_datasets([tmp_path / "a", tmp_path / "b", tmp_path / "a"], "a/b", tmp_path / "out")
    dataset = LeRobotDataset("a/b", merged.root, return_uint8=True)
    expected = [64 * e + f for e, n in ((0, 2), (1, 3), (0, 4), (0, 2), (1, 3)) for f in range(n)]
    assert [made.number(dataset.numpy_item(i)[CAMERA]) for i in range(len(dataset))] == expected
    described = merged.meta.features[CAMERA]["info"]
    assert described["video.crf"] is None
    assert described["video.codec"] == "h264"
    assert sound(merged.root)


def test_tables_and_videos_roll_at_their_limits(scene: Any, tmp_path: Path) -> None:
    made, root = scene("video"), tmp_path / "set"
    limits = {"data_files_size_in_mb": 0.006, "video_files_size_in_mb": 0.006, "chunks_size": 2}
    made.record(root, [6] * 8, **limits)
    merged = merge_datasets([root, root], "a/b", tmp_path / "out")
    assert len({file.chunk for file in merged.meta.episodes.data_files}) > 1
    for path in [*(merged.root / "data").rglob("*.parquet"), *(merged.root / "videos").rglob("*.mp4")]:
        assert path.stat().st_size < 0.006 * 2**20 * 2.5  # besides what it holds a file has a head of some kilobytes
    dataset = LeRobotDataset("a/b", merged.root, return_uint8=True)
    expected = [64 * e + f for _ in range(2) for e in range(8) for f in range(6)]
    assert [made.number(dataset.numpy_item(i)[CAMERA]) for i in range(len(dataset))] == expected
    assert sound(merged.root)
