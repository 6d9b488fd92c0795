# SPDX-License-Identifier: Apache-2.0
"""Figures of a training: running means between two logged steps, and the file `metrics.jsonl`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ulna.core.files import write_text

__all__ = ["METRICS_FILE", "MetricsFile", "RunningMeans", "read_metrics"]

METRICS_FILE = "metrics.jsonl"


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
    """Yield the lines of a metrics file; a line cut off by a kill is left out.

    Args:
        path: The file, or the run folder it is in.

    Yields:
        Name to number, `step` among them.
    """
    path = Path(path)
    path = path / METRICS_FILE if path.is_dir() else path
    with path.open(encoding="utf-8") as file:
        for text in file:
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict):
                yield line
