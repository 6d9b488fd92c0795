# SPDX-License-Identifier: Apache-2.0
"""What is kept so that it need not be made again: decoded frames, unpacked tables, and the folders they lie in."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import ulna.data.cache_folders as cache_folders
import ulna.data.frame_cache as frame_cache
import ulna.data.mapped_tables as mapped_tables
import ulna.data.picture_reading as reading
import ulna.data.pyav_decoder as pyav_decoder
from ulna.core.errors import DatasetError
from ulna.data import FrameCache, LeRobotDataset
from ulna.data.cache_folders import in_use, prune
from ulna.data.frame_cache import CameraFrames
from ulna.data.mapped_tables import mapped_table
from ulna.testing import open_files

CAMERA = "observation.images.cam"
LENGTHS = [5, 1, 7]
FRAME = 3 * 48 * 64


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("caches")


@pytest.fixture
def made(scene: Any, recordings: Path) -> Any:
    def get(camera: str | None) -> Path:
        root: Path = recordings / str(camera)
        if not root.exists():
            scene(camera).record(root, LENGTHS)
        return root

    return get


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each picture that is decoded."""
    calls: list[int] = []
    write, picture = pyav_decoder.VideoDecoder._write, reading.decode_picture
    monkeypatch.setattr(pyav_decoder.VideoDecoder, "_write", lambda *a: calls.append(1) or write(*a))
    monkeypatch.setattr(reading, "decode_picture", lambda *a: calls.append(1) or picture(*a))
    return calls


@pytest.mark.parametrize("kind", ["ram", "disk"])
@pytest.mark.parametrize("camera", ["video", "image"])
@pytest.mark.parametrize("as_uint8", [True, False])
def test_second_pass_decodes_nothing(made: Any, decoded: list[int], kind: Any, camera: str, as_uint8: bool) -> None:
    """Items, batches and windows come from the cache, with the same values as without one."""
    root, deltas = made(camera), {CAMERA: [-1 / 30, 0.0, 1 / 30]}
    for windows in (None, deltas):
        options: Any = {"delta_timestamps": windows, "return_uint8": as_uint8}
        plain = LeRobotDataset("lab/scene", root, [0, 2], **options)
        cached = LeRobotDataset("lab/scene", root, [0, 2], frame_cache=kind, **options)
        wanted = [plain[i][CAMERA] for i in range(len(plain))]
        for _ in range(2):
            for i, picture in enumerate(wanted):
                assert torch.equal(cached[i][CAMERA], picture)
        decoded.clear()
        positions = [11, 0, 4, 4, 7]
        for position, item in zip(positions, cached.__getitems__(positions), strict=True):
            assert torch.equal(item[CAMERA], wanted[position])
        assert decoded == []
        assert cached.frame_cache is not None
        assert cached.frame_cache.count() == 12


def test_no_cache_unless_asked(made: Any) -> None:
    """It is off by default, and a dataset without cameras has none."""
    assert LeRobotDataset("lab/scene", made("video")).frame_cache is None
    assert LeRobotDataset("lab/scene", made(None), frame_cache="ram").frame_cache is None


def test_budget_is_kept(made: Any, decoded: list[int]) -> None:
    """What does not fit is decoded each time; the cache never takes more than its budget."""
    dataset = LeRobotDataset("lab/scene", made("video"), frame_cache="ram", frame_cache_bytes=4 * FRAME + 10)
    cache = dataset.frame_cache
    assert cache is not None
    for _ in range(3):
        for i in range(13):
            dataset[i]
    assert (cache.slots, cache.count()) == (4, 4)
    assert cache.nbytes <= cache.max_bytes
    assert len(decoded) == 13 + 9 + 9
    with pytest.raises(DatasetError, match="does not hold one frame"):
        LeRobotDataset("lab/scene", made("video"), frame_cache="ram", frame_cache_bytes=FRAME)
    with pytest.raises(DatasetError, match="'tape'"):
        LeRobotDataset("lab/scene", made("video"), frame_cache="tape")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["ram", "disk"])
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_fill_one_cache(made: Any, decoded: list[int], kind: Any, context: str) -> None:
    """What a reading process has decoded, this one and all others find."""
    dataset = LeRobotDataset("lab/scene", made("video"), return_uint8=True, frame_cache=kind)
    plain = LeRobotDataset("lab/scene", made("video"), return_uint8=True)
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=context)
    assert sum(len(batch["index"]) for batch in loader) == 13
    assert dataset.frame_cache is not None
    assert dataset.frame_cache.count() == 13
    wanted = [plain[i][CAMERA] for i in range(13)]
    decoded.clear()
    assert all(torch.equal(dataset[i][CAMERA], wanted[i]) for i in range(13))
    assert decoded == []


def test_disk_cache_outlives_its_process_but_not_its_data(made: Any, scene: Any, tmp_path: Path) -> None:
    """A later run finds the frames; changed data, other episodes or another boot begin anew."""
    root = tmp_path / "set"
    scene("video").record(root, LENGTHS)

    def count(episodes: list[int] | None = None) -> int:
        cache = LeRobotDataset("lab/scene", root, episodes, frame_cache="disk").frame_cache
        assert cache is not None
        return cache.count()

    assert count() == 0
    code = f"""
        from ulna.data import LeRobotDataset
        LeRobotDataset("lab/scene", {str(root)!r}, frame_cache="disk").numpy_item(3)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
    assert count() == 1
    assert count([0]) == 0
    video = next((root / "videos").rglob("*.mp4"))
    os.utime(video, ns=(1, 1))
    assert count() == 0


def test_disk_cache_of_another_boot_is_not_trusted(made: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for boot in ("one", "two"):
        (tmp_path / boot).write_text(boot)
        monkeypatch.setattr(frame_cache, "_BOOT_ID", tmp_path / boot)
        dataset = LeRobotDataset("lab/scene", made("video"), frame_cache="disk")
        assert dataset.frame_cache is not None
        assert dataset.frame_cache.count() == 0
        dataset[0]
        assert dataset.frame_cache.count() == 1


def test_old_disk_caches_make_room(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All disk caches together stay below the budget of the newest; one that is in use is left alone."""
    monkeypatch.setenv("ULNA_HOME", str(tmp_path))
    kept = LeRobotDataset("lab/scene", made("video"), [0], frame_cache="disk")
    dropped = LeRobotDataset("lab/scene", made("video"), [2], frame_cache="disk")
    assert [len(d[:]) for d in (kept, dropped)] == [5, 7]
    del dropped
    folder = tmp_path / "cache/frames"
    assert len(list(folder.iterdir())) == 2
    LeRobotDataset("lab/scene", made("video"), [0, 2], frame_cache="disk", frame_cache_bytes=12 * (FRAME + 1))
    assert len(list(folder.iterdir())) == 2
    assert kept.frame_cache is not None
    assert Path(kept.frame_cache._file.address).exists()


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_cameras_of_other_sizes_do_not_overlap(kind: Any) -> None:
    """Every picture has its place, whichever of them is stored last."""
    cameras = {
        "small": CameraFrames((3, 2, 2)),
        "large": CameraFrames((3, 8, 8)),
        "depth": CameraFrames((1, 4, 4), "uint16"),
        "tiny": CameraFrames((1, 1, 1)),
    }
    cache = FrameCache(kind, cameras, 5, identity="of other sizes")
    places = [(key, position) for position in (4, 0, 2, 3, 1) for key in cameras]
    for number, (key, position) in enumerate(places):
        cache.store(key, position, np.full(cameras[key].shape, number + 1, cameras[key].dtype))
    assert cache.count() == len(places)
    for number, (key, position) in enumerate(places):
        picture = cache.fetch(key, position)
        assert picture is not None
        assert (picture == number + 1).all()


@pytest.mark.parametrize("room", [0, 1, 1000, FRAME - 1, FRAME])
def test_full_disk_stops_filling(made: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any, room: int) -> None:
    """When nothing can be written any more, reading goes on and one warning says so; half a picture is none."""
    dataset = LeRobotDataset("lab/scene", made("video"), frame_cache="disk", return_uint8=True)
    plain = LeRobotDataset("lab/scene", made("video"), return_uint8=True)
    left, write = room, os.pwrite

    def filling(descriptor: int, data: Any, offset: int) -> int:
        nonlocal left
        if not left:
            raise OSError(28, "No space left on device")
        written = write(descriptor, data[:left], offset)
        left -= written
        return written

    monkeypatch.setattr(os, "pwrite", filling)
    for i in (0, 1, 0):
        assert torch.equal(dataset[i][CAMERA], plain[i][CAMERA])
    assert len([r for r in caplog.records if "takes no more pictures" in r.message]) == 1


def test_cache_that_cannot_be_created(made: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ULNA_HOME", str(tmp_path / "file"))
    with pytest.raises(DatasetError, match="cannot be created") as caught:
        LeRobotDataset("lab/scene", made("video"), frame_cache="disk")
    assert "ULNA_HOME" in str(caught.value)


def test_memory_cache_leaves_nothing_behind(made: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """The memory goes with the dataset: no file, no open handle."""
    monkeypatch.setenv("ULNA_HOME", str(tmp_path))
    LeRobotDataset("lab/scene", made("video"))[0]
    before = open_files()
    dataset = LeRobotDataset("lab/scene", made("video"), frame_cache="ram")
    dataset[0]
    assert open_files() - before
    del dataset
    assert not open_files() - before
    assert not (tmp_path / "cache/frames").exists()


def test_copy_of_a_lost_memory_cache_begins_anew() -> None:
    """A pickle that is opened when the owner of the memory is gone has an empty cache of its own."""
    cache = FrameCache("ram", {"cam": CameraFrames((1, 2, 3), "uint16")}, 4)
    picture = np.arange(6, dtype=np.uint16).reshape(1, 2, 3)
    cache.store("cam", 2, picture)
    stored = pickle.dumps(cache)
    shared = pickle.loads(stored)
    np.testing.assert_array_equal(shared.fetch("cam", 2), picture)
    del cache, shared
    alone = pickle.loads(stored)
    assert alone.count() == 0
    alone.store("cam", 3, picture)
    np.testing.assert_array_equal(alone.fetch("cam", 3), picture)


def test_systems_without_anonymous_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where a file cannot be anonymous, or read at an offset, a temporary one and a lock do."""
    for name in ("memfd_create", "preadv", "pwrite"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(frame_cache.tempfile, "tempdir", str(tmp_path))
    cache = FrameCache("ram", {"cam": CameraFrames((3, 2, 2))}, 3)
    picture = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    cache.store("cam", 1, picture)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(cache)).fetch("cam", 1), picture)
    assert cache.fetch("cam", 0) is None
    assert len(list(tmp_path.iterdir())) == 1
    del cache
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_is_not_kept() -> None:
    """A picture of another size or kind than declared, or of a camera that is not kept, is left out."""
    cache = FrameCache("ram", {"cam": CameraFrames((3, 2, 2))}, 3)
    cache.store("cam", 0, np.zeros((3, 2, 3), np.uint8))
    cache.store("cam", 0, np.zeros((3, 2, 2), np.float32))
    cache.store("other", 0, np.zeros((3, 2, 2), np.uint8))
    cache.store("cam", 3, np.zeros((3, 2, 2), np.uint8))
    assert cache.count() == 0
    assert cache.fetch("other", 0) is None


def test_folder_is_kept_below_a_size(tmp_path: Path) -> None:
    """The files used longest ago go first; those in use, or just made, stay."""
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(b"x" * 8192)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert prune(tmp_path, 4 * 8192) == 0
    with in_use(tmp_path / "d"):
        assert prune(tmp_path, 8192, keep={tmp_path / "c"}) == 2 * 8192
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "d"]
    assert prune(tmp_path / "nowhere", 0) == 0


def test_folder_on_a_system_without_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without marks of use, a file that cannot be removed stays and the others go."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    for name in "ab":
        (tmp_path / name).write_bytes(b"x" * 4096)
    real = Path.unlink

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if self.name == "a":
            raise PermissionError(13, "in use")
        real(self, missing_ok)

    monkeypatch.setattr(cache_folders.Path, "unlink", unlink)
    assert prune(tmp_path, 0) == 4096
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_unpacked_tables_are_kept_below_a_size(
    made: Any, scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of tables are pruned when one is added; one that is open is whole even when its file is gone."""
    monkeypatch.setenv("ULNA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(mapped_tables, "BUDGET_BYTES", 0)
    scene().record(tmp_path / "set", [40])
    paths = [next((root / "data").rglob("*.parquet")) for root in (tmp_path / "set", made(None))]
    first = mapped_table(paths[0], pq.ParquetFile(paths[0]), [])
    second = mapped_table(paths[1], pq.ParquetFile(paths[1]), [])
    assert len(list((tmp_path / "home/cache/tables").iterdir())) == 1
    assert first["index"].to_pylist() == list(range(40))
    assert second["index"].to_pylist() == list(range(13))
    again = mapped_table(paths[0], pq.ParquetFile(paths[0]), [])
    assert again.equals(first)
