# SPDX-License-Identifier: Apache-2.0
"""Settings of the demo. Importing this loads neither torch nor the simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from ulna.core.config import Config

__all__ = ["DemoConfig"]

_FAST = {"episodes": 25, "steps": 250, "rollouts": 10, "batch_size": 16}


class DemoConfig(Config):
    """Settings of `ulna demo`. With `fast`, numbers that were not given are small ones."""

    output_dir: Path | None = Field(None, description="Where everything goes; default: outputs/demo/DATE_TIME.")
    fast: bool = Field(False, description="A small version that takes about a minute.")
    seed: int = Field(0, ge=0, description="Seed of the demonstrations and of the training.")
    episodes: int = Field(60, ge=1, description="Demonstrations to record.")
    steps: int = Field(600, ge=1, description="Training steps.")
    batch_size: int = Field(16, ge=1, description="Samples of one training step.")
    rollouts: int = Field(50, ge=1, description="Judged episodes of each policy, on seeds never trained on.")
    episode_time_s: float = Field(4.0, gt=0, description="Longest duration of an episode, simulated seconds.")
    fps: int = Field(30, gt=0, description="Control steps and frames a second.")
    image_size: int = Field(64, ge=32, multiple_of=2, description="Rows and columns of a camera frame.")

    @model_validator(mode="before")
    @classmethod
    def _small_numbers(cls, data: Any) -> Any:
        if isinstance(data, dict) and str(data.get("fast", "")).lower() in ("true", "1", "yes", "on"):
            return {**_FAST, **data}
        return data
