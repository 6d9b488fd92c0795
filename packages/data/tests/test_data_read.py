# SPDX-License-Identifier: Apache-2.0
"""Reading: subsets and windows, decoders and tables that stay within bounds, workers, and messages that help."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ulna.data.images as images
import ulna.data.table_store as table_store
from ulna.core.errors import DatasetError, DatasetFormatError, FeatureError, FrameTimestampError
from ulna.data import LeRobotDataset
from ulna.data.video_decoding import DecoderPool, decoder_pool
from ulna.testing import open_files

CAMERA = "observation.images.cam"
LENGTHS = [5, 1, 7, 4]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.fixture
def made(scene: Any, recordings: Path) -> Any:
    """Recordings of each kind, made once."""

    def get(camera: str | None, codec: str = "h264") -> tuple[Any, Path]:
        root = recordings / f"{camera}-{codec}"
        if not root.exists():
            scene(camera, codec).record(root, LENGTHS)
        return scene(camera, codec), root

    return get


@pytest.mark.parametrize("camera", [None, "image", "video"])
@pytest.mark.parametrize("episodes", [None, [1], [2, 0], [0, 2], [3, 1, 1], [0, 1, 2, 3]])
def test_subsets_with_windows_equal_brute_force(made: Any, camera: str | None, episodes: list[int] | None) -> None:
    scene, root = made(camera)
    offsets = [-8, -1, 0, 2]
    keys = ["observation.state", *([CAMERA] if camera else [])]
    deltas = {key: [n / 30 for n in offsets] for key in keys}
    dataset = LeRobotDataset("lab/scene", root, episodes, delta_timestamps=deltas, return_uint8=True)
    rows = [(e, f) for e, n in enumerate(LENGTHS) for f in range(n) if episodes is None or e in episodes]
    assert len(dataset) == len(rows)
    for position, (episode, frame) in enumerate(rows):
        item, length = dataset.numpy_item(position), LENGTHS[episode]
        wanted = [min(max(frame + n, 0), length - 1) for n in offsets]
        pads = [not 0 <= frame + n < length for n in offsets]
        assert item["observation.state"][:, 0].tolist() == [1000 * episode + f for f in wanted]
        assert item["action"][0] == 1000 * episode + frame
        for key in keys:
            assert item[f"{key}_is_pad"].tolist() == pads
        if camera:
            assert [scene.number(p) for p in item[CAMERA]] == [64 * episode + f for f in wanted]


def test_window_does_not_touch_pictures_it_does_not_ask_for(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of actions decodes the one picture of the item, not one for each action."""
    import ulna.data.picture_reading as reading

    _, root = made("image")
    dataset = LeRobotDataset("lab/scene", root, delta_timestamps={"action": [n / 30 for n in range(50)]})
    decoded = []
    monkeypatch.setattr(reading, "decode_picture", lambda *args: decoded.append(1) or images.decode_picture(*args))
    assert dataset[8]["action"].shape == (50, 6)
    assert len(decoded) == 1


def test_window_decodes_neighbours_once(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import ulna.data.video_decoding as decoding

    _, root = made("video")
    deltas = {CAMERA: [n / 30 for n in (0, -1, -1, -2, -30, 2)]}
    dataset = LeRobotDataset("lab/scene", root, delta_timestamps=deltas)
    converted = []
    real = decoding.VideoDecoder._write
    monkeypatch.setattr(
        decoding.VideoDecoder, "_write", lambda self, f, out: converted.append(f.pts) or real(self, f, out)
    )
    decoder_pool().close()
    assert dataset[9][CAMERA].shape[0] == 6
    assert len(converted) == len(set(converted)) == 5
    assert converted == sorted(converted)


def test_items_are_own_copies(made: Any) -> None:
    _, root = made("video")
    dataset = LeRobotDataset("lab/scene", root)
    for value in dataset[3].values():
        if isinstance(value, torch.Tensor):
            value.zero_()
    item = dataset[3]
    assert item["index"] == 3
    assert item["action"][1] == 4
    assert item[CAMERA].max() > 0.5


def test_torch_and_numpy_agree(made: Any) -> None:
    for camera in (None, "image", "video"):
        _, root = made(camera)
        dataset = LeRobotDataset("lab/scene", root, delta_timestamps={"action": [0.0, 1 / 30]})
        for i in (0, 5, len(dataset) - 1):
            plain, tensors = dataset.numpy_item(i), dataset[i]
            assert list(plain) == list(tensors)
            for key, value in tensors.items():
                if isinstance(value, torch.Tensor):
                    np.testing.assert_array_equal(value.numpy(), plain[key])
                    assert value.numpy().dtype == plain[key].dtype


def test_public_surface(made: Any) -> None:
    _, root = made("image")
    dataset = LeRobotDataset("lab/scene", root, image_transforms=lambda picture: picture * 0)
    assert float(dataset[0][CAMERA].max()) == 0
    dataset.clear_image_transforms()
    assert float(dataset[0][CAMERA].max()) > 0
    dataset.set_image_transforms(lambda picture: picture[:1])
    assert dataset[0][CAMERA].shape == (1, 48, 64)
    assert "task" not in dataset.get_raw_item(0)
    assert dataset.get_raw_item(0)["action"].shape == (6,)
    view = dataset.select_columns(["action", "timestamp"])
    assert len(view) == len(dataset)
    assert [list(row) for row in view[1:3]] == [["action", "timestamp"]] * 2
    with pytest.raises(FeatureError, match=r"(?s)'acton' is not a column.*'action'"):
        dataset.select_columns("acton")
    assert [int(item["index"]) for item in dataset[2:5]] == [2, 3, 4]
    assert (dataset.fps, dataset.num_frames, dataset.num_episodes, len(dataset)) == (30, 17, 4, 17)
    assert "4 episodes, 17 frames" in repr(dataset)
    with pytest.raises(IndexError, match="outside a dataset of 17 frames"):
        dataset[17]
    chosen = LeRobotDataset("lab/scene", root, episode_filter=lambda row: row["length"] > 4)
    assert chosen.num_episodes == 2
    with pytest.raises(DatasetError, match="'pyav'"):
        LeRobotDataset("lab/scene", root, video_backend="tape")


def test_decoders_stay_bounded(scene: Any, tmp_path: Path) -> None:
    """Many video files, few open ones: handles do not grow with the number of files."""
    made = scene("video")
    dataset = made.record(tmp_path / "set", [1] * 12, finalize=False)
    paths = sorted((tmp_path / "set/videos").rglob("*.mp4"))
    pool = DecoderPool(3)
    before = open_files()
    for _ in range(3):
        for path in paths:
            pool.read(path, [0.0], 1e-4)
            assert len(pool) <= 3
            assert len(open_files() - before) <= 3
    assert pool.opened == 36
    pool.read(paths[-1], [0.0], 1e-4)
    assert pool.opened == 36
    pool.close()
    assert not open_files() - before
    dataset.finalize()


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_after_a_read_in_the_parent(made: Any, context: str) -> None:
    scene, root = made("video")
    dataset = LeRobotDataset("lab/scene", root, return_uint8=True)
    for i in (3, 9):
        dataset[i]
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=4, num_workers=2, multiprocessing_context=context, shuffle=False
    )
    numbers = [scene.number(p.numpy()) for batch in loader for p in batch[CAMERA]]
    assert numbers == [64 * e + f for e, n in enumerate(LENGTHS) for f in range(n)]
    assert scene.number(dataset[2][CAMERA].numpy()) == 2


def test_pickled_dataset_is_small_and_reads(made: Any) -> None:
    _, root = made("image")
    dataset = LeRobotDataset("lab/scene", root)
    dataset[0]
    copy = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(copy[7]["action"], dataset[7]["action"])
    assert copy._reader is not None
    assert not pickle.loads(pickle.dumps(dataset))._reader._store._files


def test_large_tables_are_mapped_once_and_shared(made: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, root = made("image")
    monkeypatch.setattr(table_store, "_IN_MEMORY_BYTES", 0)
    home = tmp_path / "home"
    monkeypatch.setenv("ULNA_HOME", str(home))
    mapped = LeRobotDataset("lab/scene", root)
    plain = [mapped.numpy_item(i) for i in range(len(mapped))]
    assert len(list((home / "cache/tables").iterdir())) == 2  # numbers, and pictures
    subset = LeRobotDataset("lab/scene", root, [2])
    np.testing.assert_array_equal(subset.numpy_item(1)[CAMERA], plain[7][CAMERA])
    assert len(list((home / "cache/tables").iterdir())) == 2  # numbers, and pictures
    column = subset.reader._store.get(next(iter(subset.reader._store._files))).numbers["action"]
    assert not column.flags.owndata
    monkeypatch.undo()
    held = LeRobotDataset("lab/scene", root)
    for i, item in enumerate(plain):
        for key, value in held.numpy_item(i).items():
            np.testing.assert_array_equal(value, item[key])


def test_cost_of_an_item_does_not_depend_on_the_length(scene: Any, tmp_path: Path) -> None:
    """The columns are views or loaded once: reading more items touches no file again."""
    made = scene()
    made.record(tmp_path / "set", [30, 30])
    dataset = LeRobotDataset("lab/scene", tmp_path / "set", delta_timestamps={"action": [0.0, 1 / 30]})
    dataset[0]
    shutil.rmtree(tmp_path / "set/data")
    assert [int(item["index"]) for item in dataset[:]] == list(range(60))


def test_missing_frame_names_episode_frame_and_file(made: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    _, source = made("video")
    shutil.copytree(source, tmp_path / "set")
    path = tmp_path / "set/meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[2][f"videos/{CAMERA}/from_timestamp"] += 0.004
    rows[3][f"videos/{CAMERA}/from_timestamp"] += 50.0
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    strict = LeRobotDataset("lab/scene", tmp_path / "set")
    with pytest.raises(
        FrameTimestampError, match=rf"Episode 2, frame 1, camera '{CAMERA}': no frame at .*-000.mp4 .*0.0001"
    ):
        strict[7]
    lenient = LeRobotDataset("lab/scene", tmp_path / "set", tolerance_s=0.005)
    assert lenient[7]["index"] == 7
    with pytest.raises(FrameTimestampError, match=r"Episode 3, frame 0.*ends before"):
        lenient[13]


def test_video_that_is_not_one(made: Any, tmp_path: Path) -> None:
    _, source = made("video")
    shutil.copytree(source, tmp_path / "set")
    dataset = LeRobotDataset("lab/scene", tmp_path / "set")
    next((tmp_path / "set/videos").rglob("*.mp4")).write_bytes(b"nonsense" * 10)
    with pytest.raises(DatasetFormatError, match=r"file-000.mp4 cannot be opened"):
        dataset[0]


def test_picture_that_is_not_one() -> None:
    with pytest.raises(DatasetFormatError, match="row 3 does not hold a readable picture"):
        images.decode_picture(b"nonsense", "row 3")


def test_recording_and_reading_need_no_torch(tmp_path: Path) -> None:
    """With torch blocked, everything but tensors works, and tensors say what to install."""
    program = f"""
import sys
sys.modules["torch"] = None
import numpy as np
from ulna.core.errors import MissingDependencyError
from ulna.data import LeRobotDataset, RGBEncoderConfig
features = {{"x": {{"dtype": "float32", "shape": (2,), "names": None}},
            "cam": {{"dtype": "video", "shape": (48, 64, 3), "names": None}}}}
h264 = RGBEncoderConfig(vcodec="h264")
with LeRobotDataset.create("a/b", 30, features, {str(tmp_path / "set")!r}, rgb_encoder=h264) as d:
    for i in range(3):
        d.add_frame({{"x": [i, i], "cam": np.zeros((48, 64, 3), np.uint8), "task": "t"}})
    d.save_episode()
assert d.numpy_item(2)["x"].tolist() == [2, 2]
try:
    d[0]
except MissingDependencyError as error:
    assert "ulna-data[torch]" in str(error)
else:
    raise SystemExit("tensors without torch?")
assert "pandas" not in sys.modules and "datasets" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_importing_loads_nothing_heavy() -> None:
    program = (
        "import sys, ulna.data; heavy = {'av', 'torch', 'pyarrow', 'PIL', 'numpy', 'pydantic'} & set(sys.modules);"
        "assert not heavy, heavy; ulna.data.RGBEncoderConfig;"
        "heavy = {'av', 'torch', 'pyarrow', 'cv2'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
