# SPDX-License-Identifier: Apache-2.0
"""Episodes for which there was no room when they were saved: kept whole, in order, until there is."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import ulna.data.episode_store as store
from ulna.core.errors import DatasetError
from ulna.data import LeRobotDataset, LeRobotDatasetMetadata
from ulna.data.images import PictureSpool
from ulna.data.open_episode import OpenEpisode


@pytest.mark.parametrize("camera", [None, "video", "image"])
@pytest.mark.parametrize("place", ["write_row_groups", "write_rows", "write_sketches", "write_tasks"])
@pytest.mark.parametrize("again", ["save_episode", "flush", "finalize", "the next"])
def test_an_episode_that_did_not_fit_is_stored_later(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, camera: str | None, place: str, again: str
) -> None:
    """Whatever could not be written, every frame is there, once there is room."""
    made = scene(camera)
    dataset = made.create(tmp_path / "set")
    made.add(dataset, 0, 4)
    with monkeypatch.context() as patch:
        patch.setattr(store, place, no_space)
        for _ in range(2):
            with pytest.raises(DatasetError, match=r"Episode 1 could not be stored: .*No space left.*It is kept"):
                dataset.save_episode() if dataset._recorder._unsaved else made.add(dataset, 1, 3)
        made.check(tmp_path / "set", [4])
    lengths = [4, 3]
    if again == "the next":
        made.add(dataset, 2, 5)
        lengths.append(5)
    else:
        getattr(dataset, again)()
    dataset.finalize()
    assert made.check(tmp_path / "set", lengths).meta.findings == []
    assert not (tmp_path / "set/.ulna").exists()


def no_space(*args: Any, **kwargs: Any) -> None:
    raise OSError(28, "No space left on device")


def test_episodes_behind_one_that_did_not_fit_keep_their_order(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are stored in the background, the first fails, and none is joined to another or lost."""
    made = scene("video")
    dataset = made.create(tmp_path / "set")
    go, real = threading.Event(), store.write_rows

    def full_once(*args: Any) -> None:
        go.wait(30)
        monkeypatch.setattr(store, "write_rows", real)
        no_space()

    monkeypatch.setattr(store, "write_rows", full_once)
    for episode in range(3):
        made.add(dataset, episode, 2 + episode, wait=False)
    dataset.add_frame(made.frame(3, 0))
    go.set()
    with pytest.raises(DatasetError, match="Episode 0 could not be stored"):
        dataset.flush()
    dataset.add_frame(made.frame(3, 1))
    dataset.save_episode()
    dataset.finalize()
    assert made.check(tmp_path / "set", [2, 3, 4, 2]).meta.findings == []


def test_nothing_is_left_when_it_is_given_up(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_below: Any
) -> None:
    made, root = scene("image"), tmp_path / "set"
    dataset = made.create(root)
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_rows", no_space)
        with pytest.raises(DatasetError, match="It is kept"):
            made.add(dataset, 7, 3)
        dataset.clear_episode_buffer()
        with pytest.raises(DatasetError, match="It is kept"):
            dataset.flush()
    dataset.clear_episode_buffer(unsaved=True)
    dataset.flush()
    assert not [name for name in files_below(root) if "episode-" in name]
    with pytest.raises(DatasetError, match="There is no frame to save"):
        dataset.save_episode()
    made.add(dataset, 0, 2)
    dataset.finalize()
    made.check(root, [2])


def test_an_episode_behind_one_that_is_lost_takes_its_number(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its folder, too, before it counts: else who opens the dataset after a kill would find it unfinished."""
    made, root = scene("video"), tmp_path / "set"
    dataset = made.create(root)
    made.add(dataset, 0, 2)
    go, real_ended, real_store, folders = threading.Event(), OpenEpisode.ended, store.EpisodeStore.store, []

    def ended(self: OpenEpisode, meta: Any) -> Any:
        assert go.wait(30)
        if self.index == 1:
            raise DatasetError("the encoder gave up")
        return real_ended(self, meta)

    def stored(self: Any, episode: Any) -> None:
        folders.extend(path.name for path in (root / ".ulna/staging").iterdir())
        real_store(self, episode)

    monkeypatch.setattr(OpenEpisode, "ended", ended)
    monkeypatch.setattr(store.EpisodeStore, "store", stored)
    made.add(dataset, 9, 4, wait=False)
    made.add(dataset, 1, 3, wait=False)
    go.set()
    with pytest.raises(DatasetError, match="the encoder gave up"):
        dataset.flush()
    dataset.finalize()
    assert folders == ["episode-000001"]
    assert made.check(root, [2, 3]).meta.findings == []


@pytest.mark.parametrize("camera", [None, "video", "image"])
def test_when_there_never_is_room_it_stays_recoverable(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, camera: str | None
) -> None:
    """Finalizing tries it once more, says what to do, and leaves it in the folder as a kill would."""
    made, root = scene(camera), tmp_path / "set"
    dataset = made.create(root)
    made.add(dataset, 0, 2)
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_sketches", no_space)
        with pytest.raises(DatasetError, match="It is kept"):
            made.add(dataset, 1, 3)
        with pytest.raises(DatasetError, match="ends without it") as caught:
            dataset.finalize()
    assert caught.value.hint is not None
    assert "--recover" in caught.value.hint
    made.check(root, [2])
    assert [(left.episode, left.frames) for left in LeRobotDatasetMetadata("a/b", root).unfinished] == [(1, 3)]
    with LeRobotDataset.resume("lab/scene", root, recover=True) as again:
        made.add(again, 2, 4)
    assert made.check(root, [2, 3, 4]).meta.findings == []


def test_a_video_that_could_not_be_completed_is_taken_from_what_was_recorded(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plain form needs as much room again; all of its frames are on disk already."""
    import ulna.data.video_encoding as encoding

    made, root = scene("video"), tmp_path / "set"
    dataset = made.create(root)
    made.add(dataset, 0, 2)
    with monkeypatch.context() as patch:
        patch.setattr(encoding, "copy_packets", no_space)
        dataset.add_frame(made.frame(1, 0))
        dataset.add_frame(made.frame(1, 1))
        with monkeypatch.context() as deeper:
            deeper.setattr("ulna.data.recovered_pictures.copy_packets", no_space)
            with pytest.raises(DatasetError, match=r"Episode 1 could not be stored: .*No space left.*It is kept"):
                dataset.save_episode()
    dataset.save_episode()
    dataset.finalize()
    opened = made.check(root, [2, 2])
    assert opened.meta.stats is not None
    assert opened.meta.stats["observation.images.cam"]["count"].tolist() == [4]


def add_to_full_disk(
    made: Any, dataset: LeRobotDataset, patch: pytest.MonkeyPatch, frames: int, whole: int
) -> threading.Event:
    """Add frames; return what lets their pictures be written, until after some of them the disk is full."""
    real, count, go = PictureSpool._encode, iter(range(frames)), threading.Event()

    def encode(self: PictureSpool, picture: Any) -> bytes:
        assert go.wait(30)
        return no_space() if next(count) == whole else real(self, picture)

    patch.setattr(PictureSpool, "_encode", encode)
    for frame in range(frames):
        dataset.add_frame(made.frame(1, frame))
    return go


@pytest.mark.parametrize("again", ["save_episode", "flush", "finalize"])
def test_frames_before_a_lost_picture_are_kept(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """The error says how many they are; they are stored after that, not before."""
    made, root = scene("image"), tmp_path / "set"
    dataset = made.create(root)
    made.add(dataset, 0, 2)
    with monkeypatch.context() as patch:
        go = add_to_full_disk(made, dataset, patch, 5, 3)
        dataset.save_episode(wait=False)
        go.set()
        with pytest.raises(DatasetError, match=r"No space left.*first 3 of 5 frames of episode 1 are whole"):
            dataset.flush()
    getattr(dataset, again)()
    dataset.finalize()
    assert made.check(root, [2, 3]).meta.findings == []


def test_finalizing_stores_no_part_of_an_episode_untold(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, root = scene("image"), tmp_path / "set"
    dataset = made.create(root)
    made.add(dataset, 0, 2)
    with monkeypatch.context() as patch:
        go = add_to_full_disk(made, dataset, patch, 5, 3)
        dataset.save_episode(wait=False)
        go.set()
        with pytest.raises(DatasetError, match=r"The first 3 of 5 frames .*ends without it") as caught:
            dataset.finalize()
    assert caught.value.hint is not None
    assert "--recover" in caught.value.hint
    made.check(root, [2])
    LeRobotDataset.resume("lab/scene", root, recover=True).finalize()
    made.check(root, [2, 3])


def test_an_episode_without_a_whole_frame_is_discarded(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, root = scene("image"), tmp_path / "set"
    dataset = made.create(root)
    with monkeypatch.context() as patch:
        go = add_to_full_disk(made, dataset, patch, 2, 0)
        dataset.save_episode(wait=False)
        go.set()
        with pytest.raises(DatasetError, match="No space left"):
            dataset.flush()
    made.add(dataset, 0, 2)
    dataset.finalize()
    made.check(root, [2])


def test_every_episode_that_failed_is_told(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that lost frames behind one that did not fit."""
    made, root = scene("image"), tmp_path / "set"
    dataset = made.create(root)
    made.add(dataset, 0, 2)
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_rows", no_space)
        with pytest.raises(DatasetError, match="Episode 1 could not be stored"):
            made.add(dataset, 1, 3)
        add_to_full_disk(made, dataset, patch, 4, 2).set()
        with pytest.raises(DatasetError, match="first 2 of 4 frames of episode 2"):
            dataset.save_episode()
    dataset.flush()
    dataset.finalize()
    assert LeRobotDatasetMetadata("a/b", root).episodes["length"] == [2, 3, 2]


def interrupt_at(line: int) -> list[str]:
    """Let KeyboardInterrupt be raised before a line of the recorder; return where that was, once it was."""
    count, where = iter(range(10_000)), list[str]()

    def trace(frame: Any, event: str, _: Any) -> Any:
        if Path(frame.f_code.co_filename).name not in {"recorder.py", "open_episode.py", "dataset.py", "interrupts.py"}:
            return None
        if event == "line" and not where and next(count) == line:
            where.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    return where


@pytest.mark.slow
@pytest.mark.parametrize("is_one_kept", [False, True])
def test_ctrl_c_before_any_line_of_saving(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_one_kept: bool
) -> None:
    """The episode is saved or still there to be saved, and no other is lost, doubled or waited for in vain."""
    made = scene()
    for line in range(200):
        root = tmp_path / str(line)
        dataset = made.create(root)
        with monkeypatch.context() as patch:
            if is_one_kept:
                patch.setattr(store, "write_rows", no_space)
                with pytest.raises(DatasetError, match="It is kept"):
                    made.add(dataset, 0, 2)
            else:
                made.add(dataset, 0, 2)
        for frame in range(3):
            dataset.add_frame(made.frame(1, frame))
        tracer = sys.gettrace()
        where = interrupt_at(line)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                dataset.save_episode()
        finally:
            sys.settrace(tracer)
        if dataset.has_pending_frames:
            dataset.save_episode()
        dataset.flush()
        dataset.finalize()
        made.check(root, [2, 3])
        if not where:
            break
    assert 20 < line < 199
