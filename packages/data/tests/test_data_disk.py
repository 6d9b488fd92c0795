# SPDX-License-Identifier: Apache-2.0
"""Power that fails, disks that are full, and Ctrl-C: what was finished stays whole, and recording can go on."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ulna.core.errors import DatasetError
from ulna.data import LeRobotDataset, LeRobotDatasetMetadata, RGBEncoderConfig
from ulna.data.checks.mending import repair
from ulna.data.recovery import find_unfinished
from ulna.data.workspace import Workspace

CAMERA = "observation.images.cam"
H264 = RGBEncoderConfig(vcodec="h264", preset="ultrafast", threads=1)


class Disk:
    """A model of what a disk holds after the power failed: only what was flushed, at every flush and every change.

    A file's content counts as of its last fsync, the entries of a folder as of the folder's last fsync. With `eager`
    entries count at once, as file systems may write them early, and only contents wait for their fsync.
    """

    def __init__(self, root: Path, *, eager: bool) -> None:
        self.root, self.eager = root, eager
        self.contents: dict[int, bytes] = {}
        self.entries: dict[int, dict[str, int]] = {}
        self.kinds: dict[int, bool] = {}
        self.states: list[tuple[int, dict[str, bytes | None]]] = []
        self.stored = 0
        self.held: dict[int, int] = {}

    def settle(self) -> None:
        """Everything that is there now is on disk."""
        for path in [self.root, *self.root.rglob("*")]:
            self._keep(path)

    def _keep(self, path: Path) -> None:
        number = self._known(path)
        if self.kinds[number]:
            self.entries[number] = {p.name: self._known(p) for p in path.iterdir()}
        else:
            self.contents[number] = path.read_bytes()

    def _known(self, path: Path) -> int:
        number = path.stat().st_ino
        if number not in self.held:
            self.held[number] = os.open(path, os.O_RDONLY)  # as long as it is open its number is given to no other
            self.kinds[number] = path.is_dir()
        return number

    def flushed(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_relative_to(self.root):
            self._keep(path)
            self.fail()

    def fail(self) -> None:
        """Note what would be there if the power failed now."""
        state: dict[str, bytes | None] = {}
        if self.eager:
            for path in self.root.rglob("*"):
                found = path.stat()
                content = None if stat.S_ISDIR(found.st_mode) else self.contents.get(found.st_ino, b"")
                state[str(path.relative_to(self.root))] = content
        else:
            self._gather(self.root.stat().st_ino, "", state)
        if not self.states or self.states[-1] != (self.stored, state):
            self.states.append((self.stored, state))

    def _gather(self, node: int, prefix: str, state: dict[str, bytes | None]) -> None:
        for name, child in self.entries.get(node, {}).items():
            is_folder = self.kinds[child]
            state[prefix + name] = None if is_folder else self.contents.get(child, b"")
            if is_folder:
                self._gather(child, f"{prefix}{name}/", state)


def lay_out(state: dict[str, bytes | None], root: Path) -> None:
    """Make a folder look like a state of the disk."""
    root.mkdir()
    for name, content in state.items():
        path = root / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@contextlib.contextmanager
def watched(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Follow every flush and every change of a folder."""
    lock = threading.RLock()

    def followed(real: Callable[..., Any], after: Callable[..., None]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with lock:
                result = real(*args, **kwargs)
                after(*args)
                return result

        return wrapper

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", followed(os.fsync, disk.flushed))
        for name in ("replace", "rename", "unlink", "link", "rmdir"):
            patch.setattr(os, name, followed(getattr(os, name), lambda *_: disk.fail()))
        yield
    for descriptor in disk.held.values():
        os.close(descriptor)


@pytest.mark.slow
@pytest.mark.parametrize("camera", ["video", "image"])
@pytest.mark.parametrize("eager", [False, True], ids=["entries wait", "entries at once"])
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the model finds files through /proc")
def test_power_fails_at_any_instant(
    scene: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    camera: str,
    eager: bool,
) -> None:
    """At every commit point all that it depends on was flushed before, folders included."""
    caplog.set_level(logging.ERROR)
    made, root = scene(camera), tmp_path / "set"
    dataset = made.create(root, rgb_encoder=H264)
    made.add(dataset, 0, 2)
    disk = Disk(root, eager=eager)
    disk.settle()
    disk.stored = 1
    with watched(disk, monkeypatch):
        for episode in (1, 2):
            made.add(dataset, episode, 2 + episode)
            disk.stored = episode + 1
        dataset.finalize()
    assert len(disk.states) > 25
    seen = set()
    for stored, state in disk.states:
        found = tmp_path / "found"
        lay_out(state, found)
        opened = made.check(found, [2, 3, 4][: LeRobotDatasetMetadata("lab/scene", found).total_episodes])
        assert opened.num_episodes >= stored
        seen.add(opened.num_episodes)
        shutil.rmtree(found)
    assert seen == {1, 2, 3}


def small_disk(folder: Path, blocks: int, files: int) -> bool:
    """Mount a disk of a few blocks of 4 KiB; return whether that is allowed here."""
    folder.mkdir()
    options = f"size={blocks * 4096},nr_inodes={files}"
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False
        )
    except FileNotFoundError:
        return False
    return done.returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    if os.name == "nt" or not small_disk(folder, 2000, 400):
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, blocks: int, files: int) -> None:
    """Leave room for so many blocks and files."""
    free = os.statvfs(disk)
    with (disk / "ballast").open("wb") as ballast:
        ballast.write(bytes(4096) * max(free.f_bavail - blocks, 0))
    for number in range(max(os.statvfs(disk).f_favail - files, 0)):
        (disk / f"ballast-{number}").touch()


def free(disk: Path) -> None:
    for path in disk.glob("ballast*"):
        path.unlink()


def used(disk: Path) -> tuple[int, int]:
    found = os.statvfs(disk)
    return found.f_blocks - found.f_bavail, found.f_files - found.f_favail


@pytest.mark.slow
@pytest.mark.parametrize("what", ["blocks", "files"])
@pytest.mark.parametrize("camera", ["video", "image"])
def test_disk_is_full_at_any_write(
    scene: Any, disk: Path, caplog: pytest.LogCaptureFixture, camera: str, what: str
) -> None:
    """Room is left for one block (or one new file) more each time, until an episode and finalizing fit.

    An episode whose frames are all on disk is never lost.
    """
    caplog.set_level(logging.CRITICAL)
    made, root = scene(camera), disk / "set"
    failed = {"frame": 0, "save": 0, "finalize": 0}
    kept = 0
    for room in range(400):
        shutil.rmtree(root, ignore_errors=True)
        dataset = made.create(root, rgb_encoder=H264)
        made.add(dataset, 0, 2)
        fill(disk, *((room, 10_000) if what == "blocks" else (10_000, room)))
        ended = attempt(made, dataset, failed)
        free(disk)
        lengths = list(LeRobotDatasetMetadata("lab/scene", root).episodes["length"])
        made.check(root, lengths)
        lengths += [found.frames for found in find_unfinished(root)]
        assert lengths[0] == 2
        assert lengths[1:] in ([], [1], [2], [3])
        kept += lengths[1:] == [3] and not ended
        with LeRobotDataset.resume("lab/scene", root, rgb_encoder=H264, recover=True) as again:
            made.add(again, len(lengths), 4)
        assert made.check(root, [*lengths, 4]).meta.findings == []
        assert not [p for p in root.rglob("*") if p.name.startswith(".")]
        if ended:
            break
    else:
        pytest.fail("it never fitted")
    assert kept > 0
    assert failed["save"] > 0


def try_to_finalize(dataset: LeRobotDataset) -> bool:
    """Return whether there was room."""
    try:
        dataset.finalize()
    except DatasetError as error:
        if "No space left" not in str(error):
            raise
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("camera", ["video", "image"])
def test_disk_is_full_at_any_write_of_finalizing(
    scene: Any, disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, camera: str
) -> None:
    """Every saved episode stays whole, and repairing finishes the work when there is room."""
    caplog.set_level(logging.CRITICAL)
    made, root, failed = scene(camera), disk / "set", 0
    made.record(tmp_path / "base", [2, 3], finalize=False, rgb_encoder=H264)._recorder.workspace.unlock()
    for room in range(100):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(tmp_path / "base", root)
        dataset = LeRobotDataset.resume("lab/scene", root, rgb_encoder=H264)
        fill(disk, room, 10_000)
        fitted = try_to_finalize(dataset)
        free(disk)
        if fitted:
            break
        failed += 1
        made.check(root, [2, 3])
        assert repair(root).after.problems == []
        made.check(root, [2, 3])
    assert failed > 0


def attempt(made: Any, dataset: LeRobotDataset, failed: dict[str, int]) -> bool:
    """Record an episode and finalize on a disk that may be full; return whether all went well."""
    step = "frame"
    try:
        for frame in range(3):
            dataset.add_frame(made.frame(1, frame))
        step = "save"
        dataset.save_episode()
        step = "finalize"
        dataset.finalize()
    except DatasetError as error:
        if "No space left" not in str(error):
            raise
        failed[step] += 1
        if step != "finalize":
            dataset.clear_episode_buffer()
            with contextlib.suppress(DatasetError):
                dataset.finalize()
        return False
    return True


def test_recording_goes_on_when_space_is_freed(scene: Any, disk: Path) -> None:
    """The same recorder, after an episode that did not fit."""
    made, root = scene("video"), disk / "set"
    dataset = made.create(root, rgb_encoder=H264)
    made.add(dataset, 0, 2)
    fill(disk, 1, 10_000)
    with pytest.raises(DatasetError, match="No space left"):
        made.add(dataset, 1, 3)
    dataset.clear_episode_buffer(unsaved=True)
    free(disk)
    made.add(dataset, 1, 4)
    dataset.finalize()
    made.check(root, [2, 4])


def press_during(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, times: int = 1) -> list[int]:
    """Press Ctrl-C when a function is entered, from the thread that runs it; return the list that counts."""
    real, pressed = getattr(owner, name), list[int]()

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if len(pressed) < times:
            pressed.append(1)
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(0.05)
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, wrapper)
    return pressed


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_while_saving_and_while_finalizing(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_below: Any
) -> None:
    """Pressed twice by somebody impatient: the episode is stored, the dataset is finished, nothing is left over."""
    from ulna.data import compaction
    from ulna.data.episode_store import EpisodeStore

    made, root = scene("video"), tmp_path / "set"
    dataset = made.create(root, rgb_encoder=H264)
    made.add(dataset, 0, 2)
    saving = press_during(monkeypatch, EpisodeStore, "store")
    with pytest.raises(KeyboardInterrupt):
        made.add(dataset, 1, 3)
    finalizing = press_during(monkeypatch, compaction, "write_rows", times=2)
    with pytest.raises(KeyboardInterrupt):
        dataset.finalize()
    assert (len(saving), len(finalizing)) == (1, 1)
    dataset.finalize()
    assert made.check(root, [2, 3]).meta.findings == []
    assert not [name for name in files_below(root) if name.startswith(".")]
    assert not Workspace(root).exists


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_in_the_middle_of_a_frame(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames before it can be saved; the torn one never gets into the episode, nor does one behind it."""
    made = scene("video")
    with made.create(tmp_path / "set", rgb_encoder=H264) as dataset:
        for frame in range(3):
            dataset.add_frame(made.frame(0, frame))
        worker = dataset._recorder._current.workers[CAMERA]  # type: ignore[union-attr]
        real = worker.put

        def put(picture: Any) -> None:
            real(picture)
            signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(worker, "put", put)
        with pytest.raises(KeyboardInterrupt):
            dataset.add_frame(made.frame(0, 3))
        monkeypatch.undo()
        with pytest.raises(DatasetError, match="interrupted in the middle of a frame"):
            dataset.add_frame(made.frame(0, 3))
        dataset.save_episode()
        made.add(dataset, 1, 2)
    made.check(tmp_path / "set", [3, 2])


def test_exception_of_a_robot_costs_only_its_episode(scene: Any, tmp_path: Path, files_below: Any) -> None:
    """Finished episodes open, nothing of the unfinished one is left, pictures in the table included."""
    made, root = scene("image"), tmp_path / "set"

    def record() -> None:
        with made.create(root) as dataset:
            for episode in range(3):
                made.add(dataset, episode, 2)
            for frame in range(10):
                dataset.add_frame(made.frame(3, frame))
            raise ConnectionError("the arm does not answer")

    with pytest.raises(ConnectionError, match="does not answer"):
        record()
    assert made.check(root, [2, 2, 2]).meta.findings == []
    assert not [name for name in files_below(root) if "ulna/" in name or "pictures" in name]
