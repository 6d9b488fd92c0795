# SPDX-License-Identifier: Apache-2.0
"""`MultiLeRobotDataset`: several datasets of one kind read as one. Nothing is copied; merging files is an edit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ulna.core.errors import DatasetError, nearest
from ulna.data.dataset import LeRobotDataset
from ulna.data.dataset_stats import whole_sketches
from ulna.data.depth import DepthUnit
from ulna.data.features import DEFAULT_FEATURES, Feature
from ulna.data.index import ConcatIndex
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.sketches import merged_stats
from ulna.data.stats import Stats

__all__ = ["MultiLeRobotDataset", "MultiMetadata"]

logger = logging.getLogger(__name__)

Item = dict[str, Any]


class MultiMetadata:
    """What several datasets have in common. Made by `MultiLeRobotDataset`.

    Args:
        parts: Metadata of the datasets, in order; of the same frame rate.
        common: The features that all of them have.

    Attributes:
        repo_ids: The datasets, in order.
        fps: Frames per second of all of them.
        features: The common features in plain form.
        camera_keys: The common cameras.
        depth_keys: Those that hold depth maps.
        total_episodes: Episodes of all datasets.
        total_frames: Frames of all datasets.
    """

    def __init__(self, parts: Sequence[LeRobotDatasetMetadata], common: Mapping[str, Feature]) -> None:
        self._parts = tuple(parts)
        self.repo_ids = [part.repo_id for part in parts]
        self.fps = parts[0].fps
        self.features = {name: feature.to_dict() for name, feature in common.items()}
        self.camera_keys = [name for name, feature in common.items() if feature.is_camera]
        self.depth_keys = [name for name, feature in common.items() if feature.is_depth]
        self.total_episodes = sum(part.total_episodes for part in parts)
        self.total_frames = sum(part.total_frames for part in parts)

    @cached_property
    def stats(self) -> Stats:
        """Statistics of the common features over all episodes of all datasets, as if they were one.

        Quantiles are left out, with a warning, where a dataset has no sketches of its episodes, or stale ones.
        """
        merged = merged_stats((part.stats or {}, whole_sketches(part)) for part in self._parts)
        return {name: values for name, values in merged.items() if name in self.features}


class _Part(LeRobotDataset):
    """One of several datasets, of which only the common features are read."""

    def narrow(self, features: Mapping[str, Feature], delta_timestamps: Mapping[str, Sequence[float]] | None) -> None:
        self.meta.info.features = dict(features)
        self._cameras = frozenset(self.meta.camera_keys) - frozenset(self.meta.depth_keys)
        self.delta_timestamps = dict(delta_timestamps) if delta_timestamps else None
        self._reader = self._make_reader()


class MultiLeRobotDataset:
    """Several datasets in a row, reduced to the features that all of them have.

    Items are those of the single datasets, with `dataset_index` added: the number of the dataset in `repo_ids`.
    `index`, `episode_index` and `task_index` keep the numbers of the single dataset; `task` is the text. Pictures of
    cameras that not all datasets have are not decoded. It reads only, and is as safe to share as `LeRobotDataset`.

    Args:
        repo_ids: Names of the datasets; each once.
        root: Folder that holds them, each in `root/<repo_id>`; found by name when not given.
        episodes: Name to the episodes that are read; all of a dataset that is not named.
        image_transforms: Called with each colour picture (or window of pictures) that is read.
        delta_timestamps: Common feature to time differences in seconds, see `LeRobotDataset`.
        tolerances_s: Name to allowed deviation of times; 1e-4 where not named.
        download_videos: Whether videos are pulled too, of datasets that are not on this machine.
        video_backend: Video decoder, see `LeRobotDataset`.
        return_uint8: Whether pictures are uint8 instead of float32 in [0, 1].
        depth_output_unit: Unit of depth maps and of their statistics: `mm` or `m`.
        token: Token of the Hub, if it is not the one that is logged in.

    Raises:
        DatasetError: No dataset, one twice or unknown, different frame rates, a common feature that differs in kind,
            dtype, shape or order of its names, or a window of a feature that not all have; the difference is named.
        DatasetFormatError: Files contradict the format.
    """

    def __init__(
        self,
        repo_ids: Sequence[str],
        root: str | Path | None = None,
        episodes: Mapping[str, Iterable[int] | None] | None = None,
        image_transforms: Callable[[Any], Any] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerances_s: Mapping[str, float] | None = None,
        download_videos: bool = True,
        video_backend: str | None = None,
        *,
        return_uint8: bool = False,
        depth_output_unit: DepthUnit = "mm",
        token: str | None = None,
    ) -> None:
        self.repo_ids = list(repo_ids)
        self.root = None if root is None else Path(root)
        self.episodes = {name: None if e is None else list(e) for name, e in (episodes or {}).items()}
        self.tolerances_s = dict.fromkeys(self.repo_ids, 1e-4) | dict(tolerances_s or {})
        self._refuse_names()
        self._parts = [
            _Part(
                name,
                None if self.root is None else self.root / name,
                self.episodes.get(name),
                image_transforms=image_transforms,
                tolerance_s=self.tolerances_s[name],
                video_backend=video_backend,
                return_uint8=return_uint8,
                depth_output_unit=depth_output_unit,
                download_videos=download_videos,
                token=token,
            )
            for name in self.repo_ids
        ]
        self.fps = _common_fps(self._parts)
        common = _common_features(self._parts)
        self.disabled_features = {name for part in self._parts for name in part.features} - common.keys()
        if self.disabled_features:
            logger.info("Not in all datasets, and not read: %s.", ", ".join(sorted(self.disabled_features)))
        self._common = list(common)
        self.set_delta_timestamps(delta_timestamps)
        self.meta = MultiMetadata([part.meta for part in self._parts], common)
        self._index = ConcatIndex([len(part) for part in self._parts])

    def _refuse_names(self) -> None:
        if not self.repo_ids:
            raise DatasetError("No dataset was named.")
        twice = sorted({name for name in self.repo_ids if self.repo_ids.count(name) > 1})
        if twice:
            raise DatasetError(f"Datasets were named twice: {', '.join(twice)}.")
        for option, names in (("episodes", self.episodes), ("tolerances_s", self.tolerances_s)):
            for name in names:
                if name not in self.repo_ids:
                    near = nearest(name, self.repo_ids)
                    raise DatasetError(
                        f"{option} names {name!r}, which is not one of the datasets: {', '.join(self.repo_ids)}.",
                        hint=f"Did you mean {near!r}?" if near else None,
                    )

    def set_delta_timestamps(self, delta_timestamps: Mapping[str, Sequence[float]] | None) -> None:
        """Choose the windows of the items that are read from now on.

        Args:
            delta_timestamps: Common feature to time differences in seconds; None for single values.

        Raises:
            DatasetError: A feature that not all datasets have, or a time between two frames.
        """
        for key in (delta_timestamps or {}).keys() & self.disabled_features:
            lacking = [part.repo_id for part in self._parts if key not in part.features]
            raise DatasetError(
                f"delta_timestamps names {key!r}, which {', '.join(lacking)} does not have.",
                hint=f"Features of all datasets: {', '.join(self._common)}.",
            )
        for part in self._parts:
            part.narrow({name: part.meta.parsed_features[name] for name in self._common}, delta_timestamps)
        self.delta_timestamps = dict(delta_timestamps) if delta_timestamps else None

    @property
    def repo_id_to_index(self) -> dict[str, int]:
        """Name of a dataset to its number, the `dataset_index` of its items."""
        return {name: number for number, name in enumerate(self.repo_ids)}

    @property
    def repo_index_to_id(self) -> dict[int, str]:
        """Number of a dataset to its name."""
        return dict(enumerate(self.repo_ids))

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """The common features in plain form, shapes as tuples."""
        return self.meta.features

    @property
    def stats(self) -> Stats:
        """Statistics of the common features over all datasets."""
        return self.meta.stats

    @property
    def camera_keys(self) -> list[str]:
        """The common cameras."""
        return self.meta.camera_keys

    @property
    def video_frame_keys(self) -> list[str]:
        """The common cameras that any of the datasets stores as video."""
        return [key for key in self.camera_keys if any(key in part.meta.video_keys for part in self._parts)]

    @property
    def video(self) -> bool:
        """Whether any of the common cameras is stored as video."""
        return bool(self.video_frame_keys)

    @property
    def num_frames(self) -> int:
        """Frames of the opened episodes."""
        return len(self)

    @property
    def num_episodes(self) -> int:
        """Opened episodes."""
        return sum(part.num_episodes for part in self._parts)

    @property
    def tolerance_s(self) -> float:
        """The smallest allowed deviation of times; `tolerances_s` has that of each dataset."""
        return min(self.tolerances_s[name] for name in self.repo_ids)

    def episode_spans(self) -> list[tuple[int, int]]:
        """Return first position and end of every opened episode."""
        spans = []
        for number, part in enumerate(self._parts):
            first = self._index.positions(number).start
            index = part.reader.index
            spans += [(first + span.start, first + span.stop) for span in map(index.positions, index.episodes)]
        return spans

    def set_image_transforms(self, transforms: Callable[[Any], Any]) -> None:
        """Set what is called with each picture that is read.

        Args:
            transforms: Takes and returns a tensor.
        """
        for part in self._parts:
            part.set_image_transforms(transforms)

    def clear_image_transforms(self) -> None:
        """Read pictures as they are."""
        for part in self._parts:
            part.clear_image_transforms()

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, position: int) -> Item:
        number, inner = self._index.locate(int(position))
        return _numbered([self._parts[number][inner]], number)[0]

    def __getitems__(self, positions: Sequence[int]) -> list[Item]:
        """Return several items at once, which decodes neighbouring frames together. Called by torch's DataLoader.

        Args:
            positions: Positions, in any order.

        Returns:
            One item for each.
        """
        where = [self._index.locate(int(position)) for position in positions]
        found: dict[int, Item] = {}
        for number in sorted({part for part, _ in where}):
            slots = [slot for slot, (part, _) in enumerate(where) if part == number]
            items = self._parts[number].__getitems__([where[slot][1] for slot in slots])
            found.update(zip(slots, _numbered(items, number), strict=True))
        return [found[slot] for slot in range(len(where))]

    def __repr__(self) -> str:
        size = f"{self.num_episodes} episodes, {self.num_frames} frames"
        return f"<MultiLeRobotDataset {', '.join(self.repo_ids)}: {size}>"


def _numbered(items: list[Item], number: int) -> list[Item]:
    import torch

    for item in items:
        item["dataset_index"] = torch.tensor(number)
    return items


def _common_fps(parts: Sequence[LeRobotDataset]) -> int:
    rates = {part.repo_id: part.fps for part in parts}
    if len(set(rates.values())) > 1:
        listed = ", ".join(f"{name} {fps}" for name, fps in rates.items())
        raise DatasetError(f"The datasets have different frame rates, in frames per second: {listed}.")
    return parts[0].fps


def _common_features(parts: Sequence[LeRobotDataset]) -> dict[str, Feature]:
    first, others = parts[0], parts[1:]
    common = {
        name: feature
        for name, feature in first.meta.parsed_features.items()
        if all(name in part.meta.parsed_features for part in others)
    }
    if not common.keys() - DEFAULT_FEATURES.keys():
        raise DatasetError(f"The datasets {', '.join(part.repo_id for part in parts)} have no feature in common.")
    for name, feature in common.items():
        for part in others:
            other = part.meta.parsed_features[name]
            problem = _difference(feature, other)
            if problem:
                raise DatasetError(
                    f"Feature {name!r} differs: {first.repo_id} has {problem[0]}, {part.repo_id} has {problem[1]}.",
                    hint="Remove the feature from one of them, or change it so that both agree.",
                )
            if feature.names != other.names and not feature.is_camera:
                text = "Names of %r differ: %s has %s, %s has %s. They are taken for the same values."
                logger.warning(text, name, first.repo_id, feature.names, part.repo_id, other.names)
    return common


def _difference(one: Feature, other: Feature) -> tuple[str, str] | None:
    """Return what makes the items of two features differ; how they are stored does not matter."""
    for described in (_kind, _shape):
        if described(one) != described(other):
            return described(one), described(other)
    if one.names != other.names and not one.is_camera and _is_reordered(one.names, other.names):
        return f"the order {one.names}", f"the order {other.names}"
    return None


def _kind(feature: Feature) -> str:
    if feature.is_camera:
        return "depth maps" if feature.is_depth else "pictures"
    return f"dtype {feature.item_dtype if feature.is_numeric else feature.dtype}"


def _shape(feature: Feature) -> str:
    return f"shape {feature.item_shape}"


def _is_reordered(names: Any, others: Any) -> bool:
    return isinstance(names, list) and isinstance(others, list) and sorted(map(str, names)) == sorted(map(str, others))
