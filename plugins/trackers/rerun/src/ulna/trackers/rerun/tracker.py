# SPDX-License-Identifier: Apache-2.0
"""The Rerun tracker: numbers become scalars, arrays become pictures or depth maps, texts become documents."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import rerun as rr

from ulna.core.trackers import Tracker
from ulna.trackers.rerun.config import RerunTrackerConfig

__all__ = ["RerunTracker"]


class RerunTracker(Tracker):
    """Sends what it is given to Rerun. A file appears under its name when the run is finished.

    Every instant has the timeline `step`, and `time` where a time is given; the wall clock is left out, so that the
    same values give the same timelines.

    Args:
        config: Settings.
        run: Name of the recording.
    """

    config: RerunTrackerConfig

    def __init__(self, config: RerunTrackerConfig, run: str) -> None:
        super().__init__(config, run)
        self._recording = rr.RecordingStream("ulna")
        self._recording.set_log_time_enabled(False)
        self._recording.set_log_tick_enabled(False)
        self._finished = False
        if config.file is not None:
            config.file.parent.mkdir(parents=True, exist_ok=True)
            self._recording.save(self._part)
        elif config.url is not None:
            self._recording.connect_grpc(config.url)
        else:
            viewer = Path(sys.executable).with_name("rerun")
            rr.spawn(executable_path=str(viewer) if viewer.exists() else None, recording=self._recording)
        self._recording.send_recording_name(run)

    @property
    def _part(self) -> Path:
        file = self.config.file or Path()
        return file.with_name(f".{file.name}.part")

    def log(self, values: Mapping[str, Any], *, step: int, time_s: float | None = None) -> None:
        """Send the values of one instant.

        Args:
            values: Name to number, picture, depth map or text; others are left out. A name is a path with `/`.
            step: Running number.
            time_s: Seconds since the beginning.
        """
        self._recording.set_time("step", sequence=step)
        if time_s is not None:
            self._recording.set_time("time", duration=time_s)
        for name, value in values.items():
            shown = self._shown(value)
            if shown is not None:
                self._recording.log(rr.new_entity_path(name.split("/")), shown)

    def _shown(self, value: Any) -> Any:
        if isinstance(value, str):
            return rr.TextDocument(value)
        if isinstance(value, np.ndarray) and value.ndim == 3 and value.dtype == np.uint8:
            quality = self.config.jpeg_quality
            picture = rr.Image(value)
            return picture if quality is None else picture.compress(jpeg_quality=quality)
        if isinstance(value, np.ndarray) and value.ndim == 2:
            return rr.DepthImage(value.astype(np.float32, copy=False), meter=1.0)
        if isinstance(value, int | float | np.number | np.bool_):
            return rr.Scalars(float(value))
        return None

    def finish(self) -> None:
        """Send what still waits; a file gets its name. Idempotent."""
        if self._finished:
            return
        self._finished = True
        self._recording.flush()
        self._recording.disconnect()
        if self.config.file is not None:
            self._part.replace(self.config.file)
