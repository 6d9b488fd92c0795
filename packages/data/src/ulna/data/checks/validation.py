# SPDX-License-Identifier: Apache-2.0
"""`validate`: runs every check on a dataset and collects what they find. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ulna.data.checks.contents import read_contents
from ulna.data.checks.episode_checks import check_counters, check_episodes, check_tasks
from ulna.data.checks.folder_checks import check_leftovers, check_stats, check_strangers
from ulna.data.checks.report import Report
from ulna.data.checks.row_checks import check_rows
from ulna.data.checks.sketch_checks import check_sketches
from ulna.data.checks.value_checks import check_values
from ulna.data.checks.video_checks import check_videos
from ulna.data.location import find_root

__all__ = ["validate"]


def validate(
    dataset: str | Path,
    root: str | Path | None = None,
    *,
    deep: bool = False,
    progress: Callable[[str], None] = lambda name: None,
) -> Report:
    """Check every invariant of a dataset: metadata, rows, videos, statistics, leftovers. Nothing is changed.

    Args:
        dataset: `user/name`, or the folder of a dataset.
        root: Its folder, if it is not found by name.
        deep: Whether every picture and every frame of the videos is decoded, which takes as long as that takes.
        progress: Called with the name of each file before it is read.

    Returns:
        What was found.

    Raises:
        DatasetError: The dataset is not on this machine.
    """
    folder = Path(dataset) if root is None and Path(dataset).is_dir() else root
    found = find_root(str(dataset), folder)
    report = Report(found)
    check_leftovers(found, report)
    contents = read_contents(found, report)
    if contents is None:
        return report
    check_counters(contents, report)
    check_tasks(contents, report)
    check_episodes(contents, report)
    facts = check_rows(contents, report, deep=deep, progress=progress)
    check_videos(contents, report, deep=deep, progress=progress)
    check_values(contents, report, facts, check_stats(contents, report))
    check_sketches(contents, report)
    check_strangers(contents, report)
    return report
