# SPDX-License-Identifier: Apache-2.0
"""The main job on the simulator: record, train, roll out, with success rates. Names resolve when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names
from ulna.demo.__about__ import __version__

if TYPE_CHECKING:
    from ulna.demo.config import DemoConfig as DemoConfig
    from ulna.demo.running import DemoResult as DemoResult
    from ulna.demo.running import run_demo as run_demo

__all__ = ["DemoConfig", "DemoResult", "__version__", "run_demo"]

_HOMES = {"DemoConfig": "config", "DemoResult": "running", "run_demo": "running"}

__getattr__, __dir__ = lazy_names(globals(), _HOMES)
