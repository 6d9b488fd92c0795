# SPDX-License-Identifier: Apache-2.0
"""Who watches a training: the interface, and the observer that shows progress on a terminal or as plain lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ProgressObserver", "TrainingObserver", "TrainingPlan", "figures_text"]


@dataclass(frozen=True)
class TrainingPlan:
    """What is about to happen.

    Attributes:
        output_dir: The run folder.
        first_step: Steps taken already.
        steps: Steps in all.
        device: Where the policy is.
        parameters: Trained parameters.
        frames: Samples of one pass.
        episodes: Episodes they come from.
        batch_size: Samples of one step.
    """

    output_dir: Path
    first_step: int
    steps: int
    device: str
    parameters: int
    frames: int
    episodes: int
    batch_size: int


class TrainingObserver:
    """Base of observers; every method does nothing unless overridden. They are called in the training's thread."""

    def started(self, plan: TrainingPlan) -> None:
        """Tell that everything is ready.

        Args:
            plan: What is about to happen.
        """

    def step_taken(self, step: int) -> None:
        """Tell that a step was taken.

        Args:
            step: Steps taken.
        """

    def training_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tell the means since the last logged step.

        Args:
            step: Steps taken.
            metrics: Name to number.
        """

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tell the figures on held-out episodes.

        Args:
            step: Steps taken.
            metrics: Name to number.
        """

    def checkpoint_written(self, path: Path, step: int) -> None:
        """Tell that a checkpoint is durable.

        Args:
            path: Its folder.
            step: Steps taken.
        """

    def finished(self) -> None:
        """Tell that no more steps follow, also after an error."""


class ProgressObserver(TrainingObserver):
    """Shows a bar on a terminal, and logged figures as plain lines everywhere.

    Args:
        write: Writes one line; default: to stderr, above the bar.
        stream: Where the bar is drawn, if it is a terminal; default: stderr.
    """

    def __init__(self, write: Callable[[str], None] | None = None, stream: Any = None) -> None:
        self._stream = stream or sys.stderr
        self._write = write or (lambda text: self._stream.write(text + "\n"))
        self._bar: Any = None
        self._steps = 0

    def say(self, text: str) -> None:
        """Write a line above the bar.

        Args:
            text: The line.
        """
        if self._bar is not None:
            self._bar.clear()
        self._write(text)
        if self._bar is not None:
            self._bar.refresh()

    def started(self, plan: TrainingPlan) -> None:
        """Describe the run and draw the bar."""
        self._steps = plan.steps
        begin = f"from step {plan.first_step} " if plan.first_step else ""
        self.say(
            f"Training {plan.parameters:,} parameters on {plan.device} {begin}to step {plan.steps}: "
            f"{plan.episodes} episodes, {plan.frames} frames, batches of {plan.batch_size}. "
            f"Run folder: {plan.output_dir}"
        )
        if self._stream.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=plan.steps,
                initial=plan.first_step,
                file=self._stream,
                unit="step",
                dynamic_ncols=True,
                leave=False,
            )

    def step_taken(self, step: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(step - self._bar.n)

    def training_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the figures."""
        self.say(f"step {step}/{self._steps}  {figures_text(metrics)}")

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the figures."""
        self.say(f"step {step}/{self._steps}  held out: {figures_text(metrics)}")

    def checkpoint_written(self, path: Path, step: int) -> None:
        """Say where it is."""
        self.say(f"step {step}/{self._steps}  checkpoint: {path}")

    def finished(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


_UNITS = {"update_s": "ms", "data_s": "ms", "step_s": "ms", "preprocessing_s": "ms"}


def figures_text(metrics: Mapping[str, float]) -> str:
    """Return figures as one line, times in milliseconds.

    Args:
        metrics: Name to number.
    """
    parts = []
    for name, value in metrics.items():
        if name in _UNITS:
            parts.append(f"{name.removesuffix('_s')} {value * 1000:.1f} ms")
        elif name == "epoch":
            parts.append(f"epoch {value:.2f}")
        else:
            parts.append(f"{name} {value:.4g}")
    return "  ".join(parts)
