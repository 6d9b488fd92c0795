# SPDX-License-Identifier: Apache-2.0
"""Edits validate first, write beside, and swap at the end; whatever goes wrong, the original stays as it was."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ulna.core.errors import DatasetError, DatasetFormatError, DatasetNotFinishedError, FeatureError
from ulna.data import (
    LeRobotDataset,
    RGBEncoderConfig,
    add_features,
    delete_episodes,
    merge_datasets,
    modify_features,
    modify_tasks,
    remove_feature,
    split_dataset,
)
from ulna.data.checks.validation import validate
from ulna.data.editing.applying import apply_marks
from ulna.data.editing.marks import Marks, read_marks, write_marks
from ulna.data.timing import read_timings

GOLDEN = Path(__file__).parent / "golden"
CAMERA = "observation.images.cam"
LENGTHS = [3, 1, 4, 2]


def tree(root: Path) -> dict[str, str]:
    """Every file with the hash of its content."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def copy(case: str, root: Path) -> Path:
    shutil.copytree(GOLDEN / case / "dataset", root)
    return root


def sound(root: Path) -> bool:
    problems = [str(problem) for problem in validate("a/b", root).problems]
    assert problems == []
    return True


def frames(scene: Any, dataset: LeRobotDataset) -> list[tuple[int, int, int]]:
    """Episode, its frame, and the number that its values encode: 1000 * episode + frame of the recording."""
    return [
        (int(item["episode_index"]), int(item["frame_index"]), int(item["observation.state"][0]))
        for item in (dataset.numpy_item(i) for i in range(len(dataset)))
    ]


@pytest.mark.parametrize("camera", [None, "image", "video"])
def test_delete_in_place(scene: Any, tmp_path: Path, camera: str | None) -> None:
    """Episodes that are left move up; nothing of the edit remains beside the dataset."""
    made, root = scene(camera), tmp_path / "set"
    made.record(root, LENGTHS)
    edited = delete_episodes(root, [1])
    assert edited.root == root
    assert frames(scene, edited) == [
        (new, frame, 1000 * old + frame) for new, old in enumerate([0, 2, 3]) for frame in range(LENGTHS[old])
    ]
    if camera:
        numbers = [made.number(np.asarray(edited.numpy_item(i)[CAMERA]) * 255) for i in range(len(edited))]
        assert numbers == [64 * old + frame for old in (0, 2, 3) for frame in range(LENGTHS[old])]
    assert sound(root)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    with LeRobotDataset.resume("a/b", root, rgb_encoder=RGBEncoderConfig(vcodec="h264")) as more:
        made.add(more, 7, 2)
    assert LeRobotDataset("a/b", root).meta.episodes["length"] == [3, 4, 2, 2]
    assert sound(root)


WRONG: list[tuple[Callable[[Path, Path], Any], type[Exception], str]] = [
    (lambda root, _: delete_episodes(root, [14]), DatasetError, "There is no episode 14; .* 0 to 2"),
    (lambda root, _: delete_episodes(root, [-1]), DatasetError, "There is no episode -1"),
    (lambda root, _: delete_episodes(root, ["x"]), DatasetError, "'x' is not a number of an episode"),
    (lambda root, _: delete_episodes(root, [0, 1, 2]), DatasetError, "would leave nothing"),
    (lambda root, _: delete_episodes(root, []), DatasetError, "No episode was named"),
    (
        lambda root, out: split_dataset(root, {"a": [0, 1], "b": [1]}, out),
        DatasetError,
        "Episode 1 is in .*'a' and 'b'",
    ),
    (
        lambda root, out: split_dataset(root, {"a": [0], "b": [7]}, out),
        DatasetError,
        "split 'b': There is no episode 7",
    ),
    (lambda root, out: split_dataset(root, {"a": 0.9, "b": 0.2}, out), DatasetError, "add up to 1.1"),
    (lambda root, out: split_dataset(root, {"a": 0.1, "b": 0.9}, out), DatasetError, "'a' .*would have no episodes"),
    (lambda root, out: split_dataset(root, {"a": 0.5, "b": [1]}, out), DatasetError, "all fractions or all lists"),
    (lambda root, out: split_dataset(root, {"../a": 1.0}, out), DatasetError, "cannot be the name of a split"),
    (lambda root, out: split_dataset(root, {}, out), DatasetError, "No split"),
    (lambda root, _: remove_feature(root, "acton"), FeatureError, "no feature 'acton'(.|\n)*Did you mean 'action'"),
    (lambda root, _: remove_feature(root, "index"), FeatureError, "every dataset has it"),
    (lambda root, _: remove_feature(root, []), FeatureError, "No feature"),
    (lambda root, _: modify_features(root), DatasetError, "No feature"),
    (lambda root, _: modify_tasks(root), DatasetError, "No task"),
    (lambda root, _: modify_tasks(root, task_replacements={"pick up a cube": "x"}), DatasetError, "Did you mean"),
    (lambda root, _: modify_tasks(root, episode_tasks={3: "x"}), DatasetError, "There is no episode 3"),
    (lambda root, _: modify_tasks(root, " "), DatasetError, "must be a text"),
    (lambda root, _: apply_marks(root), DatasetError, "has no marks"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_wrong_request_names_itself_and_changes_nothing(tmp_path: Path, number: int) -> None:
    """In LeRobot the folder was gone after an error about an episode that does not exist."""
    edit, kind, said = WRONG[number]
    root, out = copy("state_only", tmp_path / "set"), tmp_path / "out"
    before = tree(tmp_path)
    with pytest.raises(kind, match=said):
        edit(root, out)
    assert tree(tmp_path) == before
    assert not out.exists()


def values(shape: tuple[int, ...], dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "names": None}


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ({"action": (np.zeros(53), values((1,)))}, "has a feature 'action' already"),
        ({"x": (np.zeros(52), values((1,)))}, "52 values were given for 53 frames"),
        ({"x": (np.zeros((53, 3)), values((2,)))}, r"shape \(53, 2\), got \(53, 3\)"),
        ({"x": (np.full(53, 0.5), values((1,), "int64"))}, "float64 cannot be stored as int64"),
        ({"x": (np.full(53, 300), values((1,), "uint8"))}, "int64 cannot be stored as uint8"),
        ({"x": (np.where(np.arange(53) == 20, np.nan, 1), values((1,)))}, "frame 20 has"),
        ({"x": ([1] * 53, values((1,), "string"))}, "frame 0 is no text"),
        ({"x": (np.zeros(53), values((8, 8, 3), "image"))}, "cannot be added afterwards"),
        ({"a/b": (np.zeros(53), values((1,)))}, "not allowed"),
        ({"x": np.zeros(53)}, "must come as"),
        ({"x": (lambda row, e, f: np.zeros(3), values((2,)))}, "must return values of shape"),
    ],
)
def test_features_that_do_not_fit_are_refused(tmp_path: Path, features: Any, said: str) -> None:
    root = copy("state_only", tmp_path / "set")
    before = tree(tmp_path)
    with pytest.raises(FeatureError, match=said):
        add_features(root, features)
    assert tree(tmp_path) == before


def test_fractions_below_one_leave_the_rest_out(tmp_path: Path) -> None:
    """LeRobot puts all that is left into the last part, whatever its fraction says."""
    parts = split_dataset(copy("multi_file", tmp_path / "set"), {"a": 0.5, "b": 0.25})
    assert [parts[name].num_episodes for name in ("a", "b")] == [4, 2]


def test_limits_of_files_stay(scene: Any, tmp_path: Path) -> None:
    """LeRobot gives the result of an edit the usual limits."""
    limits = {"data_files_size_in_mb": 3, "video_files_size_in_mb": 7}
    scene("video").record(tmp_path / "set", [2, 2], **limits)
    info = delete_episodes(tmp_path / "set", [0], tmp_path / "out").meta.info
    assert {name: getattr(info, name) for name in limits} == limits


def test_features_from_arrays_texts_and_functions(tmp_path: Path) -> None:
    """Several axes, booleans and texts too; each with statistics, and a feature may replace one of its name."""
    root = copy("state_only", tmp_path / "set")
    actions = [LeRobotDataset("a/b", root).numpy_item(i)["action"] for i in range(53)]
    grid = np.arange(53 * 6, dtype=np.float32).reshape(53, 2, 3)

    def twice(row: dict[str, Any], episode: int, frame: int) -> np.ndarray:
        assert (row["episode_index"], row["frame_index"]) == (episode, frame)
        return row["action"] * 2

    edited = modify_features(
        root,
        {
            "action": (twice, values((6,))),
            "grid": (grid, values((2, 3))),
            "good": (np.arange(53) % 2 == 0, values((1,), "bool")),
            "said": ([f"frame {i}" for i in range(53)], values((1,), "string")),
            "wide": (np.arange(53, dtype=np.int32), values((1,), "int64")),
        },
        "action",
    )
    for i in range(53):
        item = edited.numpy_item(i)
        np.testing.assert_array_equal(item["action"], actions[i] * 2)
        np.testing.assert_array_equal(item["grid"], grid[i])
        assert (item["good"], item["said"], item["wide"]) == (i % 2 == 0, f"frame {i}", i)
    assert edited.meta.stats is not None
    assert {"action", "grid", "good", "wide"} <= set(edited.meta.stats)
    assert edited.meta.stats["wide"]["max"] == [52]
    assert sound(root)


def test_two_tasks_in_an_episode_survive(tmp_path: Path) -> None:
    """LeRobot gives every frame the first task of its episode, and fails on features with two axes."""
    root = copy("extra_features", tmp_path / "set")
    before = [LeRobotDataset("a/b", root).numpy_item(i)["task"] for i in range(31)]
    assert len(set(before[13:21])) > 0
    edited = modify_tasks(root, task_replacements={"wait": "pause"})
    assert [edited.numpy_item(i)["task"] for i in range(31)] == ["pause" if t == "wait" else t for t in before]
    assert "wait" not in edited.meta.tasks
    assert sound(root)
    again = modify_tasks(root, new_task="all", episode_tasks={0: "first"}, task_replacements={"pause": "break"})
    expected = [
        "first" if item["episode_index"] == 0 else "break" if text == "pause" else "all"
        for item, text in (
            (again.numpy_item(i), edited_text)
            for i, edited_text in enumerate(["pause" if t == "wait" else t for t in before])
        )
    ]
    assert [again.numpy_item(i)["task"] for i in range(31)] == expected


@pytest.mark.parametrize(
    "edit",
    [
        lambda root: modify_tasks(root, "one"),
        lambda root: delete_episodes(root, [1]),
        lambda root: remove_feature(root, "action"),
    ],
)
@pytest.mark.parametrize("case", ["images", "extra_features", "state_only"])
def test_tables_keep_their_form(tmp_path: Path, case: str, edit: Callable[[Path], LeRobotDataset]) -> None:
    """LeRobot drops the row groups, the extension types and the `huggingface` metadata when it changes tasks."""
    root = copy(case, tmp_path / "set")
    before = pq.ParquetFile(next((root / "data").rglob("*.parquet")))
    edited = edit(root)
    after = pq.ParquetFile(next((root / "data").rglob("*.parquet")))
    assert after.num_row_groups == edited.num_episodes
    features = json.loads(before.schema_arrow.metadata[b"huggingface"])["info"]["features"]
    kept = {name: features[name] for name in after.schema_arrow.names}
    assert json.loads(after.schema_arrow.metadata[b"huggingface"])["info"]["features"] == kept
    for field in after.schema_arrow:
        assert field.type == before.schema_arrow.field(field.name).type
        assert (field.metadata or {}) == (before.schema_arrow.field(field.name).metadata or {})


def test_language_columns_are_kept(tmp_path: Path) -> None:
    before = LeRobotDataset("a/b", GOLDEN / "language" / "dataset")
    edited = modify_tasks(delete_episodes(before, [0], tmp_path / "out").root, "something else")
    kept = LeRobotDataset("a/b", before.root, list(range(1, before.num_episodes)))
    names = [name for name, f in before.meta.parsed_features.items() if f.dtype == "language"]
    assert names
    for i in range(len(kept)):
        for name in names:
            assert edited.numpy_item(i)[name] == kept.numpy_item(i)[name]


def test_different_datasets_are_not_merged(scene: Any, tmp_path: Path) -> None:
    """Every difference is listed, with a command where one helps."""
    scene("video").record(tmp_path / "a", [2])
    scene("video", "libsvtav1").record(tmp_path / "av1", [2])
    scene(None).record(tmp_path / "bare", [2])
    info = json.loads((tmp_path / "bare/meta/info.json").read_text())
    info.update(fps=10, robot_type="other")
    info["features"]["action"]["names"][0] = "elbow"
    (tmp_path / "bare/meta/info.json").write_text(json.dumps(info))
    with pytest.raises(DatasetError) as caught:
        merge_datasets([tmp_path / "a", tmp_path / "bare", tmp_path / "av1"], "a/b", tmp_path / "out")
    text = str(caught.value)
    for said in (
        "fps: 30 in",
        "robot_type: 'fake' in",
        f"feature '{CAMERA}': in {tmp_path / 'a'}, not in {tmp_path / 'bare'}",
        "feature 'action', names:",
        "video.codec: 'h264' in",
        f"ulna dataset edit reencode {tmp_path / 'av1'}",
    ):
        assert said in text
    assert not (tmp_path / "out").exists()


def test_a_recording_in_progress_is_not_edited(scene: Any, tmp_path: Path) -> None:
    made, root = scene(), tmp_path / "set"
    recording = made.record(root, [2, 3], finalize=False)
    with pytest.raises(DatasetNotFinishedError, match="open for recording"):
        delete_episodes(recording, [0])
    with pytest.raises(DatasetError, match="in use by a recording"):
        delete_episodes(root, [0])
    assert delete_episodes(root, [0], tmp_path / "out").num_episodes == 1
    recording.finalize()
    assert delete_episodes(recording, [0]).num_episodes == 1


def test_broken_episodes_can_be_deleted_but_not_kept(scene: Any, tmp_path: Path) -> None:
    made, root = scene("video"), tmp_path / "set"
    made.record(root, [2, 3, 2], video_files_size_in_mb=1e-6)
    videos = sorted((root / "videos").rglob("*.mp4"))
    videos[1].unlink()
    with pytest.raises(DatasetFormatError, match=r"Episode 1 cannot be read(.|\n)*ulna dataset edit delete"):
        delete_episodes(root, [0])
    edited = delete_episodes(root, [1])
    assert edited.num_episodes == 2
    assert sound(root)
    sorted((root / "videos").rglob("*.mp4"))[1].unlink()
    with pytest.raises(DatasetError, match="would lose the episodes"):
        modify_tasks(root, "x")


def test_what_lies_beside_is_kept(scene: Any, tmp_path: Path) -> None:
    """A card and notes stay, marks follow their episodes, a file with one row a frame does not fit any more."""
    root = tmp_path / "set"
    scene().record(root, LENGTHS)
    (root / "README.md").write_text("card")
    (root / "notes").mkdir()
    (root / "notes/a.txt").write_text("note")
    (root / "sarm_progress.parquet").write_text("rows")
    write_marks(root, Marks((1, 3), {"task 0": "new"}))
    remove_feature(root, "action")
    assert (root / "sarm_progress.parquet").exists()
    delete_episodes(root, [0])
    assert (root / "README.md").read_text() == "card"
    assert (root / "notes/a.txt").read_text() == "note"
    assert not (root / "sarm_progress.parquet").exists()
    assert read_marks(root) == Marks((0, 2), {"task 0": "new"})
    modify_tasks(root, task_replacements={"task 0": "newer"})
    assert read_marks(root) == Marks((0, 2))


def test_measured_rates_follow_their_episodes(scene: Any, tmp_path: Path) -> None:
    root = tmp_path / "set"
    scene().record(root, LENGTHS)
    before = read_timings(root)
    assert before
    after = read_timings(delete_episodes(root, [1]).root)
    assert after == {new: before[old] for new, old in enumerate([0, 2, 3]) if old in before}


def test_marks_are_applied_in_one_pass(scene: Any, tmp_path: Path) -> None:
    root = tmp_path / "set"
    scene().record(root, LENGTHS)
    write_marks(root, Marks((1,), {"task 0": "even"}))
    edited = apply_marks(root)
    assert edited.meta.episodes["tasks"] == [["even"], ["even"], ["task 1"]]
    assert edited.meta.episodes["length"] == [3, 4, 2]
    assert not read_marks(root)
    assert sound(root)
    write_marks(root, Marks((9,)))
    with pytest.raises(DatasetError, match=r"ulna_marks.json: There is no episode 9"):
        apply_marks(root)


def test_statistics_of_relative_actions_stay_or_are_said_to_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No episode knows of them: they are kept while the episodes stay, else there is a warning."""
    root = copy("edit_recompute_relative", tmp_path / "set")
    before = LeRobotDataset("a/b", root).meta.stats
    assert before is not None
    after = modify_tasks(root, "x").meta.stats
    assert after is not None
    for name, value in before["action"].items():
        np.testing.assert_array_equal(after["action"][name], value)
    caplog.clear()
    fewer = delete_episodes(root, [0])
    assert "relative actions perhaps" in caplog.text
    rows = np.stack([fewer.numpy_item(i)["action"] for i in range(len(fewer))])
    assert fewer.meta.stats is not None
    np.testing.assert_array_equal(fewer.meta.stats["action"]["max"], rows.max(axis=0))
