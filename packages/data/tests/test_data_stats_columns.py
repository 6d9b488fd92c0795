# SPDX-License-Identifier: Apache-2.0
"""Statistics of many episodes come from a few arrays: the same numbers as one by one, without looking at each."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ulna.data import LeRobotDataset, LeRobotDatasetMetadata, dataset_stats
from ulna.data.dataset_stats import DatasetTotals, episode_parts, whole_stats
from ulna.data.sketches import merged_stats

GOLDEN = Path(__file__).parent / "golden"


def assert_equal(found: Any, wanted: Any) -> None:
    assert found.keys() == wanted.keys()
    for name, stats in wanted.items():
        assert found[name].keys() == stats.keys(), name
        for key, value in stats.items():
            np.testing.assert_allclose(found[name][key], value, rtol=1e-12, atol=1e-15, err_msg=f"{name} {key}")
            assert found[name][key].shape == value.shape


@pytest.fixture
def recorded(scene: Any, tmp_path: Path) -> Path:
    lengths = [3, 150, 1, 40, 7]
    scene("image", size=(8, 10)).record(tmp_path / "set", lengths[:3], data_files_size_in_mb=0.01)
    with LeRobotDataset.resume("lab/scene", tmp_path / "set") as dataset:
        for episode, length in enumerate(lengths[3:], 3):
            for frame in range(length):
                dataset.add_frame(scene("image", size=(8, 10)).frame(episode, frame))
            dataset.save_episode()
    return tmp_path / "set"


def test_same_as_episode_by_episode(recorded: Path) -> None:
    meta = LeRobotDatasetMetadata("lab/scene", recorded)
    assert_equal(whole_stats(meta), merged_stats(episode_parts(meta), checked=True))


def test_no_episode_is_looked_at_on_its_own(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meta = LeRobotDatasetMetadata("lab/scene", recorded)
    wanted = whole_stats(meta)

    def refused(*arguments: Any) -> Any:
        raise AssertionError("an episode was read on its own")

    monkeypatch.setattr(dataset_stats, "read_row_stats", refused)
    assert_equal(whole_stats(meta), wanted)
    DatasetTotals(meta)


def test_missing_sketches_are_made_up_for_from_the_rows(recorded: Path) -> None:
    meta = LeRobotDatasetMetadata("lab/scene", recorded)
    numbers = [name for name, feature in meta.parsed_features.items() if feature.is_numeric]
    wanted = whole_stats(meta)
    first = sorted((recorded / "meta/sketches").rglob("*.parquet"))[0]
    first.unlink()
    found = whole_stats(meta)
    assert_equal({name: found[name] for name in numbers}, {name: wanted[name] for name in numbers})
    assert "q50" not in found["observation.images.cam"]


@pytest.mark.parametrize(
    "case", ["edit_delete_multi_file", "edit_merge_keep_files", "edit_delete_state", "videos_h264"]
)
def test_index_columns_follow_from_the_episode_table(case: str, tmp_path: Path) -> None:
    """Where LeRobot edits, their statistics stay those of other episodes; what is true is told all the same."""
    shutil.copytree(GOLDEN / case / "dataset", tmp_path / "set")
    meta = LeRobotDatasetMetadata("lab/scene", tmp_path / "set")
    stats = whole_stats(meta)
    assert stats["index"]["max"][0] == meta.total_frames - 1
    assert stats["index"]["mean"][0] == pytest.approx((meta.total_frames - 1) / 2, rel=1e-12)
    assert stats["index"]["std"][0] == pytest.approx(np.std(np.arange(meta.total_frames)), rel=1e-12)
    assert stats["episode_index"]["max"][0] == meta.total_episodes - 1
    episodes = np.repeat(np.arange(meta.total_episodes), meta.episodes.lengths)
    assert stats["episode_index"]["mean"][0] == pytest.approx(episodes.mean(), rel=1e-12)
    assert stats["episode_index"]["q90"][0] == pytest.approx(np.quantile(episodes, 0.9))
    assert stats["frame_index"]["max"][0] == meta.episodes.lengths.max() - 1
