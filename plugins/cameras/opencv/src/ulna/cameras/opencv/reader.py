# SPDX-License-Identifier: Apache-2.0
"""The thread that takes pictures from a source and hands out the newest one. Knows nothing of OpenCV or of settings."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ulna.core.cameras import CameraState, Frame
from ulna.core.errors import DeviceError, DeviceNotConnectedError, FrameTimeoutError

__all__ = ["FrameReader", "FrameSource", "Timing"]

logger = logging.getLogger(__name__)

_JOIN_S = 5.0
_PAUSE_S = 0.01


class FrameSource(Protocol):
    """Where pictures come from. All of it is called by the reader's thread alone."""

    def read(self) -> NDArray[np.uint8] | None:
        """Wait for the next picture; None when there was none."""
        ...

    def close(self) -> None:
        """Release it; may be called again."""
        ...


class Timing:
    """How patient a reader is, in seconds.

    Args:
        stalled_after_s: Age of the newest frame from which a camera counts as stalled.
        lost_after_s: Age from which it counts as lost and is given up.
        reopen_after_s: How long reading may fail before the source is opened anew.
        retry_s: Pause between attempts to open it.
        period_s: Time between two pictures of a source that gives them at once; 0 for a camera, which sets its own
            pace.
    """

    def __init__(
        self,
        *,
        stalled_after_s: float = 0.25,
        lost_after_s: float = 10.0,
        reopen_after_s: float = 0.3,
        retry_s: float = 0.5,
        period_s: float = 0.0,
    ) -> None:
        self.stalled_after_s, self.lost_after_s = stalled_after_s, lost_after_s
        self.reopen_after_s, self.retry_s, self.period_s = reopen_after_s, retry_s, period_s


class FrameReader:
    """Takes pictures in a thread of its own from `start` to `stop`. A camera makes one for each connection.

    The thread owns the source and releases it as its last deed, so that nothing is closed under a read that is still
    going on.

    Args:
        name: The camera, for messages.
        source: An open source.
        reopen: Opens the source anew; None when it ends for good, DeviceError when it is not there (yet).
        timing: How patient it is.
    """

    def __init__(
        self, name: str, source: FrameSource, reopen: Callable[[], FrameSource | None], timing: Timing
    ) -> None:
        self._name, self._source, self._reopen, self._timing = name, source, reopen, timing
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._frame: Frame | None = None
        self._count = 0
        self._over: str | None = None
        self._heard = self._opened = time.perf_counter()
        self._thread = threading.Thread(target=self._run, name=f"frames of {name}", daemon=True)

    def start(self) -> None:
        """Begin to take pictures."""
        self._heard = self._opened = time.perf_counter()
        self._thread.start()

    def stop(self) -> None:
        """Stop and wait for the thread, which releases the source; safe to call again."""
        self._stop.set()
        with self._changed:
            self._over = self._over or "it was disconnected"
            self._changed.notify_all()
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            logger.warning("%s: its driver does not return; the device is released when it does.", self._name)

    @property
    def state(self) -> CameraState:
        """Live, stalled or lost, by the age of the newest frame."""
        if self._over is not None:
            return CameraState.LOST
        age = time.perf_counter() - self._heard
        if age > self._timing.lost_after_s:
            return CameraState.LOST
        return CameraState.STALLED if age > self._timing.stalled_after_s else CameraState.LIVE

    @property
    def why_over(self) -> str:
        """Why no frames come any more; empty while they may."""
        return self._over or ""

    def latest(self) -> Frame | None:
        """Return the newest frame without waiting, or None before the first."""
        return self._frame

    def wait_newer(self, number: int, timeout_s: float) -> Frame:
        """Wait for a frame.

        Args:
            number: It must be numbered above this.
            timeout_s: How long to wait, seconds.

        Returns:
            The newest frame.

        Raises:
            FrameTimeoutError: None came in time.
            DeviceNotConnectedError: None will come any more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_newer(number) or self._over is not None, timeout_s)
            if self._frame is not None and self._frame.number > number:
                return self._frame
            if self._over is not None:
                raise DeviceNotConnectedError(f"{self._name}: no more frames, {self._over}.", device=self._name)
        raise FrameTimeoutError(
            f"{self._name}: no new frame within {timeout_s * 1e3:.0f} ms.",
            device=self._name,
            hint="Check the camera's cable and USB bandwidth.",
        )

    def _is_newer(self, number: int) -> bool:
        return self._frame is not None and self._frame.number > number

    def _run(self) -> None:
        why = "it was disconnected"
        try:
            why = self._take_pictures()
        except Exception as error:  # nobody is there to catch it: it becomes the reason the camera is lost
            logger.exception("%s: reading frames failed.", self._name)
            why = f"reading failed: {error}"
        finally:
            self._source.close()
            with self._changed:
                self._over = why
                self._changed.notify_all()

    def _take_pictures(self) -> str:
        """Publish pictures until told to stop or the source is lost; return why it ended."""
        due = time.perf_counter()
        while not self._stop.is_set():
            image = self._source.read()
            now = time.perf_counter()
            if image is not None:
                self._publish(image, now)
                due = max(due, now - self._timing.period_s) + self._timing.period_s
                self._stop.wait(max(0.0, due - time.perf_counter()) if self._timing.period_s else 0.0)
            elif self._timing.period_s or now - max(self._heard, self._opened) > self._timing.reopen_after_s:
                ended = self._open_anew()
                if ended:
                    return ended
            else:
                self._stop.wait(_PAUSE_S)
        return "it was disconnected"

    def _publish(self, image: NDArray[np.uint8], now: float) -> None:
        with self._changed:
            self._frame = Frame(image, now, self._count)
            self._count += 1
            self._heard = now
            self._changed.notify_all()

    def _open_anew(self) -> str:
        """Open the source again, as often as patience allows; return why that failed, or nothing."""
        self._source.close()
        problem = "it gives no pictures"
        while not self._stop.is_set():
            if time.perf_counter() - self._heard > self._timing.lost_after_s:
                logger.error("%s: lost, %s.", self._name, problem)
                return problem
            try:
                source = self._reopen()
            except DeviceError as error:
                problem = error.message
            else:
                if source is None:
                    return "the video has ended"
                self._source, self._opened = source, time.perf_counter()
                if not self._timing.period_s:
                    logger.warning("%s: opened again after %.1f s.", self._name, time.perf_counter() - self._heard)
                return ""
            self._stop.wait(self._timing.retry_s)
        return ""
