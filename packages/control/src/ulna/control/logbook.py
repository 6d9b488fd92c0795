# SPDX-License-Identifier: Apache-2.0
"""How each recorded episode went, kept beside the dataset: true rate, late ticks, stale pictures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["LOGBOOK_FILE", "EpisodeReport", "append_report", "ranges", "read_reports"]

LOGBOOK_FILE = Path("meta", "ulna_recording.jsonl")
"""Where the reports lie inside a dataset: one JSON object a line. ulna-data writes a line of its own for each episode
it stores, with the true times of the frames; lines of one episode complete each other."""


@dataclass(frozen=True)
class EpisodeReport:
    """How one episode was recorded.

    Attributes:
        episode_index: Its number in the dataset.
        frames: Frames saved.
        fps: The rate the dataset declares.
        measured_fps: The rate really reached.
        duration_s: From the first frame to the last.
        overruns: Ticks whose work took longer than a period.
        skipped: Whole periods left out.
        ended_by: `time`, `end key`, `stop key` or `camera lost`.
        save_s: How long saving held up the session, seconds.
        stale_frames: Camera to ranges [first, last] of frames whose picture was stale.
        success: Verdict on a policy's episode; None where nobody judged.
    """

    episode_index: int
    frames: int
    fps: float
    measured_fps: float
    duration_s: float
    overruns: int = 0
    skipped: int = 0
    ended_by: str = "time"
    save_s: float = 0.0
    stale_frames: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    success: bool | None = None

    @property
    def slow(self) -> bool:
        """Whether it ran more than 3 % below the declared rate, so that its timestamps are wrong by as much."""
        return self.frames > 1 and self.measured_fps < 0.97 * self.fps


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Join ascending numbers to ranges.

    Args:
        numbers: Ascending integers.

    Returns:
        (first, last) of each run of neighbours.

    Example:
        >>> ranges([1, 2, 3, 7])
        [(1, 3), (7, 7)]
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def append_report(root: Path, report: EpisodeReport) -> None:
    """Add one line, flushed to disk.

    Args:
        root: Folder of the dataset.
        report: How the episode went.
    """
    path = root / LOGBOOK_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(report)) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_reports(root: Path) -> list[EpisodeReport]:
    """Read the reports of a dataset; a line cut off by a crash is left out.

    Args:
        root: Folder of the dataset.

    Returns:
        One report an episode, oldest first; none when it was recorded by other software.
    """
    path = root / LOGBOOK_FILE
    if not path.is_file():
        return []
    known, reports = EpisodeReport.__dataclass_fields__, []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if "ended_by" not in data:
            continue
        data["stale_frames"] = {k: [(a, b) for a, b in v] for k, v in data["stale_frames"].items()}
        reports.append(EpisodeReport(**{key: value for key, value in data.items() if key in known}))
    return reports
