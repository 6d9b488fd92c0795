# SPDX-License-Identifier: Apache-2.0
"""Adding and removing features."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ulna.core.errors import DatasetError, FeatureError
from ulna.data.arrow_schema import column_array, numeric_column
from ulna.data.editing.blocks import EpisodeBlock
from ulna.data.editing.builder import DatasetBuilder
from ulna.data.editing.places import open_source, place_for
from ulna.data.editing.plans import EditPlan, Progress
from ulna.data.editing.selection import check_names, check_readable
from ulna.data.editing.sources import blocks
from ulna.data.features import DEFAULT_FEATURES, Feature, parse_features
from ulna.data.metadata import LeRobotDatasetMetadata

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = ["NewFeatures", "add_features", "modify_features", "plan_features", "remove_feature"]

Row = dict[str, Any]
NewFeatures = Mapping[str, tuple[Any | Callable[[Row, int, int], Any], Mapping[str, Any]]]
"""Name to values and declaration. Values: one for each frame of the dataset, or a function that is called with the row,
the number of the episode and that of the frame in it."""


def add_features(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    features: NewFeatures,
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> LeRobotDataset:
    """Add columns, with statistics.

    Args:
        dataset: The dataset: opened, or its folder or name.
        features: Name to `(values, {"dtype", "shape", "names"})`. Values are an array of shape (frames, *shape) or
            texts, in the order of the dataset, or a function of a row (name to array or text), the number of the
            episode and the number of the frame in it. Cameras cannot be added.
        output_dir: Folder of the result. None edits in place, unless `repo_id` names another dataset.
        repo_id: Name of the result.

    Returns:
        The result, opened.

    Raises:
        FeatureError: A name is taken, or values do not fit the declaration.
        DatasetError: The target is taken or in use, or the disk is full.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    return modify_features(dataset, add_features=features, output_dir=output_dir, repo_id=repo_id)


def remove_feature(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    feature_names: str | Iterable[str],
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> LeRobotDataset:
    """Remove columns or cameras, with their statistics and videos.

    Args:
        dataset: The dataset: opened, or its folder or name.
        feature_names: One name or several.
        output_dir: Folder of the result. None edits in place, unless `repo_id` names another dataset.
        repo_id: Name of the result.

    Returns:
        The result, opened.

    Raises:
        FeatureError: A feature does not exist, or every dataset must have it.
        DatasetError: The target is taken or in use, or the disk is full.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    return modify_features(dataset, remove_features=feature_names, output_dir=output_dir, repo_id=repo_id)


def modify_features(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    add_features: NewFeatures | None = None,
    remove_features: str | Iterable[str] | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> LeRobotDataset:
    """Remove and add features in one pass. A feature that is removed may be added anew under the same name.

    Args:
        dataset: The dataset: opened, or its folder or name.
        add_features: See `add_features`.
        remove_features: See `remove_feature`.
        output_dir: Folder of the result. None edits in place, unless `repo_id` names another dataset.
        repo_id: Name of the result.

    Returns:
        The result, opened.

    Raises:
        FeatureError: A name does not exist or is taken, or values do not fit the declaration.
        DatasetError: Nothing was asked for, the target is taken or in use, or the disk is full.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    return plan_features(dataset, add_features, remove_features, output_dir, repo_id).carry_out()


def plan_features(
    dataset: LeRobotDataset | LeRobotDatasetMetadata | str | os.PathLike[str],
    add_features: NewFeatures | None = None,
    remove_features: str | Iterable[str] | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    repo_id: str | None = None,
) -> EditPlan:
    """Check what `modify_features` is asked for. Writes nothing.

    Args:
        dataset: As there, like all that follow.
        add_features: Name to values and declaration.
        remove_features: One name or several.
        output_dir: Folder of the result.
        repo_id: Name of the result.

    Returns:
        What would be done.

    Raises:
        FeatureError: A name does not exist or is taken, or values do not fit the declaration.
        DatasetError: It cannot be done as asked for.
        DatasetFormatError: Files of the dataset contradict one another.
    """
    if not add_features and remove_features is None:
        raise DatasetError("No feature was named that shall be added or removed.")
    meta = open_source(dataset)
    gone = check_names(meta.parsed_features, remove_features) if remove_features is not None else []
    left = {name: feature for name, feature in meta.parsed_features.items() if name not in gone}
    columns = [_NewColumn(f, values, meta) for f, values in _declared(add_features or {}, left)]
    check_readable(meta, range(meta.total_episodes))
    place = place_for(meta, output_dir, repo_id)
    info = replace(meta.info, features=_ordered(left, [column.feature for column in columns]))
    if not info.video_keys:
        info.video_path = None
    stats = {name: values for name, values in (meta.recorded_stats or {}).items() if name not in gone}

    def write(progress: Progress | None) -> None:
        with (
            place.writing() as target,
            DatasetBuilder(target, info, tasks=list(meta.tasks), whole_stats=stats) as builder,
        ):
            for block in blocks(meta, range(meta.total_episodes)):
                builder.add_block(_with_columns(block, columns, gone))
            if place.in_place:
                builder.take_over(meta.root, renumbered=False)
            builder.finish()

    verbs = {"removes": gone, "adds": [column.feature.name for column in columns]}
    what = "; ".join(f"{verb} {', '.join(names)}" for verb, names in verbs.items() if names)
    return EditPlan(str(meta.root), place, what, write)


def _ordered(left: Mapping[str, Feature], added: Sequence[Feature]) -> dict[str, Feature]:
    """Return all features, the five that every dataset has last."""
    own = {name: feature for name, feature in left.items() if name not in DEFAULT_FEATURES}
    default = {name: feature for name, feature in left.items() if name in DEFAULT_FEATURES}
    return {**own, **{feature.name: feature for feature in added}, **default}


def _declared(added: NewFeatures, left: Mapping[str, Feature]) -> Iterator[tuple[Feature, Any]]:
    for name, given in added.items():
        pair: Any = given
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise FeatureError(f"Feature {name!r} must come as (values, declaration), got {type(given).__name__}.")
        feature = parse_features({name: given[1]})[name]
        if name in left:
            raise FeatureError(
                f"The dataset has a feature {name!r} already. Nothing was changed.",
                hint="To replace it, remove and add it in one call of modify_features.",
            )
        if not feature.is_numeric and feature.dtype != "string":
            raise FeatureError(
                f"Feature {name!r}: {feature.dtype!r} cannot be added afterwards; numbers and texts can."
            )
        yield feature, given[0]


def _with_columns(block: EpisodeBlock, columns: Sequence[_NewColumn], gone: Sequence[str]) -> EpisodeBlock:
    table, rows = block.table, block.rows
    stale = [n for n in rows.column_names if any(n.startswith(f"stats/{name}/") for name in gone)]
    for name in gone:
        if name in table.column_names:
            table = table.drop_columns([name])
    for column in columns:
        table = table.append_column(column.feature.name, column.of(block))
    sketches = tuple(
        None if known is None else {name: sketch for name, sketch in known.items() if name not in gone}
        for known in block.sketches
    )
    return replace(block, table=table, rows=rows.drop_columns(stale), sketches=sketches)


class _NewColumn:
    """The values of a new feature, taken part by part."""

    def __init__(self, feature: Feature, values: Any, meta: LeRobotDatasetMetadata) -> None:
        self.feature, self._meta = feature, meta
        self._function: Callable[[Row, int, int], Any] | None = None
        self._values: Any = None
        if callable(values):
            self._function = values
        else:
            self._values = self._checked(_plain(values), meta.total_frames, 0)

    def of(self, block: EpisodeBlock) -> pa.Array:
        """Return the column for the rows of a block."""
        if self._function is None:
            starts, lengths = self._meta.episodes.starts, self._meta.episodes.lengths
            parts = [self._values[starts[e] : starts[e] + lengths[e]] for e in block.episodes]
            values = np.concatenate(parts) if self.feature.is_numeric else [v for part in parts for v in part]
            return column_array(self.feature, values)
        rows = _rows(block.table, self._meta.parsed_features)
        given = []
        for row, (episode, frame) in zip(rows, _numbers(block), strict=True):
            given.append(self._function(row, episode, frame))
        values = [_plain(v) for v in given]
        if self.feature.is_numeric:
            values = self._stacked(values)
        first = int(self._meta.episodes.starts[block.episodes[0]])
        return column_array(self.feature, self._checked(values, len(block.table), first))

    def _stacked(self, values: Sequence[Any]) -> npt.NDArray[Any]:
        try:
            return np.stack([np.asarray(value).reshape(self.feature.shape) for value in values])
        except ValueError as error:
            raise FeatureError(
                f"Feature {self.feature.name!r}: the function must return values of shape {self.feature.shape}; {error}"
            ) from error

    def _checked(self, values: Any, frames: int, first: int) -> Any:
        """Return values of the declared type, one a frame."""
        feature = self.feature
        if len(values) != frames:
            raise FeatureError(f"Feature {feature.name!r}: {len(values)} values were given for {frames} frames.")
        if not feature.is_numeric:
            wrong = next((i for i, value in enumerate(values) if not isinstance(value, str)), None)
            if wrong is not None:
                raise FeatureError(f"Feature {feature.name!r}: frame {first + wrong} is no text: {values[wrong]!r}.")
            return list(values)
        array = np.asarray(values)
        if feature.shape in {(), (1,)} and array.shape == (frames,):
            array = array.reshape(frames, *feature.shape)
        if array.shape != (frames, *feature.shape):
            raise FeatureError(
                f"Feature {feature.name!r}: expected values of shape {(frames, *feature.shape)}, got {array.shape}."
            )
        return self._cast(array, first)

    def _cast(self, array: npt.NDArray[Any], first: int) -> npt.NDArray[Any]:
        feature, wanted = self.feature, np.dtype(self.feature.dtype)
        if not np.can_cast(array.dtype, wanted, "same_kind"):
            raise FeatureError(f"Feature {feature.name!r}: {array.dtype} cannot be stored as {wanted} without a loss.")
        cast = array.astype(wanted)
        if wanted.kind in "iu":
            bad = cast.astype(array.dtype) != array
        else:
            bad = ~np.isfinite(cast) if wanted.kind == "f" else np.zeros(cast.shape, bool)
        if bad.any():
            frame = int(np.argwhere(bad)[0][0])
            raise FeatureError(
                f"Feature {feature.name!r}: frame {first + frame} has {array[frame]}, which is not a {wanted} number."
            )
        return cast


def _plain(values: Any) -> Any:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def _numbers(block: EpisodeBlock) -> Iterator[tuple[int, int]]:
    for episode, length in zip(block.episodes, block.lengths.tolist(), strict=True):
        yield from ((episode, frame) for frame in range(length))


def _rows(table: pa.Table, features: Mapping[str, Feature]) -> Iterator[Row]:
    """Yield rows for a function: numbers as arrays or scalars, everything else as Python values."""
    columns: dict[str, Any] = {}
    for name, feature in features.items():
        if name in table.column_names:
            column = table[name]
            columns[name] = numeric_column(feature, column, "the rows") if feature.is_numeric else column
    for i in range(len(table)):
        yield {
            name: values[i].as_py() if isinstance(values, pa.ChunkedArray) else values[i]
            for name, values in columns.items()
        }
