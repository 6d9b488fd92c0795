# SPDX-License-Identifier: Apache-2.0
"""`ulna dataset convert`, and those commands of `ulna dataset edit` that encode pictures or compute statistics anew.

The folder of the result goes to stdout, progress and messages to stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ulna.core.commands import message, output, reporting

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset
    from ulna.data.metadata import LeRobotDatasetMetadata
    from ulna.data.video_codecs import RGBEncoderConfig

__all__ = ["add_edit_commands", "convert", "edit_places", "episode_numbers", "report_result"]

_DATASET = typer.Argument(help="user/name, or the folder of a dataset.")
_OUTPUT = typer.Option("--output", "-o", help="Folder of the result; default: beside the dataset.")
_IN_PLACE = typer.Option("--in-place", help="Let the result take the place of the dataset, in one step.")
_CODEC = typer.Option(help="Encoder: libsvtav1, h264, hevc, auto, or any other that FFmpeg has.")
_CRF = typer.Option(help="Quality; smaller is better.")
_GOP = typer.Option("--g", help="Frames from one key frame to the next.")
_PRESET = typer.Option(help="Speed preset of the encoder.")
_MOST_EPISODES = 10_000_000
_CAMERA = typer.Option("--camera", help="Only this camera; may be given several times.")


def convert(
    dataset: Annotated[str, _DATASET],
    output_dir: Annotated[Path | None, _OUTPUT] = None,
    data_size: Annotated[float, typer.Option("--data-files-size-in-mb", help="Size limit of a table file.")] = 100,
    video_size: Annotated[float, typer.Option("--video-files-size-in-mb", help="Size limit of a video file.")] = 200,
    picture_quantiles: Annotated[
        bool, typer.Option(help="Decode a sample of the pictures to tell their quantiles, which v2.1 does not have.")
    ] = True,
) -> None:
    """Convert a dataset of format v2.0 or v2.1 to v3.0, into a new folder.

    The original stays as it is. Videos are joined without encoding them again. Missing or damaged files are named, and
    nothing is written then.
    """
    from ulna.data.editing.convert_v21 import convert_v21_dataset
    from ulna.data.location import find_root

    with reporting():
        folder = Path(dataset)
        result = convert_v21_dataset(
            folder if folder.is_dir() else find_root(dataset, None),
            output_dir,
            data_files_size_in_mb=data_size,
            video_files_size_in_mb=video_size,
            picture_quantiles=picture_quantiles,
            progress=_Progress("episode"),
        )
    report_result(result)


def images_to_video(
    dataset: Annotated[str, _DATASET],
    output_dir: Annotated[Path | None, _OUTPUT] = None,
    in_place: Annotated[bool, _IN_PLACE] = False,
    codec: Annotated[str, _CODEC] = "libsvtav1",
    crf: Annotated[float | None, _CRF] = 30,
    gop: Annotated[int | None, _GOP] = 2,
    preset: Annotated[str | None, _PRESET] = None,
    camera: Annotated[list[str] | None, _CAMERA] = None,
    episodes: Annotated[list[str] | None, typer.Option("--episodes", help="Only these, such as 0,3,10-19.")] = None,
) -> None:
    """Turn pictures in the table into videos."""
    from ulna.data.editing.convert_images import convert_image_to_video_dataset

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "video")
        result = convert_image_to_video_dataset(
            meta,
            target,
            rgb_encoder=_encoder(codec, crf, gop, preset),
            cameras=camera or None,
            episode_indices=episode_numbers(episodes) if episodes else None,
            progress=_Progress("episode"),
        )
    report_result(result)


def reencode(
    dataset: Annotated[str, _DATASET],
    output_dir: Annotated[Path | None, _OUTPUT] = None,
    in_place: Annotated[bool, _IN_PLACE] = False,
    codec: Annotated[str, _CODEC] = "libsvtav1",
    crf: Annotated[float | None, _CRF] = 30,
    gop: Annotated[int | None, _GOP] = 2,
    preset: Annotated[str | None, _PRESET] = None,
    camera: Annotated[list[str] | None, _CAMERA] = None,
) -> None:
    """Encode the videos again with other settings; depth stays as it is."""
    from ulna.data.editing.reencode import reencode_dataset

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "reencoded")
        config = _encoder(codec, crf, gop, preset)
        result = reencode_dataset(
            meta, config, output_dir=target, cameras=camera or None, progress=_Progress("video file")
        )
    report_result(result)


def crop(
    dataset: Annotated[str, _DATASET],
    region: Annotated[
        list[str] | None,
        typer.Option("--roi", help="CAMERA=TOP,LEFT,HEIGHT,WIDTH in pixels; may be given several times."),
    ] = None,
    params: Annotated[
        Path | None, typer.Option("--params", help="JSON file, camera to [top, left, height, width].")
    ] = None,
    resize: Annotated[str | None, typer.Option(help="HEIGHT,WIDTH that the region is scaled to.")] = None,
    output_dir: Annotated[Path | None, _OUTPUT] = None,
    in_place: Annotated[bool, _IN_PLACE] = False,
) -> None:
    """Cut a region of interest out of pictures, and scale it if wanted.

    Example: ulna dataset edit crop lab/pick --roi observation.images.front=40,120,240,320 --resize 128,128
    """
    from ulna.data.editing.crop import crop_dataset_roi

    with reporting():
        regions = {**_regions_of(params), **dict(_region(text) for text in region or ())}
        size = None if resize is None else _numbers("--resize", resize, 2)
        meta, target = edit_places(dataset, output_dir, in_place, "cropped")
        result = crop_dataset_roi(meta, regions, size, target, progress=_Progress("episode"))
    report_result(result)


def recompute_stats(
    dataset: Annotated[str, _DATASET],
    output_dir: Annotated[Path | None, _OUTPUT] = None,
    in_place: Annotated[bool, _IN_PLACE] = False,
    pictures: Annotated[bool, typer.Option(help="Also those of pictures, from a sample that is decoded.")] = False,
    relative_action: Annotated[
        bool, typer.Option("--relative-action", help="Describe actions relative to the state where their chunk begins.")
    ] = False,
    exclude_joint: Annotated[
        list[str] | None, typer.Option("--exclude-joint", help="A joint with this in its name stays absolute.")
    ] = None,
    chunk_size: Annotated[int, typer.Option(help="Actions of a chunk.", min=1)] = 50,
) -> None:
    """Compute the statistics anew from the rows, quantiles included."""
    from ulna.data.editing.recompute import recompute_stats as recompute

    with reporting():
        meta, target = edit_places(dataset, output_dir, in_place, "recomputed_stats")
        result = recompute(
            meta,
            not pictures,
            relative_action,
            exclude_joint or None,
            chunk_size,
            output_dir=target,
            progress=_Progress("episode"),
        )
    report_result(result)


def add_quantiles(
    dataset: Annotated[str, _DATASET],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Compute those anew that are there.")] = False,
    pictures: Annotated[bool, typer.Option(help="Also those of pictures, from a sample that is decoded.")] = True,
    output_dir: Annotated[Path | None, typer.Option("--output", "-o", help="Folder of the result.")] = None,
) -> None:
    """Add quantiles to statistics that lack them.

    This happens in the place of the dataset, unless --output is given.
    """
    from ulna.data.editing.recompute import augment_dataset_with_quantiles

    with reporting():
        result = augment_dataset_with_quantiles(
            dataset, overwrite, skip_images=not pictures, output_dir=output_dir, progress=_Progress("episode")
        )
    report_result(result)


def add_edit_commands(app: typer.Typer) -> None:
    """Add the commands of this module to `ulna dataset edit`.

    Args:
        app: That group.
    """
    for command in (images_to_video, reencode, crop, recompute_stats, add_quantiles):
        app.command()(command)


class _Progress:
    """Draws one line on a terminal that says how far a command is; elsewhere it is silent.

    Args:
        unit: What is counted.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit

    def __call__(self, done: int, total: int) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            end = "" if done < total else "\r\033[K"
            typer.echo(f"\r\033[K{self._unit} {done} of {total}{end}", err=True, nl=False)


def edit_places(
    dataset: str, output_dir: Path | None, in_place: bool, suffix: str
) -> tuple[LeRobotDatasetMetadata, Path | None]:
    """Return the dataset that a command edits and where the result goes.

    Args:
        dataset: user/name, or a folder.
        output_dir: Folder of the result, if it was named.
        in_place: Whether the result takes the place of the dataset.
        suffix: What stands behind the name of the dataset in that of the result, if neither was said.

    Returns:
        The dataset, and the folder of the result; None when that takes the place of the dataset.

    Raises:
        DatasetError: Both were said, or the dataset is not on this machine.
    """
    from ulna.core.errors import DatasetError
    from ulna.data.editing.places import open_source

    if in_place and output_dir is not None:
        raise DatasetError("--in-place and --output exclude one another.", hint="Leave one of them out.")
    meta = open_source(dataset)
    if in_place:
        return meta, None
    root = meta.root.absolute()
    return meta, output_dir or root.with_name(f"{root.name}_{suffix}")


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


def episode_numbers(texts: Sequence[str]) -> list[int]:
    """Return the numbers that "3", "7-9" and "12,14" name.

    Args:
        texts: What was typed.

    Raises:
        DatasetError: One of them names no episodes.
    """
    from ulna.core.errors import DatasetError

    numbers: list[int] = []
    for text in texts:
        for piece in text.split(","):
            first, dash, last = piece.strip().partition("-")
            ends = (first, last if dash else first)
            if not all(end.isdecimal() for end in ends) or not 0 <= int(ends[1]) - int(ends[0]) < _MOST_EPISODES:
                raise DatasetError(f"{text!r} names no episodes: expected were numbers and ranges such as 3 7-9 12,14.")
            numbers.extend(range(int(ends[0]), int(ends[1]) + 1))
    return numbers


def report_result(result: LeRobotDataset) -> None:
    """Tell what a command wrote: its folder on stdout, its size on stderr.

    Args:
        result: The dataset that was written.
    """
    message(f"{result.num_episodes} episodes, {result.num_frames} frames")
    output(str(result.root))
