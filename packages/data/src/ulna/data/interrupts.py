# SPDX-License-Identifier: Apache-2.0
"""Keeps Ctrl-C from cutting off what must run to its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

__all__ = ["uninterrupted"]

logger = logging.getLogger(__name__)


def uninterrupted(work: Callable[[], None], what: str) -> None:
    """Do something in a thread, so that Ctrl-C in the caller's thread takes effect only afterwards.

    Args:
        work: What is done.
        what: The same in words, for the log.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed meanwhile; the work was done, or not begun if that was at once.
    """
    failures: list[BaseException] = []
    done = threading.Event()  # Thread.join() forgets a running thread when Ctrl-C interrupts it (Python 3.11)
    turn, begun, given_up = threading.Lock(), threading.Event(), threading.Event()

    def run() -> None:
        with turn:
            if given_up.is_set():
                return
            begun.set()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            failures.append(error)
        finally:
            done.set()

    interrupt: KeyboardInterrupt | None = None
    try:
        threading.Thread(target=run, name=what).start()
        done.wait()
    except KeyboardInterrupt as pressed:
        with turn:
            if not begun.is_set():  # then the thread, if it is there, does nothing
                given_up.set()
                raise
        logger.warning("Ctrl-C: %s, one moment.", what)
        interrupt = _wait_for(done, what) or pressed
    if failures:
        raise failures[0]
    if interrupt is not None:
        raise interrupt


def _wait_for(done: threading.Event, what: str) -> KeyboardInterrupt | None:
    """Wait, however often Ctrl-C is pressed; return that it was."""
    interrupt: KeyboardInterrupt | None = None
    while not done.is_set():
        try:
            done.wait()
        except KeyboardInterrupt as pressed:
            interrupt = pressed
            logger.warning("Ctrl-C: %s, one moment.", what)
    return interrupt
