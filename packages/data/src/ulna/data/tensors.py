# SPDX-License-Identifier: Apache-2.0
"""Turns items into what users get: pictures in [0, 1] or uint8, as torch tensors or numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ulna.core.errors import MissingDependencyError

__all__ = ["finish", "numpy_pictures", "to_torch"]


def numpy_pictures(item: dict[str, Any], cameras: Collection[str]) -> dict[str, Any]:
    """Scale the pictures of an item to float32 in [0, 1], in place.

    Args:
        item: Item whose colour pictures are uint8.
        cameras: Keys of the colour pictures.

    Returns:
        The same item.
    """
    for key in cameras:
        if key in item:
            item[key] = np.divide(item[key], np.float32(255), dtype=np.float32)
    return item


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
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            "torch", "dataset[i]", "pip install 'ulna-data[torch]' (or use numpy_item)"
        ) from error
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
