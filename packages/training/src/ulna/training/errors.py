# SPDX-License-Identifier: Apache-2.0
"""Errors of training; the tree they belong to is in `ulna.core.errors`."""

from __future__ import annotations

from pathlib import Path

from ulna.core.errors import UlnaError

__all__ = ["CheckpointNotWrittenError", "TrainingDivergedError"]


class TrainingDivergedError(UlnaError, ArithmeticError):
    """The loss is no longer a number.

    Args:
        step: Step at which it was noticed.
        loss: The mean loss.
        checkpoint: The last checkpoint before, if there is one.
    """

    def __init__(self, step: int, loss: float, checkpoint: Path | None) -> None:
        self.step, self.loss, self.checkpoint = step, loss, checkpoint
        where = f"The last good checkpoint is {checkpoint}." if checkpoint else "No checkpoint was written before."
        super().__init__(
            f"The loss became {loss} at or before step {step}; nothing after the last good step was saved. {where}",
            hint="Lower the learning rate, clip gradients (optimizer.grad_clip_norm), look for extreme values.",
        )


class CheckpointNotWrittenError(UlnaError):
    """A checkpoint could not be written; older ones are as they were.

    Args:
        folder: Where it was to be.
        cause: What the system said.
        checkpoint: The last whole checkpoint of the run, if there is one.
    """

    def __init__(self, folder: Path, cause: OSError, checkpoint: Path | None) -> None:
        self.folder, self.checkpoint = folder, checkpoint
        kept = f"The last whole one is {checkpoint}." if checkpoint else "The run has none."
        run = folder.parent.parent
        super().__init__(
            f"The checkpoint {folder} could not be written: {cause}. {kept}",
            hint=f"Free some space (--keep_last keeps fewer checkpoints), then: ulna train --resume --config={run}"
            if checkpoint
            else "Free some space, or choose another --output_dir, then start again.",
        )
