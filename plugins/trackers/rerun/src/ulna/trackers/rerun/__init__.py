# SPDX-License-Identifier: Apache-2.0
"""Rerun as a tracker. Names load on use, so that looking at this package does not import Rerun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.trackers.rerun.config import RerunTrackerConfig
    from ulna.trackers.rerun.tracker import RerunTracker

__all__ = ["RerunTracker", "RerunTrackerConfig"]

_HOMES = {"RerunTracker": "tracker", "RerunTrackerConfig": "config"}

__getattr__, __dir__ = lazy_names(globals(), _HOMES)
