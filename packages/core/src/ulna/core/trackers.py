# SPDX-License-Identifier: Apache-2.0
"""The tracker contract: where figures, pictures and texts of a run or of an episode go, live or into a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Self

from ulna.core.config import PluginConfig

__all__ = ["Tracker", "TrackerConfig", "make_tracker"]


class TrackerConfig(PluginConfig):
    """Base of every tracker's settings."""

    plugin_kind: ClassVar[str] = "trackers"
    plugin_base: ClassVar[bool] = True


class Tracker(ABC):
    """Takes values, each with its name, one instant after the other. Made by `make_tracker`; belongs to one thread.

    The constructor opens the run, `finish` (or the end of a `with` block) completes it. A name is a path: the joints of
    a state share its first part, `observation.state/gripper.pos`, and a tracker may show them together.

    Args:
        config: Settings.
        run: Name of what is tracked: a training run, or an episode of a dataset.
    """

    def __init__(self, config: TrackerConfig, run: str) -> None:
        self.config, self.run = config, run

    @abstractmethod
    def log(self, values: Mapping[str, Any], *, step: int, time_s: float | None = None) -> None:
        """Take the values of one instant.

        Args:
            values: Name to a number, a picture (uint8, H×W×3), a depth map (float, H×W, metres) or a text. A tracker
                leaves out what it has no use for.
            step: Running number: a training step, a frame.
            time_s: Seconds since the beginning, where there is a time.
        """

    @abstractmethod
    def finish(self) -> None:
        """Complete the run, so that nothing is lost; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()


def make_tracker(config: TrackerConfig, run: str) -> Tracker:
    """Make the tracker that settings describe.

    Args:
        config: Settings, `TrackerConfig.choose({"type": ...})`.
        run: Name of what is tracked.

    Returns:
        The tracker, open.

    Raises:
        PluginLoadError: Importing the implementation failed.
        MissingDependencyError: The library it needs is not installed.
    """
    tracker: Tracker = config.load_implementation()(config, run)
    return tracker
