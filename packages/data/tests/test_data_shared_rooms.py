# SPDX-License-Identifier: Apache-2.0
"""Memory of batches that workers use again: never while anything of a batch is in use, wherever it is."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ulna.data.shared_rooms as rooms
from ulna.data import LeRobotDataset
from ulna.data.shared_rooms import received_tensor, send_room, shared_room

CAMERA = "observation.images.cam"
SIZE = 1000


@pytest.fixture(autouse=True)
def _own_rooms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rooms, "_rooms", (0, []))
    yield
    gc.collect()


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_a_room_is_lent_again_when_nothing_lies_in_it() -> None:
    """A part of an array, or a tensor made of it, keeps the room as the array does."""
    array = shared_room((10, SIZE // 10), np.uint8, 4)
    first, part = address(array), torch.from_numpy(array)[3:5]
    del array
    other = shared_room((SIZE,), np.uint8, 4)
    assert address(other) != first
    del part
    assert address(shared_room((SIZE // 4,), np.float32, 4)) == first


def test_the_smallest_room_that_fits_is_taken() -> None:
    """A room more than twice as large is left for a batch that needs it."""
    sizes = [1000, 1500, 5000]
    held = [shared_room((size,), np.uint8, 4) for size in sizes]
    at = [address(array) for array in held]
    held.clear()
    assert address(shared_room((900,), np.uint8, 4)) == at[0]
    assert address(shared_room((1200,), np.uint8, 4)) == at[1]
    assert address(shared_room((2000,), np.uint8, 4)) not in at


def test_more_rooms_than_are_kept() -> None:
    """What is over is given back to the system; rooms of a size that nobody needs any more make place."""
    held = [shared_room((SIZE,), np.uint8, 2) for _ in range(5)]
    assert len({address(array) for array in held}) == 5
    assert len(rooms._rooms[1]) == 2
    held.clear()
    larger = [shared_room((10 * SIZE,), np.uint8, 2) for _ in range(2)]
    assert [len(room) >= 10 * SIZE for room in rooms._rooms[1]] == [True, True]
    assert len(larger) == 2


def test_the_receiver_decides_when_the_room_is_free() -> None:
    array = shared_room((4, 5), np.float32, 4)
    array[:] = np.arange(20).reshape(4, 5)
    tensor, at = torch.from_numpy(array).reshape(2, 10), address(array)
    sent = send_room(tensor)
    assert sent is not None
    assert send_room(tensor) is None  # a second receiver gets a copy, in torch's way
    received = received_tensor(sent)
    assert torch.equal(received, torch.arange(20.0).reshape(2, 10))
    del array, tensor, sent
    assert address(shared_room((4, 5), np.float32, 4)) != at
    row = received[1]
    del received
    assert address(shared_room((4, 5), np.float32, 4)) != at
    del row
    assert address(shared_room((4, 5), np.float32, 4)) == at


def test_a_received_batch_that_a_fork_may_use_is_not_made_anew() -> None:
    array = shared_room((SIZE,), np.uint8, 4)
    [room], received = rooms._rooms[1], received_tensor(send_room(torch.from_numpy(array)))  # type: ignore[arg-type]
    rooms._give_up_rooms_in_use()  # as before a fork
    del array, received
    other = shared_room((SIZE,), np.uint8, 4)
    assert room not in rooms._rooms[1]
    assert len(other) == SIZE


def test_only_what_fills_a_room_is_sent_with_it() -> None:
    array = shared_room((4, 5), np.float32, 4)
    tensor = torch.from_numpy(array)
    assert send_room(tensor[:2]) is None
    assert send_room(tensor.T) is None
    assert send_room(torch.zeros(4, 5)) is None
    assert send_room(tensor) is not None


def test_the_sender_may_keep_what_it_sent() -> None:
    """A cache of items, or a batch that is mixed with the next: the room is free when both sides have let go."""
    array = shared_room((SIZE,), np.uint8, 4)
    at, kept = address(array), array[10:20]
    received = received_tensor(send_room(torch.from_numpy(array)))  # type: ignore[arg-type]
    del array, received
    assert address(shared_room((SIZE,), np.uint8, 4)) != at
    del kept
    assert address(shared_room((SIZE,), np.uint8, 4)) == at


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_neither_frees_nor_uses_the_rooms_of_its_parent() -> None:
    held, free = [shared_room((SIZE,), np.uint8, 4)], shared_room((SIZE,), np.uint8, 4)
    held_room = rooms._rooms[1][0]
    at = address(free)
    free[:] = 1
    del free
    child = os.fork()
    if child == 0:
        shared_room((SIZE,), np.uint8, 4)[:] = 2
        held.clear()
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    again = shared_room((SIZE,), np.uint8, 4)
    assert address(again) == at
    assert again.tolist() == [1] * SIZE
    assert held_room not in rooms._rooms[1]  # nobody hears when the child has let go


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("camera", ["video", "image"])
def test_batches_stay_as_they_are(scene: Any, tmp_path: Path, context: str, camera: str) -> None:
    """Some are held, whole or in part, while many others are made in the rooms that are free; workers go on."""
    root = tmp_path / "set"
    scene(camera, size=(96, 128)).record(root, [40, 25])
    dataset = LeRobotDataset("lab/scene", root, return_uint8=True)
    plain = {int(item["index"]): item[CAMERA] for item in dataset[:]}
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=4,
        shuffle=True,
        num_workers=2,
        multiprocessing_context=context,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(0),
    )
    held: list[tuple[int, Any]] = []
    choose = random.Random(0)
    for _ in range(3):
        for batch in loader:
            numbers = batch["index"].tolist()
            for number, picture in zip(numbers, batch[CAMERA], strict=True):
                assert torch.equal(picture, plain[number])
                if choose.random() < 0.1:
                    held.append((number, picture))
            del batch, picture
            while len(held) > 6:
                number, picture = held.pop(choose.randrange(len(held)))
                assert torch.equal(picture, plain[number])
                del picture
    assert all(torch.equal(picture, plain[number]) for number, picture in held)
    del loader
