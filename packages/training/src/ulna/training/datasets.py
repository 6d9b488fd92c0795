# SPDX-License-Identifier: Apache-2.0
"""The data of a training: what is asked of a dataset, opening one from settings, holding episodes out, statistics."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ulna.core.constants import ACTION, OBS_PREFIX, REWARD
from ulna.core.errors import ConfigError, ConfigProblem, DatasetError, FeatureError
from ulna.core.policy_config import PreTrainedConfig
from ulna.data import LeRobotDataset, LeRobotDatasetMetadata, MultiLeRobotDataset, StreamingLeRobotDataset
from ulna.data.video_backends import backend_or_fallback
from ulna.training.config import TrainPipelineConfig
from ulna.training.memory import keep_in_memory
from ulna.training.streams import TrainingStream

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "BatchDataset",
    "TrainingData",
    "TrainingDataset",
    "TrainingMetadata",
    "as_training_dataset",
    "check_windows",
    "delta_timestamps",
    "episode_spans",
    "open_training_data",
    "split_episodes",
    "training_stats",
]

_log = logging.getLogger(__name__)

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Stats = dict[str, dict[str, Any]]


class TrainingMetadata(Protocol):
    """What training asks of a dataset's metadata."""

    @property
    def features(self) -> Mapping[str, Mapping[str, Any]]:
        """Key to `dtype`, `shape` and `names`."""
        ...

    @property
    def stats(self) -> Mapping[str, Mapping[str, Any]] | None:
        """Key to statistic to array."""
        ...

    @property
    def camera_keys(self) -> Sequence[str]:
        """Keys of the pictures."""
        ...


class TrainingDataset(Protocol):
    """What training asks of a dataset. `LeRobotDataset` is one.

    Besides, a dataset says where its episodes are: by `episode_spans()`, or by the reader of a `LeRobotDataset`.
    Without either it is taken for one episode.
    """

    @property
    def meta(self) -> Any:
        """Its `TrainingMetadata`."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, position: int) -> Mapping[str, Any]: ...


@runtime_checkable
class BatchDataset(Protocol):
    """A dataset that gives whole batches at once; the fastest way to train from memory."""

    def batch(self, positions: Sequence[int]) -> dict[str, Any]:
        """Return the samples at some positions, stacked.

        Args:
            positions: Positions in the dataset.

        Returns:
            Key to tensor (B, ...) or list of B texts.
        """
        ...


@dataclass(frozen=True)
class TrainingData:
    """The datasets of one training.

    Attributes:
        train: What is learnt from.
        held_out: What is evaluated on, if anything.
    """

    train: TrainingDataset
    held_out: TrainingDataset | None = None


def delta_timestamps(policy: PreTrainedConfig, features: Iterable[str], fps: int) -> dict[str, list[float]] | None:
    """Return the time windows that a policy needs.

    Args:
        policy: Its settings.
        features: Keys of the dataset.
        fps: Frames per second of the dataset.

    Returns:
        Key to time differences in seconds; None when it needs no window.
    """
    found = {}
    for key in features:
        indices = None
        if key == REWARD:
            indices = policy.reward_delta_indices
        elif key == ACTION:
            indices = policy.action_delta_indices
        elif key.startswith(OBS_PREFIX):
            indices = policy.observation_delta_indices
        if indices is not None:
            found[key] = [index / fps for index in indices]
    return found or None


def episode_spans(dataset: TrainingDataset) -> list[tuple[int, int]]:
    """Return first position and end of every episode in an opened dataset.

    Args:
        dataset: The dataset.
    """
    own = getattr(dataset, "episode_spans", None)
    if callable(own):
        return [(int(start), int(stop)) for start, stop in own()]
    if isinstance(dataset, LeRobotDataset):
        index = dataset.reader.index
        return [(span.start, span.stop) for span in map(index.positions, index.episodes)]
    return [(0, len(dataset))]


def split_episodes(
    episodes: Sequence[int], first_tasks: Sequence[str], eval_split: float
) -> tuple[list[int], list[int]]:
    """Hold out the last episodes of every task.

    Args:
        episodes: Episode numbers.
        first_tasks: The first task of each.
        eval_split: Share that is held out, rounded up for each task.

    Returns:
        Episodes to train on, ascending, and episodes held out, task by task.

    Raises:
        ConfigError: Nothing would be left to train on.
    """
    by_task: dict[str, list[int]] = {}
    for episode, task in zip(episodes, first_tasks, strict=True):
        by_task.setdefault(task, []).append(episode)
    held = [e for group in by_task.values() for e in group[len(group) - math.ceil(len(group) * eval_split) :]]
    train = [episode for episode in episodes if episode not in set(held)]
    if not train:
        counts = ", ".join(f"{task!r}: {len(group)}" for task, group in by_task.items())
        expected = f"leaves no episode to train on (rounded up for each task; episodes by task: {counts})"
        raise ConfigError([ConfigProblem("dataset.eval_split", eval_split, expected)])
    return train, held


def open_training_data(config: TrainPipelineConfig) -> TrainingData:
    """Open the dataset of a training, and the held-out episodes when there are any.

    Args:
        config: Settings; `policy` is set.

    Returns:
        The datasets.

    Raises:
        ConfigError: Too many episodes are held out, or the cache is too small.
        DatasetError: The dataset is not there or not whole.
    """
    wanted = config.dataset
    if isinstance(wanted.repo_id, list):
        return TrainingData(_open_several(config, wanted.repo_id))
    if wanted.streaming:
        return TrainingData(_open_stream(config, wanted.repo_id))
    meta = LeRobotDatasetMetadata(wanted.repo_id, wanted.root, wanted.revision)
    if wanted.eval_split == 0:
        return TrainingData(_open(config, meta, wanted.episodes, _image_transforms(config)))
    episodes = list(range(meta.total_episodes)) if wanted.episodes is None else sorted(set(wanted.episodes))
    wrong = [episode for episode in episodes if not 0 <= episode < meta.total_episodes]
    if wrong:
        raise DatasetError(f"Episodes {wrong} do not exist: {wanted.repo_id} has {meta.total_episodes} episodes.")
    tasks = [str(meta.episodes[episode]["tasks"][0]) for episode in episodes]
    train, held = split_episodes(episodes, tasks, wanted.eval_split)
    _log.info("Training on %d episodes; %d are held out: %s", len(train), len(held), sorted(held))
    return TrainingData(_open(config, meta, train, _image_transforms(config)), _open(config, meta, held))


def _image_transforms(config: TrainPipelineConfig) -> Callable[[Any], Any] | None:
    """Return the random changes of pictures that are learnt from; what is held out stays as it is."""
    if not config.dataset.image_transforms.enable:
        return None
    from ulna.data.image_transforms import ImageTransforms

    return ImageTransforms(config.dataset.image_transforms)


def _open(
    config: TrainPipelineConfig,
    meta: LeRobotDatasetMetadata,
    episodes: Sequence[int] | None,
    image_transforms: Callable[[Any], Any] | None = None,
) -> TrainingDataset:
    wanted = config.dataset
    assert config.policy is not None
    windows = delta_timestamps(config.policy, meta.features, meta.fps)
    cached, limit_bytes = wanted.cache == "ram", int(wanted.cache_limit_gb * 1e9)
    dataset = LeRobotDataset(
        meta.repo_id,
        meta.root,
        episodes,
        image_transforms=image_transforms,
        delta_timestamps=None if cached else windows,
        tolerance_s=config.tolerance_s,
        revision=wanted.revision,
        # A preference: a configuration may come from another machine, and the pictures are the same.
        video_backend=backend_or_fallback(wanted.video_backend) if wanted.video_backend else None,
        return_uint8=True,
        depth_output_unit=wanted.depth_output_unit,
        frame_cache="disk" if wanted.cache == "disk" else None,
        frame_cache_bytes=limit_bytes,
    )
    return keep_in_memory(dataset, windows, limit_bytes=limit_bytes) if cached else dataset


def as_training_dataset(dataset: TrainingDataset | StreamingLeRobotDataset) -> TrainingDataset:
    """Return a dataset of the caller in the form in which it is trained on.

    Args:
        dataset: A dataset, or a stream.
    """
    return TrainingStream(dataset) if isinstance(dataset, StreamingLeRobotDataset) else dataset


def _open_several(config: TrainPipelineConfig, repo_ids: Sequence[str]) -> TrainingDataset:
    wanted = config.dataset
    assert config.policy is not None
    dataset = MultiLeRobotDataset(
        repo_ids,
        wanted.root,
        image_transforms=_image_transforms(config),
        tolerances_s=dict.fromkeys(repo_ids, config.tolerance_s),
        video_backend=backend_or_fallback(wanted.video_backend) if wanted.video_backend else None,
        return_uint8=True,
        depth_output_unit=wanted.depth_output_unit,
    )
    dataset.set_delta_timestamps(delta_timestamps(config.policy, dataset.features, dataset.fps))
    return dataset


def _open_stream(config: TrainPipelineConfig, repo_id: str) -> TrainingStream:
    wanted = config.dataset
    assert config.policy is not None
    options: dict[str, Any] = {
        "root": wanted.root,
        "episodes": wanted.episodes,
        "image_transforms": _image_transforms(config),
        "tolerance_s": config.tolerance_s,
        "revision": wanted.revision,
        "return_uint8": True,
        "depth_output_unit": wanted.depth_output_unit,
        "drop_n_last_frames": getattr(config.policy, "drop_n_last_frames", 0) or 0,
    }
    # The windows follow from features and rate, which only an opened dataset tells.
    dataset = StreamingLeRobotDataset(repo_id, **options)
    dataset.set_delta_timestamps(delta_timestamps(config.policy, dataset.features, dataset.fps))
    return TrainingStream(dataset)


def training_stats(meta: TrainingMetadata, *, use_imagenet: bool, rename_map: Mapping[str, str]) -> Stats:
    """Return the statistics that samples are normalized with, under the names of the policy.

    Args:
        meta: Metadata of the dataset.
        use_imagenet: Whether colour cameras get mean and std of ImageNet.
        rename_map: Key of the data to key of the policy.

    Returns:
        Key to statistic to array; a copy.
    """
    stats: Stats = {key: dict(values) for key, values in (meta.stats or {}).items()}
    depth = set(getattr(meta, "depth_keys", ()))
    if use_imagenet:
        for key in meta.camera_keys:
            if key not in depth:
                own = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
                shaped = {name: np.array(v, dtype=np.float32).reshape(3, 1, 1) for name, v in own.items()}
                stats[key] = {**stats.get(key, {}), **shaped}
    return {rename_map.get(key, key): values for key, values in stats.items()}


def check_windows(dataset: TrainingDataset, policy: PreTrainedConfig) -> None:
    """Check that samples of a dataset made by the caller have the windows that a policy needs.

    Args:
        dataset: The dataset.
        policy: Settings of the policy.

    Raises:
        FeatureError: It has no samples, or a window is missing or has another length.
    """
    if not len(dataset):
        raise FeatureError("The dataset has no samples.")
    indices = policy.action_delta_indices
    if indices is None:
        return
    if isinstance(dataset, TrainingStream):
        length = dataset.window(ACTION)
    else:
        mask = dataset[0].get(f"{ACTION}_is_pad")
        length = None if mask is None else len(mask)
    if length != len(indices):
        found = "single actions" if length is None else f"{length} actions"
        raise FeatureError(
            f"Policy {policy.type!r} learns from {len(indices)} actions a sample; the dataset gives {found}.",
            hint="Open it with delta_timestamps=ulna.training.delta_timestamps(policy, meta.features, meta.fps).",
        )
