# SPDX-License-Identifier: Apache-2.0
"""A dataset held in memory: every frame is decoded once (pictures stay uint8), and batches are cut out by index."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ulna.core.errors import ConfigError, ConfigProblem
from ulna.data import collate_items
from ulna.data.index import frame_offsets

if TYPE_CHECKING:
    from ulna.data import LeRobotDataset

__all__ = ["InMemoryDataset", "keep_in_memory"]

_log = logging.getLogger(__name__)
_FRAMES_AT_ONCE = 32
_DEPTH_BYTES = 4
_ITEM_BYTES = {"image": 1, "video": 1, "bool": 1, "uint8": 1, "int8": 1, "float16": 2, "float32": 4, "int32": 4}


class InMemoryDataset:
    """All frames of some episodes in memory, with time windows. Safe for reading from several threads.

    Args:
        columns: Key to tensor (frames, ...) or list of texts, one for each frame.
        spans: First frame and end of each episode, one after another without gaps.
        meta: Metadata of the dataset it came from.
        windows: Key to frame offsets; the key gets a leading time axis and a mask `<key>_is_pad`.

    Raises:
        ValueError: Columns differ in length, or the episodes do not cover them.
    """

    def __init__(
        self,
        columns: Mapping[str, Tensor | list[str]],
        spans: Sequence[tuple[int, int]],
        meta: Any,
        windows: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        lengths = {key: len(column) for key, column in columns.items()}
        ends = [0, *(stop for _, stop in spans)]
        if len(set(lengths.values())) != 1 or [start for start, _ in spans] != ends[:-1]:
            raise ValueError(f"Columns of one length and episodes without gaps are needed; got {lengths} and {spans}.")
        if ends[-1] != next(iter(lengths.values())):
            raise ValueError(f"The episodes end at {ends[-1]}, the columns have {lengths}.")
        self.meta = meta
        self._columns = dict(columns)
        self._spans = list(spans)
        self._windows = {key: torch.tensor(list(offsets)) for key, offsets in (windows or {}).items()}
        repeats = torch.tensor([stop - start for start, stop in spans])
        self._first = torch.repeat_interleave(torch.tensor([start for start, _ in spans]), repeats)
        self._last = torch.repeat_interleave(torch.tensor([stop - 1 for _, stop in spans]), repeats)

    def __len__(self) -> int:
        return len(self._first)

    def __getitem__(self, position: int) -> dict[str, Any]:
        if not -len(self) <= position < len(self):
            raise IndexError(f"Position {position} is outside a dataset of {len(self)} frames.")
        return {key: value[0] for key, value in self.batch([position % len(self)]).items()}

    def episode_spans(self) -> list[tuple[int, int]]:
        """Return first position and end of every episode."""
        return list(self._spans)

    @property
    def nbytes(self) -> int:
        """Memory taken by the tensors."""
        return sum(c.numel() * c.element_size() for c in self._columns.values() if isinstance(c, Tensor))

    def batch(self, positions: Sequence[int]) -> dict[str, Any]:
        """Return the samples at some positions, stacked.

        Args:
            positions: Positions in the dataset, none negative.

        Returns:
            Key to tensor (B, ...) or list of B texts, and the masks of the windows.
        """
        where = torch.as_tensor(positions)
        found: dict[str, Any] = {}
        for key, column in self._columns.items():
            if key in self._windows:
                wanted = where[:, None] + self._windows[key]  # (B, T)
                inside = torch.clamp(wanted, self._first[where][:, None], self._last[where][:, None])
                found[key] = _take(column, inside)
                found[f"{key}_is_pad"] = inside != wanted
            else:
                found[key] = _take(column, where)
        return found


def _take(column: Tensor | list[str], where: Tensor) -> Any:
    """Return the entries of a column at an index tensor of any shape."""
    if isinstance(column, Tensor):
        return column.index_select(0, where.flatten()).reshape(*where.shape, *column.shape[1:])
    return [column[i] for i in where.tolist()] if where.ndim == 1 else [[column[i] for i in r] for r in where.tolist()]


def keep_in_memory(
    dataset: LeRobotDataset,
    delta_timestamps: Mapping[str, Sequence[float]] | None,
    *,
    limit_bytes: int,
    progress: Callable[[int, int], None] | None = None,
) -> InMemoryDataset:
    """Read a whole dataset into memory.

    Args:
        dataset: Opened without windows, with pictures as uint8.
        delta_timestamps: Key to time differences in seconds, for the windows.
        limit_bytes: Most memory it may take.
        progress: Called now and then with frames read and frames in all.

    Returns:
        The same samples, from memory.

    Raises:
        ConfigError: It would take more memory than allowed; how much is said before anything is decoded.
        DatasetError: A window asks for a time between two frames.
    """
    total, needed = len(dataset), len(dataset) * _frame_bytes(dataset.features, dataset.meta.depth_keys)
    if needed > limit_bytes:
        expected = (
            f"holds {total} frames, which need {needed / 1e9:.2f} GB; raise dataset.cache_limit_gb or leave it out"
        )
        problem = ConfigProblem("dataset.cache", f"ram, up to {limit_bytes / 1e9:.2f} GB", expected)
        raise ConfigError([problem], title="training settings")
    windows = {
        key: frame_offsets(key, seconds, dataset.fps, dataset.tolerance_s)
        for key, seconds in (delta_timestamps or {}).items()
    }
    _log.info("Decoding %d frames into memory (about %.0f MB)", total, needed / 1e6)
    began = time.perf_counter()
    columns = _read(dataset, progress)
    index = dataset.reader.index
    spans = [(span.start, span.stop) for span in map(index.positions, index.episodes)]
    kept = InMemoryDataset(columns, spans, dataset.meta, windows)
    _log.info("%d frames (%.1f MB) in memory after %.1f s", total, kept.nbytes / 1e6, time.perf_counter() - began)
    return kept


def _frame_bytes(features: Mapping[str, Mapping[str, Any]], depth_keys: Collection[str]) -> int:
    return sum(
        math.prod(f["shape"]) * (_DEPTH_BYTES if key in depth_keys else _ITEM_BYTES.get(f["dtype"], 8))
        for key, f in features.items()
    )


def _read(dataset: LeRobotDataset, progress: Callable[[int, int], None] | None) -> dict[str, Tensor | list[str]]:
    total = len(dataset)
    columns: dict[str, Any] = {}
    for first in range(0, total, _FRAMES_AT_ONCE):
        positions = range(first, min(first + _FRAMES_AT_ONCE, total))
        for key, value in collate_items(dataset.__getitems__(positions)).items():
            if isinstance(value, Tensor):
                if first == 0:
                    columns[key] = torch.empty((total, *value.shape[1:]), dtype=value.dtype)
                columns[key][first : positions.stop] = value
            else:
                columns.setdefault(key, []).extend(value)
        if progress is not None:
            progress(first, total)
    return columns
