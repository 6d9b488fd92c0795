# SPDX-License-Identifier: Apache-2.0
"""Several datasets read as one: which frames come, what they have in common, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ulna.core.errors import DatasetError
from ulna.data import LeRobotDataset, MultiLeRobotDataset
from ulna.data.info import DatasetInfo

VECTOR = {"dtype": "float32", "shape": (2,), "names": ["x", "y"]}


def record(root: Path, lengths: list[int], base: float, features: dict[str, Any] | None = None, fps: int = 10) -> None:
    declared = features or {"observation.state": VECTOR, "action": VECTOR}
    with LeRobotDataset.create(root.name, fps, declared, root) as dataset:
        for episode, length in enumerate(lengths):
            for frame in range(length):
                values = {
                    name: np.full(feature["shape"], base + 100 * episode + frame, feature["dtype"])
                    for name, feature in declared.items()
                }
                dataset.add_frame({**values, "task": f"{root.name} {episode}"})
            dataset.save_episode()


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    extra = {"dtype": "float32", "shape": (1,), "names": None}
    record(tmp_path / "one", [3, 2], 0, {"observation.state": VECTOR, "action": VECTOR, "force": extra})
    record(tmp_path / "two", [4], 10_000)
    return tmp_path


def test_frames_follow_one_another(pair: Path) -> None:
    """Every frame of every dataset comes in order, with the number of its dataset, and only what all have."""
    both = MultiLeRobotDataset(["one", "two"], pair)
    assert len(both) == both.num_frames == 9
    assert both.num_episodes == 3
    assert both.repo_id_to_index == {"one": 0, "two": 1}
    assert both.repo_index_to_id == {0: "one", 1: "two"}
    assert both.disabled_features == {"force"}
    items = [both[i] for i in range(9)]
    assert [int(item["dataset_index"]) for item in items] == [0] * 5 + [1] * 4
    states = [0, 1, 2, 100, 101, 10_000, 10_001, 10_002, 10_003]
    assert [float(item["observation.state"][0]) for item in items] == states
    assert items[4]["task"] == "one 1"
    assert items[5]["task"] == "two 0"
    assert not any("force" in item for item in items)
    assert set(both.features) == set(items[0]) - {"task", "dataset_index"}
    assert float(both[-1]["action"][0]) == 10_003
    with pytest.raises(IndexError, match="Position 9 is outside 2 datasets of 9 frames"):
        both[9]


def test_episodes_tolerances_and_windows_of_each(pair: Path) -> None:
    """Chosen episodes belong to their dataset, and windows end at its episodes, not at those of the neighbour."""
    both = MultiLeRobotDataset(
        ["two", "one"], pair, {"one": [1]}, delta_timestamps={"action": [-0.1, 0.0, 0.1]}, tolerances_s={"one": 1e-3}
    )
    assert both.tolerances_s == {"two": 1e-4, "one": 1e-3}
    assert both.tolerance_s == 1e-4
    assert len(both) == 6
    assert both.episode_spans() == [(0, 4), (4, 6)]
    last_of_two, first_of_one = both[3], both[4]
    assert last_of_two["action"][:, 0].tolist() == [10_002, 10_003, 10_003]
    assert last_of_two["action_is_pad"].tolist() == [False, False, True]
    assert first_of_one["action"][:, 0].tolist() == [100, 100, 101]
    assert first_of_one["action_is_pad"].tolist() == [True, False, False]


def test_batches_of_a_loader_mix_datasets(pair: Path) -> None:
    """A loader gets the same items as single positions give, in the order it asked for."""
    both = MultiLeRobotDataset(["one", "two"], pair)
    order = [8, 0, 5, 3, 3, 7]
    for many, position in zip(both.__getitems__(order), order, strict=True):
        single = both[position]
        assert many.keys() == single.keys()
        assert torch.equal(many["action"], single["action"])
        assert many["dataset_index"] == single["dataset_index"]
    (batch,) = torch.utils.data.DataLoader(both, batch_size=9)
    assert batch["dataset_index"].tolist() == [0] * 5 + [1] * 4


def test_statistics_are_those_of_all_rows(pair: Path) -> None:
    """Moments and quantiles equal numpy on all rows together, not a mean of the datasets' values."""
    both = MultiLeRobotDataset(["one", "two"], pair)
    rows = np.stack([both[i]["action"].numpy() for i in range(len(both))]).astype(np.float64)
    stats = both.stats["action"]
    assert stats["count"].tolist() == [9]
    np.testing.assert_allclose(stats["mean"], rows.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(stats["std"], rows.std(axis=0), rtol=1e-9)
    np.testing.assert_allclose(stats["q50"], np.quantile(rows, 0.5, axis=0), rtol=1e-9)
    assert "force" not in both.stats


def test_no_fabricated_quantiles(pair: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without the sketches of one dataset there is no quantile of all rows, and a warning says so."""
    shutil.rmtree(pair / "two/meta/sketches")
    stats = MultiLeRobotDataset(["one", "two"], pair).stats["action"]
    assert "q50" not in stats
    assert stats["max"].tolist() == [10_003, 10_003]
    assert "action: 1 of 2 parts have no sketch" in caplog.text


@pytest.mark.parametrize(
    ("features", "fps", "message"),
    [
        (None, 20, r"different frame rates, in frames per second: one 10, other 20"),
        ({"action": {**VECTOR, "shape": (3,), "names": None}}, 10, r"'action' differs: one has shape \(2,\), other"),
        ({"action": {**VECTOR, "dtype": "int64"}}, 10, r"'action' differs: one has dtype float32, other has dtype int"),
        ({"action": {**VECTOR, "names": ["y", "x"]}}, 10, r"'action' differs: one has the order \['x', 'y'\], other"),
        ({"alone": VECTOR}, 10, r"one, other have no feature in common"),
    ],
)
def test_differences_are_named(pair: Path, features: Any, fps: int, message: str) -> None:
    """What cannot be read as one is refused with both values."""
    record(pair / "other", [2], 0, features, fps)
    with pytest.raises(DatasetError, match=message):
        MultiLeRobotDataset(["one", "other"], pair)


def test_other_names_are_told(pair: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Values called otherwise may be the same: that is for the user to know."""
    info = DatasetInfo.load(pair / "two")
    raw = info.to_json()
    raw["features"]["action"]["names"] = ["main_x", "main_y"]
    DatasetInfo._from_json(raw).save(pair / "two")
    assert len(MultiLeRobotDataset(["one", "two"], pair)) == 9
    assert "Names of 'action' differ: one has ['x', 'y'], two has ['main_x', 'main_y']" in caplog.text


@pytest.mark.parametrize(
    ("repo_ids", "options", "message"),
    [
        ([], {}, "No dataset was named"),
        (["one", "two", "one"], {}, "named twice: one"),
        (["one", "two"], {"episodes": {"tow": [0]}}, r"(?s)episodes names 'tow'.*mean 'two'"),
        (["one", "two"], {"tolerances_s": {"three": 1.0}}, "tolerances_s names 'three'"),
        (["one", "two"], {"delta_timestamps": {"force": [0.0]}}, r"names 'force', which two does not have"),
        (["one", "two"], {"episodes": {"one": [5]}}, r"\[5\] do not exist"),
    ],
)
def test_wrong_arguments_name_themselves(pair: Path, repo_ids: list[str], options: Any, message: str) -> None:
    """A name, episode or window that is not there is named."""
    with pytest.raises(DatasetError, match=message):
        MultiLeRobotDataset(repo_ids, pair, **options)


def test_cameras_that_not_all_have_are_not_decoded(tmp_path: Path, scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A camera of one dataset alone costs nothing."""
    scene(camera="video").record(tmp_path / "one", [3])
    scene().record(tmp_path / "two", [2])
    both = MultiLeRobotDataset(["one", "two"], tmp_path)
    assert both.camera_keys == []
    assert not both.video
    shutil.rmtree(tmp_path / "one/videos")
    assert [int(item["index"]) for item in both.__getitems__([0, 4])] == [0, 1]


def test_a_camera_may_be_stored_in_two_ways(tmp_path: Path, scene: Any) -> None:
    """Pictures are pictures, whether they lie in the table or in a video; transforms get all of them."""
    scene(camera="video").record(tmp_path / "one", [3])
    scene(camera="image").record(tmp_path / "two", [2])
    seen: list[tuple[int, ...]] = []
    both = MultiLeRobotDataset(
        ["one", "two"], tmp_path, image_transforms=lambda picture: seen.append(tuple(picture.shape)) or picture
    )
    (camera,) = both.camera_keys
    assert both.video_frame_keys == [camera]
    assert both[0][camera].dtype == torch.float32
    assert both[4][camera].shape == both[0][camera].shape
    assert seen == [(3, 48, 64)] * 3
    both.clear_image_transforms()
    _ = both[0]
    assert len(seen) == 3
