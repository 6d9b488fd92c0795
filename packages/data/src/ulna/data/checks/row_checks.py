# SPDX-License-Identifier: Apache-2.0
"""Invariants of the rows: every data file is read once, a row group at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ulna.core.errors import DatasetFormatError
from ulna.data.arrow_schema import data_schema, numeric_column, table_columns
from ulna.data.checks.contents import Contents
from ulna.data.checks.report import Report
from ulna.data.checks.value_checks import RowFacts
from ulna.data.features import DEFAULT_FEATURES, Feature
from ulna.data.images import decode_depth, decode_picture

__all__ = ["check_rows"]

_TOLERANCE_S = 1e-4
_INDEX_COLUMNS = ("index", "episode_index", "frame_index", "task_index")


def check_rows(contents: Contents, report: Report, *, deep: bool, progress: Callable[[str], None]) -> RowFacts:
    """Check every data file against the episode table and the declared features.

    Args:
        contents: The dataset.
        report: Where problems go.
        deep: Whether every picture in the table is decoded, else the first of each episode.
        progress: Called with the name of each file.

    Returns:
        What the numbers of each episode are, for a comparison with its statistics.
    """
    template, facts = contents.info.data_path, RowFacts()
    for file, rows in sorted(contents.rows_of("data").items()):
        if file.chunk < 0:
            continue
        path = file.path(contents.root, template)
        report.files += 1
        progress(str(path.relative_to(contents.root)))
        try:
            _DataFile(contents, report, facts, path, rows, deep).check()
        except FileNotFoundError:
            _report_lost(contents, report, path, rows, "does not exist")
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            _report_lost(contents, report, path, rows, f"cannot be read: {error}")
    return facts


def _report_lost(contents: Contents, report: Report, path: Path, rows: list[int], what: str) -> None:
    episodes = sorted(int(contents.numbers[row]) for row in rows)
    span = f"episode {episodes[0]}" if len(episodes) == 1 else f"episodes {episodes[0]} to {episodes[-1]}"
    report.add(
        "data-unreadable",
        f"The file {what}; {span} ({len(episodes)}) are in it.",
        episode=episodes[0],
        path=path,
        remedy=f"restore the file, or leave them out: ulna dataset repair {contents.root} --drop-broken",
    )


class _DataFile:
    """One data file and the rows of the episode table that point at it."""

    def __init__(
        self, contents: Contents, report: Report, facts: RowFacts, path: Path, rows: list[int], deep: bool
    ) -> None:
        self.contents, self.report, self.facts, self.path, self.deep = contents, report, facts, path, deep
        order = np.array(sorted(rows, key=lambda row: contents.numbers[row]))
        self.numbers = contents.numbers[order]
        self.starts, self.lengths = contents.starts[order], contents.lengths[order]
        self.seen = np.zeros(len(order), np.int64)
        self.mend = f"ulna dataset repair {contents.root}"

    def check(self) -> None:
        parquet = pq.ParquetFile(self.path)
        if not self._check_schema(parquet.schema_arrow):
            return
        for group in range(parquet.num_row_groups):
            table = parquet.read_row_group(group, use_threads=False)
            self.report.frames += len(table)
            self._check_indices(table)
            for feature in table_columns(self.contents.info.features):
                self._check_values(feature, table)
        for number, seen, length in zip(self.numbers, self.seen, self.lengths, strict=True):
            if seen != length:
                self._add("rows", f"The table holds {seen} rows of it, its length is {length}.", int(number))
        if parquet.num_row_groups != len(self.numbers):
            message = f"{parquet.num_row_groups} row groups for {len(self.numbers)} episodes; reading one reads more."
            self.report.add("row-groups", message, "note", path=self.path)

    def _add(self, code: str, message: str, episode: int | None = None, frame: int | None = None) -> None:
        self.report.add(code, message, episode=episode, frame=frame, path=self.path, remedy=self.mend)

    def _check_schema(self, found: pa.Schema) -> bool:
        wanted = data_schema(self.contents.info.features)
        missing = [name for name in wanted.names if name not in found.names]
        extra = [name for name in found.names if name not in wanted.names]
        for name in missing:
            self.report.add("column-missing", f"The declared column {name!r} is missing.", path=self.path)
        for name in extra:
            self.report.add(
                "column-undeclared", f"info.json does not declare the column {name!r}.", "warning", path=self.path
            )
        for name in (name for name in wanted.names if name in found.names):
            if not _compatible(found.field(name).type, wanted.field(name).type):
                kinds = f"{found.field(name).type}, declared is {wanted.field(name).type}"
                self.report.add("column-type", f"The column {name!r} is {kinds}.", path=self.path)
        if b"huggingface" not in (found.metadata or {}):
            message = "The file has no `huggingface` metadata; generic readers will not recognise pictures and shapes."
            self.report.add("schema-metadata", message, "note", path=self.path)
        return not any(name in missing for name in _INDEX_COLUMNS)

    def _check_indices(self, table: pa.Table) -> None:
        """Compare the five index columns with the episode table, all rows of a group at once."""
        index, episode, frame, task = (_ints(table, name) for name in _INDEX_COLUMNS)
        known = np.isin(episode, self.numbers)
        for number in np.unique(episode[~known]):
            self._add(
                "rows-of-others", "The file holds rows of it, but the episode table does not say so.", int(number)
            )
        index, episode, frame, task = index[known], episode[known], frame[known], task[known]
        slot = np.searchsorted(self.numbers, episode)
        counted = np.bincount(slot, minlength=len(self.seen))
        expected = _running(slot, self.seen)
        self._compare("frame-index", frame, expected, episode, expected)
        self._compare("global-index", index, self.starts[slot] + expected, episode, expected)
        self.seen += counted
        if "timestamp" in table.column_names:
            time = np.asarray(table["timestamp"].to_numpy(), dtype=np.float64)[known]
            self._check_times(time, expected, episode)
        lost = np.flatnonzero((task < 0) | (task >= len(self.contents.tasks)))
        if lost.size:
            row = int(lost[0])
            message = f"task_index {task[row]} in {lost.size} rows; there are {len(self.contents.tasks)} tasks."
            self._add("task-index", message, int(episode[row]), int(expected[row]))

    def _compare(
        self,
        code: str,
        found: npt.NDArray[np.int64],
        wanted: npt.NDArray[np.int64],
        episode: npt.NDArray[np.int64],
        frame: npt.NDArray[np.int64],
    ) -> None:
        wrong = np.flatnonzero(found != wanted)
        if wrong.size:
            row = int(wrong[0])
            name = {"frame-index": "frame_index", "global-index": "index"}[code]
            message = f"{name} is {found[row]} where {wanted[row]} is expected ({wrong.size} rows)."
            self._add(code, message, int(episode[row]), int(frame[row]))

    def _check_times(
        self, time: npt.NDArray[np.float64], frame: npt.NDArray[np.int64], episode: npt.NDArray[np.int64]
    ) -> None:
        """Times are compared with frame / fps inside their episode; where an episode begins nothing is compared."""
        fps = self.contents.info.fps
        off = time - frame / fps
        # Times are float32: far into a long episode they cannot be exact.
        wrong = np.flatnonzero(~(np.abs(off) <= _TOLERANCE_S + np.abs(time) * 2**-22))
        for number in np.unique(episode[wrong]):
            rows = wrong[episode[wrong] == number]
            worst = int(rows[np.argmax(np.abs(np.nan_to_num(off[rows], nan=np.inf)))])
            message = (
                f"timestamp is {time[worst]:.6f} s where frame / fps is {frame[worst] / fps:.6f} s, "
                f"{1e3 * off[worst]:+.3f} ms off ({rows.size} frames of the episode are)."
            )
            self._add("timestamp", message, int(number), int(frame[worst]))

    def _check_values(self, feature: Feature, table: pa.Table) -> None:
        if feature.name not in table.column_names:
            return
        column = table[feature.name]
        if feature.dtype == "image":
            self._check_pictures(feature, table)
        elif column.null_count and feature.dtype != "language":
            row = int(np.flatnonzero(column.is_null().to_numpy())[0])
            self._at(table, row, "value-missing", f"{feature.name!r} is empty in {column.null_count} rows.")
        elif feature.is_numeric and feature.name not in DEFAULT_FEATURES:
            self._check_numbers(feature, table)

    def _check_numbers(self, feature: Feature, table: pa.Table) -> None:
        try:
            values = numeric_column(feature, table[feature.name], str(self.path))
        except DatasetFormatError as error:
            self.report.add("value-shape", error.message, path=self.path)
            return
        if len(values):
            self.facts.add(feature.name, _ints(table, "episode_index"), values)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            flat = ~np.isfinite(values.reshape(len(values), -1))
            row = int(np.flatnonzero(flat.any(axis=1))[0])
            element = int(np.flatnonzero(flat[row])[0])
            names = feature.names if isinstance(feature.names, list) and len(feature.names) == flat.shape[1] else None
            where = names[element] if names else f"element {element}"
            value = values.reshape(len(values), -1)[row, element]
            message = f"{feature.name!r} is {value} at {where} ({int(flat.any(axis=1).sum())} rows)."
            self._at(table, row, "value-not-finite", message)

    def _check_pictures(self, feature: Feature, table: pa.Table) -> None:
        frames = _ints(table, "frame_index")
        column = table[feature.name].combine_chunks()
        encoded = column.field("bytes") if pa.types.is_struct(column.type) else column
        for row in range(len(table)):
            if not self.deep and frames[row] != 0:
                continue
            value = encoded[row]
            if not value.is_valid:
                self._at(table, row, "picture", f"{feature.name!r} has no picture.")
                continue
            try:
                decode = decode_depth if feature.is_depth else decode_picture
                picture = decode(value.as_buffer(), f"{feature.name!r}")
            except DatasetFormatError as error:
                self._at(table, row, "picture", error.message)
                continue
            if picture.shape != feature.item_shape:
                self._at(table, row, "picture", f"{feature.name!r} is {picture.shape}, declared {feature.item_shape}.")

    def _at(self, table: pa.Table, row: int, code: str, message: str) -> None:
        episode, frame = (int(_ints(table, name)[row]) for name in ("episode_index", "frame_index"))
        self.report.add(code, message, episode=episode, frame=frame, path=self.path)


def _ints(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    filled = table[name].cast(pa.int64()).fill_null(-1)
    return np.asarray(filled.to_numpy(), dtype=np.int64)


def _running(slot: npt.NDArray[np.int64], seen: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number the rows of each slot in order of appearance, going on behind those seen before."""
    order = np.argsort(slot, kind="stable")
    ordered = slot[order]
    first = np.searchsorted(ordered, ordered, side="left")
    numbered = np.empty(len(slot), np.int64)
    numbered[order] = np.arange(len(slot)) - first + seen[ordered]
    return numbered


def _compatible(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two types hold the same values: lists may be fixed, variable or large, and extension types are lists."""
    while isinstance(found, pa.BaseExtensionType):
        found = found.storage_type
    if _is_list(found) and _is_list(wanted):
        return _compatible(found.value_type, wanted.value_type)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        return {f.name for f in wanted} <= {f.name for f in found}
    if pa.types.is_large_string(found) or pa.types.is_large_binary(found):
        return bool(pa.types.is_string(wanted) or pa.types.is_binary(wanted))
    return bool(found == wanted) or (pa.types.is_null(found) and pa.types.is_string(wanted))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind))
