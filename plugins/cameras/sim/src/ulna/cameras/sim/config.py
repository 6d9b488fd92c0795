# SPDX-License-Identifier: Apache-2.0
"""Settings of a simulated camera. Imports neither OpenCV nor the simulation."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ulna.core.cameras import CameraConfig, ColorMode

__all__ = ["SimCameraConfig"]


class SimCameraConfig(CameraConfig):
    """A camera in a simulated world; by default 640 x 480 at 30 frames per second."""

    implementation: ClassVar[str] = "ulna.cameras.sim.camera:SimCamera"

    type: Literal["sim"] = "sim"
    world: str = Field("table", min_length=1, description="Name of the simulated world.")
    view: Literal["front", "top", "side", "wrist"] = Field("front", description="Where the camera stands.")
    color_mode: ColorMode = Field(ColorMode.RGB, description="Order of the colour channels.")
