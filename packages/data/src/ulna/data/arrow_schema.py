# SPDX-License-Identifier: Apache-2.0
"""How features look in a data parquet, laid out as the `datasets` library does, and how columns become arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ulna.core.errors import DatasetFormatError
from ulna.data.features import Feature
from ulna.data.language import language_array, language_described, language_type

__all__ = ["PICTURE_TYPE", "column_array", "data_schema", "numeric_column", "table_columns"]

PICTURE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def table_columns(features: Mapping[str, Feature]) -> list[Feature]:
    """Return the features that are columns of the table: all but videos.

    Args:
        features: All features.
    """
    return [f for f in features.values() if f.dtype != "video"]


def _value_type(feature: Feature) -> pa.DataType:
    if feature.dtype == "string":
        return pa.string()
    return pa.from_numpy_dtype(np.dtype(feature.dtype))


def _field(feature: Feature) -> pa.Field:
    if feature.dtype == "image":
        return pa.field(feature.name, PICTURE_TYPE)
    if feature.dtype == "language":
        return pa.field(feature.name, language_type(feature.name))
    value = _value_type(feature)
    if feature.shape in {(), (1,)}:
        return pa.field(feature.name, value)
    if len(feature.shape) == 1:
        return pa.field(feature.name, pa.list_(pa.field("element", value), feature.shape[0]))
    nested = value
    for _ in feature.shape:
        nested = pa.list_(pa.field("element", nested))
    # The names under which the `datasets` library registers its extension types for 2 to 5 axes.
    extension = {
        "ARROW:extension:name": f"datasets.features.features.Array{len(feature.shape)}DExtensionType",
        "ARROW:extension:metadata": json.dumps([list(feature.shape), feature.dtype]),
    }
    return pa.field(feature.name, nested, metadata=extension)


def _described(feature: Feature) -> dict[str, Any]:
    if feature.dtype == "image":
        return {"_type": "Image"}
    if feature.dtype == "language":
        return language_described(feature.name)
    value = {"dtype": feature.dtype, "_type": "Value"}
    if feature.shape in {(), (1,)}:
        return value
    if len(feature.shape) == 1:
        return {"feature": value, "length": feature.shape[0], "_type": "List"}
    return {"shape": list(feature.shape), "dtype": feature.dtype, "_type": f"Array{len(feature.shape)}D"}


def data_schema(features: Mapping[str, Feature]) -> pa.Schema:
    """Return the schema of a data parquet, `huggingface` metadata included.

    Args:
        features: All features, the defaults included.
    """
    columns = table_columns(features)
    described = {"info": {"features": {f.name: _described(f) for f in columns}}}
    return pa.schema([_field(f) for f in columns], metadata={"huggingface": json.dumps(described)})


def column_array(feature: Feature, values: Sequence[Any] | npt.NDArray[Any]) -> pa.Array:
    """Build the column of one episode.

    Args:
        feature: A number, text or language feature.
        values: Texts, rows of a language column, or numbers of shape (frames, *shape).

    Returns:
        The column, of the type `data_schema` declares.
    """
    if feature.dtype == "string":
        return pa.array(list(values), pa.string())
    if feature.dtype == "language":
        return language_array(feature.name, list(values))
    array = np.ascontiguousarray(values)
    flat = pa.array(array.reshape(-1), _value_type(feature))
    if feature.shape in {(), (1,)}:
        return flat
    if len(feature.shape) == 1:
        return pa.FixedSizeListArray.from_arrays(flat, type=_field(feature).type)
    nested, types = flat, [_field(feature).type]
    while pa.types.is_list(types[-1].value_type):
        types.append(types[-1].value_type)
    for size, kind in zip(reversed(feature.shape), reversed(types), strict=True):
        offsets = np.arange(0, len(nested) + 1, size, dtype=np.int32)
        nested = pa.ListArray.from_arrays(pa.array(offsets), nested, type=kind)
    return nested


def numeric_column(feature: Feature, column: pa.ChunkedArray | pa.Array, where: str) -> npt.NDArray[Any]:
    """Turn a number column into an array, without a copy where Arrow allows it.

    Args:
        feature: A number feature.
        column: The column that was read.
        where: File name, for messages.

    Returns:
        Array of shape (rows, *item shape); read-only where it is a view.

    Raises:
        DatasetFormatError: The column holds nulls, no numbers, or another number of elements than declared.
    """
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    rows = len(values)
    while isinstance(values, pa.ExtensionArray):
        values = values.storage
    while (
        pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type) or pa.types.is_large_list(values.type)
    ):
        values = values.flatten()
    size = int(np.prod(feature.shape, dtype=np.int64))
    if values.null_count or len(values) != rows * size:
        raise DatasetFormatError(
            f"{where}: column {feature.name!r} holds {len(values)} values in {rows} rows"
            f"{' with gaps' if values.null_count else ''}; {size} a row were declared."
        )
    array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "biuf":
        raise DatasetFormatError(f"{where}: column {feature.name!r} holds {values.type}, but numbers were declared.")
    return array.reshape(rows, *feature.item_shape)
