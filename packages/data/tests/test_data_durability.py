# SPDX-License-Identifier: Apache-2.0
"""Whatever interrupts a recording, every episode that was finished opens at once, and recording goes on behind it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ulna.core.errors import DatasetError, DatasetFormatError, DatasetNotFinishedError
from ulna.data import LeRobotDataset, LeRobotDatasetMetadata, RGBEncoderConfig
from ulna.data.episode_store import EpisodeStore
from ulna.data.recovery import finalize_interrupted, recover_episodes
from ulna.data.workspace import Workspace

CAMERA = "observation.images.cam"
H264 = RGBEncoderConfig(vcodec="h264")


class Stop(BaseException):
    """Stands for the end of the process at one instant."""


@pytest.mark.slow
@pytest.mark.parametrize("camera", ["image", "video"])
def test_stop_at_every_step_of_saving(scene: Any, tmp_path: Path, camera: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storing is cut off before each of its file operations in turn: before the row file nothing counts, then all."""
    made, root = scene(camera), tmp_path / "set"
    base = made.record(tmp_path / "base", [3, 2], finalize=False)
    seen = []
    for step in range(40):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(base.root, root)
        dataset = LeRobotDataset.resume("lab/scene", root, rgb_encoder=H264)
        for frame in range(4):
            dataset.add_frame(made.frame(2, frame))
        reached = stop_at(monkeypatch, step, lambda d=dataset: d._recorder._store.store(finish(d)))  # type: ignore[misc]
        dataset._recorder.workspace.unlock()  # type: ignore[union-attr]
        opened = LeRobotDatasetMetadata("lab/scene", root)
        made.check(root, [3, 2, 4][: opened.total_episodes])
        seen.append(opened.total_episodes)
        again = LeRobotDataset.resume("lab/scene", root, rgb_encoder=H264)
        made.add(again, opened.total_episodes, 5)
        again.finalize()
        final = made.check(root, [*[3, 2, 4][: opened.total_episodes], 5])
        assert final.meta.findings == []
        assert final.meta.stats is not None
        assert final.meta.stats["index"]["count"].tolist() == [len(final)]
        if not reached:
            break
    else:
        pytest.fail("storing never ran to its end")
    base.finalize()
    assert seen == sorted(seen)
    assert seen[0] == 2
    assert seen.count(3) >= 3


def finish(dataset: LeRobotDataset) -> Any:
    episode = dataset._recorder._current  # type: ignore[union-attr]
    assert episode is not None
    episode.end()
    return episode.ended(dataset.meta).data(dataset.meta, episode.index)


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int, act: Any) -> bool:
    """Run `act`, which is cut off before its n-th change of a directory; return whether it was."""
    left = step

    def counted(real: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Stop
            left -= 1
            return real(*args, **kwargs)

        return wrapper

    with monkeypatch.context() as patch:
        for owner, name in ((os, "replace"), (os, "unlink"), (os, "rmdir"), (Path, "replace"), (Path, "mkdir")):
            patch.setattr(owner, name, counted(getattr(owner, name)))
        try:
            act()
        except Stop:
            return True
    return False


@pytest.mark.slow
def test_stop_at_every_step_of_finalizing(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, root = scene("video"), tmp_path / "set"
    lengths = [2, 1, 3]
    base = made.record(tmp_path / "base", lengths, finalize=False)
    for step in range(120):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(base.root, root)
        dataset = LeRobotDataset.resume("lab/scene", root, rgb_encoder=H264)
        reached = stop_at(monkeypatch, step, dataset.finalize)
        dataset._recorder.workspace.unlock()  # type: ignore[union-attr]
        made.check(root, lengths)
        if not reached:
            break
    else:
        pytest.fail("finalizing never ran to its end")
    base.finalize()
    assert step > 10
    assert sorted(p.name for p in root.iterdir()) == ["data", "meta", "videos"]
    assert not Workspace(root).exists


def test_interrupted_recording_is_reported_and_resumed(
    scene: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, files_below: Any
) -> None:
    made = scene("video")
    dataset = made.record(tmp_path / "live", [3, 4], finalize=False)
    dataset.add_frame(made.frame(2, 0))
    shutil.copytree(tmp_path / "live", tmp_path / "set")
    dataset.finalize()
    opened = made.check(tmp_path / "set", [3, 4])
    assert [f.episode for f in opened.meta.findings] == [2]
    assert "episode 2 was not finished" in caplog.text
    with LeRobotDataset.resume("lab/scene", tmp_path / "set", rgb_encoder=H264) as again:
        made.add(again, 2, 5)
    made.check(tmp_path / "set", [3, 4, 5])
    assert not [name for name in files_below(tmp_path / "set") if ".ulna" in name]


def cut(path: Path, count: int = 100) -> None:
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - count)


@pytest.mark.parametrize("broken", ["data/chunk-000/file-004.parquet", f"videos/{CAMERA}/chunk-000/file-004.mp4"])
@pytest.mark.parametrize("gone", [True, False])
def test_broken_newest_file_costs_only_its_episode(scene: Any, tmp_path: Path, broken: str, gone: bool) -> None:
    made = scene("video")
    lengths = [2, 3, 2, 3, 2]
    dataset = made.record(tmp_path / "live", lengths, finalize=False)
    shutil.copytree(tmp_path / "live", tmp_path / "set")
    dataset.finalize()
    path = tmp_path / "set" / broken
    path.unlink() if gone else cut(path)
    opened = made.check(tmp_path / "set", lengths[:4])
    messages = [f.message for f in opened.meta.findings]
    assert any("episode 4 was left out" in m and str(path) in m for m in messages)
    with LeRobotDataset.resume("lab/scene", tmp_path / "set", rgb_encoder=H264) as again:
        made.add(again, 4, 6)
    assert made.check(tmp_path / "set", [*lengths[:4], 6]).meta.findings == []


def test_resuming_never_drops_episodes_of_a_finished_recording(scene: Any, tmp_path: Path) -> None:
    made, root = scene("video"), tmp_path / "set"
    made.record(root, [2, 3])
    video = root / f"videos/{CAMERA}/chunk-000/file-000.mp4"
    video.rename(tmp_path / "elsewhere.mp4")
    with pytest.raises(DatasetError, match=r"(?s)Episodes 0 to 1 .* would lose them.*Restore"):
        LeRobotDataset.resume("lab/scene", root, rgb_encoder=H264)
    (tmp_path / "elsewhere.mp4").rename(video)
    made.check(root, [2, 3])


def test_broken_file_in_the_middle_is_named(scene: Any, tmp_path: Path) -> None:
    made = scene()
    dataset = made.record(tmp_path / "live", [2, 3, 2], finalize=False)
    shutil.copytree(tmp_path / "live", tmp_path / "set")
    dataset.finalize()
    cut(tmp_path / "set/data/chunk-000/file-001.parquet")
    with pytest.raises(DatasetFormatError, match=r"(?s)episode 1: .*file-001.parquet has no footer.*episodes=\[0, 2\]"):
        LeRobotDataset("lab/scene", tmp_path / "set")
    rest = LeRobotDataset("lab/scene", tmp_path / "set", [0, 2])
    assert [int(item["episode_index"]) for item in rest[:]] == [0, 0, 2, 2]


def edit_rows(root: Path, change: Any) -> None:
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), path)


def test_counter_ahead_of_the_table(scene: Any, tmp_path: Path) -> None:
    made, root = scene(), tmp_path / "set"
    made.record(root, [2, 3])
    info = json.loads((root / "meta/info.json").read_text())
    info["total_episodes"] += 2
    (root / "meta/info.json").write_text(json.dumps(info))
    opened = made.check(root, [2, 3])
    assert "info.json counts 4 episodes, the table has 2" in opened.meta.findings[0].message
    with LeRobotDataset.resume("lab/scene", root) as again:
        made.add(again, 2, 4)
    assert made.check(root, [2, 3, 4]).meta.findings == []


BAD_TABLES = [
    (lambda rows: [rows[0], rows[2]], "episode 1 is missing"),
    (lambda rows: [rows[0], rows[1], rows[1]], "episode 1 stands there twice"),
    (
        lambda rows: [rows[0], {**rows[1], "dataset_from_index": 7}, rows[2]],
        r"Episode 1 claims frames 7 to 5 and length 3",
    ),
    (lambda rows: [rows[0], {**rows[1], "length": 0}, rows[2]], "Episode 1 claims frames 2 to 5 and length 0"),
    (lambda rows: [{**rows[0], "length": None}, *rows[1:]], "no value of 'length' for episode 0"),
]


@pytest.mark.parametrize(("change", "message"), BAD_TABLES, ids=["gap", "twice", "range", "empty", "null"])
def test_table_that_is_not_whole_is_refused(scene: Any, tmp_path: Path, change: Any, message: str) -> None:
    scene().record(tmp_path / "set", [2, 3, 4])
    edit_rows(tmp_path / "set", change)
    with pytest.raises(DatasetFormatError, match=message):
        LeRobotDataset("lab/scene", tmp_path / "set")


def test_rows_in_any_order_are_found_by_number(scene: Any, tmp_path: Path) -> None:
    made = scene("video")
    made.record(tmp_path / "set", [2, 3, 4])
    edit_rows(tmp_path / "set", lambda rows: [rows[2], rows[0], rows[1]])
    made.check(tmp_path / "set", [2, 3, 4])


def test_recording_that_lost_its_episode_table_is_explained(scene: Any, tmp_path: Path) -> None:
    """What LeRobot 0.6.1 leaves behind when it is killed."""
    scene().record(tmp_path / "set", [2, 3])
    shutil.rmtree(tmp_path / "set/meta/episodes")
    cut(tmp_path / "set/data/chunk-000/file-000.parquet")
    with pytest.raises(DatasetNotFinishedError, match="counts 2 episodes, but there is no readable episode table"):
        LeRobotDataset("lab/scene", tmp_path / "set")


def test_table_that_contradicts_its_episodes_is_named(scene: Any, tmp_path: Path) -> None:
    scene().record(tmp_path / "set", [2, 3])
    path = tmp_path / "set/data/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(path).slice(0, 4), path)
    dataset = LeRobotDataset("lab/scene", tmp_path / "set")
    assert dataset.numpy_item(1)["index"] == 1
    with pytest.raises(DatasetFormatError, match=r"Episode 1 should be frames 2 to 5 in .*file-000.parquet"):
        dataset.numpy_item(2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "expected an object with at least"),
        ('{"codebase_version": "v2.1", "fps": 30, "features": {}}', "format v2.1"),
        (
            '{"codebase_version": "v3.0", "fps": 29.97, "features": {}}',
            "fps must be a positive whole number, got 29.97",
        ),
        ('{"codebase_version": "v3.0", "fps": 30, "features": {"a/b": {}}}', "'a/b' is not allowed"),
        ('{"codebase_version": "v3.0", "fps": 30, "features": {"a": {"dtype": "flaot32", "shape": [1]}}}', "'float32'"),
    ],
)
def test_bad_info_is_explained(scene: Any, tmp_path: Path, text: str, message: str) -> None:
    scene().record(tmp_path / "set", [2])
    (tmp_path / "set/meta/info.json").write_text(text)
    with pytest.raises(DatasetFormatError, match=message):
        LeRobotDatasetMetadata("lab/scene", tmp_path / "set")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fps": "x"}, "fps must be a positive whole number, got 'x'"),
        ({"fps": None}, "fps must be"),
        ({"fps": float("inf")}, "fps must be"),
        ({"total_frames": "x"}, "total_frames must be a whole number of 0 or more, it is 'x'"),
        ({"total_episodes": -1}, "total_episodes must be"),
        ({"chunks_size": 0}, "chunks_size must be a whole number of 1 or more"),
        ({"data_files_size_in_mb": None}, "data_files_size_in_mb must be a positive number"),
        ({"data_path": "data/{nix}.parquet"}, "data_path .* cannot be filled in"),
        ({"data_path": 5}, "data_path .* cannot be filled in"),
        ({"data_path": "../../{chunk_index}-{file_index}.parquet"}, "leads out of the dataset"),
        ({"video_path": "/videos/{chunk_index}-{file_index}.mp4"}, "leads out of the dataset"),
    ],
)
def test_values_of_info_that_make_no_sense_are_named(
    scene: Any, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    scene().record(tmp_path / "set", [2])
    path = tmp_path / "set/meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DatasetFormatError, match=message):
        LeRobotDatasetMetadata("lab/scene", tmp_path / "set")


@pytest.mark.parametrize("text", ["garbage", "{}", '{"first_episode": null, "process": 1, "started": 1}'])
def test_damaged_mark_is_named_and_can_be_deleted(scene: Any, tmp_path: Path, text: str) -> None:
    scene().record(tmp_path / "set", [2])
    mark = tmp_path / "set/.ulna/recording.json"
    mark.parent.mkdir()
    mark.write_text(text)
    with pytest.raises(DatasetFormatError, match=r"delete .*recording\.json"):
        LeRobotDataset.resume("lab/scene", tmp_path / "set")
    mark.unlink()
    LeRobotDataset.resume("lab/scene", tmp_path / "set").finalize()


@pytest.mark.parametrize(
    "text",
    [
        "garbage",
        "{}",
        '{"moves": [["a"]], "deletions": []}',
        '{"moves": [], "deletions": [5]}',
        '{"moves": [], "deletions": ["../precious"]}',
        '{"moves": [["../precious", "data/new"]], "deletions": []}',
        '{"moves": [["meta/info.json", "../elsewhere"]], "deletions": []}',
    ],
)
def test_journal_that_is_damaged_or_leads_outside_touches_nothing(scene: Any, tmp_path: Path, text: str) -> None:
    scene().record(tmp_path / "set", [2])
    (tmp_path / "precious").write_text("precious")
    work = tmp_path / "set/.ulna"
    work.mkdir()
    (work / "journal.json").write_text(text)
    with pytest.raises(DatasetFormatError, match=r"journal\.json"):
        LeRobotDatasetMetadata("lab/scene", tmp_path / "set")
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "set/meta/info.json").exists()


def test_unknown_keys_of_info_survive(scene: Any, tmp_path: Path) -> None:
    made = scene()
    made.record(tmp_path / "set", [2])
    path = tmp_path / "set/meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tools": [{"type": "function"}], "mine": 1}))
    LeRobotDataset.resume("lab/scene", tmp_path / "set").finalize()
    kept = json.loads(path.read_text())
    assert (kept["tools"], kept["mine"]) == ([{"type": "function"}], 1)


def test_dataset_that_is_not_here_is_explained(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"(?s)'lab/none' is not on this machine; looked in .*root=<folder>"):
        LeRobotDataset("lab/none")
    with pytest.raises(DatasetError, match=r"has no meta/info\.json"):
        LeRobotDataset("lab/none", tmp_path)


def test_datasets_are_found_by_name(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Ulna's folder first, then in LeRobot's."""
    scene().record(tmp_path / "lerobot/lab/scene", [2])
    monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path / "lerobot"))
    monkeypatch.setenv("ULNA_HOME", str(tmp_path / "ulna"))
    assert LeRobotDataset("lab/scene").num_frames == 2
    with LeRobotDataset.create("lab/scene", 30, scene().features()) as dataset:
        scene().add(dataset, 0, 3)
    assert dataset.root == tmp_path / "ulna/datasets/lab/scene"
    assert LeRobotDataset("lab/scene").num_frames == 3


def test_interrupted_swap_is_finished_by_the_next_reader(scene: Any, tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    assert work.lock()
    (tmp_path / "old").write_text("old")
    prepared = work.begin_swap() / "new"
    prepared.write_text("new")
    work.folder.joinpath("journal.json").write_text(
        json.dumps({"moves": [[str(prepared.relative_to(tmp_path)), "data/new"]], "deletions": ["old"]})
    )
    assert work.replay()
    assert not work.replay()
    assert (tmp_path / "data/new").read_text() == "new"
    assert not (tmp_path / "old").exists()
    work.folder.joinpath("journal.json").write_text(json.dumps({"moves": [["nowhere", "no"]], "deletions": []}))
    with pytest.raises(DatasetError, match="neither there nor in place"):
        work.replay()
    work.unlock()


def test_files_of_an_interrupted_recording_are_joined_by_the_next(scene: Any, tmp_path: Path, files_below: Any) -> None:
    made, root = scene("video"), tmp_path / "set"
    dataset = made.record(tmp_path / "recording", [2, 3, 1], finalize=False)
    shutil.copytree(dataset.root, root)
    dataset.finalize()
    assert len([name for name in files_below(root) if name.startswith("data/")]) == 3
    again = LeRobotDataset.resume("lab/scene", root, rgb_encoder=H264)
    made.add(again, 3, 2)
    again.finalize()
    made.check(root, [2, 3, 1, 2])
    for part in ("data/", "videos/", "meta/episodes/"):
        assert len([name for name in files_below(root) if name.startswith(part)]) == 1


def test_an_episode_that_was_recovered_is_not_recovered_twice(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the next number, whatever its folder was called, and the second try knows it by that."""
    made, root = scene("video"), tmp_path / "set"
    dataset = made.record(tmp_path / "recording", [2], finalize=False)
    for frame in range(3):
        dataset.add_frame(made.frame(1, frame))
    folder = made.leave_behind(dataset, root)
    folder.rename(folder.with_name("episode-000007"))
    dataset.finalize()
    store = EpisodeStore.store

    def stored_and_stopped(self: EpisodeStore, episode: Any) -> None:
        store(self, episode)
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(EpisodeStore, "store", stored_and_stopped)
        with pytest.raises(Stop):
            recover_episodes(root)
    assert recover_episodes(root) == []
    assert finalize_interrupted(root)
    made.check(root, [2, 3])


def test_halves_of_files_are_removed_by_the_next_recorder(scene: Any, tmp_path: Path) -> None:
    """What a kill left of files that were being written; names of others are not touched."""
    made, root = scene("video"), tmp_path / "set"
    made.record(root, [2])
    folders = (root / "data/chunk-000", root / "meta", root / "meta/episodes/chunk-000", root / f"videos/{CAMERA}")
    halves = [folder / ".file-001.parquet.x7c_.tmp" for folder in folders]
    for path in (*halves, root / "data/notes.tmp"):
        path.write_bytes(b"half")
    dataset = LeRobotDataset.resume("lab/scene", root, rgb_encoder=H264)
    assert not any(path.exists() for path in halves)
    dataset.finalize()
    assert (root / "data/notes.tmp").read_bytes() == b"half"


def test_swap_is_on_disk_before_its_journal_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its journal a swap is not carried on: contents, and every folder that it changed, are flushed before."""
    workspace = Workspace(tmp_path)
    swap, moved, kept = workspace.begin_swap(), tmp_path / "data/new", tmp_path / "meta/old"
    kept.mkdir(parents=True)
    (kept / "gone").touch()
    (kept / "stays").touch()
    (swap / "file").write_bytes(b"rows")
    prepared = (swap / "file").stat().st_ino
    steps: list[tuple[str, int | str]] = []

    def noted(name: str, what: Any) -> None:
        real = getattr(os, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            steps.append((name, what(args)))
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, wrapper)

    noted("fsync", lambda args: os.fstat(args[0]).st_ino)
    noted("replace", lambda args: Path(args[1]).name)
    noted("unlink", lambda args: Path(args[0]).name)
    workspace.commit_swap([(swap / "file", moved / "file")], [kept / "gone"])
    journal, gone = steps.index(("replace", "journal.json")), steps.index(("unlink", "journal.json"))
    assert ("fsync", prepared) in steps[:journal]
    assert ("fsync", swap.stat().st_ino) in steps[:journal]
    assert ("fsync", moved.stat().st_ino) in steps[steps.index(("replace", "file")) : gone]
    assert ("fsync", kept.stat().st_ino) in steps[steps.index(("unlink", "gone")) : gone]
    assert ("fsync", workspace.folder.stat().st_ino) in steps[gone:]


def test_statistics_left_behind_are_combined_anew(scene: Any, tmp_path: Path) -> None:
    made = scene("video")
    dataset = made.record(tmp_path / "set", [3, 4, 5])
    whole = dataset.meta.stats
    (tmp_path / "set/meta/stats.json").unlink()
    again = LeRobotDataset.resume("lab/scene", tmp_path / "set", rgb_encoder=H264)
    again.finalize()
    assert whole is not None
    assert again.meta.stats is not None
    for feature, values in whole.items():
        for name, value in values.items():
            np.testing.assert_allclose(again.meta.stats[feature][name], value, rtol=1e-12, atol=1e-12)


def test_trouble_with_statistics_does_not_deny_a_stored_episode(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The episode counts once its row is there: what fails afterwards is told, and numbers go on behind it."""
    made = scene(None)
    dataset = LeRobotDataset.create("lab/scene", 30, made.features(), tmp_path / "set")
    with monkeypatch.context() as broken:
        broken.setattr("ulna.data.episode_store.stats_to_json", lambda stats: {}["nothing"])
        dataset.add_frame(made.frame(0, 0))
        with pytest.raises(DatasetError, match="Episode 0 is stored, but its statistics"):
            dataset.save_episode()
    dataset.add_frame(made.frame(1, 0))
    dataset.save_episode()
    dataset.finalize()
    made.check(tmp_path / "set", [1, 1])
