# SPDX-License-Identifier: Apache-2.0
"""What the page shows of a dataset, as JSON values: facts, the list of episodes, one episode. Reads, never writes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetError, DatasetFormatError, nearest
from ulna.data.features import Feature
from ulna.data.layout import INFO_PATH, FileId
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.table_store import TableFile, TableStore
from ulna.data.viewer.series import MOST_ELEMENTS, element_names, plain, series, unit_of

__all__ = ["Content", "OpenDataset"]


class Content:
    """One dataset as it was when this was made. Immutable; safe to share by threads.

    Args:
        meta: The dataset.
    """

    def __init__(self, meta: LeRobotDatasetMetadata) -> None:
        self.meta = meta
        self.features = meta.parsed_features
        self._store = TableStore(meta.root, meta.info.data_path, self.features)
        self._plotted = [f for f in self.features.values() if f.is_numeric and not f.is_default]

    def facts(self) -> dict[str, Any]:
        """Return what does not depend on an episode."""
        meta = self.meta
        general = [f.message for f in meta.findings if f.episode is None or f.episode >= meta.total_episodes]
        return {
            "name": meta.repo_id,
            "folder": str(meta.root),
            "robot": meta.robot_type,
            "fps": meta.fps,
            "episodes": meta.total_episodes,
            "frames": meta.total_frames,
            "tasks": list(meta.tasks),
            "cameras": [self._camera(self.features[key]) for key in meta.camera_keys],
            "series": [self._line(feature) for feature in self._plotted],
            "problems": general,
        }

    @staticmethod
    def _camera(feature: Feature) -> dict[str, Any]:
        height, width, _ = feature.hwc
        info = feature.extra.get("info") or {}
        kind = "depth" if feature.is_depth else feature.dtype
        codec = info.get("video.codec")
        label = feature.name.removeprefix("observation.images.")
        return {"key": feature.name, "label": label, "kind": kind, "height": height, "width": width, "codec": codec}

    @staticmethod
    def _line(feature: Feature) -> dict[str, Any]:
        size = int(np.prod(feature.shape, dtype=np.int64))
        names = element_names(feature)
        return {
            "key": feature.name,
            "names": names,
            "unit": unit_of(feature),
            "left_out": max(size - MOST_ELEMENTS, 0),
        }

    def episodes(self) -> dict[str, Any]:
        """Return all episodes as columns: `lengths`, `tasks` (numbers, one or a list), `problems` by episode."""
        table = self.meta.episodes
        known = self.meta.tasks
        texts = table["tasks"] if "tasks" in table.column_names else [[]] * len(table)
        tasks: list[int | list[int]] = []
        for names in texts:
            numbers = [known[name] for name in names or () if name in known]
            tasks.append(numbers[0] if len(numbers) == 1 else numbers)
        problems: dict[int, list[str]] = {}
        for finding in self.meta.findings:
            if finding.episode is not None and finding.episode < len(table):
                problems.setdefault(finding.episode, []).append(finding.message)
        for episode, message in self.meta.broken.items():
            problems.setdefault(episode, []).append(message)
        return {"lengths": table.lengths.tolist(), "tasks": tasks, "problems": problems}

    def episode(self, episode: int) -> dict[str, Any]:
        """Return one episode: its tasks by frame, where its videos lie, and the lines of its numbers.

        Args:
            episode: Its number.

        Raises:
            DatasetError: There is no such episode.
            DatasetFormatError: A file contradicts the format.
        """
        row = self.meta.episodes.row(episode)
        table, start = self.rows(episode)
        rows = slice(start, start + row.length)
        tasks = table.numbers["task_index"][rows].reshape(-1)
        changes = np.flatnonzero(np.diff(tasks, prepend=tasks[0] - 1))
        return {
            "episode": episode,
            "length": row.length,
            "tasks": [[int(frame), int(tasks[frame])] for frame in changes],
            "videos": {
                key: {"chunk": span.file.chunk, "file": span.file.file, "start_s": span.start_s, "end_s": span.end_s}
                for key, span in row.videos.items()
            },
            "series": {f.name: series(table.numbers[f.name][rows]) for f in self._plotted},
        }

    def values(self, episode: int, frame: int) -> dict[str, Any]:
        """Return the numbers of one frame, exactly.

        Args:
            episode: Number of the episode.
            frame: Number of the frame in it.

        Returns:
            Feature to its shown elements.

        Raises:
            DatasetError: There is no such episode or frame.
            DatasetFormatError: A file contradicts the format.
        """
        table, row = self.row(episode, frame)
        return {f.name: plain(_vector(table.numbers[f.name][row])[None, :MOST_ELEMENTS])[0] for f in self._plotted}

    def rows(self, episode: int) -> tuple[TableFile, int]:
        """Return the table that holds an episode, and the row of its first frame.

        Args:
            episode: Its number.

        Raises:
            DatasetError: There is no such episode.
            DatasetFormatError: The table does not hold it.
        """
        row = self.meta.episodes.row(episode)
        if episode in self.meta.broken:
            raise DatasetFormatError(f"Episode {episode} cannot be read: {self.meta.broken[episode]}.")
        table = self._store.get(row.data)
        start = table.starts.get(row.start)
        if start is None or start + row.length > len(table.numbers["index"]):
            raise DatasetFormatError(f"Episode {episode} should be in {table.path}, but that table does not hold it.")
        return table, start

    def row(self, episode: int, frame: int) -> tuple[TableFile, int]:
        """Return the table that holds a frame, and its row there.

        Args:
            episode: Number of the episode.
            frame: Number of the frame in it.

        Raises:
            DatasetError: There is no such episode or frame.
            DatasetFormatError: The table does not hold it.
        """
        table, start = self.rows(episode)
        length = int(self.meta.episodes.lengths[episode])
        if not 0 <= frame < length:
            raise DatasetError(f"Episode {episode} has no frame {frame}; its {length} frames are numbered from 0.")
        return table, start + frame

    def camera(self, key: str) -> Feature:
        """Return a camera by its name.

        Args:
            key: The name.

        Raises:
            DatasetError: There is no such camera.
        """
        cameras = self.meta.camera_keys
        if key not in cameras:
            near = nearest(key, cameras)
            raise DatasetError(
                f"{key!r} is not a camera of this dataset; it has {cameras}.",
                hint=f"Did you mean {near!r}?" if near else None,
            )
        return self.features[key]

    def video(self, key: str, file: FileId) -> Path:
        """Return the path of a video file. Only files that an episode lies in can be had.

        Args:
            key: The camera.
            file: Number of the file.

        Raises:
            DatasetError: There is no such camera, or no episode of it lies in that file.
        """
        self.camera(key)
        if file not in self.meta.episodes.video_files.get(key, ()):
            raise DatasetError(f"No episode of camera {key!r} lies in chunk {file.chunk}, file {file.file}.")
        return file.path(self.meta.root, self.meta.info.video_template, key)


def _vector(value: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.asarray(value, np.float64).reshape(-1)


class OpenDataset:
    """The dataset that a server shows: opened again when its files were replaced, by an edit or a recording.

    Args:
        repo_id: `user/name`.
        root: Its folder.

    Raises:
        DatasetError: It is not on this machine.
        DatasetFormatError: Its files contradict the format.
    """

    def __init__(self, repo_id: str, root: str | Path | None = None) -> None:
        self._lock = threading.Lock()
        self._content = Content(LeRobotDatasetMetadata(repo_id, root))
        self._seen = self._state()

    @property
    def root(self) -> Path:
        """Folder of the dataset."""
        return self._content.meta.root

    @property
    def content(self) -> Content:
        """The dataset as it was when it was last looked at."""
        return self._content

    def refreshed(self) -> tuple[Content, str]:
        """Return the dataset as it is now, and a text that changes whenever it does.

        Raises:
            DatasetError: It is gone.
            DatasetFormatError: Its files contradict the format.
        """
        with self._lock:
            state = self._state()
            if state != self._seen:
                self._content = Content(LeRobotDatasetMetadata(self._content.meta.repo_id, self.root))
                self._seen = state
            return self._content, "-".join(map(str, state))

    def _state(self) -> tuple[int, int]:
        try:
            status = (self.root / INFO_PATH).stat()
        except OSError as error:
            raise DatasetError(f"The dataset {self.root} is not there any more: {error.strerror}.") from error
        return status.st_ino, status.st_mtime_ns
