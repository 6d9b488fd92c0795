# SPDX-License-Identifier: Apache-2.0
"""Run by an interpreter that has LeRobot: deletes one episode of a dataset into a new folder."""

from __future__ import annotations

import sys

from lerobot.datasets.dataset_tools import delete_episodes
from lerobot.datasets.lerobot_dataset import LeRobotDataset


def main() -> None:
    root, target, episode = sys.argv[1:]
    delete_episodes(LeRobotDataset("a/b", root=root), [int(episode)], output_dir=target, repo_id="a/c")


if __name__ == "__main__":
    main()
