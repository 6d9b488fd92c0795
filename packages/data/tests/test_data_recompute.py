# SPDX-License-Identifier: Apache-2.0
"""Statistics that are computed anew: equal to numpy over all rows, and to LeRobot where it is right."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from ulna.core.errors import DatasetError
from ulna.data import LeRobotDataset
from ulna.data.commands import app
from ulna.data.editing import recompute
from ulna.data.editing.recompute import (
    augment_dataset_with_quantiles,
    compute_quantile_stats_for_dataset,
    recompute_stats,
)
from ulna.data.editing.relative import RelativeActions
from ulna.data.features import parse_features
from ulna.data.sketch_files import read_sketch_file
from ulna.data.stats import stats_from_json

GOLDEN = Path(__file__).parent / "golden"
STATE, LANGUAGE, IMAGES = (GOLDEN / case / "dataset" for case in ("state_only", "language", "images"))
QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
MOMENTS = ("min", "max", "mean", "std", "count")


def golden(case: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((GOLDEN / case / "golden.json").read_text())
    return facts


def column(dataset: LeRobotDataset, name: str) -> np.ndarray:
    return np.stack([dataset.numpy_item(i)[name] for i in range(len(dataset))]).astype(np.float64)


def moments_equal(found: Any, wanted: Any, **tolerance: float) -> None:
    for stat in MOMENTS:
        np.testing.assert_allclose(np.ravel(found[stat]), np.ravel(wanted[stat]), **{"rtol": 1e-5, **tolerance})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda source: Path(shutil.copytree(source, tmp_path / "set"))


def without_quantiles(root: Path) -> None:
    """Make a dataset look as if it was converted from v2.1."""
    path = root / "meta/stats.json"
    stats = json.loads(path.read_text())
    path.write_text(json.dumps({f: {s: v for s, v in d.items() if s not in QUANTILES} for f, d in stats.items()}))
    for rows in (root / "meta/episodes").rglob("*.parquet"):
        table = pq.read_table(rows)
        gone = [name for name in table.column_names if name.rpartition("/")[2] in QUANTILES]
        pq.write_table(table.drop_columns(gone), rows)


def test_moments_are_lerobot_s_and_quantiles_those_of_all_rows(tmp_path: Path) -> None:
    new = recompute_stats(STATE, output_dir=tmp_path / "new")
    stats, wanted = new.meta.stats, golden("edit_recompute_stats")["stats"]
    assert stats is not None
    assert set(stats) == set(wanted)
    for feature in wanted:
        moments_equal(stats[feature], wanted[feature], atol=1e-6)
        rows = column(new, feature).reshape(len(new), -1)
        for name, level in QUANTILES.items():
            np.testing.assert_allclose(stats[feature][name], np.quantile(rows, level, axis=0), rtol=1e-6, atol=1e-6)


def test_everything_but_statistics_stays(tmp_path: Path) -> None:
    recompute_stats(IMAGES, output_dir=tmp_path / "new")
    before, after = contents(IMAGES), contents(tmp_path / "new")
    changed = {name for name in after if after[name] != before.get(name)}
    assert {name for name in changed if not name.startswith("meta/sketches")} <= {
        "meta/stats.json",
        "meta/episodes/chunk-000/file-000.parquet",
    }
    old, new = LeRobotDataset("a/b", IMAGES), LeRobotDataset("a/b", tmp_path / "new")
    assert [*new.meta.episodes] == [*old.meta.episodes]
    assert new.meta.stats is not None
    assert old.meta.stats is not None
    for camera in new.meta.camera_keys:
        for stat, value in old.meta.stats[camera].items():
            np.testing.assert_array_equal(new.meta.stats[camera][stat], value)


def test_statistics_of_episodes_are_those_of_their_rows(tmp_path: Path) -> None:
    """Also with a sketch beside each, so that they can be merged and deleted in any order afterwards."""
    meta = recompute_stats(STATE, output_dir=tmp_path / "new").meta
    table = pq.read_table(meta.root / "meta/episodes/chunk-000/file-000.parquet")
    sketches = read_sketch_file(meta.root, meta.episodes.row(0).row)
    for episode in range(meta.total_episodes):
        rows = column(LeRobotDataset("a/b", meta.root, [episode]), "action")
        np.testing.assert_allclose(
            table["stats/action/q90"][episode].as_py(), np.quantile(rows, 0.9, axis=0), rtol=1e-6
        )
        assert table["stats/action/count"][episode].as_py() == [len(rows)]
        assert sketches[episode]["action"].count == len(rows)


def test_a_row_that_was_changed_by_hand_counts_again(copy: Callable[[Path], Path]) -> None:
    root = copy(STATE)
    path = root / "meta/stats.json"
    stats = json.loads(path.read_text())
    stats["action"]["mean"] = [0.0] * 6
    path.write_text(json.dumps(stats))
    before = LeRobotDataset("a/b", root)
    new = recompute_stats(before)
    assert new.root == root
    assert new.meta.stats is not None
    np.testing.assert_allclose(new.meta.stats["action"]["mean"], column(before, "action").mean(axis=0), rtol=1e-6)


def test_pictures_are_sampled_when_asked(copy: Callable[[Path], Path]) -> None:
    root = copy(IMAGES)
    wanted = json.loads((root / "meta/stats.json").read_text())
    (root / "meta/stats.json").unlink()
    new = recompute_stats(root, skip_image_video=False)
    assert new.meta.stats is not None
    for camera in new.meta.camera_keys:
        moments_equal(new.meta.stats[camera], wanted[camera], atol=2e-4)


def test_progress_is_told_episode_by_episode(copy: Callable[[Path], Path]) -> None:
    seen: list[tuple[int, int]] = []
    recompute_stats(copy(STATE), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("case", ["all_joints", "keep_gripper", "keep_wrist_and_elbow", "one_step"])
def test_relative_actions_are_those_of_lerobot(case: str) -> None:
    """All chunks that stay inside an episode; excluded joints, by part of the name in any case, stay absolute."""
    facts, arrays = golden("stats/relative"), load_file(GOLDEN / "stats/relative/golden.safetensors")
    vector = {"dtype": "float32", "shape": (4,), "names": facts["action_names"]}
    features = parse_features({"action": vector, "observation.state": vector})
    options = facts["cases"][case]
    relative = RelativeActions(features, options["chunk_size"], options.get("exclude_joints", ()))
    lots = []
    for episode in np.unique(arrays["episode_index"]):
        mine = arrays["episode_index"] == episode
        lots += list(relative.blocks(arrays["action"][mine], arrays["state"][mine]))
    rows = np.concatenate(lots)
    assert len(rows) == arrays[f"{case}/out/count"][0]
    for stat in ("min", "max", "mean", "std"):
        np.testing.assert_allclose(getattr(rows, stat)(axis=0), arrays[f"{case}/out/{stat}"], rtol=1e-5, atol=1e-6)


def test_relative_rows_do_not_depend_on_the_size_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    action, state = rng.normal(size=(50, 3)).astype(np.float32), rng.normal(size=(50, 2)).astype(np.float32)
    features = parse_features(
        {
            "action": {"dtype": "float32", "shape": (3,), "names": ["a", "b", "c"]},
            "observation.state": {"dtype": "float32", "shape": (2,), "names": ["a", "b"]},
        }
    )
    relative = RelativeActions(features, 7)
    whole = np.concatenate(list(relative.blocks(action, state)))
    monkeypatch.setattr("ulna.data.editing.relative._BLOCK_VALUES", 60)
    lots = list(relative.blocks(action, state))
    assert len(lots) > 10
    np.testing.assert_array_equal(np.concatenate(lots), whole)
    by_hand = [action[t + k] - np.append(state[t], np.float32(0)) for t in range(44) for k in range(7)]
    np.testing.assert_array_equal(whole, by_hand)
    assert list(relative.blocks(action[:6], state[:6])) == []


def test_stats_json_describes_relative_actions(tmp_path: Path) -> None:
    """Those of the episodes stay absolute, as LeRobot leaves them."""
    facts = golden("edit_recompute_relative")
    options = {key: value for key, value in facts["operation"].items() if key != "type"}
    new = recompute_stats(STATE, output_dir=tmp_path / "new", **options)
    assert new.meta.stats is not None
    moments_equal(new.meta.stats["action"], facts["stats"]["action"], atol=1e-5)
    moments_equal(new.meta.stats["observation.state"], facts["stats"]["observation.state"])
    spread = np.subtract(facts["stats"]["action"]["max"], facts["stats"]["action"]["min"])
    for name in QUANTILES:  # LeRobot's histogram interpolates across gaps between the few rows
        np.testing.assert_array_less(
            np.abs(new.meta.stats["action"][name] - facts["stats"]["action"][name]), 0.03 * spread
        )
    table = pq.read_table(new.root / "meta/episodes/chunk-000/file-000.parquet")
    assert table["stats/action/count"].to_pylist() == [[17], [25], [11]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"chunk_size": 0}, ["chunk_size", "0"]),
        ({"relative_exclude_joints": ["gripperr"]}, ["'gripperr'", "shoulder_pan.pos"]),
    ],
)
def test_relative_actions_that_make_no_sense_are_refused(
    options: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(DatasetError) as refused:
        recompute_stats(STATE, relative_action=True, output_dir=tmp_path / "new", **options)
    assert [word for word in words if word not in str(refused.value)] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("case", ["state_only", "v21_images"])
def test_statistics_computed_afterwards_equal_lerobot_s(case: str, tmp_path: Path) -> None:
    if case == "v21_images":
        from ulna.data.editing.convert_v21 import convert_v21_dataset

        source = convert_v21_dataset(GOLDEN / case / "v21", tmp_path / "new").root
    else:
        source = GOLDEN / case / "dataset"
    stats = compute_quantile_stats_for_dataset(source)
    arrays = load_file(GOLDEN / "stats/augment/golden.safetensors")
    for key, wanted in arrays.items():
        name, feature, _, stat = key.split("/")
        if name == case and stat in MOMENTS:
            np.testing.assert_allclose(
                stats[feature][stat], wanted, rtol=1e-5, atol=2e-4 if "image" in feature else 1e-6, err_msg=key
            )
    assert all(stats[feature].keys() >= QUANTILES.keys() for feature in stats)


def test_columns_without_numbers_have_no_statistics() -> None:
    """Language columns do not stop the others."""
    stats = compute_quantile_stats_for_dataset(LANGUAGE)
    assert "language_persistent" not in stats
    assert stats["action"].keys() >= QUANTILES.keys()
    assert compute_quantile_stats_for_dataset(LANGUAGE, skip_images=True).keys() < stats.keys()


def test_quantiles_are_added_in_place(copy: Callable[[Path], Path]) -> None:
    root = copy(IMAGES)
    without_quantiles(root)
    before = stats_from_json(json.loads((root / "meta/stats.json").read_text()))
    new = augment_dataset_with_quantiles(root)
    assert new.meta.findings == []
    assert new.meta.stats is not None
    for feature, values in new.meta.stats.items():
        assert values.keys() >= QUANTILES.keys(), feature
        moments_equal(values, before[feature], atol=2e-4)
    assert [path.name for path in root.parent.iterdir()] == ["set"]


def test_quantiles_that_are_there_stay_unless_overwritten(
    copy: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy(IMAGES)
    before = contents(root)
    augment_dataset_with_quantiles(root)
    assert contents(root) == before
    without_quantiles(root)
    augment_dataset_with_quantiles(root, skip_images=True)
    stats = LeRobotDataset("a/b", root).meta.stats
    assert stats is not None
    assert "q50" in stats["action"]
    assert "q50" not in stats["observation.images.front"]
    called: list[bool] = []
    honest = recompute._measure
    monkeypatch.setattr(recompute, "_measure", lambda *a: called.append(True) or honest(*a))
    augment_dataset_with_quantiles(root, skip_images=True)
    assert called == []
    augment_dataset_with_quantiles(root, True)
    assert called == [True]


def test_statistics_stay_whole_after_deleting_episodes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The sketches that were written are good for later edits: quantiles are those of the rows that are left."""
    from ulna.data.editing.episodes import delete_episodes

    recompute_stats(IMAGES, False, output_dir=tmp_path / "new")
    with caplog.at_level(logging.WARNING):
        left = delete_episodes(tmp_path / "new", [1], tmp_path / "left")
    assert caplog.records == []
    assert left.meta.stats is not None
    rows = column(left, "action")
    np.testing.assert_allclose(left.meta.stats["action"]["q10"], np.quantile(rows, 0.1, axis=0), rtol=1e-6)
    assert left.meta.stats["observation.images.front"].keys() >= QUANTILES.keys()


def test_a_full_disk_leaves_the_dataset_as_it_was(
    copy: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy(STATE)
    before = contents(root)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recompute, "write_sketches", full)
    with pytest.raises(DatasetError, match="No space left"):
        recompute_stats(root)
    assert contents(root) == before
    assert [path.name for path in root.parent.iterdir()] == ["set"]


def test_commands_compute_statistics(copy: Callable[[Path], Path]) -> None:
    root = copy(STATE)
    relative = ["--relative-action", "--chunk-size", "8", "--exclude-joint", "gripper"]
    result = CliRunner().invoke(app, ["edit", "recompute-stats", str(root), *relative])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{root.parent / 'set_recomputed_stats'}\n"
    stats = json.loads((root.parent / "set_recomputed_stats/meta/stats.json").read_text())
    assert stats["action"]["count"] == [256]
    without_quantiles(root)
    result = CliRunner().invoke(app, ["edit", "add-quantiles", str(root)])
    assert result.exit_code == 0, result.output
    assert "q99" in json.loads((root / "meta/stats.json").read_text())["action"]
