# SPDX-License-Identifier: Apache-2.0
"""Turns items into what users get: pictures in [0, 1] or uint8, as torch tensors or numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ulna.core.errors import MissingDependencyError

__all__ = ["ItemBatch", "batch_items", "collate_items", "finish", "to_torch"]

Item = dict[str, Any]


class ItemBatch(list[Item]):
    """Items that were read together. Made by `LeRobotDataset.__getitems__`.

    Attributes:
        columns: The same values by key: tensors (B, ...), or lists.
    """

    def __init__(self, items: Iterable[Item], columns: dict[str, Any]) -> None:
        super().__init__(items)
        self.columns = columns


def batch_items(
    columns: dict[str, Any],
    count: int,
    cameras: Collection[str],
    image_transforms: Callable[[Any], Any] | None = None,
) -> ItemBatch:
    """Turn columns that were read into items of tensors, which are parts of the columns.

    Args:
        columns: Key to an array (B, ...), or a list. Not changed.
        count: Number of items.
        cameras: Keys of the colour pictures.
        image_transforms: Called with each of them.

    Returns:
        The items.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    torch = _torch()
    stacked: dict[str, Any] = {}
    parts: dict[str, Sequence[Any]] = {}
    for key, value in columns.items():
        if isinstance(value, np.ndarray):
            stacked[key] = torch.from_numpy(value)
            parts[key] = stacked[key].unbind(0)
        else:
            arrays = [torch.from_numpy(v) if isinstance(v, np.ndarray) else v for v in value]
            stacked[key] = parts[key] = arrays
        if image_transforms is not None and key in cameras:
            stacked[key] = parts[key] = [image_transforms(part) for part in parts[key]]
    return ItemBatch(({key: part[n] for key, part in parts.items()} for n in range(count)), stacked)


def collate_items(items: Sequence[Item]) -> Item:
    """Return a batch of items, for `DataLoader(collate_fn=...)`: tensors stacked, everything else as lists.

    Items that were read together need no work: their tensors are parts of one already.

    Args:
        items: At least one item, all with the same keys. What no dataset of Ulna made is left to torch.

    Returns:
        Key to tensor (B, ...), or a list.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    torch = _torch()
    if not isinstance(items, ItemBatch):
        collated: Item = torch.utils.data.default_collate(items)
        return collated
    return {
        key: torch.stack(value) if isinstance(value, list) and torch.is_tensor(value[0]) else value
        for key, value in items.columns.items()
    }


def _torch() -> Any:
    try:
        import torch.utils.data
    except ImportError as error:
        raise MissingDependencyError(
            "torch", "dataset[i]", "pip install 'ulna-data[torch]' (or use numpy_item)"
        ) from error
    return torch


def to_torch(item: dict[str, Any], cameras: Collection[str], *, as_uint8: bool) -> dict[str, Any]:
    """Turn the arrays of an item into tensors, in place.

    Args:
        item: Item whose colour pictures are uint8.
        cameras: Keys of the colour pictures.
        as_uint8: Whether they stay uint8, else they become float32 in [0, 1].

    Returns:
        The same item.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    torch = _torch()
    for key, value in item.items():
        if isinstance(value, np.ndarray):
            tensor = torch.from_numpy(value)
            item[key] = tensor.to(torch.float32).div_(255) if key in cameras and not as_uint8 else tensor
    return item


def finish(
    item: dict[str, Any],
    cameras: Collection[str],
    *,
    as_uint8: bool,
    image_transforms: Callable[[Any], Any] | None,
) -> dict[str, Any]:
    """Turn an item that was read into what users get from a dataset, in place.

    Args:
        item: Item whose pictures are uint8.
        cameras: Keys of the colour pictures.
        as_uint8: Whether they stay uint8, else they become float32 in [0, 1].
        image_transforms: Called with each of them.

    Returns:
        The same item.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    to_torch(item, cameras, as_uint8=as_uint8)
    if image_transforms is not None:
        for camera in cameras:
            if camera in item:
                item[camera] = image_transforms(item[camera])
    return item
