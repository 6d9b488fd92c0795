# SPDX-License-Identifier: Apache-2.0
"""Robot recordings in the LeRobotDataset v3.0 format. Names resolve when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset as LeRobotDataset
    from ulna.data.editing.convert_images import convert_image_to_video_dataset as convert_image_to_video_dataset
    from ulna.data.editing.convert_v21 import convert_v21_dataset as convert_v21_dataset
    from ulna.data.editing.crop import crop_dataset_roi as crop_dataset_roi
    from ulna.data.editing.episodes import delete_episodes as delete_episodes
    from ulna.data.editing.episodes import split_dataset as split_dataset
    from ulna.data.editing.features import add_features as add_features
    from ulna.data.editing.features import modify_features as modify_features
    from ulna.data.editing.features import remove_feature as remove_feature
    from ulna.data.editing.merging import merge_datasets as merge_datasets
    from ulna.data.editing.recompute import augment_dataset_with_quantiles as augment_dataset_with_quantiles
    from ulna.data.editing.recompute import compute_quantile_stats_for_dataset as compute_quantile_stats_for_dataset
    from ulna.data.editing.recompute import recompute_stats as recompute_stats
    from ulna.data.editing.reencode import reencode_dataset as reencode_dataset
    from ulna.data.editing.tasks import modify_tasks as modify_tasks
    from ulna.data.features import DEFAULT_FEATURES as DEFAULT_FEATURES
    from ulna.data.features import build_dataset_frame as build_dataset_frame
    from ulna.data.features import hw_features_to_dataset_features as hw_features_to_dataset_features
    from ulna.data.frame_cache import FrameCache as FrameCache
    from ulna.data.hub import pull_dataset as pull_dataset
    from ulna.data.hub import push_dataset as push_dataset
    from ulna.data.image_transforms import ImageTransforms as ImageTransforms
    from ulna.data.image_transforms_config import ImageTransformConfig as ImageTransformConfig
    from ulna.data.image_transforms_config import ImageTransformsConfig as ImageTransformsConfig
    from ulna.data.language import language_feature_info as language_feature_info
    from ulna.data.language import language_styles as language_styles
    from ulna.data.language import register_language_style as register_language_style
    from ulna.data.metadata import LeRobotDatasetMetadata as LeRobotDatasetMetadata
    from ulna.data.meter import DataMeter as DataMeter
    from ulna.data.multi import MultiLeRobotDataset as MultiLeRobotDataset
    from ulna.data.recovery import UnfinishedEpisode as UnfinishedEpisode
    from ulna.data.recovery import finalize_interrupted as finalize_interrupted
    from ulna.data.recovery import find_unfinished as find_unfinished
    from ulna.data.recovery import recover_episodes as recover_episodes
    from ulna.data.stats import aggregate_stats as aggregate_stats
    from ulna.data.streaming import StreamingLeRobotDataset as StreamingLeRobotDataset
    from ulna.data.tensors import collate_items as collate_items
    from ulna.data.video_codecs import DepthEncoderConfig as DepthEncoderConfig
    from ulna.data.video_codecs import RGBEncoderConfig as RGBEncoderConfig

_HOME = {
    "collate_items": "tensors",
    "FrameCache": "frame_cache",
    "DataMeter": "meter",
    "DEFAULT_FEATURES": "features",
    "DepthEncoderConfig": "video_codecs",
    "ImageTransformConfig": "image_transforms_config",
    "ImageTransforms": "image_transforms",
    "ImageTransformsConfig": "image_transforms_config",
    "LeRobotDataset": "dataset",
    "LeRobotDatasetMetadata": "metadata",
    "MultiLeRobotDataset": "multi",
    "RGBEncoderConfig": "video_codecs",
    "StreamingLeRobotDataset": "streaming",
    "UnfinishedEpisode": "recovery",
    "add_features": "editing.features",
    "aggregate_stats": "stats",
    "build_dataset_frame": "features",
    "augment_dataset_with_quantiles": "editing.recompute",
    "compute_quantile_stats_for_dataset": "editing.recompute",
    "convert_image_to_video_dataset": "editing.convert_images",
    "convert_v21_dataset": "editing.convert_v21",
    "crop_dataset_roi": "editing.crop",
    "recompute_stats": "editing.recompute",
    "reencode_dataset": "editing.reencode",
    "delete_episodes": "editing.episodes",
    "finalize_interrupted": "recovery",
    "find_unfinished": "recovery",
    "hw_features_to_dataset_features": "features",
    "language_feature_info": "language",
    "language_styles": "language",
    "merge_datasets": "editing.merging",
    "modify_features": "editing.features",
    "modify_tasks": "editing.tasks",
    "pull_dataset": "hub",
    "push_dataset": "hub",
    "recover_episodes": "recovery",
    "register_language_style": "language",
    "remove_feature": "editing.features",
    "split_dataset": "editing.episodes",
}

__all__ = [
    "DEFAULT_FEATURES",
    "DataMeter",
    "DepthEncoderConfig",
    "FrameCache",
    "ImageTransformConfig",
    "ImageTransforms",
    "ImageTransformsConfig",
    "LeRobotDataset",
    "LeRobotDatasetMetadata",
    "MultiLeRobotDataset",
    "RGBEncoderConfig",
    "StreamingLeRobotDataset",
    "UnfinishedEpisode",
    "add_features",
    "aggregate_stats",
    "augment_dataset_with_quantiles",
    "build_dataset_frame",
    "collate_items",
    "compute_quantile_stats_for_dataset",
    "convert_image_to_video_dataset",
    "convert_v21_dataset",
    "crop_dataset_roi",
    "delete_episodes",
    "finalize_interrupted",
    "find_unfinished",
    "hw_features_to_dataset_features",
    "language_feature_info",
    "language_styles",
    "merge_datasets",
    "modify_features",
    "modify_tasks",
    "pull_dataset",
    "push_dataset",
    "recompute_stats",
    "recover_episodes",
    "reencode_dataset",
    "register_language_style",
    "remove_feature",
    "split_dataset",
]

__getattr__, __dir__ = lazy_names(globals(), _HOME)
