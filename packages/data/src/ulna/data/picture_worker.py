# SPDX-License-Identifier: Apache-2.0
"""The thread that takes the pictures of one camera during one episode. What it does with them is up to the subclass."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import numpy.typing as npt

from ulna.core.errors import DatasetError

__all__ = ["Picture", "PictureWorker"]

Picture = npt.NDArray[Any]
Result = TypeVar("Result")


class PictureWorker(ABC, Generic[Result]):
    """Consumes pictures from a bounded queue. Created per camera and episode; ended by `finish` or `abort`.

    Args:
        name: The camera, for messages.
        queue_size: Pictures that may wait.
    """

    def __init__(self, name: str, queue_size: int) -> None:
        self._name = name
        self._queue: queue.Queue[Picture | None] = queue.Queue(maxsize=queue_size)
        self._error: BaseException | None = None
        self._ended = self._aborted = False
        self._limit: int | None = None
        self._result: Result | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"camera {name}", daemon=True)
        self._thread.start()

    @abstractmethod
    def _work(self) -> Result:
        """Consume `self._pictures()` to the end and return the result. Runs in the thread."""

    def _pictures(self) -> Iterator[Picture]:
        while (picture := self._queue.get()) is not None:
            if not self._aborted:
                yield picture
        self._ended = True

    @property
    def has_room(self) -> bool:
        """Whether `put` would not wait."""
        return not self._queue.full()

    @property
    def waiting(self) -> int:
        """Pictures in the queue."""
        return self._queue.qsize()

    def put(self, picture: Picture) -> None:
        """Hand over one picture; waits while the queue is full.

        Args:
            picture: uint8 (H, W, C), or a depth map (H, W, 1); must not be changed afterwards.

        Raises:
            DatasetError: The thread has failed.
        """
        self.check()
        self._queue.put(picture)

    def wait_for_room(self) -> None:
        """Wait until `put` would not wait, or the thread has failed and takes whatever comes."""
        room = self._queue.not_full
        with room:
            room.wait_for(lambda: self._queue._qsize() < self._queue.maxsize)

    def check(self) -> None:
        """Raise what made the thread fail.

        Raises:
            DatasetError: It has failed.
        """
        if self._error is not None:
            raise DatasetError(
                f"Storing the pictures of {self._name!r} failed: {self._error}",
                hint="Finished episodes are safe. save_episode() ends this one and keeps the frames that are whole, "
                "clear_episode_buffer() discards it.",
            ) from self._error

    def end(self, frames: int | None = None) -> None:
        """Say that no picture follows, without waiting for the work to end.

        Args:
            frames: Pictures that count; None counts all. One more was put when the caller was interrupted in a frame.
        """
        self._limit = frames
        self._queue.put(None)

    def _kept(self, frames: int) -> int:
        """Return how many of the pictures count, once there are no more."""
        if self._aborted:
            return 0
        return frames if self._limit is None else min(frames, self._limit)

    def finish(self) -> Result:
        """Wait for the work to end; `end` must have been called.

        Returns:
            The result.

        Raises:
            DatasetError: The thread has failed.
        """
        self._done.wait()
        self.check()
        assert self._result is not None
        return self._result

    def abort(self) -> None:
        """Stop without a result and wait for the thread. May be called at any time, also after a failure."""
        self._aborted = True
        self._queue.put(None)
        self._done.wait()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except Exception as error:  # noqa: BLE001 - kept and raised in the caller's thread by `check`
            self._error = error
            # Keep emptying the queue, so that nobody waits for room in it for ever.
            while not self._ended:
                self._ended = self._queue.get() is None
        finally:
            self._done.set()
