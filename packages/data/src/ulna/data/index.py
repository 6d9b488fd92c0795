# SPDX-License-Identifier: Apache-2.0
"""All index arithmetic: from positions of an opened dataset to frames, and from windows to frames and masks.

Three numberings exist and are translated only here: the *position* in the opened (maybe sub-selected) dataset, the pair
(*episode*, *frame* inside it), and the global *index* of a frame over all episodes. Several datasets in a row add a
fourth, the pair (*part*, position inside it). Which positions each of several readers takes is decided here as well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ulna.core.errors import DatasetError, nearest

__all__ = ["ConcatIndex", "FrameIndex", "Position", "Window", "frame_offsets", "share", "windows"]

Ints = npt.NDArray[np.int64]


class Position(NamedTuple):
    """One frame.

    Attributes:
        episode: Its episode.
        frame: Its number inside the episode.
        length: Length of the episode.
        global_index: Its number over all episodes.
    """

    episode: int
    frame: int
    length: int
    global_index: int


class FrameIndex:
    """Translates positions of an opened dataset. Immutable; its size is the number of episodes, not of frames.

    Args:
        starts: Global number of each episode's first frame.
        lengths: Length of each episode.
        episodes: The selected episodes, as a set: frames stay in file order. None selects all.

    Raises:
        DatasetError: A selected episode does not exist; it and the range are named.
    """

    def __init__(self, starts: Ints, lengths: Ints, episodes: Iterable[int] | None = None) -> None:
        total = len(lengths)
        chosen = list(range(total)) if episodes is None else sorted({int(e) for e in episodes})
        wrong = [e for e in chosen if not 0 <= e < total]
        if wrong or (episodes is not None and not chosen):
            what = f"episodes {wrong} do not exist" if wrong else "no episode was selected"
            raise DatasetError(f"{what.capitalize()}: the dataset has {total} episodes, numbered 0 to {total - 1}.")
        self.episodes: tuple[int, ...] = tuple(chosen)
        # Lists, because one number is wanted at a time: numpy takes several times longer for that.
        self._starts: list[int] = np.asarray(starts, dtype=np.int64)[chosen].tolist()
        self._lengths: list[int] = np.asarray(lengths, dtype=np.int64)[chosen].tolist()
        self._ends: list[int] = np.cumsum(self._lengths, dtype=np.int64).tolist()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def locate(self, position: int) -> Position:
        """Translate a position.

        Args:
            position: Counted from 0, or from the end if negative.

        Returns:
            The frame.

        Raises:
            IndexError: Beyond the end.
        """
        total = len(self)
        if not -total <= position < total:
            raise IndexError(f"Position {position} is outside a dataset of {total} frames.")
        position %= total
        slot = bisect_right(self._ends, position)
        length = self._lengths[slot]
        frame = position - self._ends[slot] + length
        return Position(self.episodes[slot], frame, length, self._starts[slot] + frame)

    def positions(self, episode: int) -> range:
        """Return the positions of an episode's frames.

        Args:
            episode: Its number.

        Raises:
            DatasetError: It is not among the selected ones.
        """
        slot = bisect_left(self.episodes, episode)
        if slot == len(self.episodes) or self.episodes[slot] != episode:
            raise DatasetError(f"Episode {episode} is not among the opened ones.")
        return range(self._ends[slot] - self._lengths[slot], self._ends[slot])


class ConcatIndex:
    """Translates positions of several datasets in a row. Immutable; finding a part takes logarithmic time.

    Args:
        lengths: Length of each part, in order.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self._ends: list[int] = np.cumsum(np.asarray(lengths, dtype=np.int64), dtype=np.int64).tolist()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def locate(self, position: int) -> tuple[int, int]:
        """Translate a position.

        Args:
            position: Counted from 0, or from the end if negative.

        Returns:
            The part, and the position inside it.

        Raises:
            IndexError: Beyond the end.
        """
        total = len(self)
        if not -total <= position < total:
            raise IndexError(f"Position {position} is outside {len(self._ends)} datasets of {total} frames.")
        position %= total
        part = bisect_right(self._ends, position)
        return part, position - self._start(part)

    def positions(self, part: int) -> range:
        """Return the positions of a part.

        Args:
            part: Its number.
        """
        return range(self._start(part), self._ends[part])

    def _start(self, part: int) -> int:
        return self._ends[part - 1] if part else 0


def share(total: int, part: int, parts: int) -> range:
    """Return one of several shares of a row of things: together they are complete, and none is twice in them.

    Args:
        total: How many things there are.
        part: Which share, from 0.
        parts: How many shares; their sizes differ by one at most.

    Raises:
        DatasetError: There is no such share.
    """
    if not 0 <= part < parts:
        raise DatasetError(f"There is no part {part} of {parts}: parts are numbered from 0.")
    return range(total * part // parts, total * (part + 1) // parts)


def episode_numbers(episodes: Iterable[Any]) -> list[int]:
    """Return numbers of episodes as plain integers.

    Args:
        episodes: Whole numbers of any kind, also of numpy or torch.

    Raises:
        DatasetError: It is no collection of whole numbers.
    """
    try:
        if not isinstance(episodes, (str, bytes)):
            given = list(episodes)
            numbers = [int(e) for e in given]
            if all(number == e for number, e in zip(numbers, given, strict=True)):
                return numbers
    except (TypeError, ValueError, OverflowError):
        pass
    raise DatasetError(f"episodes must be a list of whole numbers, got {episodes!r:.200}.")


def frame_offsets(key: str, seconds: Sequence[float], fps: int, tolerance_s: float) -> list[int]:
    """Turn time differences into frame offsets.

    Args:
        key: The feature, for messages.
        seconds: Time differences; each must be a multiple of 1 / fps.
        fps: Frames per second.
        tolerance_s: Allowed deviation.

    Returns:
        One offset for each.

    Raises:
        DatasetError: A time difference falls between two frames.
    """
    try:
        seconds = [float(s) for s in seconds]
        offsets = [round(s * fps) for s in seconds]
    except (TypeError, ValueError, OverflowError) as error:
        raise DatasetError(
            f"delta_timestamps of {key!r} must be a list of finite numbers of seconds, got {seconds!r:.200}."
        ) from error
    wrong = [s for s, n in zip(seconds, offsets, strict=True) if abs(s - n / fps) > tolerance_s]
    if wrong:
        raise DatasetError(
            f"delta_timestamps of {key!r}: {wrong} are not multiples of 1/{fps} s (tolerance {tolerance_s} s).",
            hint=f"Nearest multiples: {[round(s * fps) / fps for s in wrong]}.",
        )
    return offsets


class Window:
    """A window of one feature: which frames around a frame are asked for.

    Args:
        offsets: Frame offsets, in the order asked for.
    """

    def __init__(self, offsets: Sequence[int]) -> None:
        self._offsets = np.asarray(offsets, dtype=np.int64)
        self._low = int(self._offsets.min(initial=0))
        self._high = int(self._offsets.max(initial=0))

    def __len__(self) -> int:
        return len(self._offsets)

    def frames(self, frame: int, length: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the frames of the window, and which are padding.

        Args:
            frame: The frame it is put at.
            length: Length of the episode.

        Returns:
            Frame numbers, where those outside the episode are replaced by its first or last one; and True for these.
        """
        wanted = self._offsets + frame
        if frame + self._low >= 0 and frame + self._high < length:
            return wanted, np.zeros(len(wanted), dtype=np.bool_)
        return np.clip(wanted, 0, length - 1), (wanted < 0) | (wanted >= length)

    def many(self, frames: Ints, lengths: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the frames of the windows at several frames, and which are padding.

        Args:
            frames: The frames they are put at, (B,).
            lengths: Lengths of their episodes, (B,).

        Returns:
            As `frames`, but each (B, offsets).
        """
        wanted = frames[:, None] + self._offsets
        ends = lengths[:, None]
        return np.clip(wanted, 0, ends - 1), (wanted < 0) | (wanted >= ends)


def windows(
    delta_timestamps: Mapping[str, Sequence[float]] | None, features: Mapping[str, Any], fps: int, tolerance_s: float
) -> dict[str, Window]:
    """Check time windows and turn them into frame windows.

    Args:
        delta_timestamps: Feature to time differences in seconds.
        features: The dataset's features.
        fps: Frames per second.
        tolerance_s: Allowed deviation.

    Returns:
        Feature to window.

    Raises:
        DatasetError: An unknown feature, or a time between two frames.
    """
    result = {}
    for key, seconds in (delta_timestamps or {}).items():
        if key not in features:
            near = nearest(key, list(features))
            raise DatasetError(
                f"delta_timestamps names {key!r}, which is not a feature of the dataset.",
                hint=f"Did you mean {near!r}?" if near else f"Its features: {', '.join(features)}.",
            )
        result[key] = Window(frame_offsets(key, seconds, fps, tolerance_s))
    return result
