# SPDX-License-Identifier: Apache-2.0
"""In which order a stream reads frames, and in which it gives them: a pure function of seed, epoch and reader.

Only numbers are handled here, no file is opened. A *shard* is a run of episodes that lie in the same files, a
*segment* is (a part of) one episode, a *run* is a few neighbouring frames that are decoded together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ulna.data.index import share

__all__ = ["RUN_LENGTH", "Segment", "ShuffleBuffer", "generator", "groups", "part_of", "runs", "segments"]

RUN_LENGTH = 32
"""Frames that are decoded in one go: enough to make up for a jump to a key frame."""


class Segment(NamedTuple):
    """Neighbouring frames of one episode.

    Attributes:
        shard: Number of the shard it lies in.
        episode: Its episode.
        start: Position of its first frame in the opened dataset.
        stop: Position behind its last one.
    """

    shard: int
    episode: int
    start: int
    stop: int


def generator(seed: int, epoch: int, *more: int) -> np.random.Generator:
    """Return the random numbers of one pass.

    Args:
        seed: Seed of the stream.
        epoch: Which pass.
        *more: What else tells readers apart.
    """
    return np.random.default_rng(np.random.SeedSequence([seed, epoch, *more]))


def segments(episodes: Iterable[tuple[int, range, Hashable]]) -> list[Segment]:
    """Return one segment for each episode, shards numbered.

    Args:
        episodes: Number, positions, and the files of each, in file order. Episodes without positions are left out.
    """
    found: list[Segment] = []
    shard, last = -1, None
    for episode, positions, files in episodes:
        if len(positions):
            if shard < 0 or files != last:
                shard, last = shard + 1, files
            found.append(Segment(shard, episode, positions.start, positions.stop))
    return found


def part_of(whole: Sequence[Segment], part: int, parts: int, shuffled_by: np.random.Generator | None) -> list[Segment]:
    """Return what one of several readers reads in one pass.

    Shards are put in random order and then cut into pieces of equal size, so that a reader touches few files. All
    readers together read every frame once, if they use equal generators.

    Args:
        whole: All segments.
        part: Which reader, from 0.
        parts: How many there are.
        shuffled_by: Gives the order of shards; None keeps file order.

    Returns:
        Its segments; the first and last one may be parts of an episode.
    """
    ordered = list(whole)
    if shuffled_by is not None:
        places = shuffled_by.permutation(1 + max((s.shard for s in whole), default=-1))
        ordered.sort(key=lambda s: (places[s.shard], s.start))
    mine = share(sum(s.stop - s.start for s in ordered), part, parts)
    result, first = [], 0
    for segment in ordered:
        length = segment.stop - segment.start
        low, high = max(mine.start - first, 0), min(mine.stop - first, length)
        if low < high:
            result.append(segment._replace(start=segment.start + low, stop=segment.start + high))
        first += length
    return result


def groups(
    mine: Iterable[Segment],
    most_shards: int,
    sizes: Callable[[Segment], Mapping[str, int]] | None = None,
    most_bytes: int = 0,
) -> Iterator[list[Segment]]:
    """Put segments together that are read at the same time.

    Args:
        mine: Segments in order.
        most_shards: Shards of one group.
        sizes: Bytes of each file that a segment needs; None where the size of files does not matter.
        most_bytes: Bytes of the files of one group; a single segment may have more.

    Yields:
        Groups of segments, in order.
    """
    group: list[Segment] = []
    shards: set[int] = set()
    files: dict[str, int] = {}
    for segment in mine:
        more = dict(sizes(segment)) if sizes else {}
        is_full = len(shards | {segment.shard}) > most_shards or sum((files | more).values()) > most_bytes
        if group and is_full:
            yield group
            group, shards, files = [], set(), {}
        group.append(segment)
        shards.add(segment.shard)
        files.update(more)
    if group:
        yield group


def runs(group: Sequence[Segment], lanes: int, random: np.random.Generator | None) -> Iterator[range]:
    """Return the positions of a group in pieces, each of one episode and of neighbours.

    Args:
        group: Segments.
        lanes: Episodes that are open at once; the next run is taken from any of them.
        random: None reads everything in order.

    Yields:
        Positions of at most `RUN_LENGTH` frames.
    """
    if random is None:
        for segment in group:
            yield from _cut(segment)
        return
    waiting = [group[i] for i in random.permutation(len(group))]
    open_lanes: list[Iterator[range]] = []
    while waiting or open_lanes:
        while waiting and len(open_lanes) < lanes:
            open_lanes.append(_cut(waiting.pop()))
        lane = int(random.integers(len(open_lanes)))
        run = next(open_lanes[lane], None)
        if run is None:
            open_lanes.pop(lane)
        else:
            yield run


def _cut(segment: Segment) -> Iterator[range]:
    for first in range(segment.start, segment.stop, RUN_LENGTH):
        yield range(first, min(first + RUN_LENGTH, segment.stop))


class ShuffleBuffer:
    """Mixes positions: each new one takes the place of one drawn at random. Made for one pass of one reader.

    Args:
        capacity: Positions it holds; with 0 everything passes unchanged.
        random: Draws; None for no mixing.
    """

    def __init__(self, capacity: int, random: np.random.Generator | None) -> None:
        self._capacity = capacity if random is not None else 0
        self._random = random
        self.waiting: list[int] = []

    def push(self, position: int) -> int | None:
        """Put a position in.

        Args:
            position: The position.

        Returns:
            The one that comes out, if the buffer was full.
        """
        if not self._capacity or self._random is None:
            return position
        if len(self.waiting) < self._capacity:
            self.waiting.append(position)
            return None
        slot = int(self._random.integers(self._capacity))
        out, self.waiting[slot] = self.waiting[slot], position
        return out

    def rest(self) -> list[int]:
        """Take out everything that is left, in random order."""
        left, self.waiting = self.waiting, []
        return [left[i] for i in self._random.permutation(len(left))] if self._random is not None else left
