# SPDX-License-Identifier: Apache-2.0
"""Trackers are chosen by type, made from their settings, and finished on every way out of a `with` block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest

from ulna.core.errors import ConfigError
from ulna.core.trackers import Tracker, TrackerConfig, make_tracker


class Memory(Tracker):
    """Keeps what it is given."""

    def __init__(self, config: TrackerConfig, run: str) -> None:
        super().__init__(config, run)
        self.seen: list[tuple[int, float | None, dict[str, Any]]] = []
        self.finished = 0

    def log(self, values: Mapping[str, Any], *, step: int, time_s: float | None = None) -> None:
        self.seen.append((step, time_s, dict(values)))

    def finish(self) -> None:
        self.finished += 1


class MemoryConfig(TrackerConfig):
    """Its settings."""

    type: Literal["memory"] = "memory"

    @classmethod
    def load_implementation(cls) -> Any:
        return Memory


def test_a_tracker_is_made_and_finished() -> None:
    """The run's name and the settings arrive; an error inside still completes the run."""
    tracker = make_tracker(MemoryConfig(), "episode 3")
    assert isinstance(tracker, Memory)
    assert (tracker.run, tracker.config.type) == ("episode 3", "memory")

    def work() -> None:
        with tracker as entered:
            entered.log({"loss": 0.5}, step=1)
            entered.log({"state/gripper": 2}, step=2, time_s=0.5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert tracker.seen == [(1, None, {"loss": 0.5}), (2, 0.5, {"state/gripper": 2})]
    assert tracker.finished == 1


def test_an_unknown_type_names_itself() -> None:
    """It is refused as a setting that is wrong."""
    with pytest.raises(ConfigError, match=r"type: .*got 'nobody'"):
        TrackerConfig.choose({"type": "nobody"})
