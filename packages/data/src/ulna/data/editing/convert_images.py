# SPDX-License-Identifier: Apache-2.0
"""Turns cameras that are stored as pictures in the table into videos."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ulna.core.errors import DatasetError, nearest
from ulna.data.depth_recording import recorded_depth_config
from ulna.data.editing.camera_rewriting import CameraChange, encoding_text, plan_cameras
from ulna.data.editing.places import open_source, place_for
from ulna.data.editing.plans import EditPlan, Progress
from ulna.data.editing.selection import check_episodes, check_readable
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.video_codecs import DepthEncoderConfig, RGBEncoderConfig

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = ["convert_image_to_video_dataset", "plan_images_to_video"]


def convert_image_to_video_dataset(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
    rgb_encoder: RGBEncoderConfig | None = None,
    depth_encoder: DepthEncoderConfig | None = None,
    episode_indices: Iterable[int] | None = None,
    *,
    cameras: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> LeRobotDataset:
    """Write a dataset whose cameras are videos instead of pictures in the table.

    Tasks, rows, statistics of everything and the episode table are complete; those of the cameras are computed from
    the pictures before they are encoded. Chosen episodes are numbered anew.

    Args:
        dataset: The dataset: opened, or its folder or name.
        output_dir: Folder of the result. None edits in place, unless `repo_id` names another dataset.
        repo_id: Name of the result.
        rgb_encoder: Settings for colour video.
        depth_encoder: Settings for depth video.
        episode_indices: Episodes of the result, in the order of their numbers; all when not given. Some alone need a
            place of their own for the result.
        cameras: The cameras to convert; all that are pictures when not given.
        progress: Called with the episodes that are done and the episodes in all.

    Returns:
        The result, opened.

    Raises:
        DatasetError: No camera is stored as pictures, an episode or camera does not exist, an encoder refuses its
            settings, the target is taken or in use, or the disk is full.
        DatasetFormatError: Files of the dataset contradict one another, or a picture cannot be decoded.
    """
    plan = plan_images_to_video(
        dataset, output_dir, repo_id, rgb_encoder, depth_encoder, episode_indices, cameras=cameras
    )
    return plan.carry_out(progress)


def plan_images_to_video(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
    rgb_encoder: RGBEncoderConfig | None = None,
    depth_encoder: DepthEncoderConfig | None = None,
    episode_indices: Iterable[int] | None = None,
    *,
    cameras: Sequence[str] | None = None,
) -> EditPlan:
    """Check what `convert_image_to_video_dataset` is asked for. Writes nothing.

    Args:
        dataset: As there, like all that follow.
        output_dir: Folder of the result.
        repo_id: Name of the result.
        rgb_encoder: Settings for colour video.
        depth_encoder: Settings for depth video.
        episode_indices: Episodes of the result.
        cameras: The cameras to convert.

    Returns:
        What would be done.

    Raises:
        DatasetError: It cannot be done as asked for.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    meta = open_source(dataset)
    keys = _chosen(meta, cameras)
    everything = list(range(meta.total_episodes))
    episodes = everything if episode_indices is None else check_episodes(meta, episode_indices)
    check_readable(meta, episodes)
    place = place_for(meta, output_dir, repo_id)
    if not episodes:
        raise DatasetError(f"No episode of {meta.root} was chosen, so there is nothing to write.")
    if place.in_place and episodes != everything:
        raise DatasetError(
            "Converting some episodes in place would delete the others. Nothing was changed.",
            hint="Give the result a folder of its own with output_dir.",
        )
    changes = {key: _change(meta, key, rgb_encoder, depth_encoder) for key in keys}
    listed = encoding_text({key: change.encoder for key, change in changes.items() if change.encoder is not None})
    what = f"turns pictures into video in {len(episodes)} of {meta.total_episodes} episodes: {listed}"
    return plan_cameras(meta, episodes, place, changes, what)


def _chosen(meta: LeRobotDatasetMetadata, cameras: Sequence[str] | None) -> list[str]:
    keys = meta.image_keys
    if not keys:
        raise DatasetError(
            f"{meta.root} has no camera that is stored as pictures in the table; "
            f"its videos are {meta.video_keys or 'none'}. Nothing was changed."
        )
    for key in cameras or ():
        if key not in keys:
            near = nearest(key, keys)
            raise DatasetError(
                f"{key!r} is not a camera stored as pictures; those are {keys}. Nothing was changed.",
                hint=f"Did you mean {near!r}?" if near else None,
            )
    return list(keys if cameras is None else cameras)


def _change(
    meta: LeRobotDatasetMetadata, key: str, rgb: RGBEncoderConfig | None, depth: DepthEncoderConfig | None
) -> CameraChange:
    feature = replace(meta.parsed_features[key], dtype="video")
    if feature.is_depth:
        return CameraChange(feature, recorded_depth_config(feature, depth))
    return CameraChange(feature, rgb or RGBEncoderConfig())
