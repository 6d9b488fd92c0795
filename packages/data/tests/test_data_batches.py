# SPDX-License-Identifier: Apache-2.0
"""Whole batches: the same values as single items, every picture decoded once, workers that share what was read."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ulna.data.picture_reading as reading
import ulna.data.pyav_decoder as pyav_decoder
import ulna.data.table_store as table_store
import ulna.data.tensors as tensors
from ulna.core.errors import DatasetFormatError, FrameTimestampError
from ulna.data import DataMeter, LeRobotDataset, collate_items
from ulna.data.index import Window
from ulna.data.shared_rooms import received_tensor, send_room
from ulna.data.video_decoding import decoder_pool

CAMERA = "observation.images.cam"
LENGTHS = [5, 1, 7, 4]
TOTAL = sum(LENGTHS)
WINDOWS = {"action": [0.0, 1 / 30, 2 / 30], CAMERA: [-2 / 30, 0.0, -1 / 30]}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("batches")


@pytest.fixture
def made(scene: Any, recordings: Path) -> Any:
    """Recordings of each kind, several files each, made once."""

    def get(camera: str | None, size: tuple[int, int] = (48, 64)) -> Path:
        root: Path = recordings / f"{camera}-{size[0]}"
        if not root.exists():
            scene(camera, size=size).record(root, LENGTHS, video_files_size_in_mb=1e-4, data_files_size_in_mb=1e-4)
        return root

    return get


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)


@pytest.mark.parametrize("camera", [None, "image", "video"])
@pytest.mark.parametrize("as_uint8", [True, False])
@pytest.mark.parametrize("episodes", [None, [3, 0, 2]])
def test_batch_equals_items(made: Any, camera: str | None, as_uint8: bool, episodes: list[int] | None) -> None:
    """In any order, with repeats, negative positions, windows, subsets and several files: as item by item."""
    windows = {key: seconds for key, seconds in WINDOWS.items() if camera or key != CAMERA}
    for deltas in (None, windows):
        root = made(camera)
        dataset = LeRobotDataset("lab/scene", root, episodes, delta_timestamps=deltas, return_uint8=as_uint8)
        positions = [9, 2, 2, 14, -1, 0, 9, 1, 3]
        batch = dataset.__getitems__(positions)
        for position, item in zip(positions, batch, strict=True):
            wanted = dataset[position]
            assert list(item) == list(wanted)
            assert all(equal(item[key], value) for key, value in wanted.items())
        stacked = collate_items(batch)
        usual = torch.utils.data.default_collate([dict(item) for item in batch])
        assert list(stacked) == list(usual)
        assert all(equal(stacked[key], value) for key, value in usual.items())


def test_batch_over_several_tables(made: Any) -> None:
    """Rows of several data files land in the places that asked for them."""
    dataset = LeRobotDataset("lab/scene", made(None), delta_timestamps={"action": [-1 / 30, 0.0]})
    assert len(set(dataset.meta.episodes.data_files)) > 1
    columns = dataset.reader.batch([16, 0, 7, 5])
    assert columns["index"].tolist() == [16, 0, 7, 5]
    assert columns["action"][:, :, 0].tolist() == [[3002, 3003], [0, 0], [2000, 2001], [1000, 1000]]
    assert columns["task"] == ["task 1", "task 0", "task 0", "task 1"]


def test_empty_batch(made: Any) -> None:
    dataset = LeRobotDataset("lab/scene", made("video"))
    assert dataset.__getitems__([]) == []
    assert dataset[5:5] == []


def test_position_beyond_the_end(made: Any) -> None:
    dataset = LeRobotDataset("lab/scene", made(None))
    with pytest.raises(IndexError, match="17"):
        dataset.__getitems__([0, TOTAL])


@settings(deadline=None)
@given(
    st.lists(st.integers(-9, 9), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 8), st.floats(0, 0.99)), min_size=1, max_size=6),
)
def test_windows_of_a_batch(offsets: list[int], places: list[tuple[int, float]]) -> None:
    """Windows of a batch are those of its frames, one by one."""
    window = Window(offsets)
    frames = [int(length * share) for length, share in places]
    lengths = [length for length, _ in places]
    found, pads = window.many(np.array(frames), np.array(lengths))
    for row, (frame, length) in enumerate(zip(frames, lengths, strict=True)):
        wanted, pad = window.frames(frame, length)
        np.testing.assert_array_equal(found[row], wanted)
        np.testing.assert_array_equal(pads[row], pad)


def test_each_frame_of_a_batch_is_decoded_once_in_time_order(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Overlapping windows cost each frame once, and a file is gone through forwards."""
    dataset = LeRobotDataset("lab/scene", made("video"), delta_timestamps={CAMERA: [-1 / 30, 0.0, 1 / 30]})
    converted: list[tuple[str, int]] = []
    real = pyav_decoder.VideoDecoder._write

    def write(self: Any, frame: Any, out: Any) -> None:
        converted.append((self.path.name, frame.pts))
        real(self, frame, out)

    monkeypatch.setattr(pyav_decoder.VideoDecoder, "_write", write)
    decoder_pool().close()
    opened = decoder_pool().opened
    dataset.__getitems__([9, 7, 8, 8, 10])
    assert len(converted) == len(set(converted)) == 6
    assert converted == sorted(converted)
    assert decoder_pool().opened == opened + 1


def test_neighbours_are_not_sought(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames of a window are decoded on from one another: one jump in the file for all of them."""
    dataset = LeRobotDataset("lab/scene", made("video"), delta_timestamps={CAMERA: [n / 30 for n in range(4)]})
    seeks: list[float] = []
    real = pyav_decoder.VideoDecoder._seek
    monkeypatch.setattr(
        pyav_decoder.VideoDecoder, "_seek", lambda self, t, tolerance: seeks.append(t) or real(self, t, tolerance)
    )
    decoder_pool().close()
    dataset[7]
    assert len(seeks) == 1


def test_each_picture_of_a_batch_is_decoded_once(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures in the table: windows over them decode each once, windows over actions none beyond the item's own."""
    decoded: list[str] = []
    real = reading.decode_picture
    monkeypatch.setattr(reading, "decode_picture", lambda d, where: decoded.append(where) or real(d, where))
    dataset = LeRobotDataset("lab/scene", made("image"), delta_timestamps={CAMERA: [-1 / 30, 0.0, 1 / 30]})
    dataset.__getitems__([9, 7, 8, 8])
    assert len(decoded) == len(set(decoded)) == 5
    decoded.clear()
    actions = LeRobotDataset("lab/scene", made("image"), delta_timestamps={"action": [n / 30 for n in range(100)]})
    assert actions.__getitems__([0, 6])[1]["action"].shape == (100, 6)
    assert len(decoded) == 2


def test_values_of_a_batch_are_parts_of_one_array(made: Any) -> None:
    """Collating copies nothing: a batch and its items share their memory, different batches do not."""
    dataset = LeRobotDataset("lab/scene", made("video"), return_uint8=True)
    items = dataset.__getitems__([3, 8])
    batch = collate_items(items)
    assert batch[CAMERA].data_ptr() == items[0][CAMERA].data_ptr()
    assert batch["action"].data_ptr() == items[0]["action"].data_ptr()
    batch[CAMERA].zero_()
    batch["action"].zero_()
    assert dataset[3][CAMERA].max() > 0
    assert dataset[3]["action"].max() > 0


def test_nothing_keeps_a_batch_alive(made: Any) -> None:
    """What was read goes with its last user, at once: no cycle of references waits for the collector."""
    dataset = LeRobotDataset("lab/scene", made("video"), return_uint8=True)
    gc.collect()
    gc.disable()
    try:
        columns = dataset.reader.batch([3, 8])
        array = weakref.ref(columns[CAMERA])
        del columns
        assert array() is None
    finally:
        gc.enable()


def test_transforms_reach_the_collated_batch(made: Any) -> None:
    dataset = LeRobotDataset("lab/scene", made("video"), image_transforms=lambda picture: picture[:, :4, :6] * 0 + 2)
    items = dataset.__getitems__([3, 8])
    assert items[1][CAMERA].shape == (3, 4, 6)
    batch = collate_items(items)
    assert batch[CAMERA].shape == (2, 3, 4, 6)
    assert float(batch[CAMERA].min()) == 2


def test_torch_collates_a_batch_without_copying_it(made: Any) -> None:
    """`DataLoader` needs no argument for that; items that were changed or reordered are stacked as they are now."""
    dataset = LeRobotDataset("lab/scene", made("video"), return_uint8=True)
    items = dataset.__getitems__([3, 8])
    collate = torch.utils.data.default_collate
    assert collate(items)[CAMERA].data_ptr() == items[0][CAMERA].data_ptr()
    assert collate(items[::-1])["index"].tolist() == [8, 3]
    assert collate(items[:1])["index"].tolist() == [3]
    items[1]["index"] = torch.tensor(77)
    assert collate(items)["index"].tolist() == [3, 77]
    for number, item in enumerate(items):
        item["extra"] = number
    assert collate(items)["extra"].tolist() == [0, 1]
    assert type(pickle.loads(pickle.dumps(items[0]))) is dict


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_received_tensors_stand_alone(made: Any, context: str) -> None:
    """They are equal to those of no worker, and each can be changed in place, resized and stored without another."""
    dataset = LeRobotDataset("lab/scene", made("video", (96, 256)), delta_timestamps={"action": [0.0, 1 / 30]})
    plain = next(iter(torch.utils.data.DataLoader(dataset, batch_size=3)))
    batch = next(iter(torch.utils.data.DataLoader(dataset, 3, num_workers=1, multiprocessing_context=context)))
    assert list(batch) == list(plain)
    assert all(equal(batch[key], value) for key, value in plain.items())
    tensors_of = [value for value in batch.values() if torch.is_tensor(value)]
    assert not any(tensor._is_view() for tensor in tensors_of)
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors_of}) == len(tensors_of)
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in tensors_of if tensor.nbytes < 2**16)
    weight = torch.ones(6, requires_grad=True)
    loss = (batch["observation.state"] * weight).sum()
    for tensor in tensors_of:
        if tensor is not batch["observation.state"]:
            tensor.detach_().zero_()
    loss.backward()
    assert weight.grad is not None
    assert equal(weight.grad, plain["observation.state"].sum(0))


def test_whatever_is_in_a_batch_arrives() -> None:
    """Tensors of every dtype and shape, and what travels in torch's own way; the result is a plain dict."""
    sent = tensors._SentBatch(
        {
            "flags": torch.tensor([True, False, True]),
            "turned": torch.arange(6, dtype=torch.int64).reshape(2, 3).T,
            "apart": torch.arange(8.0)[::2],
            "conjugate": torch.tensor([1 + 2j, 3j]).conj(),
            "negative": torch.tensor([1 + 2j, 3j]).conj().imag,
            "picked": torch.arange(12).reshape(3, 4)[:, 1],
            "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
            "one": torch.tensor(7.0, dtype=torch.float64),
            "none": torch.empty(0, 3),
            "large": torch.arange(100_000, dtype=torch.float32),
            "learned": torch.ones(2, requires_grad=True),
            "sparse": torch.eye(3).to_sparse(),
            "texts": ["a", "b"],
        }
    )
    batch = pickle.loads(pickle.dumps(sent))
    assert type(batch) is dict
    assert list(batch) == list(sent)
    for key, value in sent.items():
        if torch.is_tensor(value):
            assert batch[key].dtype == value.dtype
            assert torch.equal(batch[key].to_dense(), value.to_dense())
    assert batch["texts"] == ["a", "b"]
    assert batch["learned"].requires_grad
    assert type(copy.copy(sent)) is dict
    batch["flags"][0] = False  # may be written, as any tensor
    assert batch["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert pickle.loads(pickle.dumps(tensors._SentBatch({"texts": ["a"]}))) == {"texts": ["a"]}


@pytest.mark.parametrize("as_uint8", [True, False])
def test_workers_decode_into_shared_memory(made: Any, as_uint8: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker sends lies in memory that the parent sees from the start, windows included."""
    monkeypatch.setattr(reading, "_in_worker", lambda: True)
    for deltas in (None, {CAMERA: [-1 / 30, 0.0]}):
        dataset = LeRobotDataset("lab/scene", made("video"), delta_timestamps=deltas, return_uint8=as_uint8)
        items = dataset.__getitems__([3, 8, 3])
        batch = tensors._SentBatch(collate_items(items))
        sent = send_room(batch[CAMERA])
        assert sent is not None
        assert sent[0].is_shared()
        assert torch.equal(received_tensor(sent), batch[CAMERA])
        for position, item in zip([3, 8, 3], items, strict=True):
            assert equal(item[CAMERA], dataset[position][CAMERA])


def test_collate_of_other_items() -> None:
    """Items that no dataset of ours made are collated as torch does."""
    assert collate_items([{"a": 1}, {"a": 2}])["a"].tolist() == [1, 2]
    pairs = torch.utils.data.DataLoader([(1, 2), (3, 4)], 2, num_workers=1, collate_fn=collate_items)  # type: ignore[arg-type]
    assert [part.tolist() for part in next(iter(pairs))] == [[1, 3], [2, 4]]


def test_missing_frame_in_a_batch_is_named(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the frame that is missing, not the batch."""
    dataset = LeRobotDataset("lab/scene", made("video"))
    monkeypatch.setattr(
        reading.PictureReader, "time_s", lambda _, key, place: place.frame / 30 + (0.01 if place.frame == 6 else 0)
    )
    with pytest.raises(FrameTimestampError, match=r"Episode 2, frame 6, camera .*cam.*tolerance"):
        dataset.__getitems__([6, 8, 12, 9])


def test_videos_of_other_size(made: Any, scene: Any, tmp_path: Path) -> None:
    """A file whose pictures have another size is read as it is, alone; in one array with others it has no place."""
    scene("video", size=(48, 64)).record(tmp_path / "set", [3, 3], video_files_size_in_mb=1e-4)
    scene("video", size=(32, 64)).record(tmp_path / "small", [3])
    videos = sorted((tmp_path / "set/videos").rglob("*.mp4"))
    next((tmp_path / "small/videos").rglob("*.mp4")).replace(videos[1])
    dataset = LeRobotDataset("lab/scene", tmp_path / "set")
    shapes = [tuple(item[CAMERA].shape) for item in dataset.__getitems__([0, 4, 1])]
    assert shapes == [(3, 48, 64), (3, 32, 64), (3, 48, 64)]


def test_damaged_picture_in_a_batch(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene("image").record(tmp_path / "set", [3])
    dataset = LeRobotDataset("lab/scene", tmp_path / "set")
    table, _ = dataset.reader._rows(dataset.reader.index.locate(0))
    cut = table_store.pa.array([value.as_py()[:-200] for value in table.others[CAMERA]])
    monkeypatch.setitem(table.others, CAMERA, cut)
    with pytest.raises(DatasetFormatError, match="row 1"):
        dataset.__getitems__([1])


def test_workers_get_a_small_pickle(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new process is sent does not grow with the rows: it maps the table that all processes share."""
    monkeypatch.setattr(table_store, "_IN_MEMORY_BYTES", 0)
    sizes = []
    for name, length in (("short", 10), ("long", 600)):
        scene().record(tmp_path / name, [length])
        dataset = LeRobotDataset("lab/scene", tmp_path / name)
        dataset[3]
        sizes.append(len(pickle.dumps(dataset)))
        table = next(iter(dataset.reader._store._files.values()))
        assert not any(column.flags.owndata for column in table.numbers.values())
    assert max(sizes) < 10_000
    assert sizes[1] - sizes[0] < 100


def test_subset_is_a_view(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening some episodes copies nothing: the columns are those of the whole file."""
    monkeypatch.setattr(table_store, "_IN_MEMORY_BYTES", 0)
    dataset = LeRobotDataset("lab/scene", made("image"), [2])
    dataset.numpy_item(0)
    table = next(iter(dataset.reader._store._files.values()))
    rows = dataset.meta.episodes.lengths[[f == dataset.meta.episodes.data_files[2] for f in _files(dataset)]].sum()
    assert len(table.numbers["action"]) == rows
    assert not table.numbers["action"].flags.owndata


def _files(dataset: LeRobotDataset) -> list[Any]:
    return list(dataset.meta.episodes.data_files)


def test_meter() -> None:
    """Time in the loader counts as waiting, time with the batch does not; a second pass goes on counting."""
    ticks = iter([0.0, 3.0, 4.0, 6.0, 10.0, 20.0, 21.0, 22.0, 30.0])
    meter = DataMeter(["a", "b"], clock=lambda: next(ticks))
    assert list(meter) == ["a", "b"]
    assert (meter.batches, meter.waited_s, meter.used_s) == (2, 5.0, 5.0)
    assert meter.share == 0.5
    assert "50 %" in repr(meter)
    meter.reset()
    assert (meter.batches, meter.share) == (0, 0.0)


def test_reading_with_torch_loads_little_more_than_torch() -> None:
    """Import of the reader adds its own few libraries to torch: no vision, table or hub library comes along."""
    code = (
        "import sys, torch.utils.data\nbefore = set(sys.modules)\n"
        "from ulna.data import LeRobotDataset\nLeRobotDataset.__getitems__\n"
        "print(*sorted({m.partition('.')[0] for m in set(sys.modules) - before}), len(set(sys.modules) - before))"
    )
    *names, count = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    heavy = {"torchvision", "torchcodec", "datasets", "pandas", "cv2", "huggingface_hub", "transformers", "PIL"}
    assert not heavy & set(names)
    assert int(count) < 400


@settings(deadline=None, max_examples=15)
@given(positions=st.lists(st.integers(-TOTAL, TOTAL - 1), min_size=1, max_size=12))
def test_any_batch(positions: list[int], request: pytest.FixtureRequest) -> None:
    """Whatever is asked for comes back in the order asked."""
    root = request.getfixturevalue("made")("video")
    dataset = LeRobotDataset("lab/scene", root, return_uint8=True)
    assert [int(item["index"]) for item in dataset.__getitems__(positions)] == [p % TOTAL for p in positions]
