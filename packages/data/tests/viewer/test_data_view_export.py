# SPDX-License-Identifier: Apache-2.0
"""An episode given to a tracker: every frame once, joints by name, pictures that fit, the task when it changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from ulna.core.errors import DatasetError
from ulna.core.trackers import Tracker, TrackerConfig
from ulna.data import LeRobotDatasetMetadata
from ulna.data.viewer.export import export_episode

CAMERA = "observation.images.cam"


class MemoryConfig(TrackerConfig):
    """Settings of the tracker below."""

    type: Literal["memory"] = "memory"


class Memory(Tracker):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__(MemoryConfig(), "run")
        self.seen: list[tuple[int, float | None, dict[str, Any]]] = []

    def log(self, values: Mapping[str, Any], *, step: int, time_s: float | None = None) -> None:
        self.seen.append((step, time_s, dict(values)))

    def finish(self) -> None:
        self.seen.clear()


def test_every_frame_of_the_episode(scene: Any, video_set: Path) -> None:
    """Values and pictures are those of the second episode, frame by frame."""
    tracker = Memory()
    assert export_episode(LeRobotDatasetMetadata("lab/set", video_set), 1, tracker) == 7
    assert [step for step, _, _ in tracker.seen] == list(range(7))
    for frame, time_s, values in tracker.seen:
        assert time_s == pytest.approx(frame / 30)
        assert values["observation.state/joint_2.pos"] == 1000 + frame
        assert values["action/joint_5.pos"] == 1005 + frame
        picture = values[CAMERA]
        assert (picture.shape, picture.dtype) == ((48, 64, 3), np.uint8)
        assert scene().number(picture.transpose(2, 0, 1)) == 64 + frame
    assert [values.get("task") for _, _, values in tracker.seen] == ["task 1", *[None] * 6]


def test_an_episode_that_is_not_there(video_set: Path) -> None:
    """It names itself."""
    with pytest.raises(DatasetError, match="There is no episode 2"):
        export_episode(LeRobotDatasetMetadata("lab/set", video_set), 2, Memory())
