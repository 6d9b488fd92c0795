# SPDX-License-Identifier: Apache-2.0
"""Ends recordings that were interrupted: stores what is left of unfinished episodes, finishes or removes the rest."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ulna.core.errors import DatasetError
from ulna.data.compaction import compact
from ulna.data.episode_store import EpisodeData, EpisodeStore
from ulna.data.episodes import drop_rows
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.recovered_pictures import recovered_camera
from ulna.data.row_journal import read_journal
from ulna.data.timing import EpisodeTiming
from ulna.data.unfinished import ROWS_FILE, UnfinishedEpisode, scan_unfinished
from ulna.data.video_codecs import DepthEncoderConfig, RGBEncoderConfig, VideoEncoderConfig
from ulna.data.workspace import Workspace

__all__ = [
    "UnfinishedEpisode",
    "claim",
    "finalize_interrupted",
    "find_unfinished",
    "recover_episodes",
    "recover_unfinished",
    "recovered_episode",
    "remove_unfinished",
]

logger = logging.getLogger(__name__)


def find_unfinished(root: Path) -> list[UnfinishedEpisode]:
    """Return the episodes that an interrupted recording had not stored. Changes nothing.

    Args:
        root: Folder of the dataset.

    Returns:
        In ascending order; none while somebody is recording.

    Raises:
        DatasetError: There is no dataset.
        DatasetFormatError: Its files contradict the format.
    """
    return LeRobotDatasetMetadata(root.name, root).unfinished


def recover_episodes(root: Path) -> list[int]:
    """Store what is left of unfinished episodes, each up to its last frame that has its row and all pictures.

    May be interrupted at any instant and repeated. The dataset is not finalized by this.

    Args:
        root: Folder of the dataset.

    Returns:
        The numbers they have now.

    Raises:
        DatasetError: The dataset is being recorded, or the disk is full.
        DatasetFormatError: Its files contradict the format.
    """
    meta = LeRobotDatasetMetadata(root.name, root)
    workspace = Workspace(root)
    if not workspace.exists:
        return []
    _lock(workspace, root)
    try:
        with _writing(root):
            claim(meta, workspace)
            return recover_unfinished(meta, workspace)
    finally:
        workspace.unlock()


def finalize_interrupted(root: Path, *, discard_unfinished: bool = False) -> bool:
    """Do what `finalize()` would have done: join the files of single episodes and remove the `.ulna` folder.

    Args:
        root: Folder of the dataset.
        discard_unfinished: Whether unfinished episodes go that could be recovered.

    Returns:
        Whether there was anything to do.

    Raises:
        DatasetError: The dataset is being recorded, the disk is full, or an unfinished episode could be recovered and
            `discard_unfinished` is off.
        DatasetFormatError: Its files contradict the format.
    """
    meta = LeRobotDatasetMetadata(root.name, root)
    workspace = Workspace(root)
    if not workspace.exists:
        return False
    _lock(workspace, root)
    try:
        with _writing(root):
            first = claim(meta, workspace)
        left = [e for e in unfinished(meta, workspace) if e.frames]
        if left and not discard_unfinished:
            raise DatasetError(
                f"{root} has {told(left)}.",
                hint=f"Keep them: ulna dataset repair {root} --recover   Without them: recover=False, or discard.",
            )
        with _writing(root):
            remove_unfinished(meta, workspace)
            EpisodeStore(meta, {}).write_totals()
            if meta.total_episodes > first:
                compact(meta, workspace, first)
    except BaseException:
        workspace.unlock()
        raise
    workspace.remove()
    return True


@contextmanager
def _writing(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DatasetError(
            f"{root} cannot be changed: {error}. Every stored episode is safe.",
            hint=f"Free some space or make the folder writable, then: ulna dataset repair {root}",
        ) from error


def _lock(workspace: Workspace, root: Path) -> None:
    with _writing(root):
        is_mine = workspace.lock()
    if not is_mine:
        raise DatasetError(f"{root} is being recorded.", hint="Finish or stop that recording first, then try again.")


def claim(meta: LeRobotDatasetMetadata, workspace: Workspace) -> int:
    """Bring a dataset whose lock is held into the state in which it can be added to, whatever interrupted it before.

    Args:
        meta: Its metadata; last episodes without whole files are dropped.
        workspace: Its `.ulna` folder.

    Returns:
        The first episode whose files have not been joined.

    Raises:
        DatasetError: Episodes of a finished recording have missing or broken files.
    """
    workspace.replay()
    workspace.clear_temporaries()
    mark = workspace.mark()
    if meta.left_out or meta.broken:
        _forget(meta, mark.first_episode if mark else meta.total_episodes + len(meta.left_out))
    first = min(mark.first_episode, meta.total_episodes) if mark else meta.total_episodes
    workspace.set_mark(first)
    return first


def unfinished(meta: LeRobotDatasetMetadata, workspace: Workspace) -> list[UnfinishedEpisode]:
    """Return the unfinished episodes of a dataset whose lock is held.

    Args:
        meta: Its metadata.
        workspace: Its `.ulna` folder.
    """
    return scan_unfinished(workspace, meta.parsed_features, meta.fps, meta.total_episodes)


def recover_unfinished(meta: LeRobotDatasetMetadata, workspace: Workspace) -> list[int]:
    """Store what is left of unfinished episodes. For holders of the lock, after `claim`.

    Args:
        meta: Metadata of the dataset; kept up to date.
        workspace: Its `.ulna` folder.

    Returns:
        The numbers they have now.
    """
    stored = []
    for found in unfinished(meta, workspace):
        if found.frames == 0:
            continue
        number = meta.total_episodes
        folder = workspace.folder_of(number)
        if found.folder != folder:  # so that a second try knows it as stored, if this one is interrupted after that
            shutil.rmtree(folder, ignore_errors=True)
            found.folder.rename(folder)
        data, encoders = recovered_episode(meta, folder, number, found.frames)
        EpisodeStore(meta, encoders).store(data)
        stored.append(number)
        shutil.rmtree(folder, ignore_errors=True)
        logger.warning(
            "%s: episode %d was recovered with %d frames (%d rows, pictures: %s).",
            meta.repo_id,
            number,
            found.frames,
            found.rows,
            ", ".join(f"{camera} {count}" for camera, count in found.cameras.items()) or "none",
        )
    workspace.clear_staging()
    return stored


def recovered_episode(
    meta: LeRobotDatasetMetadata, folder: Path, number: int, frames: int
) -> tuple[EpisodeData, dict[str, VideoEncoderConfig]]:
    """Return the first frames of an unfinished episode, ready to be stored, and how its videos were encoded.

    Args:
        meta: Metadata of the dataset.
        folder: Folder of the episode.
        number: The number it gets.
        frames: How many; no more than can be recovered.

    Raises:
        DatasetError: They are not there, or the disk is full.
        DatasetFormatError: A picture cannot be decoded.
        OSError: The disk is full or does not answer.
    """
    features = meta.parsed_features
    rows = read_journal(folder / ROWS_FILE, features)
    encoders: dict[str, VideoEncoderConfig] = {
        name: (DepthEncoderConfig if features[name].is_depth else RGBEncoderConfig).model_validate(given)
        for name, given in rows.header["encoders"].items()
    }
    cameras = {
        name: recovered_camera(folder, feature, meta.fps, frames, encoders.get(name))
        for name, feature in features.items()
        if feature.is_camera
    }
    timing = EpisodeTiming.of(rows.times[:frames], rows.header["clock"])
    return EpisodeData(number, rows.tasks[:frames], rows.values[:frames], cameras, timing), encoders


def remove_unfinished(meta: LeRobotDatasetMetadata, workspace: Workspace) -> None:
    """Remove unfinished episodes and say how much that was. For holders of the lock, after `claim`.

    Args:
        meta: Metadata of the dataset.
        workspace: Its `.ulna` folder.
    """
    left = [e for e in unfinished(meta, workspace) if e.frames]
    if left:
        logger.warning("%s: removed %s, as recover=True was not given.", meta.repo_id, told(left))
    workspace.clear_staging()


def told(episodes: Sequence[UnfinishedEpisode]) -> str:
    """Return unfinished episodes in words.

    Args:
        episodes: At least one.

    Example:
        >>> told([UnfinishedEpisode(5, 412, 415, {}, Path())])
        'the unfinished episode 5 (412 frames can be recovered)'
    """
    parts = [f"{e.episode} ({e.frames} frames can be recovered)" for e in episodes]
    return f"the unfinished episode{'s' if len(parts) > 1 else ''} {', '.join(parts)}"


def _forget(meta: LeRobotDatasetMetadata, first_of_recording: int) -> None:
    """Drop last episodes without whole files, if the interrupted recording made them; never those of a finished one."""
    affected = sorted([*meta.broken, *meta.left_out])
    first = affected[0]
    if meta.broken or first < first_of_recording:
        reason = meta.broken.get(first) or meta.findings[0].message
        raise DatasetError(
            f"Episodes {first} to {affected[-1]} of {meta.root} have missing or broken files, and adding to "
            f"the dataset would lose them: {reason}.",
            hint="Restore the files first.",
        )
    logger.warning("%s: recording goes on with a new episode %d in place of the broken one.", meta.repo_id, first)
    drop_rows(meta.root, first)
    meta.left_out = []
