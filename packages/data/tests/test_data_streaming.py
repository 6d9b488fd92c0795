# SPDX-License-Identifier: Apache-2.0
"""Streams give the items of the dataset: in order or mixed, shared out, resumed, past damage, from elsewhere."""

from __future__ import annotations

import contextlib
import gc
import itertools
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from ulna.core.errors import DatasetError, DatasetFormatError, FrameTimestampError
from ulna.data import LeRobotDataset, StreamingLeRobotDataset
from ulna.data.episode_rows import EpisodeRows
from ulna.data.remote import LocalCopies, RemoteFiles
from ulna.data.video_decoding import decoder_pool
from ulna.testing import open_files

GOLDEN = Path(__file__).parent / "golden"
STEP = 1 / 30


def numbers(stream: Any) -> list[int]:
    return [int(item["index"]) for item in stream]


def stream_of(root: Path, **options: Any) -> StreamingLeRobotDataset:
    return StreamingLeRobotDataset("lab/scene", root, **options)


def assert_equal(item: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert item.keys() == wanted.keys()
    for key, value in item.items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == wanted[key].dtype, key
            assert torch.equal(value, wanted[key]), key
        else:
            assert value == wanted[key], key


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(RemoteFiles, "first_wait_s", 0)


@pytest.fixture
def root(tmp_path: Path, scene: Any) -> Path:
    """State only: 4 episodes, 118 frames."""
    scene().record(tmp_path / "data", [5, 40, 3, 70])
    return tmp_path / "data"


@pytest.fixture
def videos(tmp_path: Path, scene: Any) -> Path:
    """One camera, several videos and tables: 4 episodes, 53 frames."""
    sizes = {"chunks_size": 1, "data_files_size_in_mb": 0.012, "video_files_size_in_mb": 0.006}
    scene(camera="video").record(tmp_path / "videos", [5, 40, 3, 5], **sizes)
    return tmp_path / "videos"


class Elsewhere(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A folder behind a file system that fails when told to, and counts."""

    protocol = "elsewhere"
    cachable = False

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.below = fsspec.filesystem("file")
        self.folder = folder
        self.failures: list[Exception] = []
        self.fetched: Counter[str] = Counter()

    def find(self, path: str, **options: Any) -> Any:
        found = self.below.find(str(self.folder), **options)
        return {name.replace(str(self.folder), path): entry for name, entry in found.items()}

    def get_file(self, rpath: str, lpath: str, **options: Any) -> None:
        inside = rpath.removeprefix("far/set/")
        self.fetched[inside] += 1
        if self.failures:
            raise self.failures.pop()
        shutil.copyfile(self.folder / inside, lpath)


def elsewhere(folder: Path) -> tuple[Elsewhere, RemoteFiles]:
    filesystem = Elsewhere(folder)
    return filesystem, RemoteFiles(filesystem, "far/set", "far/set")


@pytest.mark.parametrize(
    "case", ["state_only", "images", "videos_h264", "videos_av1", "multi_file", "extra_features", "depth", "language"]
)
def test_items_equal_those_of_the_dataset(case: str) -> None:
    """A stream and the map-style dataset give the same items, bit for bit, windows and pad flags included."""
    root = next((GOLDEN / case).rglob("meta/info.json")).parents[1]
    fps = LeRobotDataset(case, root).fps
    plain = LeRobotDataset(case, root)
    offsets = {key: [-3 / fps, 0.0, 2 / fps] for key in ("observation.state", *plain.meta.camera_keys)}
    for windows in (None, {key: value for key, value in offsets.items() if key in plain.features}):
        dataset = LeRobotDataset(case, root, delta_timestamps=windows, depth_output_unit="m")
        stream = StreamingLeRobotDataset(
            case, root, delta_timestamps=windows, depth_output_unit="m", shuffle=False, max_num_shards=2
        )
        assert stream.num_frames == len(dataset)
        for item, position in zip(stream, range(len(dataset)), strict=True):
            assert_equal(item, dataset[position])


def test_order_without_shuffle(tmp_path: Path, scene: Any) -> None:
    """With shuffle off the frames of an episode come one after the other, and only of the episodes asked for."""
    scene().record(tmp_path / "data", [60, 7, 9])
    assert numbers(stream_of(tmp_path / "data", episodes=[0], shuffle=False)) == list(range(60))
    chosen = stream_of(tmp_path / "data", episodes=[2, 1], shuffle=False)
    assert [int(item["episode_index"]) for item in chosen] == [1] * 7 + [2] * 9
    assert (chosen.num_frames, chosen.num_episodes) == (16, 2)
    with pytest.raises(DatasetError, match=r"\[3\] do not exist.*numbered 0 to 2"):
        stream_of(tmp_path / "data", episodes=[3])


def test_every_epoch_has_another_order(root: Path) -> None:
    """Each pass gives every frame once, mixed anew, and the same for the same seed and epoch."""
    stream = stream_of(root, buffer_size=20)
    first, second = numbers(stream), numbers(stream)
    assert sorted(first) == sorted(second) == list(range(118))
    assert first != second
    assert first != list(range(118))
    stream.set_epoch(1)
    assert numbers(stream) == second
    assert numbers(stream_of(root, buffer_size=20)) == first
    assert numbers(stream_of(root, buffer_size=20, seed=7)) != first
    generators = [np.random.default_rng(3) for _ in range(2)]
    assert numbers(stream_of(root, rng=generators[0])) == numbers(stream_of(root, rng=generators[1]))


def test_mixing_reaches_far(tmp_path: Path, scene: Any) -> None:
    """Neighbours in the stream come from different episodes, also with a small buffer."""
    scene().record(tmp_path / "data", [64] * 6)
    stream = stream_of(tmp_path / "data", buffer_size=32)
    episodes = [int(item["episode_index"]) for item in stream]
    windows = [episodes[i : i + 48] for i in range(0, len(episodes), 48)]
    assert sum(len(set(window)) for window in windows) / len(windows) > 3


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_share_the_frames(root: Path, persistent: bool) -> None:
    """Workers of a loader read every frame once together, in another order in each epoch, and obey set_epoch."""
    stream = stream_of(root, buffer_size=10)
    loader: Any = DataLoader(
        stream, batch_size=6, num_workers=2, multiprocessing_context="fork", persistent_workers=persistent
    )
    passes = [torch.cat([batch["index"] for batch in loader]).tolist() for _ in range(2)]
    assert sorted(passes[0]) == sorted(passes[1]) == list(range(118))
    assert passes[0] != passes[1]
    stream.set_epoch(0)
    assert torch.cat([batch["index"] for batch in loader]).tolist() == passes[0]


def test_processes_share_the_frames(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of a distributed run get disjoint shares of equal size, said by argument or by the environment."""
    shares = [numbers(stream_of(root, rank=rank, world_size=3)) for rank in range(3)]
    assert sorted(itertools.chain(*shares)) == list(range(118))
    assert sorted(map(len, shares)) == [39, 39, 40]
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert numbers(stream_of(root)) == shares[2]
    halves = [numbers(DataLoader(stream_of(root, rank=1, world_size=2), batch_size=None, num_workers=0))]
    assert len(halves[0]) == 59


def test_more_readers_than_frames(tmp_path: Path, scene: Any) -> None:
    """Readers without a frame end at once."""
    scene().record(tmp_path / "data", [2])
    shares = [numbers(stream_of(tmp_path / "data", rank=rank, world_size=5)) for rank in range(5)]
    assert sorted(itertools.chain(*shares)) == [0, 1]


@pytest.mark.parametrize("shuffle", [True, False])
def test_going_on_after_any_frame(root: Path, shuffle: bool) -> None:
    """A stream that is interrupted goes on exactly where it was, and the epochs after it are the same."""
    whole = stream_of(root, buffer_size=16, shuffle=shuffle)
    first, second = numbers(whole), numbers(whole)
    for taken in (0, 1, 15, 17, 50, 117, 118):
        before = stream_of(root, buffer_size=16, shuffle=shuffle)
        head = numbers(itertools.islice(before, taken)) if taken < 118 else numbers(before)
        state = before.state_dict()
        assert state == ({"epoch": 0, "taken": taken} if taken < 118 else {"epoch": 1, "taken": 0})
        after = stream_of(root, buffer_size=16, shuffle=shuffle)
        after.load_state_dict(state)
        assert after.state_dict() == state
        rest = numbers(after)
        assert head + rest == (first if taken < 118 else first + second)
        assert taken == 118 or numbers(after) == second


def test_frames_that_are_left_out_are_not_read(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on costs reading what is in the buffer, not what was given before."""
    stream = stream_of(videos, buffer_size=4)
    read: list[int] = []
    from ulna.data.reader import DatasetReader

    items = DatasetReader.items
    monkeypatch.setattr(DatasetReader, "items", lambda self, some: read.extend(some) or items(self, some))
    assert len(list(stream.read_part(0, 1, start=48))) == 5
    assert len(read) < 53 - 48 + 4 + 32


def damage(root: Path, file: str, row: int, column: str) -> None:
    path = root / "data" / file
    table = pq.read_table(path)
    values = table[column].to_pylist()
    values[row]["bytes"] = b"not a picture"
    position = table.column_names.index(column)
    import pyarrow as pa

    changed = table.set_column(position, table.field(position), pa.array(values, table.field(position).type))
    pq.write_table(changed, path)


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_damaged_picture_is_told_or_counted(
    tmp_path: Path, scene: Any, shuffle: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One damaged frame never ends a shard silently: it is raised with episode and frame, or left out and counted."""
    scene(camera="image").record(tmp_path / "data", [9, 40, 9], data_files_size_in_mb=0.001)
    assert len(list((tmp_path / "data/data").rglob("*.parquet"))) == 3
    damage(tmp_path / "data", "chunk-000/file-001.parquet", 20, "observation.images.cam")
    with pytest.raises(DatasetFormatError, match=r"Episode 1, frame 20: .*file-001.parquet"):
        list(stream_of(tmp_path / "data", shuffle=shuffle))
    stream = stream_of(tmp_path / "data", shuffle=shuffle, on_error="skip")
    assert sorted(numbers(stream)) == [i for i in range(58) if i != 29]
    assert stream.skipped == 1
    assert "left out a frame: Episode 1, frame 20" in caplog.text


def test_a_video_that_ends_early_is_told_or_counted(videos: Path) -> None:
    """Frames that the video lacks are named one by one; all others come."""
    (path,) = (videos / "meta/episodes").rglob("*.parquet")
    table = pq.read_table(path)
    name = "videos/observation.images.cam/from_timestamp"
    starts = table[name].to_pylist()
    starts[2] += STEP / 2
    pq.write_table(table.set_column(table.column_names.index(name), name, [starts]), path)
    with pytest.raises(FrameTimestampError, match=r"Episode 2, frame 0, camera"):
        list(stream_of(videos, shuffle=False))
    stream = stream_of(videos, shuffle=False, on_error="skip")
    assert numbers(stream) == [*range(45), *range(48, 53)]
    assert stream.skipped == 3


def test_last_frames_can_be_left_out(root: Path) -> None:
    """For policies whose windows should not be padded at the end; an episode too short vanishes."""
    stream = stream_of(root, shuffle=False, drop_n_last_frames=4)
    assert numbers(stream) == [0, *range(5, 41), *range(48, 114)]
    with pytest.raises(DatasetError, match="No frame is left after drop_n_last_frames=70"):
        stream_of(root, drop_n_last_frames=70)


def test_pictures_are_transformed_depth_is_not(videos: Path) -> None:
    """Transforms are for colours: depth maps stay as they are."""
    plain, changed = (
        next(iter(stream_of(videos, shuffle=False, image_transforms=t))) for t in (None, torch.zeros_like)
    )
    assert float(plain["observation.images.cam"].abs().sum()) > 0
    assert float(changed["observation.images.cam"].abs().sum()) == 0
    root = next((GOLDEN / "depth").rglob("meta/info.json")).parents[1]
    stream = StreamingLeRobotDataset("depth", root, image_transforms=torch.zeros_like, shuffle=False)
    item = next(iter(stream))
    assert set(stream.meta.depth_keys) == {"observation.images.depth", "observation.images.depth_mm"}
    assert all(float(item[key].abs().sum()) > 0 for key in stream.meta.depth_keys)


def test_memory_is_bounded(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer is bounded by bytes too, and rows of few episodes are held."""
    window = {"observation.images.cam": [-STEP, 0.0]}
    picture = 3 * 48 * 64
    stream = stream_of(videos, buffer_bytes=20 * picture)
    assert stream.buffer_capacity == 20
    assert stream_of(videos, buffer_bytes=20 * picture, delta_timestamps=window).buffer_capacity == 10
    assert stream_of(videos).buffer_capacity == 1000
    held: list[int] = []
    get = EpisodeRows.get
    monkeypatch.setattr(EpisodeRows, "get", lambda self, file: held.append(len(self._episodes)) or get(self, file))
    assert len(list(stream_of(videos, max_num_shards=1, buffer_size=3))) == 53
    assert max(held) <= 2


def test_a_frame_that_waits_keeps_no_neighbour(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are read many at once, and held one by one."""
    held: list[Any] = []
    monkeypatch.setattr("ulna.data.streaming.finish", lambda item, *_, **__: held.append(item) or item)
    for _ in stream_of(videos, buffer_size=20):
        pass
    assert len(held) == 53
    assert all(value.base is None for item in held for value in item.values() if isinstance(value, np.ndarray))


def test_only_the_rows_of_an_episode_are_kept(root: Path) -> None:
    """A row group of many episodes, as other software writes it, is cut; the whole is not kept for one of them."""
    (path,) = (root / "data").rglob("*.parquet")
    table = pq.read_table(path)
    pq.write_table(table, path)
    assert pq.ParquetFile(path).num_row_groups == 1
    meta = LeRobotDataset("lab/scene", root).meta
    rows = EpisodeRows(root, meta.info.data_path, meta.parsed_features, 1)
    rows.select(45, 3)
    found = rows.get(meta.episodes.data_files[2])
    assert found.numbers["index"].tolist() == [45, 46, 47]
    assert sorted(numbers(stream_of(root))) == list(range(118))


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_dataset_elsewhere_is_the_same(videos: Path, tmp_path: Path, shuffle: bool) -> None:
    """A dataset behind a file system gives what the files on this machine give."""
    here = list(stream_of(videos, shuffle=shuffle, buffer_size=8))
    filesystem, files = elsewhere(videos)
    stream = StreamingLeRobotDataset("far/set", files=files, shuffle=shuffle, buffer_size=8)
    assert stream.is_remote
    assert set(filesystem.fetched) == {n for n in files.sizes() if n.startswith("meta/") and "sketches" not in n}
    for item, wanted in zip(stream, here, strict=True):
        assert_equal(item, wanted)
    assert max(filesystem.fetched.values()) == 1
    chosen = StreamingLeRobotDataset("far/set", files=files, episodes=[2], shuffle=False)
    filesystem.fetched.clear()
    assert numbers(chosen) == [45, 46, 47]
    assert len(filesystem.fetched) == 2


def used(folder: Path) -> int:
    """Bytes of copies; files are renamed when they are whole, maybe just now."""
    sizes = {}
    for path in folder.rglob("*"):
        if path.is_file() and "meta" not in path.parts:
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


def test_copies_are_few_and_removed(tmp_path: Path, scene: Any, files_below: Any) -> None:
    """Copies of remote files take the disk space allowed, and go when the stream does; nothing stays open."""
    each_its_own = {"data_files_size_in_mb": 0.001, "video_files_size_in_mb": 0.001}
    scene(camera="video").record(tmp_path / "data", [10] * 6, **each_its_own)
    _, files = elsewhere(tmp_path / "data")
    sizes = [size for name, size in files.sizes().items() if not name.startswith("meta/")]
    assert len(sizes) == 12
    most = 4 * max(sizes)  # a table and a video in use, and as much fetched ahead
    assert sum(sizes) > most
    stream = StreamingLeRobotDataset("far/set", files=files, shuffle=False, disk_bytes=most)
    folder = stream.root
    opened = open_files()
    for _ in stream:
        assert used(folder) <= most
    assert not [name for name in files_below(folder) if not name.startswith("meta/")]
    assert not open_files() - opened
    interrupted = iter(stream)
    next(interrupted)
    del interrupted, stream
    gc.collect()
    assert not folder.exists()


def test_workers_leave_nothing(videos: Path) -> None:
    """Workers have their own copies, which go with them."""
    _, files = elsewhere(videos)
    stream = StreamingLeRobotDataset("far/set", files=files, buffer_size=4)
    loader: Any = DataLoader(stream, batch_size=4, num_workers=2, multiprocessing_context="fork")
    assert sorted(torch.cat([batch["index"] for batch in loader]).tolist()) == list(range(53))
    assert [path.name for path in stream.root.iterdir()] == ["meta"]


def test_a_connection_that_fails_is_tried_again(videos: Path) -> None:
    """A few failures are waited out; a lasting one, or a missing file, is told with its path."""
    filesystem, files = elsewhere(videos)
    filesystem.failures = [OSError("reset"), TimeoutError("slow")]
    stream = StreamingLeRobotDataset("far/set", files=files, shuffle=False)
    filesystem.failures = [OSError("reset")] * 3
    assert len(numbers(stream)) == 53
    filesystem.failures = [OSError("gone")] * 50
    with pytest.raises(DatasetError, match=r"Could not read data/chunk-000/file-000.parquet of .*'far/set': gone"):
        numbers(stream)
    filesystem.failures = []
    missing = next(iter((videos / "videos").rglob("*.mp4")))
    missing.unlink()
    _, listed_anew = elsewhere(videos)
    with pytest.raises(DatasetError, match=rf"has no file videos/.*{missing.name}"):
        numbers(StreamingLeRobotDataset("far/set", files=listed_anew, on_error="skip"))


def test_half_a_file_is_not_taken(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy with bytes missing is fetched again, and what came stays out of the dataset."""
    filesystem, files = elsewhere(videos)
    name = next(name for name in files.sizes() if name.endswith(".mp4"))
    whole = Elsewhere.get_file
    cut = [True]

    def get_file(self: Any, rpath: str, lpath: str, **options: Any) -> None:
        whole(self, rpath, lpath)
        if cut and cut.pop():
            Path(lpath).write_bytes(Path(lpath).read_bytes()[:100])

    monkeypatch.setattr(Elsewhere, "get_file", get_file)
    files.fetch(name, tmp_path / "copy.mp4")
    assert (tmp_path / "copy.mp4").read_bytes() == (videos / name).read_bytes()
    assert filesystem.fetched[name] == 2


def test_copies_that_nobody_needs_any_more(videos: Path, tmp_path: Path) -> None:
    """Files fetched ahead and not needed are removed with the rest."""
    _, files = elsewhere(videos)
    copies = LocalCopies(files, tmp_path / "copies")
    names = [name for name in files.sizes() if name.startswith("data/")]
    copies.prefetch(names)
    copies.need(names[:1])
    assert copies.keep_only(names[:1]) == names[1:]
    assert [p for p in (tmp_path / "copies").rglob("*") if p.is_file()] == [tmp_path / "copies" / names[0]]
    copies.close()
    copies.close()
    assert not [p for p in (tmp_path / "copies").rglob("*") if p.is_file()]


def test_local_data_needs_no_network(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is on this machine is read there; a folder that is named is not looked for elsewhere."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("reached for the Hub")

    monkeypatch.setattr(RemoteFiles, "on_hub", refuse)
    assert len(numbers(stream_of(root))) == 118
    with pytest.raises(DatasetError, match=r"not on this machine"):
        stream_of(tmp_path / "nothing")
    with pytest.raises(DatasetError, match=r"not on this machine"):
        StreamingLeRobotDataset("lab/nowhere", streaming=False)
    with pytest.raises(AssertionError, match="reached for the Hub"):
        StreamingLeRobotDataset("lab/nowhere")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buffer_size": 0}, "buffer_size must be 1 or more, it is 0"),
        ({"max_num_shards": 0}, "max_num_shards must be 1 or more"),
        ({"on_error": "ignore"}, "on_error must be 'raise' or 'skip', it is 'ignore'"),
        ({"rank": 1}, "rank and world_size belong together"),
        ({"rank": 3, "world_size": 3}, "rank 3 is not one of 3 processes"),
        ({"delta_timestamps": {"acton": [0.0]}}, r"(?s)'acton'.*'action'"),
        ({"delta_timestamps": {"action": [0.01]}}, "not multiples of 1/30"),
        ({"depth_output_unit": "cm"}, "cm"),
    ],
)
def test_wrong_arguments_name_themselves(root: Path, options: Any, message: str) -> None:
    """An argument that cannot be honoured is refused when the stream is made, never ignored."""
    with pytest.raises(DatasetError, match=message):
        stream_of(root, **options)


def test_decoders_of_a_folder_are_closed(videos: Path) -> None:
    """A file is not kept open behind the back of whoever removes it."""
    pool = decoder_pool()
    _ = LeRobotDataset("lab/scene", videos)[0]
    before = len(pool)
    pool.forget(videos)
    assert len(pool) < before
