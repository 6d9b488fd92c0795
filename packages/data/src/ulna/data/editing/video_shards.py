# SPDX-License-Identifier: Apache-2.0
"""Lays out the videos of one camera of a new dataset: which pieces share a file, which old files are used as they are.

The cutting and joining itself is in `video_cutting`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ulna.data.editing.blocks import VideoPiece
from ulna.data.editing.video_cutting import VideoFacts, can_copy, copy_cuts, encode_cut, probe
from ulna.data.episodes import VideoSpan
from ulna.data.layout import FileId

__all__ = ["write_videos"]


@dataclass
class _Run:
    """Pieces that follow one another in one old file."""

    facts: VideoFacts
    pieces: list[VideoPiece]

    @property
    def frames(self) -> int:
        return sum(piece.frames for piece in self.pieces)

    @property
    def is_whole(self) -> bool:
        return self.frames == self.facts.frames

    @property
    def size(self) -> float:
        return self.facts.size * self.frames / max(self.facts.frames, 1)

    @property
    def cut(self) -> VideoPiece:
        first = self.pieces[0]
        return VideoPiece(first.path, first.start_s, self.frames)


@dataclass
class _File:
    """Runs that shall share a new file."""

    runs: list[_Run] = field(default_factory=list)

    @property
    def size(self) -> float:
        return sum(run.size for run in self.runs)


def write_videos(
    root: Path,
    template: str,
    key: str,
    pieces: Sequence[VideoPiece],
    *,
    fps: int,
    limit: float,
    chunks_size: int,
    described: Mapping[str, Any],
    keep_files: bool = False,
) -> list[VideoSpan]:
    """Write the videos of one camera.

    A file of which every frame is used in order becomes a file of the new dataset without being read, where no other
    piece has room beside it. Everything else is copied packet by packet into files below the limit.

    Args:
        root: Folder of the new dataset.
        template: Path template of videos.
        key: The camera.
        pieces: One piece an episode, in order.
        fps: Frames per second.
        limit: Size in bytes that a file shall stay below.
        chunks_size: Files per chunk folder.
        described: The `info` of the camera.
        keep_files: Whether pieces of different old files never share a new one.

    Returns:
        Where each episode lies.

    Raises:
        DatasetError: A file does not have the frames that a piece claims.
        DatasetFormatError: A file cannot be opened.
    """
    scratch = root / f".cuts-{key}"
    scratch.mkdir(parents=True)
    try:
        runs = [part for run in _runs(pieces, fps) for part in _prepared(run, scratch, fps, described)]
        return _write(root, template, key, _layout(runs, limit, keep_files), fps, chunks_size)
    finally:
        shutil.rmtree(scratch)


def _prepared(run: _Run, scratch: Path, fps: int, described: Mapping[str, Any]) -> list[_Run]:
    """Return runs whose packets can be copied: the run itself, or its episodes encoded again one by one."""
    if run.is_whole or can_copy(run.cut, fps):
        return [run]
    prepared = []
    for piece in run.pieces:
        path = scratch / f"{len(list(scratch.iterdir())):06d}.mp4"
        encode_cut(piece, path, fps, described)
        prepared.append(_Run(probe(path), [VideoPiece(path, 0.0, piece.frames)]))
    return prepared


def _write(root: Path, template: str, key: str, files: Sequence[_File], fps: int, chunks_size: int) -> list[VideoSpan]:
    spans: list[VideoSpan] = []
    number = FileId(0, 0)
    for file in files:
        path = number.path(root, template, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        used = [piece for run in file.runs for piece in run.pieces]
        if len(file.runs) == 1 and file.runs[0].is_whole:
            _link(used[0].path, path)
            spans.extend(VideoSpan(number, p.start_s, p.start_s + p.frames / fps) for p in used)
        else:
            copy_cuts([run.cut for run in file.runs], path, fps)
            before = 0
            for piece in used:
                spans.append(VideoSpan(number, before / fps, (before + piece.frames) / fps))
                before += piece.frames
        number = number.next(chunks_size)
    return spans


def _runs(pieces: Sequence[VideoPiece], fps: int) -> list[_Run]:
    facts: dict[Path, VideoFacts] = {}
    runs: list[_Run] = []
    for piece in pieces:
        if piece.path not in facts:
            facts[piece.path] = probe(piece.path)
        last = runs[-1].pieces[-1] if runs else None
        follows = (
            last is not None
            and last.path == piece.path
            and abs(last.start_s + last.frames / fps - piece.start_s) < 0.5 / fps
        )
        if follows:
            runs[-1].pieces.append(piece)
        else:
            runs.append(_Run(facts[piece.path], [piece]))
    return runs


def _layout(runs: Sequence[_Run], limit: float, keep_files: bool) -> list[_File]:
    """Distribute runs over files. A whole old file stays in one piece; of others, each episode can begin a new file."""
    files: list[_File] = []
    for run in runs:
        whole = run.is_whole or run.size < limit or keep_files
        for part in [run] if whole else [_Run(run.facts, [piece]) for piece in run.pieces]:
            last = files[-1].runs if files else []
            fits = (
                bool(last)
                and not keep_files
                and files[-1].size + part.size < limit
                and last[-1].facts.signature == part.facts.signature
            )
            if fits:
                last.append(part)
            else:
                files.append(_File([part]))
    return files


def _link(source: Path, target: Path) -> None:
    """Make `source` appear at `target` too, without copying where the file system can."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
