# SPDX-License-Identifier: Apache-2.0
"""`repair`: mends what `validate` finds. Every change is prepared in full and swapped in through the journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from ulna.core.constants import ACTION
from ulna.core.errors import DatasetError, DatasetFormatError
from ulna.data.checks.contents import Contents, read_contents
from ulna.data.checks.folder_checks import check_stats, impossible
from ulna.data.checks.report import Report
from ulna.data.checks.rewriting import Rewriting
from ulna.data.checks.sketch_checks import stale_sketches
from ulna.data.checks.validation import validate
from ulna.data.dataset_stats import read_row_stats
from ulna.data.editing.stats_columns import differ
from ulna.data.location import find_root
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.moments import combine_moments

__all__ = ["Repair", "repair"]

_UNREADABLE: Final = ("data-unreadable", "video-unreadable", "video-frames", "picture", "rows")
_ROWS_WRONG: Final = ("frame-index", "global-index", "timestamp")
_TABLE_WRONG: Final = (
    "row-pointer",
    "episode-order",
    "episodes-schemas",
    "episode-range",
    "episode-tasks",
    "video-span",
)
_TOTALS_WRONG: Final = ("counter", "split")
_NUMBERS_WRONG: Final = ("episode-missing", "episode-twice", "episodes-missing")
_STATS_WRONG: Final = ("stats-missing", "stats-unusable", "stats-wrong", "stats-differ", "sketch-stale")


@dataclass
class Repair:
    """What was done to a dataset.

    Attributes:
        root: Its folder.
        steps: What was done, in words; with `dry_run` what would be.
        before: The check before.
        after: The check afterwards; the same as `before` with `dry_run`.
    """

    root: Path
    before: Report
    after: Report
    steps: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {
            "root": str(self.root),
            "steps": self.steps,
            "before": self.before.to_json(),
            "after": self.after.to_json(),
        }


def repair(
    dataset: str | Path,
    root: str | Path | None = None,
    *,
    recover: bool = False,
    drop_broken: bool = False,
    renumber: bool = False,
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda name: None,
) -> Repair:
    """Mend a dataset as far as nothing is lost; the options allow more.

    Args:
        dataset: `user/name`, or the folder of a dataset.
        root: Its folder, if it is not found by name.
        recover: Whether the episode that was being recorded is kept up to its last whole frame.
        drop_broken: Whether episodes whose files are missing or damaged are deleted.
        renumber: Whether gaps in the episode numbers are closed.
        dry_run: Whether nothing is changed.
        progress: Called with the name of each file before it is read.

    Returns:
        What was done, and the checks before and after.

    Raises:
        DatasetError: The dataset is not on this machine, or a recording into it is open.
    """
    folder = Path(dataset) if root is None and Path(dataset).is_dir() else root
    found = find_root(str(dataset), folder)
    before = validate(str(dataset), found, progress=progress)
    work = _Mending(found, before, progress, dry_run=dry_run)
    try:
        work.finish_recording(recover=recover)
        work.renumber(wanted=renumber)
        work.mend_tables()
        work.drop_broken(wanted=drop_broken)
        work.mend_statistics()
    except OSError as error:
        raise DatasetError(
            f"{found} could not be mended: {error}. Nothing is lost.",
            hint="Free some space or make the folder writable, then try again.",
        ) from error
    after = before if dry_run else validate(str(dataset), found, progress=progress)
    return Repair(found, before, after, work.steps)


class _Mending:
    """The steps of one repair, in order. Each looks at the dataset anew: the step before may have changed it."""

    def __init__(self, root: Path, report: Report, progress: Callable[[str], None], *, dry_run: bool) -> None:
        self.root, self.report, self.progress, self.dry_run = root, report, progress, dry_run
        self.steps: list[str] = []

    def _has(self, codes: Sequence[str]) -> bool:
        return any(self.report.counts[code] for code in codes)

    def _look_again(self) -> None:
        if not self.dry_run:
            self.report = validate(str(self.root), self.root, progress=self.progress)

    def finish_recording(self, *, recover: bool) -> None:
        """Carry out an interrupted swap, keep or leave the unfinished episode, join the files of single episodes."""
        if not self._has(("swap", "unfinished", "not-finalized", "mark")):
            return
        from ulna.data.recovery import finalize_interrupted, find_unfinished, recover_episodes

        unfinished = [left for left in find_unfinished(self.root) if left.frames]
        if unfinished and recover:
            frames = {left.episode: left.frames for left in unfinished}
            self.steps += [f"recover {n} frames of episode {e}" for e, n in frames.items()]
            if not self.dry_run:
                recover_episodes(self.root)
        if unfinished and not recover:
            self.steps.append("leave the unfinished episode where it is: --recover keeps its frames as an episode")
            return
        self.steps.append("finish the interrupted recording")
        if not self.dry_run:
            finalize_interrupted(self.root)
        self._look_again()

    def renumber(self, *, wanted: bool) -> None:
        """Close gaps in the episode numbers."""
        if not self._has(("episode-missing",)) or not wanted:
            return
        self.steps.append("close the gaps in the episode numbers")
        if self.dry_run:
            return
        with Rewriting(self.root) as swap:
            contents = _contents(self.root)
            order = np.argsort(contents.numbers, kind="stable")
            new = {int(contents.numbers[row]): place for place, row in enumerate(order)}
            swap.rewrite_rows(contents, new)
            swap.rewrite_table(contents, new)
            swap.rewrite_info(contents)
        self._look_again()

    def mend_tables(self) -> None:
        """Correct index columns and times of the rows, pointers and ranges of the episode table, and the counters."""
        rows, table = self._has(_ROWS_WRONG), self._has(_TABLE_WRONG)
        totals = table or self._has(_TOTALS_WRONG)
        lost = ("rows", "rows-of-others", "episode-missing", "episode-twice", "episodes-missing", "data-unreadable")
        if (rows or table) and self._has(lost):
            return  # rows and episodes do not belong together: nothing may be derived from either
        self.steps += ["correct index columns and times of the rows"] * rows
        self.steps += ["correct pointers, ranges and tasks of the episode table"] * table
        self.steps += ["correct the counters of info.json"] * totals
        if self.dry_run or not (rows or totals):
            return
        with Rewriting(self.root) as swap:
            contents = _contents(self.root)
            same = {int(number): int(number) for number in contents.numbers}
            if rows:
                swap.rewrite_rows(contents, same)
            if table:
                swap.rewrite_table(contents, same)
            swap.rewrite_info(contents)
        self._look_again()

    def drop_broken(self, *, wanted: bool) -> None:
        """Delete episodes that cannot be read."""
        broken = sorted(self._broken()) if wanted else []
        if not broken:
            return
        self.steps.append(f"delete the episodes {broken}, which cannot be read")
        if self.dry_run:
            return
        from ulna.data.editing import delete_episodes

        delete_episodes(self.root, broken)
        self._look_again()

    def _broken(self) -> set[int]:
        """Episodes with a problem that no reader gets around; a file that is lost takes all of its episodes along."""
        contents = _contents(self.root)
        prefixes = {"data-unreadable": ["data"], "video-unreadable": [f"videos/{k}" for k in contents.info.video_keys]}
        broken: set[int] = set()
        for problem in self.report.problems:
            if problem.code in _UNREADABLE and problem.episode is not None:
                broken.add(problem.episode)
                for prefix in prefixes.get(problem.code, []):
                    broken |= _same_file(contents, prefix, problem.path)
        return broken

    def mend_statistics(self) -> None:
        """Compute statistics and sketches anew where they are missing, cannot be true or do not belong together.

        Statistics of actions that somebody put into `stats.json`, as of relative ones, stay.
        """
        if not self._has(_STATS_WRONG) or self._has((*_UNREADABLE, *_NUMBERS_WRONG)):
            return
        self.steps.append("compute the statistics anew")
        if self.dry_run:
            return
        from ulna.data.editing.recompute import plan_recompute

        keep = [ACTION] if self._has_other_actions() else []
        plan_recompute(self.root, skip_image_video=not self._lacks_pictures(), keep=keep).carry_out()
        self._look_again()

    def _has_other_actions(self) -> bool:
        """Whether the actions in `stats.json` are others than the episode table tells, and could be true."""
        contents = _contents(self.root)
        recorded = check_stats(contents, Report(self.root)).get(ACTION)
        feature = contents.info.features.get(ACTION)
        if recorded is None or feature is None or impossible(feature, recorded, int(contents.lengths.sum())):
            return False
        files = dict.fromkeys(contents.row_files)
        stated = [stats[ACTION] for file in files for stats in read_row_stats(file, ACTION).values() if ACTION in stats]
        return bool(stated) and differ(recorded, combine_moments(stated))

    def _lacks_pictures(self) -> bool:
        """Whether statistics of a camera are missing, or its sketches stale; that asks for decoding its pictures."""
        meta = LeRobotDatasetMetadata(str(self.root), self.root, check_files=False)
        try:
            stats = meta.stats or {}
        except DatasetFormatError:
            return True
        if any(key not in stats for key in meta.camera_keys):
            return True
        return any(stale.feature in meta.camera_keys for stale in stale_sketches(_contents(self.root)))


def _same_file(contents: Contents, prefix: str, path: Path | None) -> set[int]:
    template = contents.info.data_path if prefix == "data" else contents.info.video_template
    key = prefix.removeprefix("videos/")
    rows = (
        row
        for file, rows in contents.rows_of(prefix).items()
        if path is not None and file.path(contents.root, template, key) == contents.root / path
        for row in rows
    )
    return {int(contents.numbers[row]) for row in rows}


def _contents(root: Path) -> Contents:
    contents = read_contents(root, Report(root))
    if contents is None:
        raise DatasetError(f"{root} has no usable meta/info.json; restore it first.")
    return contents
