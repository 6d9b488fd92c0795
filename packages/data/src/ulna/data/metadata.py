# SPDX-License-Identifier: Apache-2.0
"""What a dataset knows about itself: info, tasks, episodes and statistics, checked when opened. Holds no frames."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ulna.core.errors import DatasetError, DatasetFormatError, DatasetNotFinishedError, nearest
from ulna.data.depth import DepthUnit, convert_stats, depth_codecs
from ulna.data.episodes import EpisodeRow, EpisodeTable, Finding, read_episode_files
from ulna.data.features import Feature
from ulna.data.info import DatasetInfo, read_tasks
from ulna.data.layout import INFO_PATH, STATS_PATH, FileId
from ulna.data.location import find_root, snapshot_commit
from ulna.data.stats import Stats, stats_from_json
from ulna.data.unfinished import UnfinishedEpisode, scan_unfinished
from ulna.data.workspace import Workspace

__all__ = ["LeRobotDatasetMetadata"]

logger = logging.getLogger(__name__)

_SWAP_PATIENCE_S = 30.0


class LeRobotDatasetMetadata:
    """Metadata of one dataset on this machine. Created by `LeRobotDataset` or directly; a recorder appends to it.

    Args:
        repo_id: `user/name`.
        root: Its folder; found by name when not given.
        revision: Branch, tag or commit of the Hub; a folder that was recorded here has none.
        depth_output_unit: Unit of depth statistics, `mm` or `m`; None leaves them in the recorded one.
        check_files: Whether tables and videos must be there; False where they are fetched when they are needed.
        force_cache_sync: Whether the Hub is asked again for what was pulled before.
        token: Token of the Hub, if it is not the one that is logged in.
        local_only: Whether a dataset that is not here is an error, instead of being pulled from the Hub.

    Raises:
        DatasetError: The dataset is not on this machine, and not on the Hub or that may not be asked.
        DatasetFormatError: Its files contradict the format or one another; the file, episode and values are named.
        DatasetNotFinishedError: It was recorded by software that lost its episode table when it was interrupted.
    """

    def __init__(
        self,
        repo_id: str,
        root: str | Path | None = None,
        revision: str | None = None,
        depth_output_unit: DepthUnit | None = None,
        *,
        check_files: bool = True,
        force_cache_sync: bool = False,
        token: str | None = None,
        local_only: bool = False,
    ) -> None:
        self.repo_id = repo_id
        self.root = find_root(
            repo_id, root, revision, fetch=None if local_only else self._pull_metadata(revision, token)
        )
        self.commit = snapshot_commit(self.root)
        if self.commit is not None and force_cache_sync:
            self.root = self._pull_metadata(revision, token)()
            self.commit = snapshot_commit(self.root)
        check_files = check_files and self.commit is None  # the Hub's files are fetched when episodes are chosen
        self.revision = revision
        self.depth_output_unit = depth_output_unit
        _finish_swap(self.root)
        self.info = DatasetInfo.load(self.root)
        self.tasks = read_tasks(self.root)
        table, findings = read_episode_files(self.root)
        self._episodes = EpisodeTable(table, self.info.video_keys)
        self._new_rows: list[EpisodeRow] = []
        self._lock = threading.RLock()  # a recorder appends in its own thread
        self._stats: Stats | None = None
        self.broken: dict[int, str] = {}
        self.left_out: list[int] = []
        self.unfinished: list[UnfinishedEpisode] = []
        self.findings: list[Finding] = findings
        self._check(check_files)
        for finding in self.findings:
            logger.warning("%s: %s", self.repo_id, finding.message)
        if depth_output_unit is not None:
            self._warn_of_unknown_units(depth_output_unit)

    def _pull_metadata(self, revision: str | None, token: str | None) -> Callable[[], Path]:
        def pull() -> Path:
            from ulna.data.hub import pull_dataset

            return pull_dataset(self.repo_id, revision=revision, episodes=(), token=token)

        return pull

    def pull_files(
        self, episodes: Iterable[int] | None = None, *, videos: bool = True, token: str | None = None
    ) -> None:
        """Download the files of some episodes, if the dataset was pulled from the Hub and they are not here.

        Args:
            episodes: Their numbers; default: all.
            videos: Whether videos are wanted.
            token: Token of the Hub, if it is not the one that is logged in.

        Raises:
            DatasetError: The Hub did not give them.
        """
        if self.commit is None:
            return
        wanted = range(self.total_episodes) if episodes is None else episodes
        keys = self.video_keys if videos else []
        chosen = [e for e in wanted if 0 <= e < self.total_episodes]
        paths = {
            path
            for e in chosen
            for path in (self.get_data_file_path(e), *(self.get_video_file_path(e, k) for k in keys))
        }
        if all(path.exists() for path in paths):
            return
        from ulna.data.hub import pull_dataset

        pull_dataset(self.repo_id, revision=self.commit, episodes=chosen, download_videos=videos, token=token)

    def _warn_of_unknown_units(self, wanted: DepthUnit) -> None:
        unknown = [name for name, codec in depth_codecs(self.parsed_features).items() if codec.unit is None]
        if unknown:
            logger.warning(
                "%s does not say in which unit %s recorded: statistics, and depth maps in tables, are given as they "
                "are, not in %r. Add depth_unit, 'm' or 'mm', to the info of the feature in meta/info.json.",
                self.repo_id,
                " and ".join(unknown) + (" is" if len(unknown) == 1 else " are"),
                wanted,
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_lock": threading.RLock()})

    def _check(self, check_files: bool) -> None:
        counted, found = self.info.total_episodes, len(self._episodes)
        if counted > 0 and found == 0 and self.findings:
            raise DatasetFormatError(
                f"{self.root / INFO_PATH} counts {counted} episodes, and nothing of their table is left: "
                f"{self.findings[0].message}",
                hint="Restore the file from a backup or the Hub.",
            )
        if counted > 0 and found == 0:
            raise DatasetNotFinishedError(
                f"{self.root / INFO_PATH} counts {counted} episodes, but there is no readable episode table in "
                "meta/episodes: the recording was interrupted before its program wrote it.",
                hint="Record again with this version, which stores every finished episode at once.",
            )
        if check_files:
            self._check_files()
        found = len(self._episodes)
        if counted != found:
            self._find(f"info.json counts {counted} episodes, the table has {found} whole ones; {found} are used")
        elif self.info.total_frames != self.total_frames:
            self._find(f"info.json counts {self.info.total_frames} frames, the episodes have {self.total_frames}")
        self._check_unfinished(found)

    def _check_unfinished(self, found: int) -> None:
        workspace = Workspace(self.root)
        if not workspace.exists or workspace.is_locked:
            return
        self.unfinished = scan_unfinished(workspace, self.parsed_features, self.fps, found)
        for left in self.unfinished:
            can = f"{left.frames} frames of it can be recovered: ulna dataset repair {self.root} --recover"
            self._find(
                f"episode {left.episode} was not finished when the recording stopped and is not part of the dataset; "
                + (can if left.frames else "no frame of it can be recovered"),
                left.episode,
            )

    def _find(self, message: str, episode: int | None = None, path: Path | None = None) -> None:
        self.findings.append(Finding(message, episode, path))

    def _check_files(self) -> None:
        """Leave out last episodes without whole files; remember broken ones in the middle."""
        table, info = self._episodes, self.info
        self._note_broken(table.data_files, info.data_path)
        for key in self.video_keys:
            self._note_broken(table.video_files[key], info.video_template, key)
        keep = len(self._episodes)
        while keep - 1 in self.broken:
            keep -= 1
        if keep == 0 and self.broken and Workspace(self.root).mark() is None:
            return  # nothing at all is left of a finished dataset: that is no interruption, and reading it says so
        self.left_out = list(range(keep, len(self._episodes)))
        for episode in self.left_out:
            self._find(f"episode {episode} was left out: {self.broken.pop(episode)}", episode)
        if keep < len(self._episodes):
            self._episodes = self._episodes.first(keep)

    def _note_broken(self, files: Sequence[FileId], template: str, key: str = "") -> None:
        """Look at each file once, however many episodes it holds."""
        complaints = {}
        for file in dict.fromkeys(files):
            path = file.path(self.root, template, key)
            complaint = _complaint(path)
            if complaint is not None:
                complaints[file] = f"{path} {complaint}"
        if complaints:
            for episode, file in enumerate(files):
                if file in complaints:
                    self.broken.setdefault(episode, complaints[file])

    @property
    def episodes(self) -> EpisodeTable:
        """The episode table."""
        with self._lock:
            if self._new_rows:
                rows = pa.Table.from_pylist([_without_stats(row) for row in self._new_rows])
                self._episodes, self._new_rows = self._episodes.extended(rows), []
            return self._episodes

    def append(self, row: EpisodeRow) -> None:
        """Take note of an episode that has just become durable. For recorders.

        Args:
            row: The episode.
        """
        with self._lock:
            self._new_rows.append(replace(row, stats={}))  # read from the file when wanted: memory stays flat

    def reload_episodes(self) -> None:
        """Read the episode table again, after files were compacted. For recorders.

        Raises:
            DatasetFormatError: The table is not whole.
        """
        table, _ = read_episode_files(self.root)
        with self._lock:
            self._episodes, self._new_rows = EpisodeTable(table, self.video_keys), []

    @property
    def total_episodes(self) -> int:
        """Number of whole episodes."""
        with self._lock:
            return len(self._episodes) + len(self._new_rows)

    @property
    def total_frames(self) -> int:
        """Number of frames of the whole episodes."""
        with self._lock:
            known = int(self._episodes.stops[-1]) if len(self._episodes) else 0
            return known + sum(row.length for row in self._new_rows)

    @property
    def total_tasks(self) -> int:
        """Number of tasks."""
        return len(self.tasks)

    @property
    def fps(self) -> int:
        """Frames per second."""
        return self.info.fps

    @property
    def robot_type(self) -> str | None:
        """Type string of the robot, if known."""
        return self.info.robot_type

    @property
    def parsed_features(self) -> dict[str, Feature]:
        """Features as objects."""
        return self.info.features

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """Features in plain form, shapes as tuples."""
        return {name: f.to_dict() for name, f in self.info.features.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Declared shape of every feature."""
        return {name: f.shape for name, f in self.info.features.items()}

    @property
    def names(self) -> dict[str, Any]:
        """Declared names of every feature."""
        return {name: f.names for name, f in self.info.features.items()}

    @property
    def camera_keys(self) -> list[str]:
        """Cameras, in the table or in videos."""
        return [name for name, f in self.info.features.items() if f.is_camera]

    @property
    def video_keys(self) -> list[str]:
        """Cameras stored as video."""
        return self.info.video_keys

    @property
    def image_keys(self) -> list[str]:
        """Cameras stored as pictures in the table."""
        return [name for name, f in self.info.features.items() if f.dtype == "image"]

    @property
    def depth_keys(self) -> list[str]:
        """Cameras that hold depth maps."""
        return [name for name, f in self.info.features.items() if f.is_depth]

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """Schemas of the tools that language rows may call; None where the dataset lists none. Setting it saves it."""
        return self.info.extra.get("tools")

    @tools.setter
    def tools(self, schemas: list[dict[str, Any]] | None) -> None:
        self.info.extra.pop("tools", None)
        if schemas is not None:
            self.info.extra["tools"] = schemas
        self.info.save(self.root)

    @property
    def stats(self) -> Stats | None:
        """Statistics over all episodes, those of depth maps in `depth_output_unit`; None where the dataset has none.

        Raises:
            DatasetFormatError: `stats.json` is not valid.
        """
        recorded = self.recorded_stats
        if recorded is None or self.depth_output_unit is None:
            return recorded
        return convert_stats(recorded, depth_codecs(self.parsed_features), self.depth_output_unit)

    @property
    def recorded_stats(self) -> Stats | None:
        """Statistics as they are stored, depth in the recorded unit.

        Raises:
            DatasetFormatError: `stats.json` is not valid.
        """
        path = self.root / STATS_PATH
        if self._stats is None and path.exists():
            try:
                self._stats = stats_from_json(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, AttributeError, TypeError) as error:
                raise DatasetFormatError(
                    f"{path} is not valid: {error}", hint=f"ulna dataset repair {self.root} makes it anew."
                ) from error
        return self._stats

    @recorded_stats.setter
    def recorded_stats(self, value: Stats | None) -> None:
        self._stats = value

    def get_task_index(self, task: str) -> int | None:
        """Return the number of a task, None when the dataset does not have it.

        Args:
            task: Its text.
        """
        return self.tasks.get(task)

    def get_data_file_path(self, episode: int) -> Path:
        """Return the table file with the rows of an episode.

        Args:
            episode: Its number.
        """
        return self.episodes.data_files[episode].path(self.root, self.info.data_path)

    def get_video_file_path(self, episode: int, key: str) -> Path:
        """Return the video file with an episode of a camera.

        Args:
            episode: Its number.
            key: The camera.

        Raises:
            DatasetError: That is not a camera stored as video.
        """
        if key not in self.video_keys:
            near = nearest(key, self.video_keys)
            hint = f"Did you mean {near!r}?" if near else None
            raise DatasetError(f"{key!r} is not a video of this dataset; it has {self.video_keys}.", hint=hint)
        return self.episodes.video_files[key][episode].path(self.root, self.info.video_template, key)

    def last_files(self) -> tuple[FileId | None, dict[str, FileId], FileId | None]:
        """Return the highest numbers in use: table, video of each camera, episode table; None where none is."""
        rows = self.episodes
        if not len(rows):
            return None, {}, None
        videos = {key: max(files) for key, files in rows.video_files.items()}
        taken = sorted((self.root / "meta/episodes").glob("chunk-*/file-*.parquet"))
        last = taken[-1]
        row = FileId(int(last.parent.name.removeprefix("chunk-")), int(last.stem.removeprefix("file-")))
        return max(rows.data_files), videos, row

    def filter_episodes(self, predicate: Callable[[dict[str, Any]], bool]) -> list[int]:
        """Return the numbers of the episodes whose row satisfies a predicate.

        Args:
            predicate: Takes a row of the episode table.
        """
        return [i for i, row in enumerate(self.episodes) if predicate(row)]


def _without_stats(row: EpisodeRow) -> dict[str, Any]:
    return {name: value for name, value in row.to_columns().items() if not name.startswith("stats/")}


def _complaint(path: Path) -> str | None:
    """Say what is wrong with a file, at the price of a few bytes read."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            return _parquet_complaint(file, size) if path.suffix == ".parquet" else _mp4_complaint(file, size)
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be read ({error})"


def _parquet_complaint(file: Any, size: int) -> str | None:
    if size < 12:
        return f"is cut off after {size} bytes"
    file.seek(-8, os.SEEK_END)
    tail = file.read(8)
    if tail[4:] != b"PAR1" or int.from_bytes(tail[:4], "little") > size - 12:
        return "has no footer: it is cut off, or was not closed"
    return None


def _mp4_complaint(file: Any, size: int) -> str | None:
    position, found = 0, set()
    while position + 8 <= size:
        file.seek(position)
        header = file.read(16)
        length, kind = int.from_bytes(header[:4], "big"), header[4:8]
        if length == 1:
            length = int.from_bytes(header[8:16], "big")
        length = length or size - position
        if length < 8 or position + length > size:
            return f"is cut off after {size} bytes"
        found.add(kind)
        position += length
    return None if b"moov" in found else "has no index: it is cut off, or was not closed"


def _finish_swap(root: Path) -> None:
    """Carry out a swap that was interrupted; wait for one that another process is carrying out."""
    workspace = Workspace(root)
    deadline = time.monotonic() + _SWAP_PATIENCE_S
    try:
        _carry_out(root, workspace, deadline)
    except OSError as error:
        raise DatasetNotFinishedError(
            f"{root} was being finalized when the program stopped, and the rest cannot be done now: {error}",
            hint="Make the folder writable and free some space, then open it again.",
        ) from error


def _carry_out(root: Path, workspace: Workspace, deadline: float) -> None:
    while workspace.has_journal:
        if workspace.lock():
            try:
                workspace.replay()
            finally:
                workspace.unlock()
        elif time.monotonic() > deadline:
            raise DatasetNotFinishedError(
                f"{root} is being finalized by another process and did not become ready in time."
            )
        else:
            time.sleep(0.02)
