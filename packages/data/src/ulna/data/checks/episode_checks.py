# SPDX-License-Identifier: Apache-2.0
"""Invariants of the metadata: counters, task table, episode table. No frame is looked at."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ulna.data.checks.contents import Contents
from ulna.data.checks.report import Report
from ulna.data.layout import EPISODES_TEMPLATE, INFO_PATH, FileId

__all__ = ["check_counters", "check_episodes", "check_tasks"]


def check_counters(contents: Contents, report: Report) -> None:
    """Compare the totals of `info.json` with the episode table.

    Args:
        contents: The dataset.
        report: Where problems go.
    """
    info, mend = contents.info, f"ulna dataset repair {contents.root}"
    path = contents.root / INFO_PATH
    found = {
        "total_episodes": len(contents.episodes),
        "total_frames": int(contents.lengths.clip(0).sum()),
        "total_tasks": len(contents.tasks),
    }
    if info.total_episodes and not len(contents.episodes):
        report.add(
            "episodes-missing",
            f"info.json counts {info.total_episodes} episodes and there is no readable episode table: the recording "
            "was interrupted before its program wrote it.",
            path=path,
            remedy="record again, or restore meta/episodes from a backup",
        )
        return
    for name, value in found.items():
        if getattr(info, name) != value:
            report.add("counter", f"{name} is {getattr(info, name)}, the tables hold {value}.", path=path, remedy=mend)
    for name, span in info.splits.items():
        first, _, last = str(span).partition(":")
        if not (first.isdigit() and last.isdigit() and int(first) <= int(last) <= len(contents.episodes)):
            message = f"The split {name!r} is {span!r}; there are {len(contents.episodes)} episodes."
            report.add("split", message, "warning", path=path, remedy=mend)


def check_tasks(contents: Contents, report: Report) -> None:
    """Look for tasks that the episodes name and the task table lacks, and the other way round.

    Args:
        contents: The dataset.
        report: Where problems go.
    """
    if "tasks" not in contents.episodes.column_names:
        if len(contents.episodes):
            report.add(
                "episode-tasks",
                "The episode table has no column 'tasks'; LeRobot's edit tools need it.",
                "warning",
                remedy=f"ulna dataset repair {contents.root}",
            )
        return
    named = set()
    for row, texts in enumerate(contents.episodes["tasks"].to_pylist()):
        for text in texts or ():
            named.add(text)
            if text not in contents.tasks:
                report.add(
                    "task-unknown",
                    f"The episode has the task {text!r}, which the task table lacks.",
                    episode=int(contents.numbers[row]),
                    path=contents.row_files[row],
                )
    for text in [text for text in contents.tasks if text not in named]:
        if len(contents.episodes):
            report.add("task-unused", f"No episode has the task {text!r}.", "note")
    for text in [text for text in contents.tasks if not text.strip()]:
        report.add("task-empty", f"Task {contents.tasks[text]} is empty.", "warning")


def check_episodes(contents: Contents, report: Report) -> None:
    """Check numbers, frame ranges and file pointers of the episode table.

    Args:
        contents: The dataset.
        report: Where problems go.
    """
    if not len(contents.episodes):
        return
    report.episodes = len(contents.episodes)
    _check_numbers(contents, report)
    _check_ranges(contents, report)
    _check_own_pointers(contents, report)
    _check_spans(contents, report)


def _check_numbers(contents: Contents, report: Report) -> None:
    numbers = np.sort(contents.numbers)
    present = set(numbers.tolist())
    for number in sorted(set(range(int(numbers[-1]) + 1)) - present):
        report.add(
            "episode-missing",
            "The episode table has no row for it, so all later episodes would be taken for the one before.",
            episode=number,
            remedy=f"ulna dataset repair {contents.root} --renumber",
        )
    for number in sorted(set(numbers[1:][numbers[1:] == numbers[:-1]].tolist())):
        report.add("episode-twice", "The episode table has several rows for it.", episode=int(number))
    if not np.array_equal(numbers, contents.numbers):
        report.add(
            "episode-order",
            "The rows of the episode table are not in order; LeRobot goes by their position.",
            "warning",
            remedy=f"ulna dataset repair {contents.root}",
        )


def _check_ranges(contents: Contents, report: Report) -> None:
    order = np.argsort(contents.numbers, kind="stable")
    starts, lengths = contents.starts[order], contents.lengths[order]
    stops = contents.column("dataset_to_index")[order]
    expected = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    for row in np.flatnonzero((lengths <= 0) | (stops - starts != lengths) | (starts != expected)):
        where = int(order[row])
        if lengths[row] <= 0:
            message = f"Its length is {lengths[row]}."
        else:
            message = (
                f"It should be frames {expected[row]} to {expected[row] + lengths[row]}, "
                f"the table says {starts[row]} to {stops[row]} with length {lengths[row]}."
            )
        report.add(
            "episode-range",
            message,
            episode=int(contents.numbers[where]),
            path=contents.row_files[where],
        )


def _check_own_pointers(contents: Contents, report: Report) -> None:
    """The columns `meta/episodes/*` say in which file a row lies; LeRobot's edit tools follow them."""
    mend = f"ulna dataset repair {contents.root}"
    if "meta/episodes/file_index" not in contents.episodes.column_names:
        report.add(
            "row-pointer",
            "The columns meta/episodes/* are missing; LeRobot needs them to edit.",
            "warning",
            remedy=mend,
        )
        return
    for row, file in enumerate(contents.files("meta/episodes")):
        path = contents.row_files[row]
        if file.chunk < 0 or file.path(contents.root, EPISODES_TEMPLATE) != path:
            report.add(
                "row-pointer",
                f"meta/episodes/* name chunk {file.chunk}, file {file.file}, but the row lies in {path.name}.",
                "warning",
                episode=int(contents.numbers[row]),
                path=path,
                remedy=mend,
            )


def _check_spans(contents: Contents, report: Report) -> None:
    """Video spans must be as long as their episode and must not overlap inside a file."""
    info, numbers = contents.info, contents.numbers
    for key in info.video_keys:
        name = f"videos/{key}/from_timestamp"
        if name not in contents.episodes.column_names:
            report.add("video-columns", f"The episode table has no columns videos/{key}/*, but {key!r} is a video.")
            continue
        starts = np.asarray(contents.episodes[name].to_numpy(), dtype=np.float64)
        ends = np.asarray(contents.episodes[f"videos/{key}/to_timestamp"].to_numpy(), dtype=np.float64)
        off = np.abs(ends - starts - contents.lengths / info.fps) > 1.5 / info.fps
        for row in np.flatnonzero(off | ~np.isfinite(ends - starts)):
            report.add(
                "video-span",
                f"{key!r} lasts from {starts[row]:.4f} to {ends[row]:.4f} s, but {contents.lengths[row]} frames at "
                f"{info.fps} fps are {contents.lengths[row] / info.fps:.4f} s.",
                "warning",
                episode=int(numbers[row]),
                remedy=f"ulna dataset repair {contents.root}",
            )
        _check_overlaps(contents, report, key, starts, contents.rows_of(f"videos/{key}"))


def _check_overlaps(
    contents: Contents, report: Report, key: str, starts: np.ndarray, files: dict[FileId, list[int]]
) -> None:
    half = 0.5 / contents.info.fps
    for rows in files.values():
        rows.sort(key=lambda row: starts[row])
        for before, row in pairwise(rows):
            end = starts[before] + contents.lengths[before] / contents.info.fps
            if starts[row] < end - half:
                report.add(
                    "video-overlap",
                    f"{key!r} begins at {starts[row]:.4f} s, inside episode {contents.numbers[before]}, which "
                    f"ends at {end:.4f} s in the same file.",
                    "warning",
                    episode=int(contents.numbers[row]),
                )
