# SPDX-License-Identifier: Apache-2.0
"""Computes the statistics of a dataset anew: of its numbers, its pictures, or of actions relative to the state."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.constants import ACTION, OBS_STATE
from ulna.core.files import atomic_path, write_json
from ulna.data.arrow_schema import numeric_column
from ulna.data.editing.blocks import EpisodeBlock
from ulna.data.editing.cloning import cloned
from ulna.data.editing.measuring import camera_summary, number_summary
from ulna.data.editing.places import open_source, place_for
from ulna.data.editing.plans import EditPlan, Progress
from ulna.data.editing.relative import RelativeActions
from ulna.data.editing.selection import check_readable
from ulna.data.editing.sources import blocks
from ulna.data.editing.stats_columns import stats_of, stats_table
from ulna.data.layout import EPISODES_TEMPLATE, STATS_PATH, FileId
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.moments import QUANTILES
from ulna.data.reading_errors import readable
from ulna.data.running_stats import RunningStats
from ulna.data.sketch_files import write_sketches
from ulna.data.sketches import EpisodeSketches, merged_stats
from ulna.data.stats import Stats, stats_to_json

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = [
    "augment_dataset_with_quantiles",
    "compute_quantile_stats_for_dataset",
    "plan_quantiles",
    "plan_recompute",
    "recompute_stats",
]

_RELATIVE_POINTS: Final = 20_000


def recompute_stats(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    skip_image_video: bool = True,
    relative_action: bool = False,
    relative_exclude_joints: Sequence[str] | None = None,
    chunk_size: int = 50,
    *,
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
    progress: Progress | None = None,
) -> LeRobotDataset:
    """Compute the statistics of every episode and of the whole dataset from its rows, quantiles included.

    Args:
        dataset: The dataset: opened, or its folder or name.
        skip_image_video: Whether the statistics of cameras stay as they are; else a sample of each episode is decoded.
        relative_action: Whether `stats.json` describes the actions of chunks relative to the state at their beginning,
            for policies that predict those. The statistics of episodes stay absolute.
        relative_exclude_joints: Texts; a joint whose name contains one stays absolute.
        chunk_size: Actions of a chunk.
        output_dir: Folder of the result. None edits in place, unless `repo_id` names another dataset.
        repo_id: Name of the result.
        progress: Called with the episodes that are done and the episodes in all.

    Returns:
        The result, opened.

    Raises:
        DatasetError: The target is taken or in use, the disk is full, or relative actions are not possible.
        DatasetFormatError: Files of the dataset contradict one another; nothing was changed.
    """
    plan = plan_recompute(
        dataset,
        skip_image_video,
        relative_action,
        relative_exclude_joints,
        chunk_size,
        output_dir=output_dir,
        repo_id=repo_id,
    )
    return plan.carry_out(progress)


def plan_recompute(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    skip_image_video: bool = True,
    relative_action: bool = False,
    relative_exclude_joints: Sequence[str] | None = None,
    chunk_size: int = 50,
    *,
    keep: Sequence[str] = (),
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> EditPlan:
    """Check what `recompute_stats` is asked for. Writes nothing.

    Args:
        dataset: As there, like all that follow.
        skip_image_video: Whether the statistics of cameras stay as they are.
        relative_action: Whether actions are described relative to the state.
        relative_exclude_joints: Texts; a joint whose name contains one stays absolute.
        chunk_size: Actions of a chunk.
        keep: Features whose statistics in `stats.json` stay; those of their episodes are computed anew like all.
        output_dir: Folder of the result.
        repo_id: Name of the result.

    Returns:
        What would be done.

    Raises:
        DatasetError: It cannot be done as asked for.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    meta = open_source(dataset)
    relative = (
        RelativeActions(meta.parsed_features, chunk_size, relative_exclude_joints or ()) if relative_action else None
    )
    place = place_for(meta, output_dir, repo_id)
    check_readable(meta, range(meta.total_episodes))
    cameras = () if skip_image_video else meta.camera_keys

    def write(progress: Progress | None) -> None:
        measured = _measure(meta, cameras, relative, progress)
        measured.total.update({name: stats for name, stats in (meta.recorded_stats or {}).items() if name in keep})
        with place.writing() as target, cloned(meta.root, target) as folder:
            _write(meta, folder, measured)

    return EditPlan(str(meta.root), place, _described(meta, cameras, relative), write)


def _described(meta: LeRobotDatasetMetadata, cameras: Sequence[str], relative: RelativeActions | None) -> str:
    names = [name for name, feature in meta.parsed_features.items() if feature.is_numeric and not feature.is_default]
    rows = f"computes the statistics of {meta.total_episodes} episodes anew: {', '.join([*names, *cameras])}"
    if relative is None:
        return rows
    joints = f"{int(relative.relative.sum())} of its {len(relative.relative)} dimensions"
    return f"{rows}; {STATS_PATH}: {ACTION} in chunks of {relative.chunk_size}, {joints} relative to the state"


def augment_dataset_with_quantiles(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    overwrite: bool = False,
    *,
    skip_images: bool = False,
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
    progress: Progress | None = None,
) -> LeRobotDataset:
    """Add quantiles to the statistics of a dataset that lacks them, as older ones do.

    Args:
        dataset: The dataset: opened, or its folder or name.
        overwrite: Whether quantiles that are there are computed anew; otherwise a dataset that has them all stays as it
            is.
        skip_images: Whether cameras are left as they are, so that nothing is decoded.
        output_dir: Folder of the result. None edits in place, unless `repo_id` names another dataset.
        repo_id: Name of the result.
        progress: Called with the episodes that are done and the episodes in all.

    Returns:
        The result, opened.

    Raises:
        DatasetError: The target is taken or in use, or the disk is full.
        DatasetFormatError: Files of the dataset contradict one another; nothing was changed.
    """
    plan = plan_quantiles(dataset, overwrite, skip_images=skip_images, output_dir=output_dir, repo_id=repo_id)
    return plan.carry_out(progress)


def plan_quantiles(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    overwrite: bool = False,
    *,
    skip_images: bool = False,
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> EditPlan:
    """Check what `augment_dataset_with_quantiles` is asked for. Writes nothing.

    Args:
        dataset: As there, like all that follow.
        overwrite: Whether quantiles that are there are computed anew.
        skip_images: Whether cameras are left as they are.
        output_dir: Folder of the result.
        repo_id: Name of the result.

    Returns:
        What would be done; nothing, where nothing is lacking.

    Raises:
        DatasetError: It cannot be done as asked for.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    meta = open_source(dataset)
    place = place_for(meta, output_dir, repo_id)
    lacking = _lacking(meta, skip_images=skip_images)
    if place.in_place and not overwrite and not lacking:
        return EditPlan(str(meta.root), place, "has all quantiles already; nothing to do", lambda progress: None)
    plan = plan_recompute(meta, skip_images, output_dir=output_dir, repo_id=repo_id)
    found = f"quantiles are lacking for {', '.join(lacking)}" if lacking else "all quantiles are there already"
    return replace(plan, what=f"{plan.what}; {found}")


def compute_quantile_stats_for_dataset(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str], skip_images: bool = False
) -> Stats:
    """Compute the statistics of a dataset from its rows and a sample of its pictures. Writes nothing.

    Columns that hold no numbers, texts and language for example, are passed over.

    Args:
        dataset: The dataset: opened, or its folder or name.
        skip_images: Whether cameras are left out.

    Returns:
        Feature to statistics, depth in the recorded unit.

    Raises:
        DatasetFormatError: Files of the dataset contradict one another.
    """
    meta = open_source(dataset)
    check_readable(meta, range(meta.total_episodes))
    cameras = () if skip_images else meta.camera_keys
    measured = _measure(meta, cameras, None, None)
    return {name: measured.total[name] for name in meta.parsed_features if name in measured.computed}


def _lacking(meta: LeRobotDatasetMetadata, *, skip_images: bool) -> list[str]:
    """Return the features without all quantiles, those that have none by nature left out."""
    stats = meta.recorded_stats or {}
    wanted = [f for f in meta.parsed_features.values() if f.is_numeric or (f.is_camera and not skip_images)]
    return [f.name for f in wanted if not QUANTILES.keys() <= stats.get(f.name, {}).keys()]


@dataclass(frozen=True)
class _Measured:
    """What was found out.

    Attributes:
        stats: Statistics of each episode.
        sketches: Sketches of each episode.
        total: Statistics of the dataset.
        computed: The features that were measured; others are as they were.
    """

    stats: list[Stats]
    sketches: list[EpisodeSketches]
    total: Stats
    computed: frozenset[str]


def _measure(
    meta: LeRobotDatasetMetadata,
    cameras: Sequence[str],
    relative: RelativeActions | None,
    progress: Progress | None,
) -> _Measured:
    episodes = range(meta.total_episodes)
    stats: list[Stats] = []
    sketches: list[EpisodeSketches] = []
    actions = RunningStats(_RELATIVE_POINTS)
    for block in blocks(meta, episodes):
        known = stats_of(block.rows, len(block))
        for i, start in enumerate(block.starts.tolist()):
            episode = len(stats)
            rows = block.table.slice(start, int(block.lengths[i]))
            fresh, sketched = _episode(meta, block, i, rows, cameras)
            stats.append(_in_order(meta, {**known[i], **fresh}))
            sketches.append({**((block.sketches[i] if block.sketches else None) or {}), **sketched})
            for lot in _relative_rows(meta, relative, rows, episode):
                actions.update(lot)
            if progress is not None:
                progress(episode + 1, len(episodes))
    computed = frozenset(f.name for f in meta.parsed_features.values() if f.is_numeric or f.name in cameras)
    merged = merged_stats([({n: s[n] for n in s if n in computed}, k) for s, k in zip(stats, sketches, strict=True)])
    total = {**(meta.recorded_stats or {}), **merged}
    if relative is not None and (found := actions.result()):
        total[ACTION] = found
    return _Measured(stats, sketches, _in_order(meta, total), computed)


def _in_order(meta: LeRobotDatasetMetadata, stats: Stats) -> Stats:
    return {name: stats[name] for name in meta.parsed_features if name in stats}


def _episode(
    meta: LeRobotDatasetMetadata, block: EpisodeBlock, i: int, rows: pa.Table, cameras: Iterable[str]
) -> tuple[Stats, EpisodeSketches]:
    episode = block.episodes[i]
    stats, sketches = number_summary(rows, meta.parsed_features, f"Episode {episode} of {meta.root}")
    for key in cameras:
        feature = meta.parsed_features[key]
        pictures = block.videos[key][i] if feature.dtype == "video" else rows[key]
        stats[key], sketches[key] = camera_summary(pictures, feature, meta.fps, f"Episode {episode}, camera {key!r}")
    return stats, sketches


def _relative_rows(
    meta: LeRobotDatasetMetadata, relative: RelativeActions | None, rows: pa.Table, episode: int
) -> Iterable[np.ndarray]:
    if relative is None:
        return ()
    action, state = (
        numeric_column(meta.parsed_features[key], rows[key], f"Episode {episode} of {meta.root}")
        for key in (ACTION, OBS_STATE)
    )
    return relative.blocks(action, state)


def _write(meta: LeRobotDatasetMetadata, folder: Path, measured: _Measured) -> None:
    """Replace the statistics in a copy of the dataset."""
    table = stats_table(measured.stats, meta.parsed_features)
    for path in sorted((folder / "meta/episodes").glob("chunk-*/file-*.parquet")):
        with readable(path):
            rows = pq.read_table(path, use_threads=False)
        numbers = rows["episode_index"].to_pylist()
        kept = rows.select([name for name in rows.column_names if not name.startswith("stats/")])
        fresh = table.take(pa.array(numbers, pa.int64()))
        with atomic_path(path) as temporary:
            pq.write_table(_merged(kept, fresh), temporary)
        number = FileId(int(path.parent.name.removeprefix("chunk-")), int(path.stem.removeprefix("file-")))
        assert number.path(folder, EPISODES_TEMPLATE) == path
        write_sketches(folder, number, {episode: measured.sketches[episode] for episode in numbers})
    write_json(folder / STATS_PATH, stats_to_json(measured.total))


def _merged(rows: pa.Table, stats: pa.Table) -> pa.Table:
    """Put columns of statistics where LeRobot has them, before those that say where the row lies."""
    ends = [name for name in rows.column_names if name.startswith("meta/")]
    others = [name for name in rows.column_names if name not in ends]
    columns = {n: rows[n] for n in others} | {n: stats[n] for n in stats.column_names} | {n: rows[n] for n in ends}
    return pa.table(columns)
