# SPDX-License-Identifier: Apache-2.0
"""Shared memory in which a worker makes the pictures of its batches, and which it uses again.

New memory costs more than what is done in it: the system clears every page when it is first touched. So a worker
lends a room to a batch, sends it along, and takes it back when both sides have let go of every tensor that lies in it.
A room is an ordinary shared tensor of torch, which knows how to pass it on; its first byte tells whether the receiver
has it. A process that is forked sees the memory, and nobody hears when it has let go: a room that is in use then is
given up.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakSet, WeakValueDictionary, ref

import numpy as np
import numpy.typing as npt

__all__ = ["SentRoom", "on_memory", "received_tensor", "send_room", "shared_room"]

SentRoom = tuple[Any, int, Any, tuple[int, ...]]
"""The room, how many bytes of it are used, and torch's dtype and the shape of the tensor in it."""

_HEAD_BYTES: Final = 64
_FREE, _LENT, _GIVEN_UP = 0, 1, 2


class _Loan:
    """Part of a room that is in use as long as this object, or an array or tensor that lies in it, exists.

    Args:
        room: Shared tensor, uint8, head included.
        nbytes: How much of it is used, behind the head.

    Attributes:
        room: The same.
        nbytes: The same.
        sent: Whether another process decides when the room is free.
    """

    def __init__(self, room: Any, nbytes: int) -> None:
        self.room, self.nbytes, self.sent = room, nbytes, False
        self._head = room.numpy()
        self._process = os.getpid()
        if self._head[0] != _GIVEN_UP:
            self._head[0] = _LENT
        _follow_forks()
        _in_use.add(self)
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (room.data_ptr() + _HEAD_BYTES, False),
            "version": 3,
        }

    def array(self) -> npt.NDArray[np.uint8]:
        """Return the memory as bytes, which keep the loan."""
        return np.asarray(self)

    def give_up(self) -> None:
        """Let the room never be lent again, because a process that is about to be forked may use it for ever."""
        if self._process == os.getpid():
            self._head[0] = _GIVEN_UP

    def __del__(self, _getpid: Callable[[], int] = os.getpid, _lent: int = _LENT, _free: int = _FREE) -> None:
        """Give the room back; a fork of the process that uses it must not."""
        if not self.sent and self._process == _getpid() and self._head[0] == _lent:
            self._head[0] = _free


class _Room:
    """A room that its process keeps.

    Args:
        memory: Shared tensor, uint8, head included.

    Attributes:
        memory: The same.
        loan: Its last loan in this process, as long as that exists.
    """

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.loan: Callable[[], _Loan | None] = lambda: None
        self._head = memory.numpy()

    @property
    def is_free(self) -> bool:
        """Whether neither this process nor the receiver uses it."""
        return bool(self._head[0] == _FREE) and self.loan() is None

    @property
    def is_given_up(self) -> bool:
        """Whether it can never be lent again."""
        return bool(self._head[0] == _GIVEN_UP)

    def __len__(self) -> int:
        return len(self.memory) - _HEAD_BYTES


_rooms: tuple[int, list[_Room]] = (0, [])
_loans: WeakValueDictionary[int, _Loan] = WeakValueDictionary()
_in_use: WeakSet[_Loan] = WeakSet()
_follows_forks = False


def _follow_forks() -> None:
    global _follows_forks
    if not _follows_forks and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_give_up_rooms_in_use)
    _follows_forks = True


def _give_up_rooms_in_use() -> None:
    for loan in list(_in_use):
        loan.give_up()


def shared_room(shape: Sequence[int], dtype: npt.DTypeLike, most: int) -> npt.NDArray[Any]:
    """Return room for an array, in memory that other processes can be given.

    Args:
        shape: Shape of the array.
        dtype: Its dtype.
        most: Rooms that this process keeps; if all are in use the memory is not used again.

    Returns:
        The array, not initialised.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = _free_room(size, most)
    loan = _Loan(room.memory, size)
    room.loan = ref(loan)
    memory = loan.array()
    _loans[memory.ctypes.data] = loan
    return memory.view(dtype).reshape(shape)


def _free_room(size: int, most: int) -> _Room:
    """Return a room that nobody uses, the smallest one that is large enough."""
    global _rooms
    process, rooms = _rooms
    if process != os.getpid():  # those of the process it was forked from belong to that one
        _rooms = process, rooms = os.getpid(), []
    rooms[:] = [room for room in rooms if not room.is_given_up]
    free = [room for room in rooms if room.is_free]
    fitting = [room for room in free if size <= len(room) <= 2 * size]
    if fitting:
        return min(fitting, key=len)
    torch = sys.modules["torch"]
    storage = torch.UntypedStorage._new_shared(size + _HEAD_BYTES)  # as torch's own collate function
    room = _Room(torch.empty(0, dtype=torch.uint8).set_(storage))
    if len(rooms) >= most and free:
        rooms[:] = [other for other in rooms if other is not free[0]]
    if len(rooms) < most:
        rooms.append(room)
    return room


def send_room(tensor: Any) -> SentRoom | None:
    """Return what makes the receiver get a tensor that fills a room; None for any other, and for one that was sent.

    Args:
        tensor: A tensor of this process. It may still be read, and must not be changed.
    """
    loan = _loans.get(tensor.data_ptr())
    if loan is None or loan.sent or tensor.nbytes != loan.nbytes or not tensor.is_contiguous():
        return None
    loan.sent = True
    return loan.room, tensor.nbytes, tensor.dtype, tuple(tensor.shape)


def received_tensor(sent: SentRoom) -> Any:
    """Return the tensor that another process sent; that one uses the room again when neither needs it any more.

    Args:
        sent: What `send_room` returned there.
    """
    room, nbytes, dtype, shape = sent
    return on_memory(sys.modules["torch"].from_numpy(_Loan(room, nbytes).array()), dtype, shape)


def on_memory(data: Any, dtype: Any, shape: Sequence[int]) -> Any:
    """Return a tensor on the memory of another one. It is no view, which autograd would not let be changed in place.

    Args:
        data: Bytes, all of their storage.
        dtype: Dtype of the tensor.
        shape: Its shape.
    """
    return sys.modules["torch"].empty(0, dtype=dtype).set_(data.untyped_storage(), 0, tuple(shape))
