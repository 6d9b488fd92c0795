# SPDX-License-Identifier: Apache-2.0
"""Encodes the videos of a dataset again, file by file: frames, episodes, rows and statistics stay what they are."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ulna.core.errors import DatasetError, nearest
from ulna.core.files import atomic_path
from ulna.data.depth_recording import recorded_depth_config
from ulna.data.editing.camera_rewriting import encoding_text, try_encoders
from ulna.data.editing.cloning import cloned
from ulna.data.editing.places import open_source, place_for
from ulna.data.editing.plans import EditPlan, Progress
from ulna.data.editing.selection import check_readable
from ulna.data.features import Feature
from ulna.data.layout import FileId
from ulna.data.metadata import LeRobotDatasetMetadata
from ulna.data.video_codecs import DepthEncoderConfig, RGBEncoderConfig, VideoEncoderConfig
from ulna.data.video_encoding import add_stream, mux_packets, probe_video
from ulna.data.video_opening import open_video

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = ["plan_reencode", "reencode_dataset", "reencode_video"]

_KEY_FRAME: Final = 1  # FFmpeg's AV_PICTURE_TYPE_I
_ANY_FRAME: Final = 0


def reencode_dataset(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    rgb_encoder: RGBEncoderConfig | None = None,
    depth_encoder: DepthEncoderConfig | None = None,
    encoder_threads: int | None = None,
    *,
    cameras: Sequence[str] | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
    progress: Progress | None = None,
) -> LeRobotDataset:
    """Encode the videos of a dataset again. Every new file is counted before anything takes its place.

    Frames go from decoder to encoder as they are, without a change of colours where the pixel format stays. Each
    episode begins with a key frame, so that it can be cut out later. Statistics stay: they describe what was recorded.

    Args:
        dataset: The dataset: opened, or its folder or name.
        rgb_encoder: Settings for colour video. Without them depth alone is encoded, if there are settings for that;
            without any, colour video gets the default settings.
        depth_encoder: Settings for depth video; without them it stays as it is. The steps of depth cannot change.
        encoder_threads: Threads of one encoder, if the settings do not say.
        cameras: The cameras to encode; all when not given.
        output_dir: Folder of the result. None edits in place, unless `repo_id` names another dataset.
        repo_id: Name of the result.
        progress: Called with the files that are done and the files in all.

    Returns:
        The result, opened.

    Raises:
        DatasetError: There is no such camera, settings do not fit, the target is taken or in use, or the disk is full.
        DatasetFormatError: Files of the dataset contradict one another; nothing was changed.
    """
    plan = plan_reencode(
        dataset, rgb_encoder, depth_encoder, encoder_threads, cameras=cameras, output_dir=output_dir, repo_id=repo_id
    )
    return plan.carry_out(progress)


def plan_reencode(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    rgb_encoder: RGBEncoderConfig | None = None,
    depth_encoder: DepthEncoderConfig | None = None,
    encoder_threads: int | None = None,
    *,
    cameras: Sequence[str] | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> EditPlan:
    """Check what `reencode_dataset` is asked for. Writes nothing.

    Args:
        dataset: As there, like all that follow.
        rgb_encoder: Settings for colour video.
        depth_encoder: Settings for depth video.
        encoder_threads: Threads of one encoder.
        cameras: The cameras to encode.
        output_dir: Folder of the result.
        repo_id: Name of the result.

    Returns:
        What would be done.

    Raises:
        DatasetError: It cannot be done as asked for.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    meta = open_source(dataset)
    check_readable(meta, range(meta.total_episodes))
    if rgb_encoder is None and depth_encoder is None:
        rgb_encoder = RGBEncoderConfig()
    configs = _configs(meta, _chosen(meta, cameras), rgb_encoder, depth_encoder, encoder_threads)
    place = place_for(meta, output_dir, repo_id)
    try_encoders(meta.parsed_features, meta.fps, configs)
    jobs = [(key, file) for key in configs for file in dict.fromkeys(meta.episodes.video_files[key])]

    def write(progress: Progress | None) -> None:
        with place.writing() as target, cloned(meta.root, target) as folder:
            _encode_files(meta, folder, configs, jobs, progress)

    return EditPlan(str(meta.root), place, f"encodes {len(jobs)} video files again: {encoding_text(configs)}", write)


def _chosen(meta: LeRobotDatasetMetadata, cameras: Sequence[str] | None) -> list[str]:
    if not meta.video_keys:
        raise DatasetError(
            f"{meta.root} has no camera that is stored as video; it has {meta.camera_keys or 'none at all'}.",
            hint=f"Pictures become video with: ulna dataset edit images-to-video {meta.root}"
            if meta.camera_keys
            else None,
        )
    for key in cameras or ():
        if key not in meta.video_keys:
            near = nearest(key, meta.video_keys)
            raise DatasetError(
                f"{key!r} is not a video of this dataset; it has {meta.video_keys}. Nothing was changed.",
                hint=f"Did you mean {near!r}?" if near else None,
            )
    return list(meta.video_keys if cameras is None else cameras)


def _configs(
    meta: LeRobotDatasetMetadata,
    cameras: Sequence[str],
    rgb: RGBEncoderConfig | None,
    depth: DepthEncoderConfig | None,
    threads: int | None,
) -> dict[str, VideoEncoderConfig]:
    """Return the settings for each camera that is encoded."""
    configs: dict[str, VideoEncoderConfig] = {}
    for key in cameras:
        feature = meta.parsed_features[key]
        config: VideoEncoderConfig | None = rgb
        if feature.is_depth:
            config = None if depth is None else recorded_depth_config(feature, depth)
        if config is None:
            continue
        if threads is not None and config.threads is None:
            config = config.model_copy(update={"threads": threads})
        configs[key] = config.shared(1)
    if not configs:
        raise DatasetError(f"There are no settings for any of the cameras {list(cameras)}. Nothing was changed.")
    return configs


def _encode_files(
    meta: LeRobotDatasetMetadata,
    folder: Path,
    configs: Mapping[str, VideoEncoderConfig],
    jobs: Sequence[tuple[str, FileId]],
    progress: Progress | None,
) -> None:
    info, described = meta.info, set()
    for done, (key, file) in enumerate(jobs, 1):
        target = file.path(folder, info.video_template, key)
        source = file.path(meta.root, info.video_template, key)
        with atomic_path(target) as temporary:
            reencode_video(source, temporary, configs[key], meta.fps, _beginnings(meta, key, file))
        if key not in described:
            described.add(key)
            info.features[key] = _described(info.features[key], target, configs[key])
        if progress is not None:
            progress(done, len(jobs))
    info.save(folder)


def _beginnings(meta: LeRobotDatasetMetadata, key: str, file: FileId) -> set[int]:
    """Return the frames of a video at which an episode begins."""
    table = meta.episodes
    held = [e for e, other in enumerate(table.video_files[key]) if other == file]
    return {round(float(table.video_starts[key][e]) * meta.fps) for e in held}


def _described(feature: Feature, path: Path, config: VideoEncoderConfig) -> Feature:
    """Return a feature whose `info` tells how the video is encoded now; what is known besides is kept."""
    info = {**feature.camera_info, **probe_video(path, config)}
    if "video.is_depth_map" in info:
        info["video.is_depth_map"] = feature.is_depth
    extra = {key: value for key, value in feature.extra.items() if key != "video_info"}
    return replace(feature, extra={**extra, "info": info})


def reencode_video(
    source: Path, target: Path, config: VideoEncoderConfig, fps: int, key_frames: Container[int] = ()
) -> int:
    """Encode one video again, frame for frame at the same times.

    Args:
        source: An mp4.
        target: The file to write.
        config: Settings.
        fps: Frames per second.
        key_frames: Frames, counted from 0, that shall be key frames.

    Returns:
        Number of frames.

    Raises:
        DatasetError: A frame was lost, two frames are at one time, or the encoder refuses the settings.
    """
    import av

    try:
        stored, written = _reencode(source, target, config, fps, key_frames)
    except DatasetError:
        raise
    except (av.FFmpegError, ValueError) as error:
        raise DatasetError(f"Encoding {source} again with {config.encoder} failed: {error}") from error
    if not stored == written > 0:
        raise DatasetError(f"{source} has {stored} frames, of which {written} came out of the encoder.")
    return written


def _reencode(
    source: Path, target: Path, config: VideoEncoderConfig, fps: int, key_frames: Container[int]
) -> tuple[int, int]:
    import av

    written, last = 0, -1
    with (
        open_video(source) as container,
        av.open(str(target), "w", format="mp4", options={"movflags": "faststart"}) as output,
    ):
        stream: Any = container.streams.video[0]
        stream.thread_type = "AUTO"
        context = stream.codec_context
        encoder = add_stream(output, config, fps, context.height, context.width)
        stored = stream.frames or len(stream.index_entries)
        for frame in container.decode(stream):
            number = round(Fraction(frame.pts) * Fraction(stream.time_base) * fps)
            if number <= last:
                raise DatasetError(f"{source} has two frames at {number / fps:.6f} s.")
            if frame.is_corrupt:
                raise DatasetError(f"{source} is damaged: its frame at {number / fps:.6f} s cannot be decoded in full.")
            last = number
            if frame.format.name != config.pix_fmt:
                frame = frame.reformat(format=config.pix_fmt)
            frame.pts, frame.time_base = number, Fraction(1, fps)
            frame.pict_type = _KEY_FRAME if number in key_frames else _ANY_FRAME
            written += mux_packets(output, encoder.encode(frame))
        written += mux_packets(output, encoder.encode())
    return stored, written
