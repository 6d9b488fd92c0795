# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while training: the first asks for an orderly end, the second stops at once."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["InterruptRequest"]

_log = logging.getLogger(__name__)


class InterruptRequest:
    """Watches SIGINT while it is entered, in the main thread; elsewhere it never sees one.

    Attributes:
        requested: Whether Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        _log.warning("Ctrl-C: the step is finished and a checkpoint saved; press it again to stop at once.")
