# SPDX-License-Identifier: Apache-2.0
"""Run by an interpreter that has LeRobot: records a dataset with a moving picture, and tells what was recorded."""

from __future__ import annotations

import json
import sys

import numpy as np
from lerobot.configs.video import RGBEncoderConfig
from lerobot.datasets.lerobot_dataset import LeRobotDataset

JOINTS = [f"joint_{i}.pos" for i in range(6)]
HEIGHT, WIDTH = 48, 64


def picture(shift: int) -> np.ndarray:
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return np.stack([4 * rows, 3 * columns, (rows + columns + 16 * shift) % 256], axis=-1).astype(np.uint8)


def main() -> None:
    target, request = sys.argv[1], json.loads(sys.argv[2])
    vector = {"dtype": "float32", "shape": (6,), "names": JOINTS}
    features = {"observation.state": vector, "action": vector}
    codec = request["codec"]
    if codec is not None:
        camera = {"dtype": "image" if codec == "png" else "video", "shape": (HEIGHT, WIDTH, 3)}
        features["observation.images.cam"] = {**camera, "names": ["height", "width", "channels"]}
    encoder = {} if codec in (None, "png") else {"rgb_encoder": RGBEncoderConfig(vcodec=codec)}
    dataset = LeRobotDataset.create("a/b", 30, features, root=request["root"], robot_type="so101_follower", **encoder)
    states, number = [], 0
    for episode, length in enumerate(request["lengths"]):
        for _ in range(length):
            state = np.sin(np.arange(6) + 0.1 * number).astype(np.float32)
            frame = {"observation.state": state, "action": state[::-1].copy(), "task": f"task {episode % 2}"}
            if codec is not None:
                frame["observation.images.cam"] = picture(number)
            dataset.add_frame(frame)
            states.append(state)
            number += 1
        dataset.save_episode()
    dataset.finalize()
    np.savez(target, facts=np.array("{}"), states=np.stack(states))


if __name__ == "__main__":
    main()
