# SPDX-License-Identifier: Apache-2.0
"""Cuts a region of interest out of every picture of a camera, and scales it if wanted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetError, nearest
from ulna.core.files import write_json
from ulna.data.depth_recording import recorded_depth_config
from ulna.data.editing.camera_rewriting import CameraChange, plan_cameras, recorded_encoder
from ulna.data.editing.places import open_source, place_for
from ulna.data.editing.plans import EditPlan, Progress
from ulna.data.editing.selection import check_readable
from ulna.data.features import Feature
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.video_codecs import RGBEncoderConfig, VideoEncoderConfig

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = ["CROP_PARAMS_PATH", "Region", "crop_dataset_roi", "plan_crop"]

Picture = npt.NDArray[Any]

CROP_PARAMS_PATH: Final = "meta/crop_params.json"
"""Where a cropped dataset tells what was cut out, as LeRobot's tool does."""


@dataclass(frozen=True)
class Region:
    """A rectangle of a picture, and the size that it is scaled to. Calling it applies it.

    Attributes:
        top: First row.
        left: First column.
        height: Rows.
        width: Columns.
        size: Height and width of the result; that of the rectangle when not given.
    """

    top: int
    left: int
    height: int
    width: int
    size: tuple[int, int] | None = None

    @property
    def result_size(self) -> tuple[int, int]:
        """Height and width of the result."""
        return self.size or self._cut_size

    @property
    def _cut_size(self) -> tuple[int, int]:
        return self.height, self.width

    def __str__(self) -> str:
        scaled = f", scaled to {self.size[0]}x{self.size[1]}" if self.size and self.size != self._cut_size else ""
        last_row, last_column = self.top + self.height - 1, self.left + self.width - 1
        return f"rows {self.top} to {last_row}, columns {self.left} to {last_column}{scaled}"

    def __call__(self, picture: Picture) -> Picture:
        """Return the region of a picture.

        Args:
            picture: uint8 (H, W, 3), or a depth map (H, W, 1), whose distances are never mixed.
        """
        cut = picture[self.top : self.top + self.height, self.left : self.left + self.width]
        if self.result_size == self._cut_size:
            return np.ascontiguousarray(cut)
        height, width = self.result_size
        if picture.shape[2] != 3:
            rows = (np.arange(height) + 0.5) * self.height / height
            columns = (np.arange(width) + 0.5) * self.width / width
            return np.ascontiguousarray(cut[rows.astype(int)][:, columns.astype(int)])
        from PIL import Image

        scaled = Image.fromarray(np.ascontiguousarray(cut)).resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(scaled)


def crop_dataset_roi(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    crop_params: Mapping[str, Sequence[int]],
    resize: Sequence[int] | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
    *,
    rgb_encoder: RGBEncoderConfig | None = None,
    progress: Progress | None = None,
) -> LeRobotDataset:
    """Write a dataset whose cameras show a part of what they showed.

    Rows, tasks and everything else stay. Statistics of the cameras are computed from the new pictures. What was cut
    out stands in `meta/crop_params.json`.

    Args:
        dataset: The dataset: opened, or its folder or name.
        crop_params: Camera to top, left, height and width in pixels. Cameras that are not named stay as they are.
        resize: Height and width that every named camera is scaled to; with no camera named, all are.
        output_dir: Folder of the result. None edits in place, unless `repo_id` names another dataset.
        repo_id: Name of the result.
        rgb_encoder: Settings for colour video; those it was recorded with when not given.
        progress: Called with the episodes that are done and the episodes in all.

    Returns:
        The result, opened.

    Raises:
        DatasetError: There is no such camera, a region lies outside of its pictures, an encoder refuses the size, the
            target is taken or in use, or the disk is full.
        DatasetFormatError: Files of the dataset contradict one another, or a picture cannot be decoded.
    """
    return plan_crop(dataset, crop_params, resize, output_dir, repo_id, rgb_encoder=rgb_encoder).carry_out(progress)


def plan_crop(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    crop_params: Mapping[str, Sequence[int]],
    resize: Sequence[int] | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
    *,
    rgb_encoder: RGBEncoderConfig | None = None,
) -> EditPlan:
    """Check what `crop_dataset_roi` is asked for. Writes nothing.

    Args:
        dataset: As there, like all that follow.
        crop_params: Camera to region.
        resize: Height and width of the result.
        output_dir: Folder of the result.
        repo_id: Name of the result.
        rgb_encoder: Settings for colour video.

    Returns:
        What would be done.

    Raises:
        DatasetError: It cannot be done as asked for.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    meta = open_source(dataset)
    regions = _regions(meta, crop_params, resize)
    episodes = list(range(meta.total_episodes))
    check_readable(meta, episodes)
    place = place_for(meta, output_dir, repo_id)
    changes = {key: _change(meta.parsed_features[key], region, rgb_encoder) for key, region in regions.items()}

    def note(folder: Path) -> None:
        write_json(folder / CROP_PARAMS_PATH, {k: [r.top, r.left, r.height, r.width] for k, r in regions.items()})

    listed = "; ".join(f"{key}: {region}" for key, region in regions.items())
    what = f"crops the cameras of {len(episodes)} episodes to {listed}"
    return plan_cameras(meta, episodes, place, changes, what, finishing=note)


def _regions(
    meta: LeRobotDatasetMetadata, crop_params: Mapping[str, Sequence[int]], resize: Sequence[int] | None
) -> dict[str, Region]:
    if not crop_params and resize is None:
        raise DatasetError("Neither a region nor a size was given, so there is nothing to do.")
    size = None if resize is None else _numbers("resize", resize, ("height", "width"), least=(1, 1))
    regions = {}
    for key in crop_params or meta.camera_keys:
        if key not in meta.camera_keys:
            near = nearest(key, meta.camera_keys)
            raise DatasetError(
                f"There is no camera {key!r}; the dataset has {meta.camera_keys}. Nothing was changed.",
                hint=f"Did you mean {near!r}?" if near else None,
            )
        height, width, _ = meta.parsed_features[key].hwc
        given = crop_params.get(key, (0, 0, height, width))
        names = ("top", "left", "height", "width")
        top, left, rows, columns = _numbers(f"Camera {key!r}", given, names, least=(0, 0, 1, 1))
        if top + rows > height or left + columns > width:
            raise DatasetError(
                f"Camera {key!r}: rows {top} to {top + rows} and columns {left} to {left + columns} lie outside of its "
                f"pictures of {height} rows and {width} columns. Nothing was changed."
            )
        regions[key] = Region(top, left, rows, columns, (size[0], size[1]) if size else None)
    return regions


def _numbers(what: str, given: Sequence[int], names: Sequence[str], least: Sequence[int]) -> list[int]:
    numbers = list(given)
    whole = len(numbers) == len(names) and all(type(n) is int for n in numbers)
    if not whole or any(n < low for n, low in zip(numbers, least, strict=True)):
        raise DatasetError(
            f"{what}: expected were {', '.join(names)} in pixels, from {list(least)} on; got {given!r}. "
            "Nothing was changed."
        )
    return numbers


def _change(feature: Feature, region: Region, rgb: RGBEncoderConfig | None) -> CameraChange:
    height, width = region.result_size
    channels = feature.hwc[2]
    shape = (channels, height, width) if feature.is_channel_first else (height, width, channels)
    encoder: VideoEncoderConfig | None = None
    if feature.dtype == "video":
        encoder = recorded_depth_config(feature, None) if feature.is_depth else rgb or recorded_encoder(feature)
    return CameraChange(replace(feature, shape=shape), encoder, region)
