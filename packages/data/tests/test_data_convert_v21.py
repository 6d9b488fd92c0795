# SPDX-License-Identifier: Apache-2.0
"""Datasets of format v2.1 become datasets of v3.0 that read equal, or are refused with the file and the episode."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from ulna.core.errors import DatasetError, DatasetFormatError
from ulna.data import LeRobotDataset, LeRobotDatasetMetadata
from ulna.data.commands import app
from ulna.data.editing.convert_v21 import convert_v21_dataset
from ulna.data.sketch_files import read_sketch_file

GOLDEN = Path(__file__).parent / "golden"
CASES = ["v21_videos", "v21_images", "v21_many_files"]
FRONT = "observation.images.front"


def golden(case: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((GOLDEN / case / "golden.json").read_text())
    return facts


def options(case: str) -> dict[str, float]:
    given = golden(case)["conversion_options"]
    pairs = {"data_files_size_in_mb": "data_file_size_in_mb", "video_files_size_in_mb": "video_file_size_in_mb"}
    return {ours: given[theirs] for ours, theirs in pairs.items() if given[theirs] is not None}


Converted = Callable[[str], LeRobotDataset]


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """Convert a case once; the results are only read."""
    roots: dict[str, Path] = {}

    def convert(case: str) -> LeRobotDataset:
        if case not in roots:
            roots[case] = tmp_path_factory.mktemp(case) / "new"
            convert_v21_dataset(GOLDEN / case / "v21", roots[case], **options(case))
        return LeRobotDataset("a/b", roots[case])

    return convert


@pytest.fixture
def broken(tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of a dataset of v2.1 that may be damaged."""

    def copy(case: str) -> Path:
        return Path(shutil.copytree(GOLDEN / case / "v21", tmp_path / "old"))

    return copy


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", CASES)
def test_items_are_those_that_lerobot_reads_from_its_own_conversion(case: str, converted: Converted) -> None:
    root = converted(case).root
    info, tensors = golden(case), load_file(GOLDEN / case / "golden.safetensors")
    for query in info["queries"]:
        dataset = LeRobotDataset("a/b", root, delta_timestamps=query.get("delta_timestamps"))
        assert len(dataset) == query["length"]
        for index in query["indices"]:
            item, prefix = dataset.numpy_item(index), f"{query['name']}/{index}/"
            wanted = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            assert {name.removesuffix("#u8") for name in wanted} | {"task"} == set(item)
            assert item["task"] == info["texts"][f"{prefix}task"]
            for name, value in wanted.items():
                got = item[name.removesuffix("#u8")]
                if name.endswith("#u8"):
                    value = value.astype(np.float32) / np.float32(255)
                np.testing.assert_allclose(got.reshape(value.shape), value, atol=1e-6, err_msg=f"{prefix}{name}")


@pytest.mark.parametrize("case", CASES)
def test_metadata_equals_that_of_lerobot_s_conversion(case: str, converted: Converted) -> None:
    """Keys of info.json with the frame rate of each column, tasks, and every column of the episode table."""
    dataset = converted(case)
    info = golden(case)
    assert dataset.meta.findings == []
    assert dataset.meta.info.to_json() == json.loads((GOLDEN / case / "dataset/meta/info.json").read_text())
    assert list(dataset.meta.tasks) == info["tasks"]
    of_file = ("data/chunk_index", "data/file_index")  # LeRobot measures tables uncompressed, so files end elsewhere
    rows = [{key: value for key, value in row.items() if key not in of_file} for row in dataset.meta.episodes]
    assert rows == [{key: value for key, value in row.items() if key not in of_file} for row in info["episodes"]]


@pytest.mark.parametrize("case", CASES)
def test_statistics_are_complete_and_equal_where_lerobot_has_them(case: str, converted: Converted) -> None:
    """Quantiles are there too, those of pictures within what the pictures hold; image statistics do not go missing."""
    dataset = converted(case)
    stats = dataset.meta.stats
    assert stats is not None
    for feature, values in golden(case)["stats"].items():
        for stat, value in values.items():
            np.testing.assert_allclose(stats[feature][stat], np.asarray(value, float), rtol=1e-5, atol=1e-6)
        for name in ("q01", "q10", "q50", "q90", "q99"):
            assert stats[feature][name].shape == stats[feature]["mean"].shape
        ordered = [stats[feature][name] for name in ("min", "q01", "q10", "q50", "q90", "q99", "max")]
        assert all((low <= high).all() for low, high in itertools.pairwise(ordered)), feature
    states = np.stack([dataset.numpy_item(i)["action"] for i in range(len(dataset))])
    np.testing.assert_allclose(stats["action"]["q10"], np.quantile(states.astype(float), 0.1, axis=0), rtol=1e-5)
    if FRONT in dataset.meta.camera_keys:
        pictures = np.stack([dataset.numpy_item(i)[FRONT] for i in range(len(dataset))])
        wanted = np.quantile(pictures.transpose(1, 0, 2, 3).reshape(3, -1), 0.5, axis=1)
        np.testing.assert_allclose(stats[FRONT]["q50"].ravel(), wanted, atol=0.006)


@pytest.mark.parametrize("case", CASES)
def test_every_pointer_resolves_and_ranges_join(case: str, converted: Converted) -> None:
    """The boundary episode of a full file points at its own file; from and to are strictly increasing."""
    meta = converted(case).meta
    assert (np.diff(meta.episodes.starts) > 0).all()
    assert (np.diff(meta.episodes.stops) > 0).all()
    for episode, row in enumerate(meta.episodes):
        table = pq.read_table(meta.get_data_file_path(episode), columns=["episode_index", "index"])
        mine = [i for e, i in zip(*(table[n].to_pylist() for n in table.column_names), strict=True) if e == episode]
        assert mine == list(range(row["dataset_from_index"], row["dataset_to_index"]))
        assert all(meta.get_video_file_path(episode, key).is_file() for key in meta.video_keys)
        rows = f"meta/episodes/chunk-{row['meta/episodes/chunk_index']:03d}/file-{row['meta/episodes/file_index']:03d}"
        assert episode in pq.read_table(meta.root / f"{rows}.parquet")["episode_index"].to_pylist()


@pytest.mark.parametrize("case", ["v21_videos", "v21_many_files"])
def test_every_frame_of_every_video_shows_its_number(case: str, converted: Converted, scene: Any) -> None:
    dataset = converted(case)
    for camera, numbers in golden(case)["frame_numbers"].items():
        read = [dataset.numpy_item(i)[camera] for i in range(len(dataset))]
        assert [scene().number(picture * 255) for picture in read] == numbers


def test_the_original_stays_and_the_result_lies_beside_it(broken: Callable[[str], Path]) -> None:
    old = broken("v21_videos")
    before = contents(old)
    seen: list[tuple[int, int]] = []
    dataset = convert_v21_dataset(old, progress=lambda done, total: seen.append((done, total)))
    assert dataset.root == old.parent / "old_v30"
    assert contents(old) == before
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert sorted(path.name for path in old.parent.iterdir()) == ["old", "old_v30"]


def test_pictures_need_not_be_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a picture was decoded")

    monkeypatch.setattr("ulna.data.editing.convert_v21.camera_summary", refuse)
    root = GOLDEN / "v21_videos/v21"
    stats = convert_v21_dataset(root, tmp_path / "new", picture_quantiles=False).meta.stats
    assert stats is not None
    assert list(stats[FRONT]) == ["min", "max", "mean", "std", "count"]
    assert "q50" in stats["action"]


def test_sketches_of_pictures_are_kept(converted: Converted) -> None:
    """So that quantiles are there again after episodes were deleted or datasets merged."""
    meta = converted("v21_videos").meta
    sketches = read_sketch_file(meta.root, meta.episodes.row(0).row)
    assert {FRONT, "observation.images.wrist", "action"} <= set(sketches[2])


def test_a_dataset_of_v20_gets_statistics_of_its_episodes(broken: Callable[[str], Path]) -> None:
    """v2.0 has them for the whole dataset only, so that those of pictures are computed from decoded ones."""
    old = broken("v21_videos")
    (old / "meta/episodes_stats.jsonl").unlink()
    _edit_info(old, codebase_version="v2.0")
    stats = convert_v21_dataset(old).meta.stats
    assert stats is not None
    wanted = golden("v21_videos")["stats"][FRONT]
    assert stats[FRONT]["count"] == [60]
    np.testing.assert_allclose(stats[FRONT]["mean"], wanted["mean"], atol=0.02)


def _edit_info(root: Path, **changes: Any) -> None:
    path = root / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _edit_lines(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")


def _rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


TABLE = "data/chunk-000/episode_000001.parquet"
VIDEO = f"videos/chunk-000/{FRONT}/episode_000001.mp4"
OTHER_VIDEO = f"videos/chunk-000/{FRONT}/episode_000002.mp4"
EPISODES = "meta/episodes.jsonl"


def _shifted(table: pa.Table, name: str, by: float) -> pa.Table:
    field = table.schema.field(name)
    values = table[name].to_numpy() + np.asarray(by, field.type.to_pandas_dtype())
    return table.set_column(table.column_names.index(name), field, pa.array(values))


DAMAGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a table is missing": (lambda r: (r / TABLE).unlink(), ["Episode 1", TABLE, "does not exist"]),
    "a table is cut off": (lambda r: os.truncate(r / TABLE, 100), ["Episode 1", TABLE, "cannot be read"]),
    "a table has lost a row": (
        lambda r: _rewrite(r / TABLE, lambda t: t.slice(0, 13)),
        ["Episode 1", TABLE, "13 rows", "14"],
    ),
    "a column is missing": (
        lambda r: _rewrite(r / TABLE, lambda t: t.drop_columns(["action"])),
        ["Episode 1", TABLE, "'action'"],
    ),
    "a column holds other numbers": (
        lambda r: _rewrite(r / TABLE, lambda t: t.set_column(2, "next.done", pa.array(np.full(14, 0.5)))),
        ["Episode 1", TABLE, "'next.done'", "0.5"],
    ),
    "frames are not in order": (
        lambda r: _rewrite(r / TABLE, lambda t: _shifted(t, "frame_index", 1)),
        ["Episode 1", TABLE, "row 0", "frame 1"],
    ),
    "times do not fit the frame rate": (
        lambda r: _rewrite(r / TABLE, lambda t: _shifted(t, "timestamp", 0.01)),
        ["Episode 1", TABLE, "0.01"],
    ),
    "a table belongs to another episode": (
        lambda r: _rewrite(r / TABLE, lambda t: _shifted(t, "episode_index", 1)),
        ["Episode 1", TABLE, "rows of episode 2"],
    ),
    "a task is not in the table of tasks": (
        lambda r: _rewrite(r / TABLE, lambda t: _shifted(t, "task_index", 7)),
        ["Episode 1", TABLE, "task 8", "tasks.jsonl"],
    ),
    "a video is missing": (lambda r: (r / VIDEO).unlink(), ["Episode 1", FRONT, VIDEO, "does not exist"]),
    "a video is cut off": (lambda r: os.truncate(r / VIDEO, 300), ["Episode 1", FRONT, VIDEO, "cannot be opened"]),
    "a video has other frames": (
        lambda r: shutil.copy(r / OTHER_VIDEO, r / VIDEO),
        ["Episode 1", FRONT, VIDEO, "26 frames", "14"],
    ),
    "an episode is missing": (
        lambda r: _edit_lines(r / EPISODES, lambda lines: [lines[0], lines[2]]),
        [EPISODES, "line 2", "episode 1", "episode 2"],
    ),
    "an episode stands there twice": (
        lambda r: _edit_lines(r / EPISODES, lambda lines: [lines[0], *lines]),
        [EPISODES, "line 2", "twice"],
    ),
    "the last episode is missing": (
        lambda r: _edit_lines(r / EPISODES, lambda lines: lines[:2]),
        [EPISODES, "counts 3 episodes", "episode 2"],
    ),
    "the frames are counted wrong": (lambda r: _edit_info(r, total_frames=61), ["61 frames", "60"]),
    "a line is no JSON": (
        lambda r: _edit_lines(r / EPISODES, lambda lines: [lines[0], lines[1][:20], lines[2]]),
        [EPISODES, "line 2", "JSON"],
    ),
    "the table of episodes is missing": (lambda r: (r / EPISODES).unlink(), [EPISODES, "does not exist"]),
    "a length is no number": (
        lambda r: _edit_lines(r / EPISODES, lambda lines: [lines[0], lines[1].replace("14", '"x"'), lines[2]]),
        [EPISODES, "line 2", "episode 1"],
    ),
    "paths cannot be filled in": (lambda r: _edit_info(r, data_path="{x}.parquet"), ["info.json", "{x}.parquet"]),
    "a key is missing": (lambda r: _edit_lines(r / "meta/info.json", lambda _: ["{}"]), ["info.json", "fps"]),
    "the version is older": (lambda r: _edit_info(r, codebase_version="v1.6"), ["v1.6", "v2.0 and v2.1"]),
    "the version is new": (lambda r: _edit_info(r, codebase_version="v3.0"), ["v3.0", "needs no conversion"]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_dataset_is_refused_and_nothing_is_written(broken: Callable[[str], Path], damage: str) -> None:
    """The message names the episode and the file; no folder is left behind, not even a hidden one."""
    old = broken("v21_videos")
    breaking, words = DAMAGES[damage]
    breaking(old)
    with pytest.raises(DatasetFormatError) as refused:
        convert_v21_dataset(old)
    assert [word for word in words if word not in str(refused.value)] == []
    assert [path.name for path in old.parent.iterdir()] == ["old"]


def _encode(source: Path, target: Path, fps: int = 30, **settings: Any) -> None:
    """Encode a video in another way; B-frames and late beginnings as other programs write them."""
    late = settings.pop("late", 0)
    with av.open(str(source)) as old, av.open(str(target), "w", format="mp4") as new:
        stream = new.add_stream("libx264", rate=fps, options={"g": "12", "crf": "15", **settings})
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for number, frame in enumerate(old.decode(video=0)):
            frame.pts, frame.time_base, frame.pict_type = number + late, Fraction(1, fps), 0
            new.mux(stream.encode(frame))
        new.mux(stream.encode())


@pytest.mark.parametrize("settings", [{}, {"bf": "3"}, {"bf": "0", "late": 2}])
def test_videos_of_other_programs_are_joined(
    broken: Callable[[str], Path], settings: dict[str, Any], scene: Any, tmp_path: Path
) -> None:
    """Some with frames that are decoded out of order, or that begin late, beside others: each shows its frames."""
    old = broken("v21_videos")
    for episode in (0, 1):
        path = old / f"videos/chunk-000/{FRONT}/episode_{episode:06d}.mp4"
        _encode(path, tmp_path / "again.mp4", **settings)
        shutil.move(tmp_path / "again.mp4", path)
    dataset = convert_v21_dataset(old)
    read = [dataset.numpy_item(i)[FRONT] for i in range(len(dataset))]
    assert [scene().number(picture * 255) for picture in read] == golden("v21_videos")["frame_numbers"][FRONT]


def test_a_video_of_another_rate_is_refused(broken: Callable[[str], Path], tmp_path: Path) -> None:
    old = broken("v21_videos")
    _encode(old / VIDEO, tmp_path / "again.mp4", fps=25)
    shutil.move(tmp_path / "again.mp4", old / VIDEO)
    with pytest.raises(DatasetFormatError, match=r"Episode 1.*episode_000001\.mp4 span 0\.52.* 0\.43"):
        convert_v21_dataset(old)


def test_pictures_that_lie_outside_of_the_table_are_refused(broken: Callable[[str], Path]) -> None:
    old = broken("v21_images")

    def emptied(table: pa.Table) -> pa.Table:
        paths = table[FRONT].combine_chunks().field("path")
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        column = pa.StructArray.from_arrays([pa.nulls(len(paths), pa.binary()), paths], fields=list(kind))
        return table.set_column(table.column_names.index(FRONT), FRONT, column)

    _rewrite(old / TABLE, emptied)
    with pytest.raises(DatasetFormatError, match=r"Episode 1.*row 0 is not in the table"):
        convert_v21_dataset(old)


def test_a_folder_that_is_taken_is_refused(broken: Callable[[str], Path]) -> None:
    old = broken("v21_videos")
    (old.parent / "old_v30").mkdir()
    (old.parent / "old_v30/notes.txt").write_text("mine")
    with pytest.raises(DatasetError, match="old_v30"):
        convert_v21_dataset(old)
    assert contents(old.parent / "old_v30") == {"notes.txt": b"mine"}


def test_a_full_disk_leaves_nothing_behind(broken: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    old = broken("v21_videos")
    before = contents(old)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ulna.data.editing.builder.write_tasks", full)
    with pytest.raises(DatasetError, match="No space left"):
        convert_v21_dataset(old)
    assert [path.name for path in old.parent.iterdir()] == ["old"]
    assert contents(old) == before


def test_the_reader_names_the_command_and_the_command_converts(broken: Callable[[str], Path]) -> None:
    old = broken("v21_many_files")
    with pytest.raises(DatasetFormatError) as refused:
        LeRobotDatasetMetadata("a/b", old)
    command = str(refused.value).rpartition("ulna dataset ")[2].split()
    assert command == ["convert", str(old)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert str(old.parent / "old_v30") in result.output
    assert len(LeRobotDataset("a/b", old.parent / "old_v30")) == 54


def test_the_command_fails_with_the_message(broken: Callable[[str], Path]) -> None:
    old = broken("v21_videos")
    (old / TABLE).unlink()
    result = CliRunner().invoke(app, ["convert", str(old), "--output", str(old.parent / "new")])
    assert result.exit_code == 1
    assert "Episode 1" in result.output
    assert TABLE in result.output
