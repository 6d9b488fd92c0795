# SPDX-License-Identifier: Apache-2.0
"""The command `ulna train`. What it does is in `ulna.training.trainer`, which is imported when it runs."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from ulna.core.commands import config_command, message, output

if TYPE_CHECKING:
    from ulna.training.config import TrainPipelineConfig
    from ulna.training.observers import ProgressObserver
    from ulna.training.trainer import TrainResult

__all__ = ["app", "run"]

_HELP = """Train a policy on a dataset, or continue a run.

The first Ctrl-C finishes the step and saves a checkpoint, the second stops at once."""

_EXAMPLES = (
    "ulna train --policy.type=act --dataset.repo_id=me/my_dataset --steps=20000",
    "ulna train --policy.path=outputs/train/first/checkpoints/last/pretrained_model --dataset.repo_id=me/more_data",
    "ulna train --resume --config=outputs/train/first --steps=40000",
)

INTERRUPTED = 130
"""Exit code after Ctrl-C, by convention 128 + SIGINT; a checkpoint was saved all the same."""


def run(config: TrainPipelineConfig) -> int:
    """Train, showing progress.

    Args:
        config: Settings.

    Returns:
        The exit code.
    """
    from ulna.training.observers import ProgressObserver
    from ulna.training.trainer import train

    progress = ProgressObserver(message)
    handler = _LinesAboveTheBar(progress)
    logger = logging.getLogger("ulna")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        result = train(config, observers=[progress])
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    _summarize(config, result)
    return INTERRUPTED if result.interrupted else 0


class _LinesAboveTheBar(logging.Handler):
    """Writes log records of Ulna as messages that do not tear the progress bar."""

    def __init__(self, progress: ProgressObserver) -> None:
        super().__init__(logging.INFO)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "Warning: " if record.levelno >= logging.WARNING else ""
        self._progress.say(prefix + record.getMessage())


def _summarize(config: TrainPipelineConfig, result: TrainResult) -> None:
    what = "Stopped early" if result.interrupted else "Finished"
    message(f"{what} at step {result.step} after {result.seconds:.0f} s.")
    if result.interrupted:
        message(f"Continue with: ulna train --resume --config={result.output_dir}")
    if result.checkpoint is None:
        message("No checkpoint was written (save_checkpoint=false).")
        return
    model = result.output_dir / "checkpoints" / "last" / "pretrained_model"
    if not model.is_dir():
        model = result.checkpoint / "pretrained_model"
    message(f"Figures: {result.output_dir / 'metrics.jsonl'}")
    message(f"Try it on a robot: ulna rollout --policy.path={model} --robot.type=...")
    message("The policy is in:")
    sys.stderr.flush()
    output(str(model))


app = config_command("ulna.training.config:TrainPipelineConfig", run, name="train", help=_HELP, examples=_EXAMPLES)
