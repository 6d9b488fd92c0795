# SPDX-License-Identifier: Apache-2.0
"""Cameras that look at a simulated world. Names resolve on first use, so importing this loads no library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.cameras.sim.__about__ import __version__
    from ulna.cameras.sim.camera import SimCamera
    from ulna.cameras.sim.config import SimCameraConfig
    from ulna.cameras.sim.faults import CameraFaults

__all__ = ["CameraFaults", "SimCamera", "SimCameraConfig", "__version__"]

_WHERE = {"CameraFaults": "faults", "SimCamera": "camera", "SimCameraConfig": "config", "__version__": "__about__"}

__getattr__, __dir__ = lazy_names(globals(), _WHERE)
