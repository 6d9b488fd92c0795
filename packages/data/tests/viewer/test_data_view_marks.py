# SPDX-License-Identifier: Apache-2.0
"""Marks of both kinds live beside each other, and are changed by the page's own method only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ulna.data.editing.marks import Marks, read_marks


def test_marks_of_one_kind_leave_those_of_the_other(served: Callable[[Path], Any], video_set: Path) -> None:
    server = served(video_set)
    server.change({"task": "task 0", "rename": "pick"})
    server.change({"episode": 1, "delete": True})
    assert read_marks(video_set) == Marks((1,), {"task 0": "pick"})
    server.change({"task": "task 1", "rename": "place"})
    assert read_marks(video_set) == Marks((1,), {"task 0": "pick", "task 1": "place"})
    server.change({"episode": 1, "delete": False})
    assert read_marks(video_set) == Marks((), {"task 0": "pick", "task 1": "place"})


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_whatever_is_not_reading_needs_origin_and_token(
    served: Callable[[Path], Any], video_set: Path, method: str
) -> None:
    """Also methods that nothing answers today: they are refused before anybody looks at them."""
    server = served(video_set)
    code, _, body = server.ask("/api/marks", method, b"{}")
    assert code == 403
    assert "from the page of this server only" in json.loads(body)["error"]
