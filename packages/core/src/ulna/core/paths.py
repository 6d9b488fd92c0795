# SPDX-License-Identifier: Apache-2.0
"""Where Ulna and LeRobot keep their files. Functions read the environment when called and create nothing."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["calibration_roots", "dataset_roots", "lerobot_home", "ulna_home"]


def _from_environment(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value).expanduser() if value else None


def ulna_home() -> Path:
    """Return Ulna's own folder: `ULNA_HOME`, else `~/.cache/ulna`."""
    return _from_environment("ULNA_HOME") or Path("~/.cache/ulna").expanduser()


def lerobot_home() -> Path:
    """Return LeRobot's folder: `HF_LEROBOT_HOME`, else `HF_HOME/lerobot`, else `~/.cache/huggingface/lerobot`."""
    own = _from_environment("HF_LEROBOT_HOME")
    if own is not None:
        return own
    hub = _from_environment("HF_HOME") or Path("~/.cache/huggingface").expanduser()
    return hub / "lerobot"


def calibration_roots() -> tuple[Path, ...]:
    """Return the folders searched for calibration files, the first being where new ones are written.

    Ulna's comes first, then LeRobot's (`HF_LEROBOT_CALIBRATION`, else `<lerobot home>/calibration`).
    """
    theirs = _from_environment("HF_LEROBOT_CALIBRATION") or lerobot_home() / "calibration"
    return (ulna_home() / "calibration", theirs)


def dataset_roots() -> tuple[Path, ...]:
    """Return the folders searched for `<user>/<name>` datasets, the first being where new ones are written."""
    return (ulna_home() / "datasets", lerobot_home())
