# SPDX-License-Identifier: Apache-2.0
"""`meta/info.json` and `meta/tasks.parquet`: reading with clear complaints, writing whole and atomically."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.errors import DatasetFormatError, FeatureError
from ulna.core.files import atomic_path, write_json
from ulna.data.features import Feature, parse_features
from ulna.data.layout import CODEBASE_VERSION, DATA_TEMPLATE, INFO_PATH, TASKS_PATH, VIDEO_TEMPLATE, FileId

__all__ = ["DatasetInfo", "check_fps", "read_tasks", "write_tasks"]

logger = logging.getLogger(__name__)

_MOST_FPS = 1e9  # of tables
_COUNTS = {"total_episodes": 0, "total_frames": 0, "total_tasks": 0, "chunks_size": 1}
_SIZES = ("data_files_size_in_mb", "video_files_size_in_mb")
_LEFTOVERS_OF_V2 = {"total_videos", "total_chunks"}


def check_fps(fps: float) -> int:
    """Return the frame rate as an integer.

    Args:
        fps: Frames per second.

    Raises:
        DatasetFormatError: Not a positive whole number.
    """
    given: object = fps
    whole = (
        isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < _MOST_FPS and given == int(given)
    )
    if not whole:
        raise DatasetFormatError(
            f"fps must be a positive whole number, got {fps!r}.",
            hint="The v3.0 format counts frames in whole frames per second; record 29.97 as 30.",
        )
    return int(fps)


@dataclass
class DatasetInfo:
    """Content of `meta/info.json`. Created by `load` or by a recorder, which alone changes and saves it.

    Attributes:
        fps: Frames per second.
        features: Every feature, the five defaults included.
        total_episodes: Number of episodes.
        total_frames: Number of frames.
        total_tasks: Number of tasks.
        chunks_size: Files per chunk folder.
        data_files_size_in_mb: Size limit of a table file.
        video_files_size_in_mb: Size limit of a video file.
        data_path: Path template of tables.
        video_path: Path template of videos; None without videos.
        robot_type: Type string of the robot, if known.
        splits: Name to `from:to` range of episodes.
        codebase_version: Version of the format.
        extra: Keys this class does not know, kept as they are.
    """

    fps: int
    features: dict[str, Feature]
    total_episodes: int = 0
    total_frames: int = 0
    total_tasks: int = 0
    chunks_size: int = 1000
    data_files_size_in_mb: float = 100
    video_files_size_in_mb: float = 200
    data_path: str = DATA_TEMPLATE
    video_path: str | None = None
    robot_type: str | None = None
    splits: dict[str, str] = field(default_factory=dict)
    codebase_version: str = CODEBASE_VERSION
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.video_path is None and self.video_keys:
            self.video_path = VIDEO_TEMPLATE

    @property
    def video_keys(self) -> list[str]:
        """Cameras stored as video."""
        return [name for name, f in self.features.items() if f.dtype == "video"]

    @property
    def video_template(self) -> str:
        """Path template of videos, the default one where none is given."""
        return self.video_path or VIDEO_TEMPLATE

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file, keys in the order LeRobot writes them."""
        return {
            "codebase_version": self.codebase_version,
            "fps": self.fps,
            "features": {name: f.to_json() for name, f in self.features.items()},
            "total_episodes": self.total_episodes,
            "total_frames": self.total_frames,
            "total_tasks": self.total_tasks,
            "chunks_size": self.chunks_size,
            "data_files_size_in_mb": self.data_files_size_in_mb,
            "video_files_size_in_mb": self.video_files_size_in_mb,
            "data_path": self.data_path,
            "video_path": self.video_path,
            "robot_type": self.robot_type,
            "splits": self.splits,
            **self.extra,
        }

    def save(self, root: Path) -> None:
        """Write the file atomically.

        Args:
            root: Folder of the dataset.
        """
        write_json(root / INFO_PATH, self.to_json())

    @classmethod
    def load(cls, root: Path) -> DatasetInfo:
        """Read and check the file.

        Args:
            root: Folder of the dataset.

        Returns:
            The content.

        Raises:
            DatasetFormatError: The file is missing, not JSON, of another version, or a value is not allowed.
        """
        path = root / INFO_PATH
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise DatasetFormatError(f"{root} is not a dataset: it has no {INFO_PATH}.") from error
        except (OSError, ValueError) as error:
            raise DatasetFormatError(f"{path} is not valid JSON: {error}") from error
        try:
            return cls._from_json(raw)
        except (DatasetFormatError, FeatureError) as error:
            hint = error.hint and error.hint.replace("<folder>", str(root))
            raise DatasetFormatError(f"{path}: {error.message}", hint=hint) from error

    @classmethod
    def _from_json(cls, raw: Any) -> DatasetInfo:
        if not isinstance(raw, dict) or not {"codebase_version", "fps", "features"} <= set(raw):
            raise DatasetFormatError("expected an object with at least codebase_version, fps and features.")
        version = str(raw["codebase_version"])
        if not version.startswith("v3."):
            raise DatasetFormatError(
                f"the dataset has format {version}; this version reads {CODEBASE_VERSION}.",
                hint="Convert it with: ulna dataset convert <folder>" if version.startswith("v2") else None,
            )
        values = dict(raw)
        values["fps"] = check_fps(values["fps"])
        values["features"] = parse_features(values["features"])
        _check_numbers(values)
        for name in ("data_path", "video_path"):
            _check_template(name, values.get(name))
        known = {k: v for k, v in values.items() if k in cls.__dataclass_fields__ and k != "extra"}
        extra = {k: v for k, v in values.items() if k not in known and k not in _LEFTOVERS_OF_V2}
        if set(extra) - {"tools"}:
            logger.info("Keys of info.json without a meaning here are kept: %s.", ", ".join(sorted(extra)))
        return cls(**known, extra=extra)


def _check_numbers(values: Mapping[str, Any]) -> None:
    for name, least in _COUNTS.items():
        value = values.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise DatasetFormatError(f"{name} must be a whole number of {least} or more, it is {value!r}.")
    for name in _SIZES:
        value = values.get(name, 1)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
            raise DatasetFormatError(f"{name} must be a positive number, it is {value!r}.")


def _check_template(name: str, template: Any) -> None:
    """Refuse a path template that cannot be filled in, or that leads out of the dataset's folder."""
    if template is None:
        return
    problem = "it leads out of the dataset's folder"
    try:
        path = FileId(0, 0).path(Path(), template, "camera")
        if not path.is_absolute() and ".." not in path.parts:
            return
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        problem = f"it cannot be filled in: {error!r}"
    raise DatasetFormatError(
        f"{name} is {template!r}, and {problem}.",
        hint=f"Usual is {DATA_TEMPLATE if name == 'data_path' else VIDEO_TEMPLATE}",
    )


def read_tasks(root: Path) -> dict[str, int]:
    """Read the task table.

    Args:
        root: Folder of the dataset.

    Returns:
        Task to number, in the order of the numbers.

    Raises:
        DatasetFormatError: The table cannot be read, or its numbers are not 0, 1, 2, ...
    """
    path = root / TASKS_PATH
    if not path.exists():
        return {}
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetFormatError(f"{path} cannot be read: {error}") from error
    text = "task" if "task" in table.column_names else "__index_level_0__"
    if text not in table.column_names or "task_index" not in table.column_names:
        raise DatasetFormatError(f"{path} must have the columns task and task_index, it has {table.column_names}.")
    pairs = sorted(zip(table["task_index"].to_pylist(), table[text].to_pylist(), strict=True))
    if [number for number, _ in pairs] != list(range(len(pairs))):
        raise DatasetFormatError(f"{path}: task numbers must be 0 to {len(pairs) - 1}, found {[n for n, _ in pairs]}.")
    return {task: number for number, task in pairs}


def write_tasks(root: Path, tasks: dict[str, int]) -> None:
    """Write the task table atomically, as a pandas frame indexed by task would be.

    Args:
        root: Folder of the dataset.
        tasks: Task to number, numbers being 0, 1, 2, ... in order.
    """
    described = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy_type, "metadata": None}
        for name, kind, numpy_type in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
    ]
    index = {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object"}
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [{**index, "metadata": {"encoding": "UTF-8"}}],
        "columns": described,
        "attributes": {},
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.2.0",
    }
    schema = pa.schema([("task_index", pa.int64()), ("task", pa.string())], metadata={"pandas": json.dumps(pandas)})
    table = pa.table([list(tasks.values()), list(tasks)], schema=schema)
    with atomic_path(root / TASKS_PATH) as temporary:
        pq.write_table(table, temporary)
