# SPDX-License-Identifier: Apache-2.0
"""Random datasets and random sequences of edits against lists of what should be there."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ulna.data import LeRobotDataset, delete_episodes, merge_datasets, modify_tasks, split_dataset
from ulna.data.checks.validation import validate
from ulna.data.editing import DatasetBuilder, NewEpisode
from ulna.data.features import parse_features
from ulna.data.info import DatasetInfo
from ulna.data.stats import QUANTILES

FEATURES = parse_features({"x": {"dtype": "int64", "shape": (1,), "names": None}}, add_defaults=True)
TASKS = ("a", "b", "c")
Episodes = list[list[tuple[int, str]]]


def build(root: Path, episodes: Episodes, limit: float) -> None:
    """Write episodes of (value, task) frames."""
    info = DatasetInfo(10, dict(FEATURES), chunks_size=2, data_files_size_in_mb=limit)
    with DatasetBuilder(root, info) as builder:
        for episode in episodes:
            values, tasks = zip(*episode, strict=True)
            builder.add(NewEpisode(pa.table({"x": pa.array(values, pa.int64())}), tasks))
        builder.finish()


def check(root: Path, episodes: Episodes) -> None:
    """Compare everything a dataset says with lists."""
    dataset = LeRobotDataset("a/b", root)
    found: Episodes = [[] for _ in range(dataset.num_episodes)]
    for i in range(len(dataset)):
        item = dataset.numpy_item(i)
        assert (item["index"], item["frame_index"]) == (i, len(found[int(item["episode_index"])]))
        found[int(item["episode_index"])].append((int(item["x"][0]), item["task"]))
    assert found == episodes
    tasks = [list(dict.fromkeys(task for _, task in episode)) for episode in episodes]
    assert dataset.meta.episodes["tasks"] == tasks
    values = np.array([value for episode in episodes for value, _ in episode], np.float64)
    stats = dataset.meta.stats
    assert stats is not None
    assert stats["x"]["count"] == [len(values)]
    np.testing.assert_allclose(stats["x"]["mean"], [values.mean()], rtol=1e-12)
    np.testing.assert_allclose(stats["x"]["std"], [values.std()], rtol=1e-9)
    for name, q in QUANTILES.items():
        np.testing.assert_allclose(stats["x"][name], [np.quantile(values, q)], rtol=1e-12)
    assert validate("a/b", root).problems == []


def mark(number: int, dataset: int) -> list[tuple[int, str]]:
    return [(1000 * dataset + 10 * number + frame, TASKS[(number + frame // 2) % 3]) for frame in range(1 + number % 4)]


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3), limit=st.sampled_from([0.0001, 1.0]))
def test_any_sequence_of_edits(data: st.DataObject, sizes: list[int], limit: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pool: list[tuple[Path, Episodes]] = []
        for number, size in enumerate(sizes):
            episodes = [mark(e, number) for e in range(size)]
            build(Path(folder, f"source{number}"), episodes, limit)
            pool.append((Path(folder, f"source{number}"), episodes))
        for step in range(data.draw(st.integers(1, 3), "steps")):
            pool.append(edit(data, pool, Path(folder, f"result{step}")))
        for root, episodes in pool:
            check(root, episodes)


def edit(data: st.DataObject, pool: list[tuple[Path, Episodes]], target: Path) -> tuple[Path, Episodes]:
    """Carry out one edit, on a dataset and on its list."""
    pick: Any = st.integers(0, len(pool) - 1)
    root, episodes = pool[data.draw(pick, "dataset")]
    kind = data.draw(st.sampled_from(["delete", "split", "merge", "tasks"]), "edit")
    numbers = range(len(episodes))
    if kind == "delete" and len(episodes) > 1:
        gone = data.draw(st.sets(st.sampled_from(numbers), min_size=1, max_size=len(episodes) - 1), "gone")
        delete_episodes(root, gone, target)
        return target, [e for i, e in enumerate(episodes) if i not in gone]
    if kind == "split":
        chosen = data.draw(st.sets(st.sampled_from(numbers), min_size=1), "chosen")
        return split_dataset(root, {"part": list(chosen)}, target)["part"].root, [episodes[i] for i in sorted(chosen)]
    if kind == "tasks":
        modify_tasks(root, "default", {0: "zero"}, {episodes[0][0][1]: "replaced"}, target)
        mapped = {episodes[0][0][1]: "replaced"}
        changed = [
            [(value, "zero" if i == 0 else mapped.get(task, "default")) for value, task in episode]
            for i, episode in enumerate(episodes)
        ]
        return target, changed
    other, more = pool[data.draw(pick, "other")]
    merge_datasets([root, other], "a/b", target, concatenate_data=data.draw(st.booleans(), "together"))
    return target, episodes + more
