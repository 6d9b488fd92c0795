# SPDX-License-Identifier: Apache-2.0
"""Arguments that programs written for LeRobot pass when they record: accepted, and what changes nothing is said."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from ulna.core.errors import DatasetError
from ulna.data import DepthEncoderConfig, LeRobotDataset, RGBEncoderConfig
from ulna.data.write_options import with_threads


def test_arguments_without_a_meaning_are_answered_by_one_warning(scene: Any, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="changes nothing here") as caught:
        dataset = scene("image").create(
            tmp_path / "set", image_writer_processes=2, image_writer_threads=4, metadata_buffer_size=1
        )
    dataset.finalize()
    (warning,) = caught
    text = str(warning.message)
    assert "image_writer_processes=2, image_writer_threads=4, metadata_buffer_size=1 changes nothing here" in text
    assert text.count("each camera has its own thread") == 1
    assert warning.filename.endswith("conftest.py")  # where create was called


def test_usual_values_are_taken_silently(scene: Any, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = scene().create(
            tmp_path / "set",
            image_writer_processes=0,
            image_writer_threads=0,
            batch_encoding_size=1,
            streaming_encoding=False,
            metadata_buffer_size=10,
            video_backend="pyav",
            data_files_size_in_mb=None,
            video_files_size_in_mb=None,
        )
        scene().add(dataset, 0, 2, parallel_encoding=True)
        dataset.finalize()
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    assert (info["data_files_size_in_mb"], info["video_files_size_in_mb"]) == (100, 200)


def test_a_batch_of_episodes_is_recorded(scene: Any, tmp_path: Path) -> None:
    """Asking for batches of episodes gives the dataset that was asked for, however many episodes there are."""
    with pytest.warns(DeprecationWarning, match="batch_encoding_size=2 .*encoded while they are recorded"):
        dataset = scene("video").create(tmp_path / "set", batch_encoding_size=2)
    for episode, length in enumerate([2, 3, 2]):
        scene("video").add(dataset, episode, length)
    dataset.finalize()
    scene("video").check(tmp_path / "set", [2, 3, 2])


def test_going_on_and_opening_take_them_too(scene: Any, tmp_path: Path) -> None:
    scene().record(tmp_path / "set", [2])
    with pytest.warns(DeprecationWarning, match="image_writer_threads=3 changes nothing"):
        LeRobotDataset.resume("lab/scene", tmp_path / "set", image_writer_threads=3).finalize()
    with pytest.warns(DeprecationWarning, match="batch_encoding_size=5 changes nothing"):
        opened = LeRobotDataset("lab/scene", tmp_path / "set", batch_encoding_size=5)
    assert len(opened) == 2
    assert len(LeRobotDataset("lab/scene", tmp_path / "set", force_cache_sync=False, download_videos=True)) == 2


def test_saving_explains_its_arguments(scene: Any, tmp_path: Path) -> None:
    dataset = scene().create(tmp_path / "set")
    dataset.add_frame(scene().frame(0, 0))
    with pytest.raises(DatasetError, match="it takes no others"):
        dataset.save_episode({"action": []})
    dataset.save_episode(parallel_encoding=False)
    dataset.finalize()
    assert dataset.num_episodes == 1


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"image_writer_thread": 4}, "Unknown argument 'image_writer_thread'(?s:.*)'image_writer_threads'"),
        ({"batch_encoding_size": -1}, "whole number of 0 or more, got -1"),
        ({"image_writer_threads": "many"}, "got 'many'"),
        ({"video_backend": "gstreamer"}, "gstreamer"),
    ],
)
def test_other_arguments_are_refused_before_anything_is_written(
    scene: Any, tmp_path: Path, option: dict[str, Any], message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        scene().create(tmp_path / "set", **option)
    assert not (tmp_path / "set").exists()


def test_threads_of_encoders_are_set_where_settings_are_silent() -> None:
    colour, depth = with_threads(None, DepthEncoderConfig(), 2)
    assert (colour.threads, depth and depth.threads) == (2, 2)
    assert "lp=2" in colour.options()["svtav1-params"]
    assert with_threads(RGBEncoderConfig(threads=5), None, 2)[0].threads == 5
    assert with_threads(RGBEncoderConfig(vcodec="h264"), None, None)[0].threads is None
