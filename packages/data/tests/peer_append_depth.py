# SPDX-License-Identifier: Apache-2.0
"""Run by an interpreter that has LeRobot: appends one episode of depth maps, or begins a dataset of them."""

from __future__ import annotations

import sys

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

SIZE = (48, 64)


def main() -> None:
    root, length, fresh = sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3
    if fresh:
        camera = {"shape": (*SIZE, 1), "names": ["height", "width", "channels"], "info": {"is_depth_map": True}}
        features = {"observation.images.depth": {"dtype": "video", **camera}}
        features["observation.images.depth_mm"] = {"dtype": "image", **camera}
        dataset = LeRobotDataset.create("a/b", 15, features, root=root)
    else:
        dataset = LeRobotDataset.resume("a/b", root=root)
    rng = np.random.default_rng(length)
    for _ in range(length):
        metres = rng.uniform(0, 11, (*SIZE, 1)).astype(np.float32)
        millimetres = rng.integers(0, 60_000, (*SIZE, 1)).astype(np.uint16)
        dataset.add_frame(
            {"observation.images.depth": metres, "observation.images.depth_mm": millimetres, "task": "measure"}
        )
    dataset.save_episode()
    dataset.finalize()


if __name__ == "__main__":
    main()
