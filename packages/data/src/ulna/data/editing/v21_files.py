# SPDX-License-Identifier: Apache-2.0
"""The files of single episodes in the formats v2.0 and v2.1: what must be in them, and columns as v3.0 has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.errors import DatasetFormatError, nearest
from ulna.data.arrow_schema import PICTURE_TYPE, column_array, numeric_column, table_columns
from ulna.data.features import Feature
from ulna.data.stats import Stats
from ulna.data.video_opening import open_video

__all__ = ["EPISODES_PATH", "V21Episode", "check_table", "check_video", "converted_column"]

EPISODES_PATH: Final = "meta/episodes.jsonl"


@dataclass(frozen=True)
class V21Episode:
    """One episode, as `meta/episodes.jsonl` declares it.

    Attributes:
        index: Its number.
        length: Its frames.
        table: Its table.
        videos: Camera to its video.
        stats: The statistics that stand in `meta/episodes_stats.jsonl`; empty for v2.0.
        video_starts: Camera to the time of the first frame in its video, in seconds; known after a look at the file.
    """

    index: int
    length: int
    table: Path
    videos: Mapping[str, Path]
    stats: Stats
    video_starts: Mapping[str, float] = field(default_factory=dict)


def check_table(episode: V21Episode, features: Mapping[str, Feature]) -> None:
    """Look at the footer of a table: it has the rows and the columns that were declared.

    Args:
        episode: The episode.
        features: All features.

    Raises:
        DatasetFormatError: It is missing, damaged, or holds something else; it and the episode are named.
    """
    path = episode.table
    try:
        parquet = pq.read_metadata(path)
    except FileNotFoundError as error:
        raise DatasetFormatError(
            f"Episode {episode.index}: the table {path} does not exist.", hint="Restore it from a backup or the Hub."
        ) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetFormatError(f"Episode {episode.index}: the table {path} cannot be read: {error}") from error
    if parquet.num_rows != episode.length:
        raise DatasetFormatError(
            f"Episode {episode.index}: {path} has {parquet.num_rows} rows, {EPISODES_PATH} says {episode.length}."
        )
    names = parquet.schema.to_arrow_schema().names
    for feature in table_columns(features):
        if feature.name not in names:
            near = nearest(feature.name, names)
            raise DatasetFormatError(
                f"Episode {episode.index}: {path} lacks the declared column {feature.name!r}; it has {names}.",
                hint=f"Did you mean {near!r}?" if near else None,
            )


def check_video(episode: V21Episode, key: str, path: Path, fps: int) -> float:
    """Look at the index of a video, which tells the number of frames and how far they are apart.

    Args:
        episode: The episode.
        key: The camera.
        path: The video.
        fps: Frames per second.

    Returns:
        Time of the first frame in seconds.

    Raises:
        DatasetFormatError: It is missing, damaged, or has other frames than declared; it and the episode are named.
    """
    import av

    where = f"Episode {episode.index}, camera {key!r}"
    if not path.is_file():
        raise DatasetFormatError(f"{where}: the video {path} does not exist.", hint="Restore it from a backup.")
    try:
        with open_video(path) as container:
            stream: Any = container.streams.video[0]
            entries = [entry.timestamp for entry in stream.index_entries]
            frames = stream.frames or len(entries)
            base = float(stream.time_base)
            start_s = float(stream.start_time or 0) * base
    except (av.FFmpegError, OSError, IndexError) as error:
        raise DatasetFormatError(f"{where}: the video {path} cannot be opened: {error}") from error
    if frames != episode.length:
        raise DatasetFormatError(f"{where}: {path} has {frames} frames, {EPISODES_PATH} says {episode.length}.")
    span_s, wanted_s = (max(entries) - min(entries)) * base if entries else 0.0, (frames - 1) / fps
    if len(entries) == frames and abs(span_s - wanted_s) > 0.5 / fps:
        raise DatasetFormatError(
            f"{where}: the {frames} frames of {path} span {span_s:.6f} s; {wanted_s:.6f} s were expected at {fps} fps."
        )
    return start_s


def converted_column(feature: Feature, column: pa.ChunkedArray, where: str) -> pa.Array | pa.ChunkedArray:
    """Return a column with the type that v3.0 asks for.

    Args:
        feature: What it holds.
        column: The column as it was read.
        where: Episode and file, for messages.

    Raises:
        DatasetFormatError: It holds something else than declared, or pictures that lie outside of the table.
    """
    if feature.is_numeric:
        return column_array(feature, _as_declared(feature, numeric_column(feature, column, where), where))
    if feature.dtype != "image":
        return column.cast(pa.string())
    if not pa.types.is_struct(column.type):
        raise DatasetFormatError(f"{where}: column {feature.name!r} holds {column.type}, expected were pictures.")
    encoded, paths = _fields(column, "bytes", pa.binary()), _fields(column, "path", pa.string())
    if encoded.null_count:
        row = encoded.is_null().index(True).as_py()
        raise DatasetFormatError(
            f"{where}: the picture {feature.name!r} of row {row} is not in the table; it names the file "
            f"{paths[row].as_py()!r}.",
            hint="Put the pictures into the table with the version that wrote it.",
        )
    parts = zip(encoded.chunks, paths.chunks, strict=True)
    return pa.chunked_array([pa.StructArray.from_arrays(both, fields=list(PICTURE_TYPE)) for both in parts])


def _fields(column: pa.ChunkedArray, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.field(name) for chunk in column.chunks]).cast(kind)


def _as_declared(feature: Feature, values: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
    """Return numbers in the declared dtype. Floats may lose digits, but nothing becomes another whole number."""
    if values.dtype == feature.dtype:
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        declared = values.astype(feature.dtype)
    if declared.dtype.kind != "f" and not np.array_equal(declared, values):
        raise DatasetFormatError(
            f"{where}: column {feature.name!r} is declared as {feature.dtype} and holds {values.dtype} values that are "
            f"none, such as {values[declared != values].flat[0]}."
        )
    return declared
