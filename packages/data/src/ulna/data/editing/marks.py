# SPDX-License-Identifier: Apache-2.0
"""Marks: what somebody who looked at a dataset wants changed, kept in `meta/ulna_marks.json` until it is applied.

The file is one object, `{"delete": [3, 7], "tasks": {"old text": "new text"}}`. LeRobot ignores it. Nothing here
changes the dataset itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ulna.core.errors import DatasetFormatError
from ulna.core.files import fsync_dir, write_json

__all__ = ["MARKS_PATH", "Marks", "read_marks", "remove_marks", "write_marks"]

MARKS_PATH: Final = "meta/ulna_marks.json"
_KEYS: Final = ("delete", "tasks")


@dataclass(frozen=True)
class Marks:
    """Changes that wait to be applied.

    Attributes:
        delete: Episodes to delete; kept sorted, each once.
        tasks: Text of a task to its new text, for every frame that has it.
    """

    delete: tuple[int, ...] = ()
    tasks: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "delete", tuple(sorted({int(e) for e in self.delete})))
        object.__setattr__(self, "tasks", {str(old): str(new) for old, new in self.tasks.items() if old != new})

    def __bool__(self) -> bool:
        return bool(self.delete or self.tasks)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {"delete": list(self.delete), "tasks": dict(self.tasks)}


def read_marks(root: Path) -> Marks:
    """Read the marks of a dataset. Whether its episodes and tasks exist is checked when they are applied.

    Args:
        root: Folder of the dataset.

    Returns:
        The marks; empty when there is no file.

    Raises:
        DatasetFormatError: The file is not what this module writes.
    """
    path = root / MARKS_PATH
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Marks()
    except (OSError, ValueError) as error:
        raise _damaged(path, f"it is not valid JSON: {error}") from error
    if not isinstance(raw, dict) or set(raw) - set(_KEYS):
        raise _damaged(path, f"expected an object with {' and '.join(_KEYS)}, got {raw!r:.200}")
    delete, tasks = raw.get("delete", []), raw.get("tasks", {})
    if not isinstance(delete, list) or not all(type(e) is int and e >= 0 for e in delete):
        raise _damaged(path, f"'delete' must be a list of episode numbers, got {delete!r:.200}")
    if not isinstance(tasks, dict) or not all(isinstance(new, str) and new.strip() for new in tasks.values()):
        raise _damaged(path, f"'tasks' must map texts to texts, got {tasks!r:.200}")
    return Marks(tuple(delete), tasks)


def write_marks(root: Path, marks: Marks) -> None:
    """Write the marks of a dataset atomically; empty ones remove the file.

    Args:
        root: Folder of the dataset.
        marks: The marks.
    """
    if marks:
        write_json(root / MARKS_PATH, marks.to_json())
    else:
        remove_marks(root)


def remove_marks(root: Path) -> None:
    """Remove the marks of a dataset, if it has any.

    Args:
        root: Folder of the dataset.
    """
    path = root / MARKS_PATH
    if path.exists():
        path.unlink()
        fsync_dir(path.parent)


def _damaged(path: Path, what: str) -> DatasetFormatError:
    return DatasetFormatError(f"{path} is damaged: {what}.", hint=f"Nothing depends on it: delete {path}")
