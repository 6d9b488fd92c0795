# SPDX-License-Identifier: Apache-2.0
"""Some columns of a dataset, row by row. Made by `LeRobotDataset.select_columns`; pictures of videos are no columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from ulna.core.errors import FeatureError, nearest

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = ["ColumnView"]

Item = dict[str, Any]


class ColumnView(Sequence[Item]):
    """Rows of a dataset, reduced to some columns. Made by `LeRobotDataset.select_columns`.

    Args:
        dataset: The dataset.
        names: Columns.
    """

    def __init__(self, dataset: LeRobotDataset, names: Sequence[str]) -> None:
        self._dataset, self._names = dataset, tuple(names)

    @classmethod
    def of(cls, dataset: LeRobotDataset, names: str | Sequence[str]) -> ColumnView:
        """Return a view, or say which name is not a column.

        Args:
            dataset: The dataset.
            names: One name or several.

        Raises:
            FeatureError: A name is not a column.
        """
        chosen = [names] if isinstance(names, str) else list(names)
        columns = [n for n, f in dataset.meta.parsed_features.items() if f.dtype != "video"]
        for name in chosen:
            if name not in columns:
                near = nearest(name, columns)
                raise FeatureError(
                    f"{name!r} is not a column; the table has {columns}.",
                    hint=f"Did you mean {near!r}?" if near else None,
                )
        return cls(dataset, chosen)

    def __len__(self) -> int:
        return len(self._dataset)

    @overload
    def __getitem__(self, key: int) -> Item: ...
    @overload
    def __getitem__(self, key: slice) -> list[Item]: ...
    def __getitem__(self, key: int | slice) -> Item | list[Item]:
        if isinstance(key, slice):
            return [self[i] for i in range(*key.indices(len(self)))]
        row = self._dataset.get_raw_item(key)
        return {name: row[name] for name in self._names}
