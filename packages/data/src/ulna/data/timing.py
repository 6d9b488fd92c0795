# SPDX-License-Identifier: Apache-2.0
"""How fast each episode was really recorded, kept beside the dataset in a file that LeRobot does not read."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from ulna.core.files import fsync_dir

__all__ = [
    "RECORDING_LOG",
    "TOLERATED_SHARE",
    "Clock",
    "EpisodeTiming",
    "append_log",
    "log_timing",
    "read_log",
    "read_timings",
    "summary",
]

RECORDING_LOG: Final = "meta/ulna_recording.jsonl"
"""One JSON object a line; lines of one `episode_index` complete each other, the later one wins."""

TOLERATED_SHARE: Final = 0.03
"""Share by which the measured rate may differ from the declared one before it is worth a warning."""

Clock = Literal["caller", "arrival"]


@dataclass(frozen=True)
class EpisodeTiming:
    """The true times of the frames of one episode, in short.

    Attributes:
        frames: Number of frames.
        duration_s: From the first frame to the last.
        measured_fps: Frames per second over that time; None for a single frame or a clock that stood still.
        worst_gap_s: Longest time between two frames.
        clock: `caller` when the times came with the frames, `arrival` when they are those of the calls.
        dropped: Frames that were refused in between, because an encoder was too slow.
    """

    frames: int
    duration_s: float
    measured_fps: float | None
    worst_gap_s: float
    clock: Clock = "arrival"
    dropped: int = 0

    @classmethod
    def of(cls, times_s: Sequence[float], clock: Clock, dropped: int = 0) -> EpisodeTiming:
        """Summarise the times of an episode.

        Args:
            times_s: When each frame was taken.
            clock: Where the times come from.
            dropped: Frames that were refused.
        """
        gaps = [after - before for before, after in itertools.pairwise(times_s)]
        duration = times_s[-1] - times_s[0] if times_s else 0.0
        fps = len(gaps) / duration if duration > 0 and math.isfinite(duration) else None
        return cls(len(times_s), duration, fps, max(gaps, default=0.0), clock, dropped)

    def differs_from(self, fps: float) -> bool:
        """Say whether the episode ran at another rate than the dataset declares, by more than is tolerated.

        Always False where only the times of the calls are known: frames that are copied come as fast as they can.

        Args:
            fps: The declared rate.
        """
        if self.clock != "caller" or self.measured_fps is None:
            return False
        return abs(self.measured_fps - fps) > TOLERATED_SHARE * fps


def append_log(root: Path, line: dict[str, Any]) -> None:
    """Add a line to the log, flushed to disk.

    Args:
        root: Folder of the dataset.
        line: JSON values with an `episode_index`.

    Raises:
        OSError: The disk is full or does not answer.
    """
    path = root / RECORDING_LOG
    new = not path.exists()
    with path.open("ab") as file:
        start = file.tell()
        # A line that a crash cut off is left behind alone.
        text = ("\n" if start and not _ends_whole(path) else "") + json.dumps(line, ensure_ascii=False) + "\n"
        try:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, start)
            raise
    if new:
        fsync_dir(path.parent)


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def read_log(root: Path) -> dict[int, dict[str, Any]]:
    """Read the log; lines that a crash cut off are left out.

    Args:
        root: Folder of the dataset.

    Returns:
        Episode to what its lines say together.
    """
    path, merged = root / RECORDING_LOG, dict[int, dict[str, Any]]()
    if not path.is_file():
        return merged
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
            merged.setdefault(int(line["episode_index"]), {}).update(line)
        except (ValueError, KeyError, TypeError):
            continue
    return merged


def log_timing(root: Path, episode: int, fps: int, timing: EpisodeTiming) -> None:
    """Log how fast an episode was recorded.

    Args:
        root: Folder of the dataset.
        episode: Its number.
        fps: The declared rate.
        timing: Its timing.

    Raises:
        OSError: The disk is full or does not answer.
    """
    append_log(root, {"episode_index": episode, "fps": fps, **asdict(timing)})


def summary(timings: Mapping[int, EpisodeTiming], fps: float) -> dict[str, Any] | None:
    """Say in short how fast the episodes were recorded whose frames came with their times.

    Args:
        timings: Episode to timing.
        fps: The declared rate.

    Returns:
        Number of `episodes`, `mean_fps`, the `slowest` episode and its `slowest_fps`, the `worst_gap_s` and its
        `worst_gap_episode`, and which episodes `differ` from the declared rate; None where nothing is known.
    """
    rates = {e: t.measured_fps for e, t in timings.items() if t.clock == "caller" and t.measured_fps is not None}
    if not rates:
        return None
    slowest, worst = min(rates, key=rates.__getitem__), max(rates, key=lambda e: timings[e].worst_gap_s)
    return {
        "episodes": len(rates),
        "mean_fps": sum(timings[e].frames - 1 for e in rates) / sum(timings[e].duration_s for e in rates),
        "slowest": slowest,
        "slowest_fps": rates[slowest],
        "worst_gap_s": timings[worst].worst_gap_s,
        "worst_gap_episode": worst,
        "differ": [e for e in rates if timings[e].differs_from(fps)],
    }


def read_timings(root: Path) -> dict[int, EpisodeTiming]:
    """Return how fast each episode was recorded, as far as that is known.

    Args:
        root: Folder of the dataset.
    """
    return {episode: timing for episode, line in read_log(root).items() if (timing := _parsed(line)) is not None}


def _parsed(line: Mapping[str, Any]) -> EpisodeTiming | None:
    """Return what a line says; None where it is damaged, or of a later version."""
    try:
        given = line["measured_fps"]
        measured = None if given is None else float(given)
        duration_s, gap_s = float(line["duration_s"]), float(line["worst_gap_s"])
        frames, dropped = int(line["frames"]), int(line.get("dropped", 0))
    except (KeyError, TypeError, ValueError):
        return None
    if line.get("clock") not in get_args(Clock) or (measured is not None and not duration_s > 0):
        return None
    return EpisodeTiming(frames, duration_s, measured, gap_s, line["clock"], dropped)
