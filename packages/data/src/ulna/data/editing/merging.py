# SPDX-License-Identifier: Apache-2.0
"""Merging datasets: what must be equal, and what becomes of what may differ."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ulna.core.errors import DatasetError
from ulna.data.editing.builder import DatasetBuilder
from ulna.data.editing.places import new_place, open_source
from ulna.data.editing.plans import EditPlan, Progress
from ulna.data.editing.selection import check_readable
from ulna.data.editing.sources import blocks
from ulna.data.features import Feature
from ulna.data.info import DatasetInfo
from ulna.data.metadata import LeRobotDatasetMetadata

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = ["merge_datasets", "plan_merge"]

_MUST_FIT: Final = ("video.height", "video.width", "video.fps", "video.codec", "video.pix_fmt")
_DEPTH: Final = ("is_depth_map", "depth_unit", "video.depth_min", "video.depth_max", "video.shift", "video.use_log")


def merge_datasets(
    datasets: Sequence[LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str]],
    output_repo_id: str,
    output_dir: str | os.PathLike[str] | None = None,
    concatenate_videos: bool = True,
    concatenate_data: bool = True,
) -> LeRobotDataset:
    """Write one dataset with the episodes of several, in the order given. The originals stay.

    Tasks are the union of all texts. Size limits are the largest of the sources. Settings of encoders that differ are
    noted as unknown (null).

    Args:
        datasets: Two or more, opened, or their folders or names. One may be named twice.
        output_repo_id: Name of the result.
        output_dir: Folder of the result; below Ulna's folder of datasets when not given.
        concatenate_videos: Whether episodes of different video files may share a new one.
        concatenate_data: Whether episodes of different table files may share a new one.

    Returns:
        The result, opened.

    Raises:
        DatasetError: Frame rates, robots, features or videos do not fit together, and every difference is listed; or
            the target is taken, or the disk is full.
        DatasetFormatError: Files of a dataset contradict one another.
    """
    return plan_merge(datasets, output_repo_id, output_dir, concatenate_videos, concatenate_data).carry_out()


def plan_merge(
    datasets: Sequence[LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str]],
    output_repo_id: str,
    output_dir: str | os.PathLike[str] | None = None,
    concatenate_videos: bool = True,
    concatenate_data: bool = True,
) -> EditPlan:
    """Check what `merge_datasets` is asked for. Writes nothing.

    Args:
        datasets: As there, like all that follow.
        output_repo_id: Name of the result.
        output_dir: Folder of the result.
        concatenate_videos: Whether episodes of different video files may share a new one.
        concatenate_data: Whether episodes of different table files may share a new one.

    Returns:
        What would be done.

    Raises:
        DatasetError: It cannot be done as asked for.
        DatasetFormatError: Files of a dataset contradict one another.
    """
    if not datasets:
        raise DatasetError("No dataset was named that shall be merged.")
    metas = [open_source(dataset) for dataset in datasets]
    info = _merged_info(metas)
    for meta in metas:
        check_readable(meta, range(meta.total_episodes))
    place = new_place(output_repo_id, output_dir)

    def write(progress: Progress | None) -> None:
        tasks = [task for meta in metas for task in meta.tasks]
        with (
            place.writing() as target,
            DatasetBuilder(
                target, info, tasks=tasks, keep_videos=not concatenate_videos, keep_tables=not concatenate_data
            ) as builder,
        ):
            for meta in metas:
                for block in blocks(meta, range(meta.total_episodes)):
                    builder.add_block(block)
            builder.finish()

    episodes, frames = (sum(getattr(meta, f"total_{what}") for meta in metas) for what in ("episodes", "frames"))
    return EditPlan(f"{len(metas)} datasets", place, f"{episodes} episodes, {frames} frames", write)


def _merged_info(metas: Sequence[LeRobotDatasetMetadata]) -> DatasetInfo:
    """Return what the merged dataset shall be; where the sources do not fit together, list every difference."""
    first = metas[0]
    problems: list[str] = []
    remedies: list[str] = []
    for other in metas[1:]:
        problems += _differences(first, other)
        found = _video_differences(first, other)
        problems += found
        if found:
            remedies.append(_reencode(first, other))
    if problems:
        listed = "\n".join(f"- {problem}" for problem in dict.fromkeys(problems))
        raise DatasetError(
            f"The datasets do not fit together. Nothing was written.\n{listed}",
            hint="\n".join(dict.fromkeys(remedies)) or None,
        )
    features = {name: _merged_feature([meta.parsed_features[name] for meta in metas]) for name in first.parsed_features}
    return replace(
        first.info,
        features=features,
        chunks_size=max(meta.info.chunks_size for meta in metas),
        data_files_size_in_mb=max(meta.info.data_files_size_in_mb for meta in metas),
        video_files_size_in_mb=max(meta.info.video_files_size_in_mb for meta in metas),
    )


def _differences(first: LeRobotDatasetMetadata, other: LeRobotDatasetMetadata) -> list[str]:
    a, b = first.root, other.root
    found = []
    if first.fps != other.fps:
        found.append(f"fps: {first.fps} in {a}, {other.fps} in {b}")
    if first.robot_type != other.robot_type:
        found.append(f"robot_type: {first.robot_type!r} in {a}, {other.robot_type!r} in {b}")
    mine, theirs = first.parsed_features, other.parsed_features
    found += [f"feature {name!r}: in {a}, not in {b}" for name in mine if name not in theirs]
    found += [f"feature {name!r}: in {b}, not in {a}" for name in theirs if name not in mine]
    for name in mine:
        if name in theirs:
            found += [
                f"feature {name!r}, {key}: {x!r} in {a}, {y!r} in {b}"
                for key, x, y in _declared(mine[name], theirs[name])
                if x != y
            ]
    return found


def _declared(a: Feature, b: Feature) -> list[tuple[str, Any, Any]]:
    return [("dtype", a.dtype, b.dtype), ("shape", a.shape, b.shape), ("names", _plain(a.names), _plain(b.names))]


def _plain(names: Any) -> Any:
    return list(names) if isinstance(names, tuple) else names


def _encoding(feature: Feature) -> Mapping[str, Any]:
    return feature.extra.get("info") or {}


def _video_differences(first: LeRobotDatasetMetadata, other: LeRobotDatasetMetadata) -> list[str]:
    found = []
    for key in first.video_keys:
        if key not in other.video_keys:
            continue
        mine, theirs = first.parsed_features[key], other.parsed_features[key]
        pairs = [(name, _encoding(mine).get(name), _encoding(theirs).get(name)) for name in _MUST_FIT]
        if mine.is_depth or theirs.is_depth:
            pairs += [(name, _encoding(mine).get(name), _encoding(theirs).get(name)) for name in _DEPTH[1:]]
        if mine.is_depth != theirs.is_depth:
            pairs.append(("is_depth_map", mine.is_depth, theirs.is_depth))
        found += [
            f"video {key!r}, {name}: {x!r} in {first.root}, {y!r} in {other.root}"
            for name, x, y in pairs
            if x != y and x is not None and y is not None
        ]
    return found


def _reencode(first: LeRobotDatasetMetadata, other: LeRobotDatasetMetadata) -> str:
    encodings = [_encoding(first.parsed_features[key]) for key in first.video_keys]
    codec = next((e["video.codec"] for e in encodings if e.get("video.codec")), "av1")
    return (
        f"Encode the videos of {other.root} as the others are: ulna dataset edit reencode {other.root} --codec {codec}"
    )


def _merged_feature(features: Sequence[Feature]) -> Feature:
    """Return a feature whose notes are those that all agree on; others become null, or are left out."""
    extras = [feature.extra for feature in features]
    merged = {key: value for key, value in extras[0].items() if all(extra.get(key) == value for extra in extras)}
    infos = [_encoding(feature) for feature in features]
    if any(infos):
        keys = dict.fromkeys(key for info in infos for key in info)
        agreed = {key: _agreed([info.get(key) for info in infos]) for key in keys}
        merged["info"] = agreed
    return replace(features[0], extra=merged)


def _agreed(values: Sequence[Any]) -> Any:
    return values[0] if all(value == values[0] for value in values[1:]) else None
