# SPDX-License-Identifier: Apache-2.0
"""What is logged can be read back from the file, with its names and times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rerun.chunk import RrdReader

from ulna.core.errors import ConfigError
from ulna.core.trackers import TrackerConfig, make_tracker
from ulna.testing import PackagingSuite
from ulna.trackers.rerun import RerunTracker, RerunTrackerConfig


def entities(file: Path) -> dict[str, dict[str, list[Any]]]:
    """Return entity to column to values."""
    found: dict[str, dict[str, list[Any]]] = {}
    for chunk in RrdReader(str(file)).stream():
        batch = chunk.to_record_batch()
        columns = found.setdefault(chunk.entity_path, {})
        for name in batch.schema.names:
            columns.setdefault(name, []).extend(batch.column(name).to_pylist())
    return found


def test_a_file_holds_what_was_logged(tmp_path: Path) -> None:
    """Numbers, pictures, depth and texts, each at its step and time; the file appears at the end."""
    file = tmp_path / "new" / "run.rrd"
    config = TrackerConfig.choose({"type": "rerun", "file": str(file)})
    picture = np.full((8, 12, 3), 200, np.uint8)
    with make_tracker(config, "a run") as tracker:
        assert isinstance(tracker, RerunTracker)
        for step in range(3):
            values = {"observation.state/gripper.pos": 1.5 * step, "camera": picture, "odd": object()}
            tracker.log(values, step=step, time_s=step / 10)
        tracker.log({"task": "pick", "depth": np.ones((8, 12), np.float32), "done": np.bool_(True)}, step=3)
        assert not file.exists()
    tracker.finish()
    assert [path.name for path in file.parent.iterdir()] == ["run.rrd"]
    found = entities(file)
    scalars = found["/observation.state/gripper.pos"]
    assert scalars["Scalars:scalars"] == [[0.0], [1.5], [3.0]]
    assert scalars["step"] == [0, 1, 2]
    assert [time.total_seconds() for time in scalars["time"]] == [0.0, 0.1, 0.2]
    assert "log_time" not in scalars
    assert found["/camera"]["EncodedImage:media_type"][0] == ["image/jpeg"]
    assert found["/task"]["TextDocument:text"] == [["pick"]]
    assert found["/depth"]["DepthImage:meter"] == [[1.0]]
    assert found["/done"]["Scalars:scalars"] == [[1.0]]
    assert "/odd" not in found


def test_exact_pictures(tmp_path: Path) -> None:
    """Without compression every value of a picture is kept."""
    picture = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    with RerunTracker(RerunTrackerConfig(file=tmp_path / "run.rrd", jpeg_quality=None), "run") as tracker:
        tracker.log({"camera": picture}, step=0)
    (stored,) = entities(tmp_path / "run.rrd")["/camera"]["Image:buffer"]
    assert bytes(stored[0]) == picture.tobytes()


def test_one_place_only() -> None:
    """A file or a viewer."""
    with pytest.raises(ConfigError, match="not both"):
        RerunTrackerConfig(file=Path("a.rrd"), url="rerun+http://127.0.0.1:9876/proxy")


class TestRerunPackaging(PackagingSuite):
    """Its distribution."""

    vendor_modules = ("rerun",)

    @pytest.fixture
    def distribution(self) -> str:
        """Its name."""
        return "ulna-trackers-rerun"
