# SPDX-License-Identifier: Apache-2.0
"""Converts datasets of the formats v2.0 and v2.1 to v3.0. The original is only read; nothing is encoded again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from ulna.data.editing.blocks import EpisodeBlock, NewEpisode, VideoPiece
from ulna.data.editing.builder import DatasetBuilder
from ulna.data.editing.measuring import camera_summary, with_quantiles
from ulna.data.editing.places import new_place
from ulna.data.editing.plans import EditPlan, Progress
from ulna.data.editing.stats_columns import stats_table
from ulna.data.editing.v21 import V21Dataset, V21Episode
from ulna.data.features import Feature
from ulna.data.info import DatasetInfo
from ulna.data.layout import CODEBASE_VERSION
from ulna.data.moments import FeatureStats
from ulna.data.sketches import EpisodeSketches
from ulna.data.stats import Stats

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = ["convert_v21_dataset", "plan_v21_conversion"]

_SUFFIX: Final = "_v30"
_LOT_EPISODES: Final = 200
_LOT_BYTES: Final = 32 * 2**20
_MOMENTS: Final = ("min", "max", "mean", "std")


def convert_v21_dataset(
    root: str | Path,
    output_dir: str | Path | None = None,
    repo_id: str | None = None,
    *,
    data_files_size_in_mb: float = 100,
    video_files_size_in_mb: float = 200,
    picture_quantiles: bool = True,
    progress: Progress | None = None,
) -> LeRobotDataset:
    """Convert a dataset of format v2.0 or v2.1 to v3.0, into a new folder. The original stays as it is.

    Every table and video is looked at before anything is written. Videos are joined by copying packets. Statistics of
    numbers are computed anew, with quantiles. Those of pictures are kept, because they were made before the pictures
    were compressed; their quantiles, which v2.1 does not have, come from a sample of decoded pictures.

    Args:
        root: Folder of the dataset.
        output_dir: Folder of the new one, new or empty; beside the old one, with `_v30` behind its name, if not given.
        repo_id: `user/name` of the new one; the name of its folder if not given.
        data_files_size_in_mb: Size limit of a table file.
        video_files_size_in_mb: Size limit of a video file.
        picture_quantiles: Whether pictures are decoded for their quantiles. Without them only datasets of v2.0, which
            have no statistics of episodes, need decoding.
        progress: Called after each episode.

    Returns:
        The new dataset.

    Raises:
        DatasetFormatError: The dataset is broken: a file is missing, damaged or does not hold what was declared,
            episodes are missing; the file and the episode are named, and nothing was written.
        DatasetError: The new folder is taken, or the disk is full.
    """
    plan = plan_v21_conversion(
        root,
        output_dir,
        repo_id,
        data_files_size_in_mb=data_files_size_in_mb,
        video_files_size_in_mb=video_files_size_in_mb,
        picture_quantiles=picture_quantiles,
    )
    return plan.carry_out(progress)


def plan_v21_conversion(
    root: str | Path,
    output_dir: str | Path | None = None,
    repo_id: str | None = None,
    *,
    data_files_size_in_mb: float = 100,
    video_files_size_in_mb: float = 200,
    picture_quantiles: bool = True,
) -> EditPlan:
    """Look at every table and video of a dataset that `convert_v21_dataset` shall convert. Writes nothing.

    Args:
        root: As there, like all that follow.
        output_dir: Folder of the new dataset.
        repo_id: Name of the new one.
        data_files_size_in_mb: Size limit of a table file.
        video_files_size_in_mb: Size limit of a video file.
        picture_quantiles: Whether pictures are decoded for their quantiles.

    Returns:
        What would be done; its rehearsal reads the rows of every table.

    Raises:
        DatasetFormatError: The dataset is broken; the file and the episode are named.
        DatasetError: The new folder is taken.
    """
    source = V21Dataset(Path(root))
    beside = source.root.absolute()
    target = Path(output_dir).absolute() if output_dir is not None else beside.with_name(f"{beside.name}{_SUFFIX}")
    place = new_place(repo_id or target.name, target)
    info = DatasetInfo(source.fps, source.features, robot_type=source.robot_type, extra=source.extra)
    info.chunks_size = source.chunks_size
    info.data_files_size_in_mb, info.video_files_size_in_mb = data_files_size_in_mb, video_files_size_in_mb
    whole = list(source.check_files())

    def write(progress: Progress | None) -> None:
        tasks = [source.tasks[number] for number in sorted(source.tasks)]
        with place.writing() as folder, DatasetBuilder(folder, info, tasks=tasks) as builder:
            for lot in _lots(whole):
                parts = []
                for episode in lot:
                    parts.append(_converted(source, episode, picture_quantiles=picture_quantiles))
                    if progress is not None:
                        progress(episode.index + 1, len(whole))
                builder.add_block(_joined(parts, source.features))
            builder.finish()

    def read(progress: Progress | None) -> None:
        for episode in whole:
            source.row_tasks(source.table(episode), episode)
            if progress is not None:
                progress(episode.index + 1, len(whole))

    what = f"converts {_described(source, picture_quantiles=picture_quantiles)}"
    return EditPlan(str(beside), place, what, write, read)


def _described(source: V21Dataset, *, picture_quantiles: bool) -> str:
    episodes = source.episodes
    size = f"{len(episodes)} episodes, {sum(episode.length for episode in episodes)} frames"
    videos = f", {len(episodes) * len(source.video_keys)} video files to be joined" if source.video_keys else ""
    cameras = [feature for feature in source.features.values() if feature.is_camera]
    lacking = any(_needs_decoding(e, f, picture_quantiles=picture_quantiles) for e in episodes for f in cameras)
    decoded = ", a sample of the pictures decoded" if lacking else ""
    return f"format {source.version} to {CODEBASE_VERSION}: {size}{videos}{decoded}"


def _lots(episodes: Sequence[V21Episode]) -> Iterator[list[V21Episode]]:
    """Group episodes that are carried over together: what an episode costs besides its frames is shared."""
    lot: list[V21Episode] = []
    size = 0
    for episode in episodes:
        more = episode.table.stat().st_size
        if lot and (size + more > _LOT_BYTES or len(lot) == _LOT_EPISODES):
            yield lot
            lot, size = [], 0
        lot.append(episode)
        size += more
    yield lot


def _joined(episodes: Sequence[NewEpisode], features: Mapping[str, Feature]) -> EpisodeBlock:
    texts = {task: number for number, task in enumerate(dict.fromkeys(t for e in episodes for t in e.tasks))}
    return EpisodeBlock(
        pa.concat_tables([episode.table for episode in episodes]),
        np.array([len(episode.table) for episode in episodes], dtype=np.int64),
        np.array([texts[task] for episode in episodes for task in episode.tasks], dtype=np.int64),
        tuple(texts),
        {key: [episode.videos[key] for episode in episodes] for key in episodes[0].videos},
        stats_table([episode.stats or {} for episode in episodes], features),
        [episode.sketches for episode in episodes],
    )


def _converted(source: V21Dataset, episode: V21Episode, *, picture_quantiles: bool) -> NewEpisode:
    table = source.table(episode)
    starts = episode.video_starts
    videos = {key: VideoPiece(path, starts[key], episode.length) for key, path in episode.videos.items()}
    stats: Stats = {}
    sketches: EpisodeSketches = {}
    for feature in source.features.values():
        if not feature.is_camera:
            continue
        known = _known(episode.stats, feature)
        if known is not None and not _needs_decoding(episode, feature, picture_quantiles=picture_quantiles):
            stats[feature.name] = known
            continue
        pictures = videos[feature.name] if feature.dtype == "video" else table[feature.name]
        where = f"Episode {episode.index}, camera {feature.name!r}"
        found, sketch = camera_summary(pictures, feature, source.fps, where)
        if known is not None and known["count"] == found["count"]:
            found, sketch = with_quantiles(known, sketch)
        stats[feature.name], sketches[feature.name] = found, sketch
    return NewEpisode(table, source.row_tasks(table, episode), videos, stats, sketches)


def _needs_decoding(episode: V21Episode, feature: Feature, *, picture_quantiles: bool) -> bool:
    return _known(episode.stats, feature) is None or (picture_quantiles and not feature.is_depth)


def _known(stats: Mapping[str, FeatureStats], feature: Feature) -> FeatureStats | None:
    """Return the statistics that stand in the dataset for a camera, None where they are not whole."""
    given = stats.get(feature.name, {})
    shape = (feature.hwc[2], 1, 1)
    found = {name: np.shape(value) for name, value in given.items()}
    if any(found.get(name) != shape for name in _MOMENTS) or found.get("count") != (1,):
        return None
    return {name: given[name] for name in (*_MOMENTS, "count")}
