# SPDX-License-Identifier: Apache-2.0
"""Run by an interpreter that has LeRobot: opens a dataset and writes what it reads as one .npz of arrays and texts."""

from __future__ import annotations

import json
import sys

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset


def main() -> None:
    target, request = sys.argv[1:]
    wanted = json.loads(request)
    dataset = LeRobotDataset(
        "a/b",
        root=wanted["root"],
        delta_timestamps=wanted.get("delta_timestamps"),
        episodes=wanted.get("episodes"),
        video_backend="pyav",
        depth_output_unit=wanted.get("depth_output_unit", "mm"),
    )
    arrays, texts = {}, {}
    for i in range(len(dataset)) if wanted.get("indices") is None else wanted["indices"]:
        for key, value in dataset[i].items():
            if isinstance(value, str | list):
                texts[f"{i}/{key}"] = value
            else:
                arrays[f"{i}|{key}"] = value.numpy()
    facts = {
        "length": len(dataset),
        "episodes": dataset.num_episodes,
        "texts": texts,
        "stats": {k: {s: np.asarray(v).tolist() for s, v in d.items()} for k, d in (dataset.meta.stats or {}).items()},
        "tasks": list(dataset.meta.tasks.index),
    }
    np.savez(target, facts=np.array(json.dumps(facts)), **arrays)


if __name__ == "__main__":
    main()
