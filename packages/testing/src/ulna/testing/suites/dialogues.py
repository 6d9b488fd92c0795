# SPDX-License-Identifier: Apache-2.0
"""The operator that suites put in front of a calibration dialogue when an author plays none."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ulna.core.calibration import CalibrationStep

__all__ = ["answer_step"]

_PATIENCE = 20
_progress: WeakKeyDictionary[object, int] = WeakKeyDictionary()


def answer_step(owner: object, step: CalibrationStep) -> str:
    """Answer like a patient operator: confirm, choose the first, watch the progress for a while and end it.

    Args:
        owner: Whose dialogue it is; progress is counted for each.
        step: What is asked.

    Returns:
        The answer.
    """
    if step.kind == "choose":
        return step.choices[0]
    if step.kind != "progress":
        return ""
    count = _progress[owner] = _progress.get(owner, 0) + 1
    return "" if count % _PATIENCE else "done"
