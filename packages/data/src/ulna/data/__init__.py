# SPDX-License-Identifier: Apache-2.0
"""Robot recordings in the LeRobotDataset v3.0 format. Names resolve when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset as LeRobotDataset
    from ulna.data.features import DEFAULT_FEATURES as DEFAULT_FEATURES
    from ulna.data.features import build_dataset_frame as build_dataset_frame
    from ulna.data.features import hw_features_to_dataset_features as hw_features_to_dataset_features
    from ulna.data.metadata import LeRobotDatasetMetadata as LeRobotDatasetMetadata
    from ulna.data.stats import aggregate_stats as aggregate_stats
    from ulna.data.video_encoding import RGBEncoderConfig as RGBEncoderConfig

_HOME = {
    "DEFAULT_FEATURES": "features",
    "LeRobotDataset": "dataset",
    "LeRobotDatasetMetadata": "metadata",
    "RGBEncoderConfig": "video_encoding",
    "aggregate_stats": "stats",
    "build_dataset_frame": "features",
    "hw_features_to_dataset_features": "features",
}

__all__ = [
    "DEFAULT_FEATURES",
    "LeRobotDataset",
    "LeRobotDatasetMetadata",
    "RGBEncoderConfig",
    "aggregate_stats",
    "build_dataset_frame",
    "hw_features_to_dataset_features",
]

__getattr__, __dir__ = lazy_names(globals(), _HOME)
