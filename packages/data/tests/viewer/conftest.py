# SPDX-License-Identifier: Apache-2.0
"""A running server of the viewer, and a dataset of ten thousand episodes to look at."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ulna.data.arrow_schema import column_array, data_schema
from ulna.data.features import parse_features
from ulna.data.info import DatasetInfo, write_tasks
from ulna.data.layout import DATA_TEMPLATE, EPISODES_TEMPLATE, FileId
from ulna.data.viewer.content import OpenDataset
from ulna.data.viewer.serving import listen, make_server

PARTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
JOINTS = [f"{part}.pos" for part in PARTS]
TASKS = ["Pick up the cube.", "Put the cube into the box.", "Close the drawer."]
FPS = 30
LONG_S = 120.0
"""Longer than anything here takes on a busy machine."""


def write_many(root: Path, episodes: int) -> list[int]:
    """Write a dataset of state and action, episodes of 20 to 79 frames; return their lengths."""
    lengths = 20 + (37 * np.arange(episodes)) % 60
    stops = np.cumsum(lengths)
    frames = int(stops[-1])
    starts = stops - lengths
    episode = np.repeat(np.arange(episodes), lengths)
    frame = np.arange(frames) - starts[episode]
    vector = {"dtype": "float32", "shape": (6,), "names": JOINTS}
    features = parse_features({"observation.state": vector, "action": vector}, add_defaults=True)
    state = (40 * np.sin(frame[:, None] / 9 + np.arange(6) + episode[:, None])).astype(np.float32)
    columns = {
        "observation.state": state,
        "action": np.roll(state, -1, axis=0),
        "timestamp": (frame / FPS).astype(np.float32),
        "frame_index": frame,
        "episode_index": episode,
        "index": np.arange(frames),
        "task_index": episode % len(TASKS),
    }
    table = pa.table([column_array(features[n], columns[n]) for n in columns], schema=data_schema(features))
    data = FileId(0, 0).path(root, DATA_TEMPLATE)
    data.parent.mkdir(parents=True)
    pq.write_table(table, data)
    zeros = np.zeros(episodes, np.int64)
    rows = {
        "episode_index": np.arange(episodes),
        "tasks": [[TASKS[e % len(TASKS)]] for e in range(episodes)],
        "length": lengths,
        "data/chunk_index": zeros,
        "data/file_index": zeros,
        "dataset_from_index": starts,
        "dataset_to_index": stops,
        "meta/episodes/chunk_index": zeros,
        "meta/episodes/file_index": zeros,
    }
    path = FileId(0, 0).path(root, EPISODES_TEMPLATE)
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table(rows), path)
    write_tasks(root, {text: number for number, text in enumerate(TASKS)})
    DatasetInfo(FPS, features, episodes, frames, len(TASKS), robot_type="so101_follower").save(root)
    return [int(length) for length in lengths]


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """Ten thousand episodes and their lengths."""
    root = tmp_path_factory.mktemp("many") / "set"
    return root, write_many(root, 10_000)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where recordings are kept that several tests copy."""
    return tmp_path_factory.mktemp("recorded")


@pytest.fixture
def video_set(scene: Any, recorded: Path, tmp_path: Path) -> Path:
    """Two episodes in one video file."""
    if not (recorded / "video").exists():
        scene("video").record(recorded / "video", [4, 7])
    return Path(shutil.copytree(recorded / "video", tmp_path / "set"))


class Served:
    """A server in a thread of this process, and requests to it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.socket = listen("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        ready = threading.Event()
        self.server = make_server(OpenDataset("lab/set", root), "127.0.0.1", ready.set)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})
        self.thread.start()
        assert ready.wait(LONG_S)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(LONG_S)
        self.socket.close()
        assert not self.thread.is_alive()

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request; underscores in the names of headers become dashes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG_S)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def json(self, path: str, status: int = 200) -> Any:
        code, _, body = self.ask(path)
        assert code == status, body
        return json.loads(body)

    def change(self, what: object, **headers: str) -> tuple[int, Any]:
        """Send a change as the page does, some headers replaced."""
        sent = {"origin": self.url.rstrip("/"), "x_ulna_token": self.json("/api/dataset")["token"], **headers}
        body = what if isinstance(what, bytes) else json.dumps(what).encode()
        code, _, answer = self.ask("/api/marks", "POST", body, **sent)
        return code, json.loads(answer)


@pytest.fixture
def served() -> Iterator[Callable[[Path], Served]]:
    """Start servers that are stopped at the end of the test."""
    running: list[Served] = []

    def start(root: Path) -> Served:
        running.append(Served(root))
        return running[-1]

    yield start
    for server in running:
        server.close()
