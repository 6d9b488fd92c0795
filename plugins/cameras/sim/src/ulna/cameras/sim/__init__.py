# SPDX-License-Identifier: Apache-2.0
"""Cameras that look at a simulated world. Names resolve on first use, so importing this loads no library."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ulna.cameras.sim.__about__ import __version__
    from ulna.cameras.sim.camera import SimCamera
    from ulna.cameras.sim.config import SimCameraConfig
    from ulna.cameras.sim.faults import CameraFaults

__all__ = ["CameraFaults", "SimCamera", "SimCameraConfig", "__version__"]

_WHERE = {"CameraFaults": "faults", "SimCamera": "camera", "SimCameraConfig": "config", "__version__": "__about__"}


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return __all__
