# SPDX-License-Identifier: Apache-2.0
"""Whatever is wrong with a file, the error is one of ours and names it, and what is left can be used."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ulna.core.errors import DatasetError, DatasetFormatError
from ulna.data import LeRobotDataset, LeRobotDatasetMetadata, delete_episodes, recompute_stats, split_dataset
from ulna.data.checks.validation import validate
from ulna.data.commands import app
from ulna.data.features import parse_features
from ulna.data.row_journal import RowJournal, read_journal
from ulna.data.sketch_files import read_sketch_file
from ulna.data.timing import RECORDING_LOG, read_timings


def interrupted(made: Any, root: Path, frames: int = 3) -> Path:
    """A recording of one stored episode that was killed in its second."""
    dataset = made.record(root.with_name("recording"), [2], finalize=False)
    for frame in range(frames):
        dataset.add_frame(made.frame(1, frame))
    folder: Path = made.leave_behind(dataset, root)
    dataset.finalize()
    return folder


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def test_zeros_behind_the_rows(scene: Any, tmp_path: Path) -> None:
    """After a power cut a file may end in zeros, which have the right checksum of an empty record."""
    assert zlib.crc32(b"") == 0
    journal = interrupted(scene(), tmp_path / "set") / "rows.journal"
    journal.write_bytes(journal.read_bytes() + bytes(4096))
    [left] = LeRobotDatasetMetadata("lab/scene", tmp_path / "set").unfinished
    assert left.frames == 3
    LeRobotDataset.resume("lab/scene", tmp_path / "set", recover=True).finalize()
    scene().check(tmp_path / "set", [2, 3])


def test_a_damaged_byte_or_a_cut_ends_the_journal_there(tmp_path: Path) -> None:
    """Bytes everywhere are damaged in turn, and the file cut there: what is read are the first rows as they were."""
    features = parse_features({"x": {"dtype": "float32", "shape": (2,)}, "said": {"dtype": "string", "shape": (1,)}})
    path, damaged = tmp_path / "rows", tmp_path / "damaged"
    journal = RowJournal(path, features, {"clock": "caller"})
    for frame in range(4):
        journal.append(f"task {frame}", {"x": np.array([frame, -frame], np.float32), "said": "yes"}, frame / 30)
    journal.close()

    def read() -> tuple[int, list[Any]]:
        rows = read_journal(damaged, features)
        return len(rows), [*rows.tasks, *(v["x"].tolist() for v in rows.values), *rows.times, rows.header]

    whole, counts = path.read_bytes(), set()
    for position in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[position] ^= 0x10
        for content in (bytes(changed), whole[:position]):
            damaged.write_bytes(content)
            count, found = read()
            times = [n / 30 for n in range(count)]
            values = [[float(n), float(-n)] for n in range(count)]
            header = {"clock": "caller"} if count else found[-1]
            assert found == [*(f"task {n}" for n in range(count)), *values, *times, header]
            counts.add(count)
    assert counts == {0, 1, 2, 3}


@pytest.mark.parametrize("damage", [as_folder, lambda p: p.write_bytes(b"\xff" * 999), lambda p: p.write_bytes(b"")])
@pytest.mark.parametrize("name", ["rows.journal", "observation.images.cam.pictures.index"])
def test_damaged_leftovers_of_a_recording(scene: Any, tmp_path: Path, name: str, damage: Callable[[Path], Any]) -> None:
    """What is left of an unfinished episode can be anything; what is stored opens all the same."""
    made = scene("image")
    damage(interrupted(made, tmp_path / "set") / name)
    made.check(tmp_path / "set", [2])
    dataset = LeRobotDataset.resume("lab/scene", tmp_path / "set", recover=True)
    made.add(dataset, 1, 4)
    dataset.finalize()
    assert made.check(tmp_path / "set", [2, 4]).meta.findings == []


def test_folders_where_files_should_be(scene: Any, tmp_path: Path) -> None:
    """They are reported as damaged files are."""
    root = tmp_path / "set"
    interrupted(scene(), root)
    for name in (".ulna/recording.json", "meta/stats.json"):
        as_folder(root / name)
    found = {problem.code for problem in validate("a/b", root).problems}
    assert {"mark", "stats-unusable"} <= found
    with pytest.raises(DatasetFormatError, match=r"recording\.json is damaged"):
        LeRobotDataset.resume("lab/scene", root)
    with pytest.raises(DatasetFormatError, match=r"stats\.json is not valid(.|\n)*repair"):
        LeRobotDatasetMetadata("lab/scene", root).stats


def test_damaged_statistics_of_episodes(scene: Any, tmp_path: Path) -> None:
    """Their columns are read only when they are needed; then the file is named."""
    root = tmp_path / "set"
    scene().record(root, [2, 3])
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    whole = path.read_bytes()
    refused = []
    for at in range(4, len(whole) // 2, 500):
        path.write_bytes(whole[:at] + bytes(b ^ 0xFF for b in whole[at : at + 40]) + whole[at + 40 :])
        try:
            recompute_stats(root, output_dir=tmp_path / f"out{at}")
        except DatasetFormatError as error:
            refused.append(str(error))
    assert refused
    assert all(str(path) in message for message in refused)


def test_damaged_sketches_are_passed_over(scene: Any, tmp_path: Path) -> None:
    """They can be computed from the rows."""
    root = tmp_path / "set"
    meta = scene().record(root, [2, 3]).meta
    path = root / "meta/sketches/chunk-000/file-000.parquet"
    whole = path.read_bytes()
    file = meta.episodes.row(0).row
    assert read_sketch_file(root, file)
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes(b ^ 0xFF for b in whole[at : at + 9]) + whole[at + 9 :])
        read_sketch_file(root, file)


def test_damaged_lines_of_the_log(scene: Any, tmp_path: Path) -> None:
    """What is known of other episodes is shown."""
    root = tmp_path / "set"
    scene().record(root, [2, 3])
    log = root / RECORDING_LOG
    second = log.read_text().splitlines()[1]
    wrong: list[dict[str, Any]] = [
        {"clock": "caller"},
        {"clock": "tower"},
        {"frames": "many"},
        {"duration_s": 0, "measured_fps": 3},
    ]
    for line in wrong:
        first = {**json.loads(second), "episode_index": 0, **line}
        if "frames" not in line and len(line) == 1 and line["clock"] == "caller":
            del first["frames"]
        log.write_text(f"{json.dumps(first)}\n{second}\n[\n")
        assert list(read_timings(root)) == [1]
        assert CliRunner().invoke(app, ["info", str(root)]).exit_code == 0


def test_texts_in_the_header_of_a_video_do_no_harm(copy: Path) -> None:
    [video] = copy.rglob("*.mp4")
    video.write_bytes(video.read_bytes().replace(b"VideoHandler", b"Video\xfc\xfendler"))
    assert validate(copy, deep=True).problems == []
    assert len(list(LeRobotDataset("lab/scene", copy))) == 9


def test_a_video_of_an_unknown_codec_is_named(copy: Path) -> None:
    [video] = copy.rglob("*.mp4")
    video.write_bytes(video.read_bytes().replace(b"avc1\0", b"zzzz\0"))
    with pytest.raises(DatasetFormatError, match="no video that can be decoded"):
        LeRobotDataset("lab/scene", copy)[0]
    assert validate(copy).counts["video-unreadable"] == 1
    for edit in (lambda to: delete_episodes(copy, [0], output_dir=to), lambda to: split_dataset(copy, {"a": [1]}, to)):
        with pytest.raises(DatasetError, match=r"file-000\.mp4"):
            edit(copy.parent / "edited")
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


@pytest.mark.parametrize("column", ["episode_index", "index", "action"])
def test_texts_in_a_column_of_numbers(copy: Path, column: str) -> None:
    [path] = (copy / "data").rglob("*.parquet")
    table = pq.read_table(path)
    texts = pa.array([["x"] * 6] * len(table)) if column == "action" else pa.array(["x"] * len(table))
    pq.write_table(table.set_column(table.column_names.index(column), column, texts), path)
    with pytest.raises(DatasetFormatError, match=rf"file-000\.parquet: column '{column}' holds string, but numbers"):
        LeRobotDataset("lab/scene", copy)[0]
    assert not validate(copy).is_sound
