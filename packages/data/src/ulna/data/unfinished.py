# SPDX-License-Identifier: Apache-2.0
"""Finds what an interrupted recording left of the episodes it had not stored. Reads only; `recovery` acts on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ulna.data.features import Feature
from ulna.data.images import read_spool
from ulna.data.row_journal import read_journal
from ulna.data.video_encoding import live_path
from ulna.data.video_fragments import whole_lengths
from ulna.data.workspace import Workspace

__all__ = ["ROWS_FILE", "UnfinishedEpisode", "scan_episode", "scan_unfinished", "spool_path", "video_path"]

ROWS_FILE: Final = "rows.journal"
"""The journal of the rows, in the folder of an unfinished episode."""


@dataclass(frozen=True)
class UnfinishedEpisode:
    """An episode that was being recorded, or stored, when the recording stopped.

    Attributes:
        episode: Its number.
        frames: Frames that can be recovered: rows with all of their pictures.
        rows: Rows that are there.
        cameras: Camera to whole pictures.
        folder: Where its files lie.
    """

    episode: int
    frames: int
    rows: int
    cameras: Mapping[str, int]
    folder: Path


def video_path(folder: Path, camera: str) -> Path:
    """Return where the video of an unfinished episode will lie when it has ended.

    Args:
        folder: Folder of the episode.
        camera: Name of the camera.
    """
    return folder / f"{camera}.mp4"


def spool_path(folder: Path, camera: str) -> Path:
    """Return where the pictures of an unfinished episode lie that go into the table.

    Args:
        folder: Folder of the episode.
        camera: Name of the camera.
    """
    return folder / f"{camera}.pictures"


def scan_unfinished(
    workspace: Workspace, features: Mapping[str, Feature], fps: int, first: int
) -> list[UnfinishedEpisode]:
    """Return the unfinished episodes of a dataset that nobody is recording.

    Args:
        workspace: Its `.ulna` folder.
        features: All features of the dataset.
        fps: Frames per second.
        first: Number of whole episodes; folders of lower numbers are stored already.

    Returns:
        In ascending order; also those of which no frame can be recovered.
    """
    numbers = [number for number in workspace.unfinished_episodes() if number >= first]
    return [scan_episode(number, workspace.folder_of(number), features, fps) for number in numbers]


def scan_episode(number: int, folder: Path, features: Mapping[str, Feature], fps: int) -> UnfinishedEpisode:
    """Return what there is of an episode into which nobody writes any more.

    Args:
        number: Its number.
        folder: Where its files lie.
        features: All features of the dataset.
        fps: Frames per second.
    """
    rows = len(read_journal(folder / ROWS_FILE, features))
    lengths = {name: _lengths(folder, f, fps) for name, f in features.items() if f.is_camera}
    frames = rows
    while True:
        shorter = min((max((n for n in found if n <= frames), default=0) for found in lengths.values()), default=frames)
        if shorter == frames:
            break
        frames = shorter
    cameras = {name: max(found, default=0) for name, found in lengths.items()}
    return UnfinishedEpisode(number, frames, rows, cameras, folder)


def _lengths(folder: Path, camera: Feature, fps: int) -> list[int] | range:
    """Return the lengths to which the pictures of a camera can be cut."""
    if camera.dtype == "video":
        return whole_lengths(live_path(video_path(folder, camera.name)), fps)
    return range(len(read_spool(spool_path(folder, camera.name))))
