# SPDX-License-Identifier: Apache-2.0
"""Settings of the Rerun tracker. Does not import Rerun."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ulna.core.trackers import TrackerConfig

__all__ = ["RerunTrackerConfig"]


class RerunTrackerConfig(TrackerConfig):
    """Where Rerun gets the values: a file, a viewer that runs somewhere, or else a new viewer on this machine."""

    implementation: ClassVar[str] = "ulna.trackers.rerun.tracker:RerunTracker"

    type: Literal["rerun"] = "rerun"
    file: Path | None = Field(None, description="Write this .rrd file instead of showing a viewer.")
    url: str | None = Field(None, description="Send to a running viewer: rerun+http://127.0.0.1:9876/proxy")
    jpeg_quality: int | None = Field(90, ge=1, le=100, description="Compress pictures so much; null keeps them exact.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.file is not None and self.url is not None:
            raise ValueError("a file or a url, not both")
        return self
