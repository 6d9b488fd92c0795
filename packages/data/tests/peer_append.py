# SPDX-License-Identifier: Apache-2.0
"""Run by an interpreter that has LeRobot: appends one episode to a dataset that we wrote."""

from __future__ import annotations

import sys

import numpy as np
from lerobot.configs.video import RGBEncoderConfig
from lerobot.datasets.lerobot_dataset import LeRobotDataset


def main() -> None:
    root, episode, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dataset = LeRobotDataset.resume("a/b", root=root, rgb_encoder=RGBEncoderConfig(vcodec="h264"))
    for i in range(length):
        frame = {
            "observation.state": np.full(6, 1000 * episode + i, np.float32),
            "action": np.arange(6, dtype=np.float32) + 1000 * episode + i,
            "task": f"peer task {episode}",
        }
        for key in dataset.meta.camera_keys:
            frame[key] = np.full(dataset.features[key]["shape"], 10 * i, np.uint8)
        dataset.add_frame(frame)
    dataset.save_episode()
    dataset.finalize()


if __name__ == "__main__":
    main()
