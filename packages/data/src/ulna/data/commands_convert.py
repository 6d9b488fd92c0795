# SPDX-License-Identifier: Apache-2.0
"""`ulna dataset convert`, and those commands of `ulna dataset edit` that encode pictures or compute statistics anew.

The folder of the result goes to stdout, progress and messages to stderr.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ulna.core.commands import reporting
from ulna.data.commands_edit_options import (
    EPISODES_HELP,
    Dataset,
    DryRun,
    InPlace,
    carry_out,
    edit_places,
    episode_numbers,
    output_option,
)

if TYPE_CHECKING:
    from ulna.data.video_codecs import RGBEncoderConfig

__all__ = ["add_edit_commands", "convert"]

Codec = Annotated[str, typer.Option(help="Encoder: libsvtav1, h264, hevc, auto, or any other that FFmpeg has.")]
Quality = Annotated[float | None, typer.Option("--crf", help="Quality; smaller is better.")]
KeyFrameDistance = Annotated[int | None, typer.Option("--g", help="Frames from one key frame to the next.")]
Preset = Annotated[str | None, typer.Option(help="Speed preset of the encoder.")]
Cameras = Annotated[list[str] | None, typer.Option("--camera", help="Only this camera; may be given several times.")]


def convert(
    dataset: Dataset,
    output_dir: Annotated[Path | None, output_option("beside the dataset, as NAME_v30")] = None,
    data_size: Annotated[float, typer.Option("--data-files-size-in-mb", help="Size limit of a table file.")] = 100,
    video_size: Annotated[float, typer.Option("--video-files-size-in-mb", help="Size limit of a video file.")] = 200,
    picture_quantiles: Annotated[
        bool, typer.Option(help="Decode a sample of the pictures to tell their quantiles, which v2.1 does not have.")
    ] = True,
    dry_run: DryRun = False,
) -> None:
    """Convert a dataset of format v2.0 or v2.1 to v3.0, into a new folder.

    The original stays as it is. Videos are joined without encoding them again. Missing or damaged files are named, and
    nothing is written then.
    """
    from ulna.data.editing.convert_v21 import plan_v21_conversion
    from ulna.data.location import find_root

    with reporting():
        folder = Path(dataset)
        plan = plan_v21_conversion(
            folder if folder.is_dir() else find_root(dataset, None),
            output_dir,
            data_files_size_in_mb=data_size,
            video_files_size_in_mb=video_size,
            picture_quantiles=picture_quantiles,
        )
        carry_out(plan, dry_run)


def images_to_video(
    dataset: Dataset,
    output_dir: Annotated[Path | None, output_option("beside the dataset, as NAME_video")] = None,
    in_place: InPlace = False,
    codec: Codec = "libsvtav1",
    crf: Quality = 30,
    gop: KeyFrameDistance = 2,
    preset: Preset = None,
    camera: Cameras = None,
    episodes: Annotated[list[str] | None, typer.Option("--episodes", help=f"{EPISODES_HELP} Default: all.")] = None,
    dry_run: DryRun = False,
) -> None:
    """Turn pictures in the table into videos."""
    from ulna.data.editing.convert_images import plan_images_to_video

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "video")
        plan = plan_images_to_video(
            meta,
            target,
            rgb_encoder=_encoder(codec, crf, gop, preset),
            cameras=camera or None,
            episode_indices=episode_numbers(episodes) if episodes else None,
        )
        carry_out(plan, dry_run)


def reencode(
    dataset: Dataset,
    output_dir: Annotated[Path | None, output_option("beside the dataset, as NAME_reencoded")] = None,
    in_place: InPlace = False,
    codec: Codec = "libsvtav1",
    crf: Quality = 30,
    gop: KeyFrameDistance = 2,
    preset: Preset = None,
    camera: Cameras = None,
    dry_run: DryRun = False,
) -> None:
    """Encode the videos again with other settings; depth stays as it is."""
    from ulna.data.editing.reencode import plan_reencode

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "reencoded")
        config = _encoder(codec, crf, gop, preset)
        carry_out(plan_reencode(meta, config, output_dir=target, cameras=camera or None), dry_run, "video file")


def crop(
    dataset: Dataset,
    region: Annotated[
        list[str] | None,
        typer.Option("--roi", help="CAMERA=TOP,LEFT,HEIGHT,WIDTH in pixels; may be given several times."),
    ] = None,
    params: Annotated[
        Path | None, typer.Option("--params", help="JSON file, camera to [top, left, height, width].")
    ] = None,
    resize: Annotated[str | None, typer.Option(help="HEIGHT,WIDTH that the region is scaled to.")] = None,
    output_dir: Annotated[Path | None, output_option("beside the dataset, as NAME_cropped")] = None,
    in_place: InPlace = False,
    dry_run: DryRun = False,
) -> None:
    """Cut a region of interest out of pictures, and scale it if wanted.

    Example: ulna dataset edit crop lab/pick --roi observation.images.front=40,120,240,320 --resize 128,128
    """
    from ulna.data.editing.crop import plan_crop

    with reporting():
        regions = {**_regions_of(params), **dict(_region(text) for text in region or ())}
        size = None if resize is None else _numbers("--resize", resize, 2)
        meta, target = edit_places(dataset, output_dir, in_place, "cropped")
        carry_out(plan_crop(meta, regions, size, target), dry_run)


def recompute_stats(
    dataset: Dataset,
    output_dir: Annotated[Path | None, output_option("beside the dataset, as NAME_recomputed_stats")] = None,
    in_place: InPlace = False,
    pictures: Annotated[bool, typer.Option(help="Also those of pictures, from a sample that is decoded.")] = False,
    relative_action: Annotated[
        bool, typer.Option("--relative-action", help="Describe actions relative to the state where their chunk begins.")
    ] = False,
    exclude_joint: Annotated[
        list[str] | None, typer.Option("--exclude-joint", help="A joint with this in its name stays absolute.")
    ] = None,
    chunk_size: Annotated[int, typer.Option(help="Actions of a chunk.", min=1)] = 50,
    dry_run: DryRun = False,
) -> None:
    """Compute the statistics anew from the rows, quantiles included."""
    from ulna.data.editing.recompute import plan_recompute

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "recomputed_stats")
        plan = plan_recompute(meta, not pictures, relative_action, exclude_joint or None, chunk_size, output_dir=target)
        carry_out(plan, dry_run)


def add_quantiles(
    dataset: Dataset,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Compute those anew that are there.")] = False,
    pictures: Annotated[bool, typer.Option(help="Also those of pictures, from a sample that is decoded.")] = True,
    output_dir: Annotated[Path | None, output_option("in place")] = None,
    dry_run: DryRun = False,
) -> None:
    """Add quantiles to statistics that lack them.

    This happens in the place of the dataset, unless --output is given.
    """
    from ulna.data.editing.recompute import plan_quantiles

    with reporting():
        carry_out(plan_quantiles(dataset, overwrite, skip_images=not pictures, output_dir=output_dir), dry_run)


def add_edit_commands(app: typer.Typer) -> None:
    """Add the commands of this module to `ulna dataset edit`.

    Args:
        app: That group.
    """
    for command in (images_to_video, reencode, crop, recompute_stats, add_quantiles):
        app.command()(command)


def _encoder(codec: str, crf: float | None, gop: int | None, preset: str | None) -> RGBEncoderConfig:
    from ulna.data.video_codecs import RGBEncoderConfig

    given: dict[str, Any] = {"vcodec": codec, "crf": crf, "g": gop}
    if preset is not None:
        given["preset"] = int(preset) if preset.isdecimal() else preset
    return RGBEncoderConfig.build(given, title="video settings")


def _region(text: str) -> tuple[str, list[int]]:
    camera, _, numbers = text.rpartition("=")
    return camera, _numbers(f"--roi {text}", numbers, 4)


def _numbers(what: str, text: str, count: int) -> list[int]:
    from ulna.core.errors import DatasetError

    parts = [part.strip() for part in text.replace("x", ",").split(",")]
    if len(parts) != count or not all(part.isdecimal() for part in parts):
        raise DatasetError(f"{what}: expected were {count} whole numbers with commas between them, got {text!r}.")
    return [int(part) for part in parts]


def _regions_of(path: Path | None) -> dict[str, Sequence[int]]:
    from ulna.core.errors import DatasetError

    if path is None:
        return {}
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DatasetError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(raw, dict) or not all(isinstance(value, list) for value in raw.values()):
        raise DatasetError(f"{path} must be an object of camera to [top, left, height, width], it is {raw!r:.200}.")
    return raw
