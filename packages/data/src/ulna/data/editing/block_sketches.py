# SPDX-License-Identifier: Apache-2.0
"""Sketches of the episodes of a block: known ones where they fit, those of number columns made from the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ulna.data.arrow_schema import numeric_column
from ulna.data.editing.blocks import EpisodeBlock
from ulna.data.editing.stats_columns import RENUMBERED
from ulna.data.features import Feature
from ulna.data.moments import array_summary
from ulna.data.quantiles import EpisodeSketches
from ulna.data.sketches import fitting_sketches
from ulna.data.stats import Stats

__all__ = ["block_sketches"]


def block_sketches(
    block: EpisodeBlock, table: pa.Table, features: Mapping[str, Feature], stats: Sequence[Stats]
) -> list[EpisodeSketches]:
    """Return the sketches of each episode. Cameras have one only where it is known.

    Args:
        block: The episodes.
        table: Their rows under their new numbers.
        features: All features.
        stats: Statistics of each episode.
    """
    given = block.sketches or [None] * len(block)
    kept = [{name: s for name, s in (known or {}).items() if name not in RENUMBERED} for known in given]
    sketches = [fitting_sketches(of_episode, known) for of_episode, known in zip(stats, kept, strict=True)]
    for feature in features.values():
        if feature.is_numeric:
            _add_missing(sketches, feature, table, block)
    return sketches


def _add_missing(sketches: Sequence[EpisodeSketches], feature: Feature, table: pa.Table, block: EpisodeBlock) -> None:
    todo = [i for i, known in enumerate(sketches) if feature.name not in known]
    if not todo:
        return
    values = numeric_column(feature, table[feature.name], "the rows").reshape(len(table), *feature.shape)
    starts, lengths = block.starts, block.lengths
    for i in todo:
        sketches[i][feature.name] = array_summary(values[starts[i] : starts[i] + lengths[i]])[1]
