# SPDX-License-Identifier: Apache-2.0
"""Invariants of the videos: every file is opened once and its index compared with the episodes that point at it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ulna.data.checks.contents import Contents
from ulna.data.checks.report import Report
from ulna.data.features import Feature
from ulna.data.video_opening import open_video

__all__ = ["check_videos"]


def check_videos(contents: Contents, report: Report, *, deep: bool, progress: Callable[[str], None]) -> None:
    """Check that every frame of every episode is in its video.

    Args:
        contents: The dataset.
        report: Where problems go.
        deep: Whether every frame is decoded, instead of being looked up in the file's index only.
        progress: Called with the name of each file.
    """
    for key in contents.info.video_keys:
        if f"videos/{key}/from_timestamp" not in contents.episodes.column_names:
            continue
        feature = contents.info.features[key]
        for file, rows in sorted(contents.rows_of(f"videos/{key}").items()):
            path = file.path(contents.root, contents.info.video_template, key)
            report.files += 1
            progress(str(path.relative_to(contents.root)))
            _check_file(contents, report, feature, path, rows, deep)


def _check_file(contents: Contents, report: Report, feature: Feature, path: Path, rows: list[int], deep: bool) -> None:
    import av

    episodes = sorted(int(contents.numbers[row]) for row in rows)
    try:
        with open_video(path) as container:
            stream = container.streams.video[0]
            _check_stream(report, feature, contents.info.fps, stream, path)
            base = float(stream.time_base or 1)
            if deep:
                times, failure = _decoded_times(container, stream, base)
            else:
                packets = (packet.pts for packet in container.demux(stream) if packet.size and packet.pts is not None)
                times, failure = np.sort(np.fromiter(packets, np.float64)) * base, None
    except (av.FFmpegError, OSError, IndexError) as error:
        what = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be opened: {error}"
        report.add(
            "video-unreadable",
            f"The file {what}; {len(episodes)} episodes from {episodes[0]} on are in it.",
            episode=episodes[0],
            path=path,
            remedy=f"restore the file, or leave them out: ulna dataset repair {contents.root} --drop-broken",
        )
        return
    _check_times(contents, report, feature.name, path, rows, times, failure)


def _check_stream(report: Report, feature: Feature, fps: int, stream: Any, path: Path) -> None:
    height, width, _ = feature.hwc
    context = stream.codec_context
    if (context.height, context.width) != (height, width):
        message = f"{feature.name!r} is {context.height} x {context.width}, declared {height} x {width}."
        report.add("video-size", message, path=path)
    rate = float(stream.average_rate or 0)
    if abs(rate - fps) > 0.02 * fps and stream.frames > 1:
        report.add("video-rate", f"{feature.name!r} has {rate:.3f} frames/s, the dataset {fps}.", "warning", path=path)
    declared = feature.extra.get("info") or {}
    codec = {"libdav1d": "av1"}.get(context.codec.name, context.codec.canonical_name)
    if declared.get("video.codec", codec) != codec:
        message = f"{feature.name!r} is {codec}, info.json says {declared['video.codec']}."
        report.add("video-codec", message, "warning", path=path)


def _decoded_times(container: Any, stream: Any, base: float) -> tuple[npt.NDArray[np.float64], str | None]:
    import av

    times: list[float] = []
    try:
        times.extend(frame.pts * base for frame in container.decode(stream))
    except av.FFmpegError as error:
        return np.sort(np.array(times)), f"decoding fails after {len(times)} frames: {error}"
    return np.sort(np.array(times)), None


def _check_times(
    contents: Contents,
    report: Report,
    key: str,
    path: Path,
    rows: list[int],
    times: npt.NDArray[np.float64],
    failure: str | None,
) -> None:
    starts = contents.episodes[f"videos/{key}/from_timestamp"].to_pylist()
    fps = contents.info.fps
    for row in rows:
        wanted = float(starts[row] or 0.0) + np.arange(max(int(contents.lengths[row]), 0)) / fps
        lost = _without_match(wanted, times)
        if lost.size:
            what = failure or f"the file has {times.size} frames, the last at {times[-1] if times.size else 0:.4f} s"
            report.add(
                "video-frames",
                f"{key!r}: {lost.size} of {wanted.size} frames are not in the video, the first at "
                f"{wanted[lost[0]]:.4f} s; {what}.",
                episode=int(contents.numbers[row]),
                frame=int(lost[0]),
                path=path,
                remedy=f"leave such episodes out: ulna dataset repair {contents.root} --drop-broken",
            )
    if failure and not report.counts["video-frames"]:
        report.add("video-decoding", f"{key!r}: {failure}.", path=path)


def _without_match(wanted: npt.NDArray[np.float64], times: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    if not times.size:
        return np.arange(wanted.size)
    right = np.searchsorted(times, wanted).clip(0, times.size - 1)
    left = (right - 1).clip(0)
    distance = np.minimum(np.abs(times[right] - wanted), np.abs(times[left] - wanted))
    return np.flatnonzero(distance > 1e-3)
