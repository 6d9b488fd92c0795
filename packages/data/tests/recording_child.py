# SPDX-License-Identifier: Apache-2.0
"""A recorder that is killed by the durability test: prints the number of each episode that it was told is stored."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from ulna.data import LeRobotDataset, RGBEncoderConfig


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main() -> None:
    root, episodes = Path(sys.argv[1]), int(sys.argv[2])
    encoder = RGBEncoderConfig(vcodec="h264", preset="ultrafast")
    if (root / "meta/info.json").exists():
        dataset = LeRobotDataset.resume("lab/killed", root, rgb_encoder=encoder)
    else:
        features = {
            "state": {"dtype": "float32", "shape": (3,), "names": None},
            "cam": {"dtype": "video", "shape": (48, 64, 3), "names": ["height", "width", "channels"]},
            "still": {"dtype": "image", "shape": (8, 8, 3), "names": ["height", "width", "channels"]},
        }
        dataset = LeRobotDataset.create("lab/killed", 30, features, root, rgb_encoder=encoder)
    say("ready", dataset.num_episodes)
    for _ in range(episodes):
        number = dataset.num_episodes
        for frame in range(2 + number % 4):
            dataset.add_frame(
                {
                    "state": np.full(3, 100 * number + frame, np.float32),
                    "cam": np.full((48, 64, 3), 20 * (number % 12), np.uint8),
                    "still": np.full((8, 8, 3), number % 256, np.uint8),
                    "task": "go",
                }
            )
        dataset.save_episode()
        say("stored", number)
    dataset.finalize()
    say("finalized")


if __name__ == "__main__":
    main()
