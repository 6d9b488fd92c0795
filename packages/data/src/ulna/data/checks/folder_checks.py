# SPDX-License-Identifier: Apache-2.0
"""Invariants of the folder and of the statistics: leftovers, files nobody refers to, numbers that cannot be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetFormatError
from ulna.data.checks.contents import Contents
from ulna.data.checks.report import Report
from ulna.data.editing.replacement import leftovers
from ulna.data.features import Feature
from ulna.data.layout import STATS_PATH
from ulna.data.stats import QUANTILES, Stats, stats_from_json
from ulna.data.workspace import Workspace

__all__ = ["check_leftovers", "check_stats", "check_strangers", "impossible"]


def check_leftovers(root: Path, report: Report) -> None:
    """Look for an open or interrupted recording or edit, and pictures that a recording left behind.

    Args:
        root: Folder of the dataset.
        report: Where problems go.
    """
    workspace, mend = Workspace(root), f"ulna dataset repair {root}"
    if workspace.has_journal:
        report.add("swap", "Files were being swapped in when the program stopped.", "warning", remedy=mend)
    try:
        mark = workspace.mark()
    except DatasetFormatError as error:
        report.add("mark", error.message, "warning", remedy=error.hint)
        mark = None
    for episode in workspace.unfinished_episodes():
        report.add(
            "unfinished",
            "It was being recorded when the program stopped, and is not part of the dataset.",
            "warning",
            episode=episode,
            remedy=f"ulna dataset repair {root} --recover",
        )
    if mark is not None:
        report.add(
            "not-finalized",
            f"A recording is open or was interrupted; from episode {mark.first_episode} on each has files of its own.",
            "warning",
            remedy=mend,
        )
    for folder in leftovers(root):
        what = "A new version of the dataset" if folder.name.endswith("-new") else "What"
        report.add(
            "edit-leftover",
            f"{what} that an interrupted edit left behind lies in {folder}; the dataset itself is whole.",
            "note",
            remedy=f"rm -r {folder}",
        )
    staged = root / "images"
    if staged.is_dir() and any(staged.rglob("*.png")):
        report.add("staging", "Pictures that a recording left behind lie in images/.", "note", remedy=f"rm -r {staged}")


def check_strangers(contents: Contents, report: Report) -> None:
    """Look for data and video files that no episode points at.

    Args:
        contents: The dataset.
        report: Where problems go.
    """
    root, info = contents.root, contents.info
    known = {file.path(root, info.data_path) for file in contents.rows_of("data")}
    for key in info.video_keys:
        known |= {file.path(root, info.video_template, key) for file in contents.rows_of(f"videos/{key}")}
    for folder in ("data", "videos"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path not in known and path.suffix in {".parquet", ".mp4", ".tmp"}:
                size = path.stat().st_size
                report.add("stranger", f"No episode points at the file ({size / 1e6:.1f} MB).", "note", path=path)


def check_stats(contents: Contents, report: Report) -> Stats:
    """Check `stats.json` for features it lacks, shapes, counts and values that cannot be.

    Args:
        contents: The dataset.
        report: Where problems go.

    Returns:
        What the file says; nothing where it is missing or not valid.
    """
    path = contents.root / STATS_PATH
    mend = f"ulna dataset repair {contents.root}"
    report.files += 1
    if not path.exists():
        if len(contents.episodes):
            report.add(
                "stats-missing", "There are no statistics; training normalises with them.", "warning", remedy=mend
            )
        return {}
    try:
        stats = stats_from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        report.add("stats-unusable", f"The file is not valid: {error}", path=path, remedy=mend)
        return {}
    for name, feature in contents.info.features.items():
        if name in stats:
            for problem in impossible(feature, stats[name], int(contents.lengths.clip(0).sum())):
                report.add("stats-wrong", f"{name!r}: {problem}.", "warning", path=path, remedy=mend)
        elif feature.is_numeric or feature.is_camera:
            report.add("stats-missing", f"There are no statistics of {name!r}.", "warning", path=path, remedy=mend)
    for name in stats.keys() - contents.info.features.keys():
        report.add("stats-stale", f"There are statistics of {name!r}, which is no feature.", "note", path=path)
    return stats


def impossible(feature: Feature, stats: Mapping[str, npt.NDArray[Any]], frames: int) -> list[str]:
    """Say what cannot be true of statistics.

    Args:
        feature: The feature.
        stats: Its statistics in `stats.json`.
        frames: Frames of the dataset.
    """
    needed = [key for key in ("min", "max", "mean", "std", "count") if key not in stats]
    if needed:
        return [f"{' and '.join(needed)} missing"]
    found = []
    values = {key: np.asarray(value, dtype=np.float64) for key, value in stats.items()}
    wanted = (feature.hwc[2], 1, 1) if feature.is_camera else (feature.shape[-1] if feature.shape else 1,)
    for key in ("min", "max", "mean", "std", *(q for q in QUANTILES if q in values)):
        if values[key].shape != wanted:
            found.append(f"{key} has the shape {values[key].shape}, expected {wanted}")
        elif not np.isfinite(values[key]).all():
            found.append(f"{key} is not finite")
    if found:
        return found
    slack = 1e-6 + 1e-5 * np.maximum(np.abs(values["min"]), np.abs(values["max"]))
    if (values["min"] > values["max"]).any():
        found.append("min is above max")
    elif ((values["mean"] < values["min"] - slack) | (values["mean"] > values["max"] + slack)).any():
        found.append("mean is outside min and max")
    if (values["std"] < 0).any():
        found.append("std is negative")
    elif ((values["std"] == 0) & (values["max"] - values["min"] > slack)).any():
        found.append("std is 0 although the values differ")
    count = int(values["count"].reshape(-1)[0])
    if feature.is_numeric and count != frames and not (feature.name == "action" and count > frames):
        # Statistics of actions relative to the state count every action of every chunk.
        found.append(f"count is {count}, the dataset has {frames} frames")
    return found
