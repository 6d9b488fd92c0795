# SPDX-License-Identifier: Apache-2.0
"""Whether the sketches beside a dataset belong to the statistics of its episodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ulna.core.errors import DatasetFormatError
from ulna.data.checks.contents import Contents
from ulna.data.checks.report import Report
from ulna.data.checks.value_checks import difference
from ulna.data.dataset_stats import read_row_stats
from ulna.data.layout import FileId
from ulna.data.moments import FeatureStats
from ulna.data.quantiles import FeatureSketch
from ulna.data.sketch_files import SKETCHES_TEMPLATE, read_sketch_file
from ulna.data.sketches import fitting_sketches

__all__ = ["StaleSketch", "check_sketches", "stale_sketches"]

_NUMBERED: Final = ("index", "episode_index", "frame_index", "task_index")


@dataclass(frozen=True)
class StaleSketch:
    """A sketch that was made of other values than the statistics beside it.

    Attributes:
        episode: The episode.
        feature: The feature.
        path: The side file.
        difference: What the two say.
    """

    episode: int
    feature: str
    path: Path
    difference: str


def check_sketches(contents: Contents, report: Report) -> None:
    """Report sketches that do not belong to the statistics in the episode's row, as after an edit by other software.

    Args:
        contents: The dataset.
        report: Where problems go.
    """
    for stale in stale_sketches(contents):
        report.add(
            "sketch-stale",
            f"The sketch of {stale.feature!r} was made of other values than its statistics: {stale.difference}. It is "
            "not used.",
            "warning",
            episode=stale.episode,
            path=stale.path,
            remedy=f"ulna dataset repair {contents.root}",
        )


def stale_sketches(contents: Contents) -> Iterator[StaleSketch]:
    """Yield the sketches that do not belong to the statistics in the episode's row.

    Those of columns that are numbered anew by edits are left out: where LeRobot edits, their statistics stay those of
    another episode.

    Args:
        contents: The dataset. Files of the episode table that cannot be read are passed over.
    """
    for path in dict.fromkeys(contents.row_files):
        file = FileId(int(path.parent.name.removeprefix("chunk-")), int(path.stem.removeprefix("file-")))
        sketches = read_sketch_file(contents.root, file)
        if not sketches:
            continue
        try:
            stated = read_row_stats(path)
        except DatasetFormatError:
            continue
        for episode in sorted(stated.keys() & sketches.keys()):
            known = {n: s for n, s in sketches[episode].items() if n in contents.info.features and n not in _NUMBERED}
            fitting = fitting_sketches(stated[episode], known)
            for name in [name for name in known if name in stated[episode] and name not in fitting]:
                difference = _difference(known[name], stated[episode][name])
                yield StaleSketch(episode, name, file.path(contents.root, SKETCHES_TEMPLATE), difference)


def _difference(sketch: FeatureSketch, stats: FeatureStats) -> str:
    told = dict(zip(("min", "max"), sketch.extremes, strict=True))
    if sketch.moments is not None:
        told |= {"mean": sketch.moments[0], "std": sketch.moments[1]}
    return difference({**told, "count": np.array([sketch.count])}, stats)
