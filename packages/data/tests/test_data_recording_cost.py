# SPDX-License-Identifier: Apache-2.0
"""What recording costs, and what it tells: queues that fill up, true frame times, work and memory per episode."""

from __future__ import annotations

import builtins
import gc
import io
import itertools
import json
import logging
import os
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from ulna.core.errors import DatasetError
from ulna.data import LeRobotDataset, RGBEncoderConfig
from ulna.data.commands import app
from ulna.data.depth_recording import begin_camera
from ulna.data.features import Feature
from ulna.data.language import language_feature_info
from ulna.data.picture_worker import PictureWorker
from ulna.data.png import encode_png
from ulna.data.recovery import finalize_interrupted, recover_episodes
from ulna.data.timing import EpisodeTiming, append_log, read_log, read_timings
from ulna.data.video_codecs import encoder_options
from ulna.data.video_fragments import whole_lengths

CAMERA = "observation.images.cam"


def hold(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Keep encoders from taking pictures until the event is set."""
    from ulna.data.video_encoding import VideoEncoder

    go, real = threading.Event(), VideoEncoder._frame

    def slow(self: Any, picture: Any) -> Any:
        assert go.wait(30)
        return real(self, picture)

    monkeypatch.setattr(VideoEncoder, "_frame", slow)
    return go


def test_full_queue_is_told_once_and_names_camera_and_remedy(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole frame is refused with its row; the frames that were refused are counted."""
    made = scene("video")
    dataset = made.create(tmp_path / "set", encoder_queue_maxsize=2, when_full="drop")
    go = hold(monkeypatch)
    taken = [dataset.add_frame(made.frame(0, frame)) for frame in range(8)]
    go.set()
    dataset.save_episode()
    kept = [frame for frame, was in enumerate(taken) if was]
    assert dataset.dropped_frames == 8 - len(kept) > 0
    dataset.finalize()
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(told) == 1
    assert CAMERA in told[0]
    assert "frames are dropped" in told[0]
    assert "preset veryfast" in told[0]
    opened = LeRobotDataset("lab/scene", tmp_path / "set", return_uint8=True)
    for position, frame in enumerate(kept):
        item = opened.numpy_item(position)
        assert item["observation.state"][0] == frame
        assert made.number(item[CAMERA]) == frame
    assert read_timings(tmp_path / "set")[0].dropped == dataset.dropped_frames


def test_full_queue_slows_the_caller_and_says_so(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = scene("video")
    with made.create(tmp_path / "set", encoder_queue_maxsize=2) as dataset:
        go, waits = hold(monkeypatch), PictureWorker.wait_for_room

        def wait_for_room(self: PictureWorker[Any]) -> None:
            go.set()
            waits(self)

        monkeypatch.setattr(PictureWorker, "wait_for_room", wait_for_room)
        made.add(dataset, 0, 12)
        assert go.is_set()
        assert dataset.dropped_frames == 0
    made.check(tmp_path / "set", [12])
    assert caplog.text.count("add_frame() waits for it") == 1


OTHER = "observation.images.other"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Cameras whose queues count as full."""
    cameras: set[str] = set()
    monkeypatch.setattr(PictureWorker, "has_room", property(lambda worker: worker._name not in cameras))
    return cameras


def two_cameras(made: Any, root: Path, **options: Any) -> LeRobotDataset:
    features = made.features()
    return LeRobotDataset.create("lab/scene", 30, {**features, OTHER: features[CAMERA]}, root, "fake", **options)


def test_a_frame_is_dropped_whole_whichever_camera_is_full(scene: Any, tmp_path: Path, full: set[str]) -> None:
    made = scene("video")
    options = {"when_full": "drop", "rgb_encoder": RGBEncoderConfig(vcodec="h264")}
    with two_cameras(made, tmp_path / "set", **options) as dataset:
        taken = []
        for frame, names in enumerate([set(), {OTHER}, {CAMERA}, set(), {CAMERA, OTHER}, set()]):
            full.clear()
            full.update(names)
            taken.append(dataset.add_frame({**made.frame(0, frame), OTHER: made.picture(1, frame)}))
        full.clear()
        assert taken == [True, False, False, True, False, True]
        assert dataset.dropped_frames == 3
        dataset.save_episode()
    opened = LeRobotDataset("lab/scene", tmp_path / "set", return_uint8=True)
    items = [opened.numpy_item(position) for position in range(len(opened))]
    assert [int(item["observation.state"][0]) for item in items] == [0, 3, 5]
    assert [made.number(item[CAMERA]) for item in items] == [0, 3, 5]
    assert [made.number(item[OTHER]) for item in items] == [64, 67, 69]


def test_every_full_camera_is_waited_for_before_anything_is_taken(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: set[str]
) -> None:
    made, waited = scene("image"), []
    with two_cameras(made, tmp_path / "set") as dataset:
        monkeypatch.setattr(PictureWorker, "wait_for_room", lambda worker: waited.append(worker._name))
        full.update({CAMERA, OTHER})
        assert dataset.add_frame({**made.frame(0, 0), OTHER: made.picture(1, 0)})
        assert waited == [CAMERA, OTHER]


def test_measured_rate_is_stored_told_and_shown(
    scene: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, files_below: Any
) -> None:
    """Sixty frames a second in a dataset that declares thirty; one gap; an episode on time; and one that is copied."""
    made, root = scene(), tmp_path / "set"
    with made.create(root) as dataset:
        times = {0: [n / 60 for n in range(61)], 1: [n / 30 for n in range(31)], 2: None}
        times[1][-1] += 0.02
        for episode, clock in times.items():
            for frame in range(31):
                dataset.add_frame(made.frame(episode, frame), None if clock is None else 1e6 + clock[frame])
            dataset.save_episode()
    warned = [r.getMessage() for r in caplog.records]
    assert warned == [
        "Episode 0 ran at 60.0 Hz, and the dataset says 30: its timestamps differ from the truth by as much."
    ]
    timings = read_timings(root)
    assert timings[0].measured_fps == pytest.approx(60)
    assert timings[1].worst_gap_s == pytest.approx(1 / 30 + 0.02)
    assert (timings[0].clock, timings[2].clock) == ("caller", "arrival")
    made.check(root, [31, 31, 31])
    assert "meta/ulna_recording.jsonl" in files_below(root)
    shown = CliRunner().invoke(app, ["info", str(root)]).stdout
    assert "slowest 29.41 in episode 1, longest gap 0.053 s in episode 1" in shown
    assert "1 episodes differ from the declared rate: [0]" in shown
    facts = json.loads(CliRunner().invoke(app, ["info", str(root), "--json"]).stdout)["measured"]
    assert (facts["episodes"], facts["differ"]) == (2, [0])


def test_lines_of_the_recording_log_complete_each_other(tmp_path: Path) -> None:
    """What a crash cut off is left behind alone, and other software may add lines of its own."""
    (tmp_path / "meta").mkdir()
    append_log(tmp_path, {"episode_index": 0, "frames": 3})
    with (tmp_path / "meta/ulna_recording.jsonl").open("a") as file:
        file.write('{"episode_index": 1, "fra')
    append_log(tmp_path, {"episode_index": 0, "ended_by": "time", "frames": 4})
    assert read_log(tmp_path) == {0: {"episode_index": 0, "frames": 4, "ended_by": "time"}}
    assert read_timings(tmp_path) == {}


@pytest.mark.parametrize(
    ("times", "fps", "differs"),
    [([], None, False), ([5.0], None, False), ([1.0, 1.0], None, False), ([0.0, 0.1, 0.2], 10.0, True)],
)
def test_timing_of_few_frames(times: list[float], fps: float | None, differs: bool) -> None:
    timing = EpisodeTiming.of(times, "caller")
    assert timing.measured_fps == (None if fps is None else pytest.approx(fps))
    assert timing.differs_from(30) is differs


class Counted:
    """Counts files opened and bytes written by Python, and files that appear."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = 0
        real_open, real_io = os.open, io.open

        def count(real: Any) -> Any:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                self.opened += 1
                return real(*args, **kwargs)

            return wrapper

        monkeypatch.setattr(os, "open", count(real_open))
        monkeypatch.setattr(io, "open", count(real_io))
        monkeypatch.setattr(builtins, "open", count(real_io))


def test_cost_of_an_episode_does_not_grow(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files opened and bytes on disk: the fortieth episode costs what the fifth did."""
    made, root, costs = scene("image"), tmp_path / "set", []
    dataset = made.create(root)
    counted = Counted(monkeypatch)

    def written() -> int:
        changed = [path.stat() for path in root.rglob("*") if path.is_file() and path.name != "ulna_recording.jsonl"]
        return sum(found.st_size for found in changed if found.st_mtime_ns >= began)

    for episode in range(40):
        began, before = last_change(root), counted.opened
        made.add(dataset, episode, 3)
        opened = counted.opened - before
        costs.append((opened, written()))
    dataset.finalize()
    (files, size), (later_files, later_size) = costs[5], costs[39]
    assert later_files == files
    assert later_size <= 1.2 * size


def last_change(root: Path) -> int:
    """Return an instant of the disk's clock behind everything that was written so far."""
    latest = max(path.stat().st_mtime_ns for path in root.rglob("*"))
    probe = root.parent / "probe"
    for _ in itertools.count():
        probe.write_text("now")
        if probe.stat().st_mtime_ns > latest:
            return probe.stat().st_mtime_ns
    raise AssertionError


@pytest.mark.slow
def test_memory_stays_flat_over_many_episodes(tmp_path: Path) -> None:
    """Two hundred episodes: what is kept of each is its row in the table."""
    features = {
        "state": {"dtype": "float32", "shape": (3,), "names": None},
        "cam": {"dtype": "image", "shape": (16, 16, 3), "names": ["height", "width", "channels"]},
    }
    dataset = LeRobotDataset.create("lab/long", 30, features, tmp_path / "set")
    picture, state = np.zeros((16, 16, 3), np.uint8), np.zeros(3, np.float32)

    def record(episodes: int) -> None:
        for _ in range(episodes):
            for _ in range(2):
                dataset.add_frame({"state": state, "cam": picture, "task": "wait"})
            dataset.save_episode()

    record(20)
    tracemalloc.start()
    try:
        record(20)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        record(160)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    dataset.finalize()
    assert grown < 160 * 5_000
    assert dataset.num_episodes == 200


@pytest.mark.parametrize("kind", ["noise", "flat", "gradient"])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (48, 64)])
def test_pictures_are_the_same_for_any_png_reader(kind: str, size: tuple[int, int]) -> None:
    height, width = size
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    ramp = np.add.outer(np.arange(height), np.arange(width)).astype(np.uint8)[..., None].repeat(3, 2)
    picture = {"noise": noise, "flat": np.full((height, width, 3), 7, np.uint8), "gradient": ramp}[kind]
    with Image.open(io.BytesIO(encode_png(picture))) as read:
        read.load()
        assert (read.mode, read.size) == ("RGB", (width, height))
        np.testing.assert_array_equal(np.asarray(read), picture)


@pytest.mark.parametrize("codec", ["h264", "libsvtav1", "hevc"])
def test_video_is_readable_while_it_is_written(scene: Any, tmp_path: Path, codec: str) -> None:
    """What has left the encoder can be read, cut off anywhere."""
    made = scene("video")
    feature = Feature(CAMERA, "video", (48, 64, 3), ["height", "width", "channels"])
    worker = begin_camera(tmp_path, CAMERA, feature, 30, {CAMERA: RGBEncoderConfig(vcodec=codec)}, 60)
    for frame in range(40):
        worker.put(made.picture(0, frame))
    worker.end()
    assert worker.finish().frames == 40
    live = tmp_path / f"{CAMERA}.live.mp4"
    assert whole_lengths(live, 30)[-1] == 40
    data = live.read_bytes()
    found = []
    for share in range(1, 20):
        (tmp_path / "cut.mp4").write_bytes(data[: len(data) * share // 20])
        found.append(max(whole_lengths(tmp_path / "cut.mp4", 30), default=0))
    assert found == sorted(found)
    assert found[0] < 40
    assert found[-1] > 10


def test_threads_of_encoders_share_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Default settings give each camera its share; a number that was given stays; key frames far apart keep layers."""
    monkeypatch.setattr("ulna.data.video_codecs._processors", lambda: 8)
    config = RGBEncoderConfig()
    assert [config.shared(n).threads for n in (1, 2, 3, 20)] == [4, 4, 2, 1]
    assert RGBEncoderConfig(threads=6).shared(2).threads == 6
    assert "hierarchical-levels=2" in encoder_options(config)["svtav1-params"]
    assert "hierarchical-levels" not in encoder_options(RGBEncoderConfig(g=30))["svtav1-params"]


def test_environment_is_as_before(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder is kept quiet only while it opens; what the user has set stays."""
    monkeypatch.delenv("SVT_LOG", raising=False)
    scene("video", "libsvtav1").record(tmp_path / "one", [2])
    assert "SVT_LOG" not in os.environ
    monkeypatch.setenv("SVT_LOG", "0")
    scene("video", "libsvtav1").record(tmp_path / "two", [2])
    assert os.environ["SVT_LOG"] == "0"


def test_lerobots_way_to_save_is_accepted(scene: Any, tmp_path: Path) -> None:
    made = scene()
    with made.create(tmp_path / "set") as dataset:
        made.add(dataset, 0, 2, parallel_encoding=False)
        dataset.add_frame(made.frame(1, 0))
        with pytest.raises(DatasetError, match="takes no others"):
            dataset.save_episode({"action": []})
        dataset.save_episode(None, True)
    assert LeRobotDataset("lab/scene", tmp_path / "set").meta.episodes["length"] == [2, 1]


@pytest.mark.parametrize("camera", ["video", "image"])
def test_resume_says_how_much_it_removes(
    scene: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, camera: str
) -> None:
    """Opening names the frames and the command that keeps them; removing them names the number again."""
    made = scene(camera)
    left_behind(made, tmp_path / "set", 6)
    LeRobotDataset("lab/scene", tmp_path / "set")
    assert "6 frames of it can be recovered: ulna dataset repair" in caplog.text
    LeRobotDataset.resume("lab/scene", tmp_path / "set").finalize()
    assert "removed the unfinished episode 2 (6 frames can be recovered)" in caplog.text
    assert made.check(tmp_path / "set", [2, 3]).meta.findings == []


@pytest.mark.parametrize("camera", ["video", "image"])
def test_recording_goes_on_behind_the_recovered_episode(scene: Any, tmp_path: Path, camera: str) -> None:
    made = scene(camera)
    left_behind(made, tmp_path / "set", 6)
    with LeRobotDataset.resume("lab/scene", tmp_path / "set", recover=True) as dataset:
        assert dataset.num_episodes == 3
        made.add(dataset, 3, 2)  # by default in another codec than before: these videos are not joined
    opened = made.check(tmp_path / "set", [2, 3, 6, 2])
    assert opened.meta.findings == []
    assert opened.meta.stats is not None
    assert opened.meta.stats["index"]["count"].tolist() == [13]
    assert read_timings(tmp_path / "set")[2].frames == 6


def left_behind(made: Any, root: Path, frames: int) -> None:
    """Lay out a dataset of two episodes as a kill in the third leaves it."""
    dataset = made.record(root.with_name("live"), [2, 3], finalize=False)
    for frame in range(frames):
        dataset.add_frame(made.frame(2, frame))
    made.leave_behind(dataset, root)
    dataset.finalize()


def test_everything_a_row_can_hold_is_recovered(scene: Any, tmp_path: Path) -> None:
    """Numbers of any shape, texts, language and depth, in videos and in the table: as an episode that was saved."""
    size = {"shape": (16, 32, 1), "names": ["height", "width", "channels"], "info": {"is_depth_map": True}}
    features = {
        "grid": {"dtype": "int16", "shape": (2, 3), "names": None},
        "on": {"dtype": "bool", "shape": (1,), "names": None},
        "said": {"dtype": "string", "shape": (1,), "names": None},
        "depth.video": {"dtype": "video", **size},
        "depth.table": {"dtype": "image", **size},
        **language_feature_info(),
    }
    row = {"role": "user", "content": "lift it", "style": "task_aug", "timestamp": 0.0, "camera": None}

    def add(dataset: LeRobotDataset) -> None:
        for frame in range(5):
            depth = np.full((16, 32, 1), 500 + 100 * frame, np.uint16)
            dataset.add_frame(
                {
                    "grid": np.full((2, 3), frame, np.int16),
                    "on": np.array([frame % 2 == 0]),
                    "said": f"frame {frame} äöü",
                    "depth.video": depth,
                    "depth.table": depth,
                    "language_persistent": [row],
                    "task": "see" if frame < 3 else "think",
                }
            )

    live, root = tmp_path / "live", tmp_path / "set"
    dataset = LeRobotDataset.create("lab/all", 30, features, live)
    add(dataset)
    scene.leave_behind(dataset, root)
    add(dataset)
    dataset.save_episode()
    dataset.finalize()
    assert recover_episodes(root) == [0]
    assert finalize_interrupted(root)
    saved, recovered = LeRobotDataset("lab/all", live), LeRobotDataset("lab/all", root)
    assert recovered.meta.episodes["length"] == [5]
    for position in range(5):
        wanted, item = saved.numpy_item(position), recovered.numpy_item(position)
        assert wanted.keys() == item.keys()
        for name, value in wanted.items():
            np.testing.assert_array_equal(item[name], value, err_msg=name)
    assert saved.meta.stats is not None
    assert recovered.meta.stats is not None
    for name, stats in saved.meta.stats.items():
        for key, value in stats.items():
            np.testing.assert_allclose(recovered.meta.stats[name][key], value, rtol=2e-3, err_msg=f"{name} {key}")
