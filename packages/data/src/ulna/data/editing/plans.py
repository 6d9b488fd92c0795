# SPDX-License-Identifier: Apache-2.0
"""What an edit would do, checked before anything is written. Every editing function makes a plan and carries it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ulna.data.editing.places import Place

if TYPE_CHECKING:
    from ulna.data.dataset import LeRobotDataset

__all__ = ["EditPlan", "Progress"]

Progress = Callable[[int, int], None]
"""Called with what is done, episodes or files, and how many there are in all."""


@dataclass(frozen=True)
class EditPlan:
    """A request that was found possible. Its text says what would be done. Making one writes nothing.

    Attributes:
        source: What is edited, for messages: a folder, or how many datasets.
        place: Where the result goes.
        what: What is done, such as "deletes 2 of 3 episodes".
        write: Does it.
        read: Reads what can be found wrong only in the contents, without writing; None where the request says it all.
    """

    source: str
    place: Place
    what: str
    write: Callable[[Progress | None], None]
    read: Callable[[Progress | None], None] | None = None

    def __str__(self) -> str:
        where = f"{self.place.root}, in place" if self.place.in_place else f"{self.source} -> {self.place.root}"
        return f"{where}: {self.what}"

    def rehearse(self, progress: Progress | None = None) -> None:
        """Find what is wrong with the contents, as carrying out would before it decodes pictures. Writes nothing.

        Args:
            progress: Called with what was read and how much there is.

        Raises:
            DatasetFormatError: Files of the dataset contradict one another.
        """
        if self.read is not None:
            self.read(progress)

    def carry_out(self, progress: Progress | None = None) -> LeRobotDataset:
        """Do it.

        Args:
            progress: Called with what is done and how much there is.

        Returns:
            The result, opened.

        Raises:
            DatasetError: The target has been taken or come into use meanwhile, or the disk is full.
            DatasetFormatError: Files of the dataset contradict one another.
        """
        from ulna.data.dataset import LeRobotDataset

        self.write(progress)
        return LeRobotDataset(self.place.repo_id, self.place.root)
