# SPDX-License-Identifier: Apache-2.0
"""Side files that keep the sketches of episodes: `meta/sketches/chunk-CCC/file-FFF.parquet`.

A file belongs to the file of the episode table with the same number and holds one row for each episode and feature:
values and weights as in `FeatureSketch`, flattened, how many rows they have, and the moments, which earlier files lack.
What can be told from the statistics alone (`index`, `frame_index` and other counted columns) is not kept. Nothing
depends on these files: what is absent, or does not fit the statistics (`ulna.data.sketch_fit`), is computed from the
rows again, and LeRobot ignores the folder.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.files import atomic_path, make_dirs
from ulna.data.layout import FileId
from ulna.data.quantiles import EpisodeSketches, FeatureSketch

__all__ = [
    "SKETCHES_TEMPLATE",
    "read_sketch_file",
    "read_sketch_table",
    "read_sketches",
    "write_sketch_file",
    "write_sketches",
]

logger = logging.getLogger(__name__)

SKETCHES_TEMPLATE: Final = "meta/sketches/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_VERSION: Final = 1
_IMPLIED: Final = frozenset({"index", "frame_index", "episode_index"})
_SCHEMA: Final = pa.schema(
    [
        ("episode_index", pa.int64()),
        ("feature", pa.string()),
        ("values_rows", pa.int32()),
        ("values", pa.list_(pa.field("element", pa.float64()))),
        ("weights_rows", pa.int32()),
        ("weights", pa.list_(pa.field("element", pa.int64()))),
        ("moments", pa.list_(pa.field("element", pa.float32()))),
    ],
    metadata={"ulna.sketches": str(_VERSION)},
)


def write_sketches(root: Path, file: FileId, rows: Mapping[int, EpisodeSketches]) -> None:
    """Write one side file atomically, flushed to disk.

    Args:
        root: Folder of the dataset.
        file: Number of the file of the episode table that it belongs to.
        rows: Episode to sketches.
    """
    write_sketch_file(file.path(root, SKETCHES_TEMPLATE), rows)


def write_sketch_file(path: Path, rows: Mapping[int, EpisodeSketches]) -> None:
    """Write one side file atomically, flushed to disk, each feature as a row group.

    Args:
        path: The file.
        rows: Episode to sketches.
    """
    rows = {e: {n: s for n, s in sketches.items() if _kept(n, s)} for e, sketches in rows.items()}
    names = list(dict.fromkeys(name for sketches in rows.values() for name in sketches))
    make_dirs(path.parent)
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(
            temporary,
            _SCHEMA,
            compression="zstd",
            use_dictionary=["feature"],
            column_encoding=dict.fromkeys(("values.list.element", "moments.list.element"), "BYTE_STREAM_SPLIT"),
        ) as writer,
    ):
        tables = [_table([(e, name, s[name]) for e, s in rows.items() if name in s]) for name in names]
        if len(rows) == 1 and tables:
            tables = [pa.concat_tables(tables)]
        for table in tables:
            writer.write_table(table)


def _kept(name: str, sketch: FeatureSketch) -> bool:
    """Tell whether a sketch says more than the statistics do (see `ulna.data.sketches.implied_sketch`)."""
    if name == "task_index":
        low, high = sketch.extremes
        return bool((low != high).any())
    return name not in _IMPLIED


def _table(rows: Sequence[tuple[int, str, FeatureSketch]]) -> pa.Table:
    def lists(arrays: Sequence[npt.NDArray[Any]], kind: pa.DataType) -> pa.Array:
        offsets = np.cumsum([0, *(a.size for a in arrays)]).astype(np.int32)
        return pa.ListArray.from_arrays(offsets, pa.array(np.concatenate([a.ravel() for a in arrays])), type=kind)

    sketches = [sketch for _, _, sketch in rows]
    columns = [
        pa.array([episode for episode, _, _ in rows], pa.int64()),
        pa.array([name for _, name, _ in rows], pa.string()),
        pa.array([len(s.values) for s in sketches], pa.int32()),
        lists([s.values for s in sketches], _SCHEMA.field("values").type),
        pa.array([len(s.weights) for s in sketches], pa.int32()),
        lists([s.weights for s in sketches], _SCHEMA.field("weights").type),
        pa.array([_short(s.moments) for s in sketches], _SCHEMA.field("moments").type),
    ]
    return pa.table(columns, schema=_SCHEMA)


def _short(moments: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float32] | None:
    """Return moments as they are kept: they only have to be compared, and beyond float32 nothing can be compared."""
    with np.errstate(over="ignore"):
        return None if moments is None else moments.ravel().astype(np.float32)


def read_sketch_file(root: Path, file: FileId, feature: str | None = None) -> dict[int, EpisodeSketches]:
    """Read one side file.

    Args:
        root: Folder of the dataset.
        file: Number of the file of the episode table that it belongs to.
        feature: Read only this feature; the others are not even decoded.

    Returns:
        Episode to sketches; empty when there is no such file, or it is damaged or of a later version (which is logged).
    """
    table = read_sketch_table(root, file, feature)
    if table is None:
        return {}
    try:
        return _parsed(table)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        logger.warning("%s is damaged and was passed over: %r", file.path(root, SKETCHES_TEMPLATE), error)
        return {}


def read_sketch_table(root: Path, file: FileId, feature: str | None = None) -> pa.Table | None:
    """Read one side file as it is stored.

    Args:
        root: Folder of the dataset.
        file: Number of the file of the episode table that it belongs to.
        feature: Read only this feature; the others are not even decoded.

    Returns:
        A row for each episode and feature; None when there is no such file, or it is damaged or of a later version
        (which is logged).
    """
    path = file.path(root, SKETCHES_TEMPLATE)
    try:
        chosen = None if feature is None else [("feature", "=", feature)]
        table = pq.read_table(path, use_threads=False, filters=chosen)
    except FileNotFoundError:
        return None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        logger.warning("%s cannot be read; its sketches are computed from the rows where possible: %s", path, error)
        return None
    if (table.schema.metadata or {}).get(b"ulna.sketches") != str(_VERSION).encode():
        logger.warning("%s is not of version %d and was passed over.", path, _VERSION)
        return None
    return table


def _parsed(table: pa.Table) -> dict[int, EpisodeSketches]:
    found: dict[int, EpisodeSketches] = {}
    values, weights = (table[key].combine_chunks() for key in ("values", "weights"))
    flat = [column.values.to_numpy() for column in (values, weights)]
    ends = [column.offsets.to_numpy() for column in (values, weights)]
    rows = [table[key].to_pylist() for key in ("episode_index", "feature", "values_rows", "weights_rows")]
    moments = table["moments"].to_pylist() if "moments" in table.column_names else [None] * len(table)
    for i, (episode, name, *shape) in enumerate(zip(*rows, strict=True)):
        points, lots = (f[e[i] : e[i + 1]].reshape(n, -1) for f, e, n in zip(flat, ends, shape, strict=True))
        told = None if moments[i] is None else np.array(moments[i], np.float64).reshape(2, max(shape))
        found.setdefault(episode, {})[name] = FeatureSketch(points, lots, told)
    return found


def read_sketches(root: Path, file: FileId, episode: int) -> EpisodeSketches | None:
    """Read the sketches of one episode. To read many, read whole files with `read_sketch_file`.

    Args:
        root: Folder of the dataset.
        file: File of the episode table that holds the episode.
        episode: Its number.

    Returns:
        Feature to sketch; None where there is none.
    """
    return read_sketch_file(root, file).get(episode)
