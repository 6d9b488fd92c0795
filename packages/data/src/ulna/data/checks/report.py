# SPDX-License-Identifier: Apache-2.0
"""What a check of a dataset found: problems with episode, frame, file and the command that mends them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

__all__ = ["Problem", "Report", "Severity"]

Severity = Literal["error", "warning", "note"]

_SHOWN_OF_A_KIND: Final = 20


@dataclass(frozen=True)
class Problem:
    """One thing that is not as the format says.

    Attributes:
        code: Short name of the kind, stable between versions.
        message: What, with the value found and the value expected.
        severity: `error`: items are wrong or cannot be read; `warning`: something is lost, or LeRobot would stumble;
            `note`: harmless.
        episode: The episode concerned, if one.
        frame: The frame inside the episode, if one.
        path: The file concerned, relative to the dataset, if one.
        remedy: A command that mends it, or what to do.
    """

    code: str
    message: str
    severity: Severity = "error"
    episode: int | None = None
    frame: int | None = None
    path: Path | None = None
    remedy: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the problem as plain values."""
        return {
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "episode": self.episode,
            "frame": self.frame,
            "path": None if self.path is None else str(self.path),
            "remedy": self.remedy,
        }


@dataclass
class Report:
    """Everything a check found. Filled by the checks; read by commands and the page.

    Attributes:
        root: Folder of the dataset.
        problems: What was found, in the order of the checks; at most 20 of one kind.
        counts: Kind to the number found, those left out of `problems` included.
        episodes: Episodes looked at.
        frames: Frames looked at.
        files: Files looked at.
    """

    root: Path
    problems: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    severities: Counter[str] = field(default_factory=Counter)
    episodes: int = 0
    frames: int = 0
    files: int = 0

    def add(
        self,
        code: str,
        message: str,
        severity: Severity = "error",
        *,
        episode: int | None = None,
        frame: int | None = None,
        path: Path | None = None,
        remedy: str | None = None,
    ) -> None:
        """Take note of a problem.

        Args:
            code: Its kind.
            message: What, with values.
            severity: `error`, `warning` or `note`.
            episode: The episode concerned.
            frame: The frame concerned.
            path: The file concerned.
            remedy: What to do, best a command.
        """
        self.counts[code] += 1
        self.severities[severity] += 1
        if self.counts[code] <= _SHOWN_OF_A_KIND:
            if path is not None and path.is_absolute() and path.is_relative_to(self.root):
                path = path.relative_to(self.root)
            self.problems.append(Problem(code, message, severity, episode, frame, path, remedy))

    @property
    def is_sound(self) -> bool:
        """Whether there is no error."""
        return self.severities["error"] == 0

    @property
    def left_out(self) -> dict[str, int]:
        """Kind to the number of problems that were counted but are not in `problems`."""
        return {code: n - _SHOWN_OF_A_KIND for code, n in self.counts.items() if n > _SHOWN_OF_A_KIND}

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "root": str(self.root),
            "sound": self.is_sound,
            "episodes": self.episodes,
            "frames": self.frames,
            "files": self.files,
            "errors": self.severities["error"],
            "warnings": self.severities["warning"],
            "notes": self.severities["note"],
            "problems": [problem.to_json() for problem in self.problems],
            "left_out": self.left_out,
        }
