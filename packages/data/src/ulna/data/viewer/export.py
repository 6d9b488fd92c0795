# SPDX-License-Identifier: Apache-2.0
"""Gives an episode to a tracker, frame by frame: joints by name, pictures, and the task. Knows no service."""

from __future__ import annotations

from typing import Any

import numpy as np

from ulna.core.trackers import Tracker
from ulna.data.features import Feature
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.reader import DatasetReader
from ulna.data.viewer.series import element_names

__all__ = ["export_episode"]


def export_episode(meta: LeRobotDatasetMetadata, episode: int, tracker: Tracker) -> int:
    """Log every frame of an episode.

    Args:
        meta: The dataset.
        episode: Number of the episode.
        tracker: Where it goes; it is not finished here.

    Returns:
        Frames logged.

    Raises:
        DatasetError: There is no such episode.
        DatasetFormatError: A file contradicts the metadata.
    """
    meta.episodes.row(episode)
    reader = DatasetReader(meta, [episode])
    shown = {name: f for name, f in meta.parsed_features.items() if not f.is_default}
    names = {name: element_names(f) for name, f in shown.items() if f.is_numeric}
    task = None
    for frame in range(len(reader)):
        item = reader.item(frame)
        values: dict[str, Any] = {}
        for name, feature in shown.items():
            values.update(_values(feature, item[name], names.get(name, [])))
        if item["task"] != task:
            task = values["task"] = item["task"]
        tracker.log(values, step=frame, time_s=frame / meta.fps)
    return len(reader)


def _values(feature: Feature, value: Any, names: list[str]) -> dict[str, Any]:
    if feature.is_depth:
        return {feature.name: np.asarray(value, np.float32).reshape(feature.hwc[:2])}
    if feature.is_camera:
        picture = np.ascontiguousarray(value.transpose(1, 2, 0))
        return {feature.name: picture if picture.shape[2] == 3 else np.repeat(picture[:, :, :1], 3, axis=2)}
    if feature.is_numeric:
        flat = np.asarray(value, np.float64).reshape(-1)
        return {f"{feature.name}/{name}": float(number) for name, number in zip(names, flat, strict=False)}
    return {feature.name: value} if isinstance(value, str) else {}
