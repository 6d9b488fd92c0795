# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a simulated camera, switched on and off by a test. The camera asks; nothing acts by itself."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["CameraFaults"]


class CameraFaults:
    """Faults of one camera. Created with the camera; its methods may be called from any thread at any time.

    Args:
        now: Tells the time on the camera's clock.
        changed: Called after each change, so that waiting readers look again.
    """

    def __init__(self, now: Callable[[], float], changed: Callable[[], None]) -> None:
        self._now, self._changed = now, changed
        self._frozen_until = -math.inf
        self._unplugged = False

    @property
    def frozen(self) -> bool:
        """Whether no new frames come at present."""
        return self._now() < self._frozen_until

    @property
    def unplugged(self) -> bool:
        """Whether the camera is not there."""
        return self._unplugged

    def freeze(self) -> None:
        """Deliver no new frame until `thaw`."""
        self._frozen_until = math.inf
        self._changed()

    def stall(self, seconds: float) -> None:
        """Deliver no new frame for a while.

        Args:
            seconds: How long, on the camera's clock.
        """
        self._frozen_until = self._now() + seconds
        self._changed()

    def thaw(self) -> None:
        """Deliver frames again."""
        self._frozen_until = -math.inf
        self._changed()

    def unplug(self) -> None:
        """Take the camera away: it is lost until it is plugged in and connected again."""
        self._unplugged = True
        self._changed()

    def replug(self) -> None:
        """Bring the camera back; it has to be connected again."""
        self._unplugged = False
        self._changed()
