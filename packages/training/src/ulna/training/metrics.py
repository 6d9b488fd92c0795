# SPDX-License-Identifier: Apache-2.0
"""Figures of a training: means between two logged steps, what they say about speed, and the file `metrics.jsonl`."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ulna.core.files import write_text

__all__ = ["METRICS_FILE", "MetricsFile", "RunningMeans", "StepFigures", "is_number", "read_metrics"]

_log = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"

TIMES = ("data_s", "preprocessing_s", "update_s")
"""Where the time of a step goes: waiting for data, preparing it, and the update."""

_DATA_BOUND_SHARE, _DATA_BOUND_S, _DATA_BOUND_STEPS = 0.3, 0.005, 10
"""Share of a step and seconds spent waiting, over this many steps, from which a run is called data-bound."""


def is_number(value: object) -> bool:
    """Return whether a value that a policy tells can be averaged.

    Args:
        value: A number, a tensor, or anything else.
    """
    if isinstance(value, Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) and not isinstance(value, bool)


class RunningMeans:
    """Means since the last reset. Tensors are summed where they are, so that a step never waits for the device."""

    def __init__(self) -> None:
        self._sums: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: Mapping[str, float | Tensor]) -> None:
        """Add one value of each figure.

        Args:
            values: Name to number or scalar tensor.
        """
        for name, value in values.items():
            number = value.detach() if isinstance(value, Tensor) else float(value)
            self._sums[name] = self._sums[name] + number if name in self._sums else number
            self._counts[name] = self._counts.get(name, 0) + 1

    def means(self) -> dict[str, float]:
        """Return the mean of every figure."""
        return {name: float(total) / self._counts[name] for name, total in self._sums.items()}

    def reset(self) -> None:
        """Begin again."""
        self._sums.clear()
        self._counts.clear()


class StepFigures:
    """Collects the figures of steps, and makes one line of them when it is time to log.

    Args:
        batch_size: Samples of one step.
        advice: What to try when the run waits for data.
    """

    def __init__(self, batch_size: int, advice: str) -> None:
        self._means = RunningMeans()
        self._batch_size, self._advice = batch_size, advice
        self._steps = 0
        self._told = False

    def add(self, values: Mapping[str, float | Tensor]) -> None:
        """Add the figures of one step.

        Args:
            values: Name to number; the times in `TIMES` are among them.
        """
        self._means.add(values)
        self._steps += 1

    @property
    def loss(self) -> float:
        """Mean loss since the last line; 0 when there was no step."""
        return self._means.means().get("loss", 0.0)

    def line(self, *, lr: float, epoch: float) -> dict[str, float]:
        """Return the means since the last line, and begin again.

        Args:
            lr: Learning rate.
            epoch: Passes over the data.

        Returns:
            Name to number, times and samples a second last.
        """
        means, steps = self._means.means(), self._steps
        self._means.reset()
        self._steps = 0
        times = {name: means.pop(name) for name in TIMES}
        step_s = sum(times.values())
        self._watch(times["data_s"], step_s, steps)
        speed = {"step_s": step_s, "samples_per_s": self._batch_size / step_s}
        return {**means, "lr": lr, "epoch": epoch, **times, **speed}

    def _watch(self, data_s: float, step_s: float, steps: int) -> None:
        slow = data_s > max(_DATA_BOUND_S, _DATA_BOUND_SHARE * step_s)
        if slow and steps >= _DATA_BOUND_STEPS and not self._told:
            self._told = True
            _log.warning(
                "Data-bound: %.0f %% of the time goes into waiting for data. %s", 100 * data_s / step_s, self._advice
            )


class MetricsFile:
    """Appends figures to a JSON-lines file; every line is on its own, so a killed run loses none of them.

    Args:
        path: The file.
        from_step: Lines of later steps are removed: a resumed run takes these steps again.
    """

    def __init__(self, path: Path, *, from_step: int = 0) -> None:
        self.path = path
        if path.exists():
            lines = list(read_metrics(path))
            kept = [line for line in lines if line.get("step", 0) <= from_step]
            write_text(path, "".join(_line(line) for line in kept))

    def append(self, step: int, values: Mapping[str, float]) -> None:
        """Write the figures of one step.

        Args:
            step: Steps taken.
            values: Name to number.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(fd, _line({"step": step, **values}).encode("utf-8"))
        finally:
            os.close(fd)


def _line(values: Mapping[str, Any]) -> str:
    """Return one JSON line; numbers that JSON lacks become null."""
    clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
    return json.dumps(clean, ensure_ascii=False) + "\n"


def read_metrics(path: Path | str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a metrics file; a line that was cut off by a kill, or is otherwise damaged, is left out.

    Args:
        path: The file, or the run folder it is in.

    Yields:
        Name to number, `step` among them.
    """
    path = Path(path)
    path = path / METRICS_FILE if path.is_dir() else path
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and isinstance(line.get("step"), int):
                yield line
