# SPDX-License-Identifier: Apache-2.0
"""One measurement of a dataset library in a process of its own. Started by `data.py`, for Ulna or for LeRobot.

Both libraries go through the same code: their classes and methods have the same names. Prints one JSON object a line:
`metric`, `value`, `unit`. Data that only reading needs is written once by `build`, by Ulna, and read by both.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _scene import CAMERAS, FPS, HEIGHT, WIDTH, Camera, features, frames

ACTIONS_10 = {"action": [i / FPS for i in range(10)]}
ACTIONS_100 = {"action": [i / FPS for i in range(100)]}
MANY_EPISODES, MANY_LENGTH = 10_000, 20

library = "ulna"
scratch = Path()


def emit(metric: str, value: float, unit: str) -> None:
    """Print one figure."""
    print(json.dumps({"metric": metric, "value": value, "unit": unit}), flush=True)


def dataset_class() -> Any:
    """Return the library's `LeRobotDataset`."""
    if library == "lerobot":
        from lerobot.datasets.lerobot_dataset import LeRobotDataset
    else:
        from ulna.data import LeRobotDataset
    return LeRobotDataset


def encoder(codec: str) -> Any:
    """Return the library's encoder settings for a codec, all others at their defaults."""
    if library == "lerobot":
        from lerobot.configs.video import RGBEncoderConfig
    else:
        from ulna.data import RGBEncoderConfig
    return RGBEncoderConfig(vcodec=codec)


def memory_mb(field: str = "VmHWM") -> float:
    """Return the peak (`VmHWM`) or present (`VmRSS`) resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def own_memory_mb(process: int) -> float:
    """Return the memory that only this process holds."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def cpu_s() -> float:
    """Return the processor time of this process and its ended children."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def record(name: str, *, dtype: str = "video", episodes: int = 3, length: int = 300, **options: Any) -> None:
    """Record as fast as it goes."""
    cameras = {key: Camera(HEIGHT, WIDTH, seed) for seed, key in enumerate(CAMERAS)}
    root = scratch / f"{library}_{name}"
    dataset = dataset_class().create(
        f"bench/{name}", FPS, features(dtype), root=root, use_videos=dtype == "video", **options
    )
    idle = memory_mb("VmRSS")
    add, save, began = [], [], time.perf_counter()
    for episode in range(episodes):
        for frame in frames(cameras, 400 * episode, length):
            start = time.perf_counter()
            dataset.add_frame(frame)
            add.append(time.perf_counter() - start)
        start = time.perf_counter()
        dataset.save_episode()
        save.append(time.perf_counter() - start)
    dataset.finalize()
    emit("end to end", episodes * length / (time.perf_counter() - began), "frames/s")
    emit("add_frame mean", 1e3 * statistics.mean(add), "ms")
    emit("add_frame median", 1e3 * statistics.median(add), "ms")
    emit("save_episode", statistics.median(save), "s")
    emit("peak memory", memory_mb(), "MB")
    emit("memory above the opened dataset", memory_mb() - idle, "MB")
    emit("on disk", sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) / 1e6, "MB")
    emit("frames on disk", stored_frames(root, dtype) / (episodes * length), "share")


def stored_frames(root: Path, dtype: str) -> float:
    """Count what is really there: a library that drops pictures is fast."""
    if dtype != "video":
        import pyarrow.parquet as pq

        return sum(pq.read_metadata(path).num_rows for path in (root / "data").rglob("*.parquet"))
    import av

    found = 0
    for path in (root / "videos").rglob("*.mp4"):
        with av.open(str(path)) as container:
            found += sum(1 for packet in container.demux(video=0) if packet.size)
    return found / len(CAMERAS)


def record_paced(name: str, length: int = 300, **options: Any) -> None:
    """Record 10 s at 30 Hz."""
    cameras = {key: Camera(HEIGHT, WIDTH, seed) for seed, key in enumerate(CAMERAS)}
    stock = list(frames(cameras, 0, length))  # made beforehand: what is measured is the recording
    dataset = dataset_class().create(
        f"bench/{name}", FPS, features("video"), root=scratch / f"{library}_{name}", **options
    )
    add, late = [], 0
    cpu, began = cpu_s(), time.perf_counter()
    for number, frame in enumerate(stock):
        start = time.perf_counter()
        dataset.add_frame(dict(frame))
        add.append(time.perf_counter() - start)
        left = began + (number + 1) / FPS - time.perf_counter()
        late += left < 0
        time.sleep(max(left, 0))
    used, took = cpu_s() - cpu, time.perf_counter() - began
    start = time.perf_counter()
    dataset.save_episode()
    emit("processor", used / took, "cores")
    emit("rate", length / took, "Hz")
    emit("late ticks", late, "")
    emit("add_frame median", 1e3 * statistics.median(add), "ms")
    emit("add_frame p99", 1e3 * sorted(add)[int(0.99 * length)], "ms")
    emit("save_episode", time.perf_counter() - start, "s")
    dataset.finalize()


def picture_statistics() -> None:
    """Statistics of one camera over an episode of 300 frames, of which 100 enter them."""
    stock = [Camera(HEIGHT, WIDTH, 0).frame(i) for i in range(300)]
    if library == "lerobot":
        from lerobot.datasets.compute_stats import compute_episode_stats
        from PIL import Image

        folder = scratch / "lerobot_png"
        folder.mkdir(parents=True)
        paths = [str(folder / f"{i:06d}.png") for i in range(len(stock))]
        for path, picture in zip(paths, stock, strict=True):
            Image.fromarray(picture).save(path, compress_level=1)
        key = CAMERAS[0]
        emit(
            "statistics of an episode",
            repeated(lambda: compute_episode_stats({key: paths}, {key: features("video")[key]})),
            "s",
        )
        return
    from ulna.data.stats import PictureStats

    def whole_episode() -> None:
        statistics_of_camera = PictureStats(HEIGHT, WIDTH, 3)
        for picture in stock:
            statistics_of_camera.add(picture)
        statistics_of_camera.result()

    emit("statistics of an episode", repeated(whole_episode), "s")


def repeated(call: Callable[[], Any], times: int = 5) -> float:
    """Return the median seconds of some calls, after one to warm up."""
    call()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def rate(step: Callable[[], int], seconds: float, repeats: int = 3) -> float:
    """Return the median items a second of some windows; `step` returns how many items it read."""
    step()
    rates = []
    for _ in range(repeats):
        count, start = 0, time.perf_counter()
        while (taken := time.perf_counter() - start) < seconds:
            count += step()
        rates.append(count / taken)
    return statistics.median(rates)


def opened(name: str, **options: Any) -> Any:
    """Open a dataset that `build` has made."""
    return dataset_class()(f"bench/{name}", root=scratch / name, **options)


def random_items(dataset: Any, seconds: float, label: str = "random items") -> None:
    """Read single items in random order."""
    order = list(range(len(dataset)))
    random.Random(0).shuffle(order)
    position = iter(order * 1000)

    def step() -> int:
        dataset[next(position)]
        return 1

    emit(label, rate(step, seconds), "items/s")


def loader_items(dataset: Any, workers: int, seconds: float, kind: str = "") -> None:
    """Read batches of 8 through torch's loader, in random order."""
    import torch

    loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=workers, shuffle=True, drop_last=True)
    start = time.perf_counter()
    batches = iter(loader)
    next(batches)
    label = f"loader, {workers} workers{kind}"
    emit(f"{label}: first batch", time.perf_counter() - start, "s")
    if workers:
        for _ in range(10):
            next(batches)
        own = [own_memory_mb(worker.pid) for worker in batches._workers]
        emit(f"{label}: memory that only one has", statistics.mean(own), "MB")

    def endless() -> Iterator[Any]:
        yield from batches
        while True:
            yield from loader

    stream = endless()

    def step() -> int:
        next(stream)
        return 8

    emit(label, rate(step, seconds, repeats=1 if workers else 2), "items/s")


def read_videos(codec: str, backend: str) -> None:
    """Random items, then two neighbouring frames at a time; pictures as floats and as bytes."""
    name = f"video_{codec}"
    neighbours = {key: [-1 / FPS, 0.0] for key in CAMERAS}
    for label, options in (("", {}), (", uint8", {"return_uint8": True})):
        random_items(opened(name, video_backend=backend, **options), 3, f"random items{label}")
        windowed = opened(name, video_backend=backend, delta_timestamps=neighbours, **options)
        random_items(windowed, 3, f"windows of 2 neighbours{label}")
    if library == "ulna":
        cached = opened(name, video_backend=backend, episodes=[0], frame_cache="ram", return_uint8=True)
        for position in range(len(cached)):
            cached[position]
        random_items(cached, 2, "random items, uint8, cached")


def load_videos(codec: str, backend: str) -> None:
    """Two workers, batches of 8. A process of its own: LeRobot's workers die when their parent has read before."""
    name = f"video_{codec}"
    loader_items(opened(name, video_backend=backend), 2, 8)
    if library == "ulna":
        loader_items(opened(name, video_backend=backend, return_uint8=True), 2, 5, ", uint8")


def read_pictures() -> None:
    """PNG in the table, alone and with a window of 100 actions."""
    random_items(opened("images"), 3)
    random_items(opened("images", delta_timestamps=ACTIONS_100), 6, "with a window of 100 actions")
    loader_items(opened("images", delta_timestamps=ACTIONS_100), 2, 6)


def read_states() -> None:
    """100,000 frames without cameras, then 10,000 episodes with a window of 10 actions."""
    random_items(opened("state"), 2)
    windowed = opened("many_state", delta_timestamps=ACTIONS_10)
    random_items(windowed, 2, "window of 10")
    loader_items(windowed, 0, 3)
    loader_items(windowed, 2, 3)


def open_many(name: str) -> None:
    """Open 10,000 episodes."""
    options = {} if library == "ulna" else {"video_backend": "pyav"}
    emit("open", repeated(lambda: opened(name, delta_timestamps=ACTIONS_10, **options), 3), "s")
    emit(
        "open every second episode",
        repeated(lambda: opened(name, episodes=list(range(0, MANY_EPISODES, 2)), **options), 1),
        "s",
    )
    emit("peak memory", memory_mb(), "MB")


def resume_many() -> None:
    """Add three episodes to 10,000."""
    root = scratch / f"{library}_resumed"
    shutil.copytree(scratch / "many_edited", root)
    start = time.perf_counter()
    dataset = dataset_class().resume("bench/many", root=root)
    emit("resume", time.perf_counter() - start, "s")
    save = []
    for episode in range(3):
        for frame in frames({}, 100 * episode, MANY_LENGTH):
            dataset.add_frame(frame)
        start = time.perf_counter()
        dataset.save_episode()
        save.append(time.perf_counter() - start)
    emit("save_episode", statistics.median(save), "s")
    start = time.perf_counter()
    dataset.finalize()
    emit("finalize", time.perf_counter() - start, "s")


def import_reader() -> None:
    """Import the reader, torch included."""
    start = time.perf_counter()
    import torch  # noqa: F401

    alone, memory = time.perf_counter() - start, memory_mb("VmRSS")
    dataset_class()
    emit("import", time.perf_counter() - start, "s")
    emit("import, above torch alone", time.perf_counter() - start - alone, "s")
    emit("memory", memory_mb("VmRSS"), "MB")
    emit("memory, above torch alone", memory_mb("VmRSS") - memory, "MB")


def build() -> None:
    """Write what the reading cases read; what is there already is kept."""
    build_recorded("video_libsvtav1", "video", rgb_encoder=encoder("libsvtav1"))
    build_recorded("video_h264", "video", rgb_encoder=encoder("h264"))
    build_recorded("images", "image", episodes=3, length=100, use_videos=False)
    build_recorded("state", None, episodes=200, length=500)
    build_many("many_state", cameras=False)
    build_many("many_video", cameras=True)
    build_edited("many_edited", "many_state")


def build_recorded(name: str, dtype: str | None, episodes: int = 3, length: int = 300, **options: Any) -> None:
    """Record one dataset."""
    if (scratch / name / "built").exists():
        return
    cameras = {key: Camera(HEIGHT, WIDTH, seed) for seed, key in enumerate(CAMERAS)} if dtype else {}
    dataset = dataset_class().create(f"bench/{name}", FPS, features(dtype), root=scratch / name, **options)
    for episode in range(episodes):
        for frame in frames(cameras, 400 * episode, length):
            dataset.add_frame(frame)
        dataset.save_episode()
    dataset.finalize()
    (scratch / name / "built").touch()


def build_many(name: str, *, cameras: bool) -> None:
    """Write 10,000 episodes by repeating the rows of one; all of them share its little videos."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    root = scratch / name
    if (root / "built").exists():
        return
    small = {key: Camera(96, 96, seed) for seed, key in enumerate(CAMERAS)} if cameras else {}
    dataset = dataset_class().create(f"bench/{name}", FPS, features("video" if cameras else None, 96, 96), root=root)
    for frame in frames(small, 0, MANY_LENGTH):
        dataset.add_frame(frame)
    dataset.save_episode()
    dataset.finalize()
    numbers = np.arange(MANY_EPISODES)
    starts = numbers * MANY_LENGTH
    changes = {
        "data": {"episode_index": np.repeat(numbers, MANY_LENGTH), "index": np.arange(len(numbers) * MANY_LENGTH)},
        "meta/episodes": {
            "episode_index": numbers,
            "dataset_from_index": starts,
            "dataset_to_index": starts + MANY_LENGTH,
        },
    }
    for folder, columns in changes.items():
        path = next((root / folder).rglob("*.parquet"))
        one = pq.read_table(path)
        table = pa.concat_tables([one] * MANY_EPISODES).combine_chunks()
        for column, values in columns.items():
            place = table.schema.get_field_index(column)
            table = table.set_column(place, table.schema.field(column), pa.array(values))
        pq.write_table(table.replace_schema_metadata(one.schema.metadata), path)
    info_path = root / "meta/info.json"
    info = json.loads(info_path.read_text())
    info.update(total_episodes=MANY_EPISODES, total_frames=MANY_EPISODES * MANY_LENGTH)
    info["splits"] = {"train": f"0:{MANY_EPISODES}"}
    info_path.write_text(json.dumps(info))
    for path in sorted((root / "meta/sketches").rglob("*.parquet")):
        path.unlink()  # of the one episode
    (root / "built").touch()


def build_edited(name: str, source: str) -> None:
    """Delete one of 10,000 episodes: what is left has statistics and indices of its own, as recorded episodes have."""
    if (scratch / name).exists():
        return
    from ulna.data import delete_episodes

    start = time.perf_counter()
    delete_episodes(scratch / source, [0], output_dir=scratch / name)
    emit("delete one of 10,000 episodes", time.perf_counter() - start, "s")


def best(codec: str) -> dict[str, Any]:
    """Return the options of the library's fastest way to record, at equal quality."""
    streaming = {"streaming_encoding": True} if library == "lerobot" else {}
    return {"rgb_encoder": encoder(codec), **streaming}


CASES: dict[str, Callable[[], None]] = {
    "record, default settings": lambda: record("default"),
    "record, best mode, AV1": lambda: record("best_av1", **best("libsvtav1")),
    "record, best mode, h264": lambda: record("best_h264", **best("h264")),
    "record, paced, AV1": lambda: record_paced("paced_av1", **best("libsvtav1")),
    "record, paced, h264": lambda: record_paced("paced_h264", **best("h264")),
    "record, pictures in the table": lambda: record("pictures", dtype="image", episodes=2, length=60),
    "picture statistics": picture_statistics,
    "open 10,000 episodes, state": lambda: open_many("many_state"),
    "open 10,000 episodes, video": lambda: open_many("many_video"),
    "resume 10,000 episodes": resume_many,
    "read states": read_states,
    "read AV1, pyav": lambda: read_videos("libsvtav1", "pyav"),
    "read h264, pyav": lambda: read_videos("h264", "pyav"),
    "read AV1, torchcodec": lambda: read_videos("libsvtav1", "torchcodec"),
    "read h264, torchcodec": lambda: read_videos("h264", "torchcodec"),
    "load AV1, pyav": lambda: load_videos("libsvtav1", "pyav"),
    "load h264, pyav": lambda: load_videos("h264", "pyav"),
    "load AV1, torchcodec": lambda: load_videos("libsvtav1", "torchcodec"),
    "load h264, torchcodec": lambda: load_videos("h264", "torchcodec"),
    "read pictures in the table": read_pictures,
    "import the reader": import_reader,
    "build": build,
}


def main() -> None:
    """Run one case."""
    global library, scratch
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", choices=["ulna", "lerobot"], default="ulna")
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("case", choices=list(CASES))
    chosen = parser.parse_args()
    library, scratch = chosen.library, chosen.scratch
    CASES[chosen.case]()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
