# SPDX-License-Identifier: Apache-2.0
"""Turns items into what users get: channel-first pictures in [0, 1] or uint8, as torch tensors or numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ulna.core.errors import MissingDependencyError

if TYPE_CHECKING:
    import torch

__all__ = ["numpy_pictures", "to_torch"]


def numpy_pictures(item: dict[str, Any], cameras: Sequence[str], *, as_uint8: bool) -> dict[str, Any]:
    """Make the pictures of an item channel-first, in place.

    Args:
        item: Item whose pictures are uint8 (..., H, W, C).
        cameras: Keys of the pictures.
        as_uint8: Whether they stay uint8, else they become float32 in [0, 1].

    Returns:
        The same item.
    """
    for key in cameras:
        if key in item:
            picture = np.ascontiguousarray(np.moveaxis(item[key], -1, -3))
            item[key] = picture if as_uint8 else np.divide(picture, np.float32(255), dtype=np.float32)
    return item


def to_torch(item: dict[str, Any], cameras: Sequence[str], *, as_uint8: bool) -> dict[str, Any]:
    """Turn the arrays of an item into tensors, pictures channel-first, in place.

    Args:
        item: Item whose pictures are uint8 (..., H, W, C).
        cameras: Keys of the pictures.
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
            item[key] = _picture(torch, value, as_uint8) if key in cameras else torch.from_numpy(value)
    return item


def _picture(torch_module: Any, value: np.ndarray[Any, Any], as_uint8: bool) -> torch.Tensor:
    source = value if value.flags.writeable else value.copy()
    first: torch.Tensor = torch_module.from_numpy(source).movedim(-1, -3)
    if as_uint8:
        return first.contiguous()
    return first.to(torch_module.float32, memory_format=torch_module.contiguous_format).div_(255)
