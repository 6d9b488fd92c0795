# SPDX-License-Identifier: Apache-2.0
"""Reads datasets of the formats v2.0 and v2.1, one table and one video an episode, and says what is wrong with them.

Nothing here writes. What a folder claims is checked file by file before any of it is believed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.errors import DatasetFormatError, FeatureError
from ulna.data.arrow_schema import data_schema, table_columns
from ulna.data.editing.v21_files import EPISODES_PATH, V21Episode, check_table, check_video, converted_column
from ulna.data.features import DEFAULT_FEATURES, Feature, parse_features
from ulna.data.info import check_fps
from ulna.data.layout import INFO_PATH
from ulna.data.stats import Stats, stats_from_json

__all__ = ["V21Dataset", "V21Episode"]

_VERSIONS: Final = ("v2.0", "v2.1")
_TASKS, _STATS = "meta/tasks.jsonl", "meta/episodes_stats.jsonl"
_KNOWN: Final = frozenset(
    [
        "codebase_version",
        "robot_type",
        "total_episodes",
        "total_frames",
        "total_tasks",
        "total_videos",
        "total_chunks",
        "chunks_size",
        "fps",
        "splits",
        "data_path",
        "video_path",
        "features",
    ]
)
_TOLERANCE_S: Final = 1e-4


class V21Dataset:
    """A dataset of format v2.0 or v2.1 on this machine. Read-only.

    Args:
        root: Its folder.

    Attributes:
        version: `v2.0` or `v2.1`.

    Raises:
        DatasetFormatError: Not such a dataset, or its metadata contradict one another; the file and episode are named.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        raw = _load_info(root)
        self.version = str(raw["codebase_version"])
        try:
            self.fps = check_fps(raw["fps"])
            self.features = _parsed(raw["features"], self.fps)
        except (DatasetFormatError, FeatureError) as error:
            raise DatasetFormatError(f"{root / INFO_PATH}: {error.message}", hint=error.hint) from error
        self.robot_type: str | None = raw.get("robot_type")
        self.chunks_size = int(raw.get("chunks_size") or 1000)
        self.extra = {key: value for key, value in raw.items() if key not in _KNOWN}
        self._data_path, self._video_path = raw["data_path"], raw.get("video_path")
        self.tasks = self._read_tasks()
        self.episodes = self._read_episodes(raw.get("total_episodes"), raw.get("total_frames"))

    @property
    def video_keys(self) -> list[str]:
        """Cameras stored as video."""
        return [name for name, feature in self.features.items() if feature.dtype == "video"]

    def _read_tasks(self) -> dict[int, str]:
        path = self.root / _TASKS
        tasks: dict[int, str] = {}
        for number, row in _rows(path, ("task_index", "task")):
            index, text = row["task_index"], row["task"]
            if not _is_count(index) or not isinstance(text, str):
                raise DatasetFormatError(f"{path}, line {number}: task {index!r} with the text {text!r} is none.")
            if index in tasks:
                raise DatasetFormatError(f"{path}, line {number}: task {index} stands there twice.")
            tasks[index] = text
        return tasks

    def _read_episodes(self, counted: Any, frames: Any) -> list[V21Episode]:
        path = self.root / EPISODES_PATH
        stats = self._read_stats()
        episodes: list[V21Episode] = []
        for number, row in _rows(path, ("episode_index", "length")):
            index, length = row["episode_index"], row["length"]
            if index != len(episodes):
                twice = isinstance(index, int) and index < len(episodes)
                raise DatasetFormatError(
                    f"{path}, line {number}: expected was episode {len(episodes)}, found episode {index}"
                    f"{', which stands there twice' if twice else ''}.",
                    hint="Episodes must be numbered 0, 1, 2, ... without a gap. Restore the missing one, or renumber.",
                )
            if not _is_count(length) or length == 0:
                raise DatasetFormatError(f"{path}, line {number}: episode {index} has length {length!r}.")
            episodes.append(self._episode(index, length, stats.get(index, {})))
        self._check_counts(episodes, counted, frames)
        return episodes

    def _check_counts(self, episodes: Sequence[V21Episode], counted: Any, frames: Any) -> None:
        if not episodes:
            raise DatasetFormatError(f"{self.root / EPISODES_PATH} lists no episode.")
        if counted is not None and counted != len(episodes):
            first = min(int(counted), len(episodes))
            lacking = EPISODES_PATH if counted > len(episodes) else INFO_PATH
            raise DatasetFormatError(
                f"{self.root / INFO_PATH} counts {counted} episodes, {EPISODES_PATH} lists {len(episodes)}: "
                f"episode {first} is not in {lacking}.",
                hint="Correct the count, or restore the line.",
            )
        total = sum(episode.length for episode in episodes)
        if frames is not None and frames != total:
            raise DatasetFormatError(
                f"{self.root / INFO_PATH} counts {frames} frames, the lengths in {EPISODES_PATH} sum up to {total}.",
                hint="Compare the lengths with the rows of each table, then correct the count.",
            )

    def _episode(self, index: int, length: int, stats: Stats) -> V21Episode:
        where = {"episode_chunk": index // self.chunks_size, "episode_index": index}
        template, folder = self._video_path or "", self.root
        try:
            table = folder / self._data_path.format(**where)
            videos = {key: folder / template.format(video_key=key, **where) for key in self.video_keys}
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise DatasetFormatError(
                f"{folder / INFO_PATH}: the path templates {self._data_path!r} and {template!r} cannot be filled in: "
                f"{error!r}."
            ) from error
        return V21Episode(index, length, table, videos, stats)

    def _read_stats(self) -> dict[int, Stats]:
        path = self.root / _STATS
        if not path.exists():
            return {}
        found: dict[int, Stats] = {}
        for number, row in _rows(path, ("episode_index", "stats")):
            try:
                stats = stats_from_json(row["stats"])
                found[row["episode_index"]] = stats
            except (ValueError, AttributeError, TypeError, OverflowError) as error:
                raise DatasetFormatError(f"{path}, line {number}: not statistics: {error}") from error
            for name, values in stats.items():
                if any(value.dtype.kind not in "fiub" for value in values.values()):
                    raise DatasetFormatError(f"{path}, line {number}: the statistics of {name!r} are no numbers.")
        return found

    def check_files(self) -> Iterator[V21Episode]:
        """Look at the files of each episode: they exist, open, and hold as many frames as declared. Decodes nothing.

        Yields:
            Each episode that is whole, with the times at which its videos begin.

        Raises:
            DatasetFormatError: A file is missing, damaged, or holds another number of frames; it is named.
        """
        for episode in self.episodes:
            check_table(episode, self.features)
            starts = {key: check_video(episode, key, path, self.fps) for key, path in episode.videos.items()}
            yield replace(episode, video_starts=starts)

    def table(self, episode: V21Episode) -> pa.Table:
        """Read the rows of an episode, with the columns and types of v3.0.

        Args:
            episode: The episode.

        Raises:
            DatasetFormatError: The table contradicts the declared features, or its rows are not frames 0, 1, 2, ...
        """
        where = f"Episode {episode.index}: {episode.table}"
        try:
            read = pq.read_table(episode.table, use_threads=False)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DatasetFormatError(f"{where} cannot be read: {error}") from error
        arrays = [converted_column(feature, read[feature.name], where) for feature in table_columns(self.features)]
        table = pa.table(arrays, schema=data_schema(self.features))
        self._check_rows(table, episode, where)
        return table

    def _check_rows(self, table: pa.Table, episode: V21Episode, where: str) -> None:
        frames = np.arange(episode.length)
        numbers = table["frame_index"].to_numpy()
        if not np.array_equal(numbers, frames):
            row = int(np.flatnonzero(numbers != frames)[0])
            raise DatasetFormatError(f"{where}: row {row} is frame {numbers[row]}, expected was frame {row}.")
        of = table["episode_index"].to_numpy()
        if (of != episode.index).any():
            raise DatasetFormatError(f"{where} holds rows of episode {int(of[of != episode.index][0])}.")
        late = np.abs(table["timestamp"].to_numpy() - frames / self.fps) > _TOLERANCE_S
        if late.any():
            row = int(np.flatnonzero(late)[0])
            raise DatasetFormatError(
                f"{where}: frame {row} is stamped {table['timestamp'][row].as_py():.6f} s, expected was "
                f"{row / self.fps:.6f} s at {self.fps} fps."
            )

    def row_tasks(self, table: pa.Table, episode: V21Episode) -> list[str]:
        """Return the task of each row.

        Args:
            table: Rows of an episode.
            episode: That episode.

        Raises:
            DatasetFormatError: A row names a task that `meta/tasks.jsonl` does not have.
        """
        numbers = table["task_index"].to_pylist()
        unknown = [number for number in numbers if number not in self.tasks]
        if unknown:
            raise DatasetFormatError(
                f"Episode {episode.index}: {episode.table} names task {unknown[0]}, which {self.root / _TASKS} "
                f"does not have; it has {sorted(self.tasks)}."
            )
        return [self.tasks[number] for number in numbers]


def _load_info(root: Path) -> dict[str, Any]:
    path = root / INFO_PATH
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DatasetFormatError(f"{root} is not a dataset: it has no {INFO_PATH}.") from error
    except (OSError, ValueError) as error:
        raise DatasetFormatError(f"{path} is not valid JSON: {error}") from error
    needed = ("codebase_version", "fps", "features", "data_path")
    missing = [key for key in needed if not isinstance(raw, dict) or key not in raw]
    if missing:
        raise DatasetFormatError(f"{path} lacks {', '.join(missing)}.")
    _check_values(raw, path)
    version = str(raw["codebase_version"])
    if version not in _VERSIONS:
        done = version.startswith("v3.")
        raise DatasetFormatError(
            f"{root} has format {version}; converted are {' and '.join(_VERSIONS)}.",
            hint="It needs no conversion." if done else "Convert it to v2.1 first, with the version that wrote it.",
        )
    return dict(raw)


def _is_count(value: object) -> bool:
    """Whether a value is a whole number of 0 or more."""
    return type(value) is int and value >= 0


def _check_values(raw: Mapping[str, Any], path: Path) -> None:
    """Refuse values of info.json that cannot be what the format says."""
    counts = {key: raw.get(key) for key in ("total_episodes", "total_frames", "chunks_size")}
    wrong = [key for key, value in counts.items() if value is not None and not _is_count(value)]
    if counts["chunks_size"] == 0:
        wrong.append("chunks_size")
    features = raw["features"]
    if not isinstance(features, dict) or not all(isinstance(feature, dict) for feature in features.values()):
        wrong.append("features")
    texts = {key: raw.get(key) for key in ("data_path", "video_path", "robot_type")}
    wrong += [key for key, value in texts.items() if value is not None and not isinstance(value, str)]
    if wrong:
        raise DatasetFormatError(f"{path}: {wrong[0]} cannot be {raw[wrong[0]]!r:.200}.")


def _parsed(declared: Mapping[str, Mapping[str, Any]], fps: int) -> dict[str, Feature]:
    """Parse features; columns of the table get the frame rate, as in datasets that LeRobot converted."""
    given: dict[str, dict[str, Any]] = {}
    for name, feature in declared.items():
        plain = dict(feature)
        if "video_info" in plain:
            plain.setdefault("info", plain.pop("video_info"))
        given[name] = plain if plain.get("dtype") == "video" else {**plain, "fps": fps}
    for name, default in DEFAULT_FEATURES.items():
        given.setdefault(name, {**default, "fps": fps})
    return parse_features(given)


def _rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise DatasetFormatError(f"{path} does not exist.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetFormatError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DatasetFormatError(f"{path}, line {number} is not valid JSON: {error}") from error
        missing = [key for key in needed if not isinstance(row, dict) or key not in row]
        if missing:
            raise DatasetFormatError(f"{path}, line {number} lacks {', '.join(missing)}.")
        yield number, row
