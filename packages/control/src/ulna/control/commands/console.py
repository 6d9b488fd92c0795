# SPDX-License-Identifier: Apache-2.0
"""What commands share on a terminal: keys, a live line, phases in words, answers to dialogues. All on stderr."""

from __future__ import annotations

import logging
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TextIO

from ulna.control.keyboard import TerminalKeys, open_keys
from ulna.control.runtime import Phase, Runtime, Tick
from ulna.core.calibration import CalibrationStep
from ulna.core.errors import ControlError

__all__ = ["StatusLine", "TerminalDialogue", "console", "exit_code"]

logger = logging.getLogger(__name__)

_CLEAR = "\r\x1b[K"
_USUAL_COLUMNS = 80


class StatusLine:
    """One line that is drawn over and over on a terminal, five times a second; silent where there is no terminal.

    A terminal that goes away stops nothing: the robot is led on, or brought to rest, without being watched.

    Args:
        stream: Where it is drawn; None when there is nowhere to write.
        show_values: Whether the sent joints are listed below it.
        now: Wall time in seconds.
    """

    period_s = 0.2

    def __init__(self, stream: TextIO | None, *, show_values: bool = False) -> None:
        self._stream, self._show_values = stream, show_values
        self._active = stream is not None and stream.isatty()
        self._drawn = False
        self._lines = 0
        self._next = self._since = 0.0
        self._ticks = 0

    def tick(self, tick: Tick) -> None:
        """Count a tick, and draw when it is time.

        Args:
            tick: What happened.
        """
        if not self._active:
            return
        self._ticks += 1
        now = time.perf_counter()
        if now < self._next:
            return
        rate = self._ticks / (now - self._since) if self._since else 0.0
        self._next, self._since, self._ticks = now + self.period_s, now, 0
        self.clear()
        stale = f"  stale: {', '.join(tick.stale)}" if tick.stale else ""
        text = f"{tick.phase} {tick.time_s:6.1f} s  {rate:5.1f} Hz{stale}"
        values = [f"  {key:<24}{value:9.2f}" for key, value in tick.sent.items()] if self._show_values else []
        self._write("\n".join(line[: self._columns() - 1] for line in (text, *values)))
        self._drawn, self._lines = True, len(values)

    def clear(self) -> None:
        """Take the line away, so that something else can be written."""
        if self._drawn:
            self._write(_CLEAR + f"\x1b[A{_CLEAR}" * self._lines)
            self._drawn = False

    def say(self, text: str) -> None:
        """Write a line that stays.

        Args:
            text: The line.
        """
        self.clear()
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            self._stream, self._active = None, False
            logger.debug("The terminal is gone: %s", error)

    def _columns(self) -> int:
        """Return how wide a line may be: one that wraps could not be taken away again."""
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns if self._stream is not None else 0
        except OSError:
            columns = 0
        return max(columns or _USUAL_COLUMNS, 2)


def exit_code(stop_reason: str) -> int:
    """Return the exit code of a command that a signal kept from what it was asked for: 130; else 0.

    Args:
        stop_reason: Of its result. The stop key is a way to end in good order.
    """
    return 130 if stop_reason == "interrupted" or stop_reason.startswith("received ") else 0


@contextmanager
def console(*, keys: str = "", show_values: bool = False, stream: TextIO | None = None) -> Iterator[Runtime]:
    """Give a runtime for a terminal: keys read, phases told, the rate shown while it runs.

    Args:
        keys: What the keys do, told once; without it no keys are read.
        show_values: Whether joints are listed below the rate.
        stream: Where to write; default: stderr.

    Yields:
        The runtime.
    """
    line = StatusLine(stream or sys.stderr, show_values=show_values)

    def on_phase(phase: Phase) -> None:
        if phase.text:
            line.say(phase.text)

    with ExitStack() as stack:
        stack.callback(line.clear)
        runtime = Runtime(on_tick=line.tick, on_phase=on_phase)
        if keys:
            source = open_keys()
            line.say(f"{source.description[0].upper()}{source.description[1:]}.")
            if isinstance(source, TerminalKeys):
                stack.enter_context(source)
                line.say(keys)
            runtime = Runtime(keys=source, on_tick=line.tick, on_phase=on_phase)
        yield runtime


class TerminalDialogue:
    """Answers the steps of a dialogue with what the operator types. Prompts go to stderr.

    Args:
        answers: Where lines are read from; default: standard input.
        stream: Where prompts are written; default: stderr.
    """

    redraw_s = 0.05

    def __init__(self, answers: TextIO | None = None, stream: TextIO | None = None) -> None:
        self._answers, self._stream = answers or sys.stdin, stream or sys.stderr
        self._message = ""
        self._lines = 0

    def __call__(self, step: CalibrationStep) -> str:
        """Answer a step.

        Args:
            step: What the operator shall do.

        Returns:
            The answer: empty for `confirm`, a choice for `choose`, "done" or empty for `progress`.

        Raises:
            ControlError: Standard input has ended.
        """
        if step.kind == "progress":
            return self._progress(step)
        self._lines, self._message = 0, ""
        if step.kind == "choose":
            return self._choose(step)
        self._write(f"{step.message}\n  Enter to go on, Ctrl-C to stop: ")
        self._read()
        return ""

    def _choose(self, step: CalibrationStep) -> str:
        self._write(f"{step.message}\n")
        while True:
            self._write(f"  {' / '.join(step.choices)}: ")
            given = self._read().lower()
            hits = [choice for choice in step.choices if given and choice.lower().startswith(given)]
            if len(hits) == 1:
                return hits[0]

    def _progress(self, step: CalibrationStep) -> str:
        if step.message != self._message:
            self._message, self._lines = step.message, 0
            self._write(f"{step.message}\n  Enter when done.\n")
        if step.table and self._stream.isatty():
            rows = [f"  {name:<16}{low:>8}{now:>8}{high:>8}" for name, (low, now, high) in step.table.items()]
            rows.insert(0, f"  {'motor':<16}{'lowest':>8}{'now':>8}{'highest':>8}")
            self._write(f"\x1b[{self._lines}A\x1b[J" * bool(self._lines) + "\n".join(rows) + "\n")
            self._lines = len(rows)
        ready, _, _ = select.select([self._answers], [], [], self.redraw_s)
        if not ready:
            return ""
        self._read()
        return "done"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _read(self) -> str:
        line = self._answers.readline()
        if not line:
            raise ControlError(
                "Standard input has ended, and the dialogue needs an answer.", hint="Run it on a terminal."
            )
        return line.strip()
