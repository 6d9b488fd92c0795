# SPDX-License-Identifier: Apache-2.0
"""Actions relative to the state at the beginning of their chunk, for the statistics of policies that predict those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ulna.core.constants import ACTION, OBS_STATE
from ulna.core.errors import DatasetError
from ulna.data.features import Feature

__all__ = ["RelativeActions"]

_BLOCK_VALUES = 2_000_000


class RelativeActions:
    """Which dimensions of an action are relative, and the rows that follow from it.

    The rule is that of the step `relative_actions_processor`: dimension i of the state is taken from dimension i of
    the action, unless the name of that dimension contains an excluded text, case aside. A chunk enters the statistics
    at every frame from which it fits into the episode.

    Args:
        features: All features of the dataset.
        chunk_size: Actions of one chunk.
        exclude_joints: Texts; a joint whose name contains one stays absolute.

    Raises:
        DatasetError: The chunk is empty, the dataset lacks state or action, or an excluded text fits no joint.
    """

    def __init__(self, features: dict[str, Feature], chunk_size: int, exclude_joints: Sequence[str] = ()) -> None:
        if chunk_size < 1:
            raise DatasetError(f"chunk_size must be 1 or more, got {chunk_size}.")
        lacking = [key for key in (ACTION, OBS_STATE) if key not in features or len(features[key].shape) != 1]
        if lacking:
            raise DatasetError(
                f"Relative actions need the vectors {ACTION!r} and {OBS_STATE!r}; the dataset lacks {lacking}."
            )
        self.chunk_size = chunk_size
        size = features[ACTION].shape[0]
        relative = ~_excluded(features[ACTION], [text for text in exclude_joints if text])
        relative[min(size, features[OBS_STATE].shape[0]) :] = False
        self.relative = relative

    def blocks(self, action: npt.NDArray[Any], state: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
        """Compute the rows of one episode, some at a time.

        Args:
            action: Actions of the episode, (frames, A).
            state: Its states, (frames, S).

        Yields:
            Rows of relative actions, (rows, A), in the dtype of the actions; none for an episode shorter than a chunk.
        """
        starts = len(action) - self.chunk_size + 1
        dims = np.flatnonzero(self.relative)
        step = max(_BLOCK_VALUES // (self.chunk_size * action.shape[1]), 1)
        for first in range(0, starts, step):
            frames = np.arange(first, min(first + step, starts))
            rows = action[frames[:, None] + np.arange(self.chunk_size)]  # (starts, chunk, A), a copy
            rows[..., dims] -= state[frames][:, None, dims]
            yield rows.reshape(-1, action.shape[1])


def _excluded(action: Feature, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which dimensions of the action have a name that contains one of the texts."""
    if not texts:
        return np.zeros(action.shape[0], bool)
    names = [str(name) for name in _names(action)]
    if len(names) != action.shape[0]:
        raise DatasetError(
            f"Joints cannot be left out by name: {action.name!r} has {action.shape[0]} dimensions and the names "
            f"{action.names!r}."
        )
    for text in texts:
        if not any(text.lower() in name.lower() for name in names):
            raise DatasetError(f"No joint has {text!r} in its name; the action has {names}.")
    return np.array([any(text.lower() in name.lower() for text in texts) for name in names])


def _names(action: Feature) -> list[Any]:
    """Return the names of the dimensions, which older datasets keep in a dict with one entry."""
    names = action.names
    if isinstance(names, dict) and len(names) == 1:
        names = next(iter(names.values()))
    return list(names) if isinstance(names, list | tuple) else []
