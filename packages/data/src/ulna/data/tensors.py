# SPDX-License-Identifier: Apache-2.0
"""Turns items into what users get: pictures in [0, 1] or uint8, as torch tensors or numpy arrays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ulna.core.errors import MissingDependencyError
from ulna.data.shared_rooms import SentRoom, on_memory, received_tensor, send_room

__all__ = ["BatchItem", "batch_items", "collate_items", "finish", "to_torch"]

Item = dict[str, Any]

_SMALL_BYTES: Final = 2**16


class _Whole:
    """The batch that some items are parts of. Knows nothing of the items, so that no cycle keeps pictures alive."""

    def __init__(self, columns: dict[str, Any], parts: dict[str, Sequence[Any]], count: int) -> None:
        self.columns, self.parts, self.count = columns, parts, count

    def is_made_of(self, items: Sequence[Any]) -> bool:
        """Return whether these are all of its items, in order, and nobody has put anything else into them."""
        if len(items) != self.count or any(getattr(item, "whole", None) is not self for item in items):
            return False
        return all(
            len(item) == len(self.parts) and all(item.get(key) is part[n] for key, part in self.parts.items())
            for n, item in enumerate(items)
        )


def _tensor(torch: Any, array: np.ndarray[Any, Any]) -> Any:
    """Return an array as a tensor; if a tensor owns its memory, as that one, which may lie in shared memory."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if torch.is_tensor(owner) and owner.nbytes == array.nbytes and array.flags.c_contiguous:
        return owner.view(array.shape)
    return torch.from_numpy(array)


class BatchItem(Item):
    """An item that was read together with others. Otherwise a plain dict, and one when it is copied or sent.

    Attributes:
        whole: What its tensors are parts of.
    """

    __slots__ = ("whole",)

    def __init__(self, values: Item, whole: _Whole) -> None:
        super().__init__(values)
        self.whole = whole

    def __reduce__(self) -> tuple[type[Item], tuple[Item]]:
        return dict, (dict(self),)


def batch_items(
    columns: dict[str, Any],
    count: int,
    cameras: Collection[str],
    image_transforms: Callable[[Any], Any] | None = None,
) -> list[Item]:
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
            stacked[key] = _tensor(torch, value)
            parts[key] = stacked[key].unbind(0)
        else:
            stacked[key] = parts[key] = [torch.from_numpy(v) if isinstance(v, np.ndarray) else v for v in value]
        if image_transforms is not None and key in cameras:
            stacked[key] = parts[key] = [image_transforms(part) for part in parts[key]]
    whole = _Whole(stacked, parts, count)
    _teach_torch()
    return [BatchItem({key: part[n] for key, part in parts.items()}, whole) for n in range(count)]


def collate_items(items: Sequence[Item]) -> Item:
    """Return a batch of items, for `DataLoader(collate_fn=...)`: tensors stacked, everything else as lists.

    Items that were read together need no work: their tensors are parts of one already. torch's own `default_collate`
    comes here with them, too.

    Args:
        items: At least one item, all with the same keys. What no dataset of Ulna made is left to torch.

    Returns:
        Key to tensor (B, ...), or a list.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    torch = _torch()
    whole = getattr(items[0], "whole", None)
    if whole is None or not whole.is_made_of(items):
        plain = [dict(item) if isinstance(item, BatchItem) else item for item in items]
        batch: Item = torch.utils.data.default_collate(plain)
        if not isinstance(batch, dict):  # the items were none
            return batch
    else:
        batch = {
            key: torch.stack(value) if isinstance(value, list) and torch.is_tensor(value[0]) else value
            for key, value in whole.columns.items()
        }
    return batch if torch.utils.data.get_worker_info() is None else _SentBatch(batch)


class _SentBatch(Item):
    """A batch that a worker makes; whoever receives it gets a plain dict.

    Its small tensors travel as bytes inside the message: a tensor that torch sends by itself takes a piece of shared
    memory, whose making costs more than what is in it. Its pictures travel with the rooms that they were made in.
    """

    __slots__ = ()

    def __copy__(self) -> Item:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Item:
        return copy.deepcopy(dict(self), memo)

    def __reduce__(self) -> tuple[Callable[..., Item], tuple[Any, ...]]:
        torch = _torch()
        plain = {key: value for key, value in self.items() if _is_plain(torch, value)}
        small = {key: value for key, value in plain.items() if value.nbytes <= _SMALL_BYTES}
        rooms = {key: room for key, value in plain.items() if key not in small and (room := send_room(value))}
        numbers = {
            key: (bytearray(value.contiguous().view(-1).view(torch.uint8).numpy()), value.dtype, tuple(value.shape))
            for key, value in small.items()
        }
        others = {key: value for key, value in self.items() if key not in small and key not in rooms}
        return _received, (list(self), numbers, rooms, others)


def _is_plain(torch: Any, value: Any) -> bool:
    """Return whether a value is a tensor that its bytes describe."""
    if type(value) is not torch.Tensor or value.is_nested or value.layout != torch.strided:
        return False
    if value.device.type != "cpu":
        return False
    return not (value.requires_grad or value.is_conj() or value.is_neg() or value.is_quantized) and value.nbytes > 0


def _received(
    keys: Sequence[str],
    numbers: Mapping[str, tuple[bytearray, Any, tuple[int, ...]]],
    rooms: Mapping[str, SentRoom],
    others: Item,
) -> Item:
    """Return the batch that was sent."""
    torch = _torch()
    batch = {**others, **{key: received_tensor(room) for key, room in rooms.items()}}
    for key, (data, dtype, shape) in numbers.items():
        batch[key] = on_memory(torch.frombuffer(data, dtype=torch.uint8), dtype, shape)
    return {key: batch[key] for key in keys}


def _collate_for_torch(items: Sequence[Item], *, collate_fn_map: Any = None) -> Item:
    return collate_items(items)


def _teach_torch() -> None:
    """Tell `default_collate` about batch items, in the way its documentation describes for own types."""
    from torch.utils.data._utils.collate import default_collate_fn_map

    if BatchItem not in default_collate_fn_map:
        default_collate_fn_map[BatchItem] = _collate_for_torch


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
