# SPDX-License-Identifier: Apache-2.0
"""Datasets for the tests of the viewer: ten thousand short episodes without a camera, written as tables at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.data.arrow_schema import column_array, data_schema
from ulna.data.features import parse_features
from ulna.data.info import DatasetInfo, write_tasks
from ulna.data.layout import DATA_TEMPLATE, EPISODES_TEMPLATE, FileId

PARTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
JOINTS = [f"{part}.pos" for part in PARTS]
TASKS = ["Pick up the cube.", "Put the cube into the box.", "Close the drawer."]
FPS = 30


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
