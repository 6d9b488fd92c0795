# SPDX-License-Identifier: Apache-2.0
"""Language columns: the rows of texts that belong to frames, their styles, their checks and their form in the table.

`language_persistent` holds what is in force during an episode, the same list on every frame, each row with the time
from which it holds. `language_events` holds what happened at that very frame. Needs no torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ulna.core.constants import OBS_IMAGES
from ulna.core.errors import FeatureError, nearest

__all__ = [
    "LANGUAGE_COLUMNS",
    "LANGUAGE_EVENTS",
    "LANGUAGE_PERSISTENT",
    "SAY_TOOL_SCHEMA",
    "LanguageStyle",
    "check_language",
    "column_for_style",
    "language_array",
    "language_column",
    "language_described",
    "language_feature_info",
    "language_styles",
    "language_type",
    "read_cell",
    "read_language",
    "register_language_style",
]

LANGUAGE_PERSISTENT: Final = "language_persistent"
LANGUAGE_EVENTS: Final = "language_events"
LANGUAGE_COLUMNS: Final = (LANGUAGE_PERSISTENT, LANGUAGE_EVENTS)

SAY_TOOL_SCHEMA: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "say",
        "description": "Speak a short utterance to the user via the TTS executor.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "The verbatim text to speak."}},
            "required": ["text"],
        },
    },
}
"""The tool that a language policy may call to speak; datasets list theirs under `tools` in `info.json`."""

_EVENT_FIELDS: Final = ("role", "content", "style", "camera", "tool_calls")
_PERSISTENT_FIELDS: Final = ("role", "content", "style", "timestamp", "camera", "tool_calls")

Row = dict[str, Any]


@dataclass(frozen=True)
class LanguageStyle:
    """A kind of row.

    Attributes:
        name: What stands in the row.
        persistent: Whether rows hold from their time on, else they happen at one frame.
        needs_camera: Whether rows speak of one camera's picture, which they must name; others must name none.
    """

    name: str
    persistent: bool
    needs_camera: bool = False


_STYLES: Final[dict[str, LanguageStyle]] = {
    **{name: LanguageStyle(name, True) for name in ("subtask", "plan", "memory", "motion", "task_aug")},
    "interjection": LanguageStyle("interjection", False),
    **{name: LanguageStyle(name, False, needs_camera=True) for name in ("vqa", "trace")},
}


def language_styles() -> Mapping[str, LanguageStyle]:
    """Return every known style by name."""
    return dict(_STYLES)


def register_language_style(name: str, *, persistent: bool, needs_camera: bool = False) -> LanguageStyle:
    """Make a style known, for this process. Registering it again in the same way changes nothing.

    Args:
        name: What stands in the rows.
        persistent: Whether rows hold from their time on, else they happen at one frame.
        needs_camera: Whether rows must name a camera.

    Returns:
        The style.

    Raises:
        FeatureError: The name is empty, or known as something else.
    """
    style = LanguageStyle(name, persistent, needs_camera)
    if not name.strip():
        raise FeatureError("A language style needs a name.")
    if _STYLES.setdefault(name, style) != style:
        raise FeatureError(f"The language style {name!r} is known already, as {_STYLES[name]}.")
    return style


def column_for_style(style: str | None) -> str:
    """Return the column that rows of a style belong to.

    Args:
        style: Its name; rows without one are events.

    Raises:
        FeatureError: There is no such style.
    """
    return LANGUAGE_PERSISTENT if style is not None and _style(style, "A row").persistent else LANGUAGE_EVENTS


def _style(name: Any, where: str) -> LanguageStyle:
    if isinstance(name, str) and name in _STYLES:
        return _STYLES[name]
    near = nearest(str(name), list(_STYLES))
    raise FeatureError(
        f"{where} has the unknown style {name!r}; known are {', '.join(_STYLES)}.",
        hint=f"Did you mean {near!r}?" if near else "Make it known with ulna.data.register_language_style().",
    )


def language_feature_info() -> dict[str, dict[str, Any]]:
    """Return the declarations of both language columns, to be added to a dataset's features."""
    return {name: {"dtype": "language", "shape": (1,), "names": None} for name in LANGUAGE_COLUMNS}


def check_language(column: str, value: Any, cameras: Collection[str]) -> list[Row]:
    """Check what a frame says in a language column.

    Args:
        column: Name of the column.
        value: Rows, each a mapping with `role`, `content` or `tool_calls`, and `style`, `camera`, `timestamp` where
            they apply; one such mapping; or None for nothing.
        cameras: Cameras of the dataset.

    Returns:
        Whole rows in new memory. A persistent row without a time has None there.

    Raises:
        FeatureError: A row breaks a rule; the column, row and value are named.
    """
    if value is None:
        return []
    rows = [value] if isinstance(value, Mapping) else value
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        raise FeatureError(f"{column!r}: expected a list of rows, got {type(value).__name__} {value!r}.")
    return [_checked(column, i, row, cameras) for i, row in enumerate(rows)]


def _checked(column: str, position: int, row: Any, cameras: Collection[str]) -> Row:
    where = f"{column!r}: row {position}"
    fields = _PERSISTENT_FIELDS if column == LANGUAGE_PERSISTENT else _EVENT_FIELDS
    if not isinstance(row, Mapping):
        raise FeatureError(f"{where} must be a mapping with {', '.join(fields)}, got {type(row).__name__} {row!r}.")
    if unknown := [key for key in row if key not in fields]:
        raise FeatureError(f"{where} has the unknown field {unknown[0]!r}; a row has {', '.join(fields)}.")
    found: Row = {name: row.get(name) for name in fields}
    if not isinstance(found["role"], str) or not found["role"]:
        raise FeatureError(f"{where} needs a role such as 'user' or 'assistant', got {found['role']!r}.")
    if found["content"] is not None and not isinstance(found["content"], str):
        raise FeatureError(f"{where}: content must be a text, got {found['content']!r}.")
    found["tool_calls"] = _tool_calls(where, found["tool_calls"])
    if found["content"] is None and not found["tool_calls"]:
        raise FeatureError(f"{where} says nothing: it needs content or tool_calls.")
    _check_style(where, column, found, cameras)
    if column == LANGUAGE_PERSISTENT:
        found["timestamp"] = _time(where, found["timestamp"])
    return found


def _tool_calls(where: str, calls: Any) -> list[Any] | None:
    if calls is None:
        return None
    if isinstance(calls, (str, Mapping)) or not isinstance(calls, Iterable):
        raise FeatureError(f"{where}: tool_calls must be a list of JSON objects, got {calls!r}.")
    try:
        return [json.loads(json.dumps(call)) for call in calls]
    except (TypeError, ValueError) as error:
        raise FeatureError(f"{where}: tool_calls must be JSON objects: {error}.") from error


def _check_style(where: str, column: str, row: Row, cameras: Collection[str]) -> None:
    style = LanguageStyle("", False) if row["style"] is None else _style(row["style"], where)
    if style.persistent != (column == LANGUAGE_PERSISTENT):
        right = LANGUAGE_PERSISTENT if style.persistent else LANGUAGE_EVENTS
        named = f"of style {row['style']!r}" if row["style"] is not None else "without a style"
        raise FeatureError(f"{where} is {named}, and such rows belong to {right!r}.")
    camera = row["camera"]
    if not style.needs_camera:
        if camera is not None:
            raise FeatureError(f"{where} names the camera {camera!r}, but rows of style {row['style']!r} name none.")
    elif camera not in cameras or not str(camera).startswith(f"{OBS_IMAGES}."):
        raise FeatureError(
            f"{where} of style {style.name!r} must name a camera of the dataset, got {camera!r}.",
            hint=f"Cameras are {', '.join(cameras) or 'not declared'}.",
        )


def _time(where: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        time_s = float(value)
    except (TypeError, ValueError):
        time_s = math.nan
    if not math.isfinite(time_s) or time_s < 0:
        raise FeatureError(f"{where}: timestamp must be the seconds since the episode began, got {value!r}.")
    return time_s


def language_column(column: str, frames: Sequence[Sequence[Row]], fps: int) -> list[list[Row]]:
    """Return a language column of one episode.

    Args:
        column: Its name.
        frames: Checked rows of each frame.
        fps: Frames per second.

    Returns:
        Rows of each frame. Persistent rows of all frames are put together in the order of their times, each once, and
        stand on every frame; those without a time hold from the frame that brought them.
    """
    if column != LANGUAGE_PERSISTENT:
        return [list(rows) for rows in frames]
    distinct: dict[str, Row] = {}
    for frame, rows in enumerate(frames):
        for row in rows:
            untimed = row["timestamp"] is None
            distinct.setdefault(json.dumps(row, sort_keys=True), {**row, "timestamp": frame / fps} if untimed else row)
    everything = sorted(distinct.values(), key=lambda row: float(row["timestamp"]))
    return [everything] * len(frames)


def language_type(column: str) -> pa.DataType:
    """Return the Arrow type of a language column.

    Args:
        column: Its name.
    """
    call = pa.field("element", pa.string(), metadata={"ARROW:extension:name": "arrow.json"})
    kinds = {"timestamp": pa.float32(), "tool_calls": pa.list_(call)}
    fields = _PERSISTENT_FIELDS if column == LANGUAGE_PERSISTENT else _EVENT_FIELDS
    row = pa.struct([pa.field(name, kinds.get(name, pa.string())) for name in fields])
    return pa.list_(pa.field("element", row))


def language_described(column: str) -> dict[str, Any]:
    """Return a language column as the `huggingface` metadata of a table describes it.

    Args:
        column: Its name.
    """
    kinds: dict[str, Any] = {
        "timestamp": {"dtype": "float32", "_type": "Value"},
        "tool_calls": {"feature": {"_type": "Json"}, "_type": "List"},
    }
    fields = _PERSISTENT_FIELDS if column == LANGUAGE_PERSISTENT else _EVENT_FIELDS
    return {
        "feature": {name: kinds.get(name, {"dtype": "string", "_type": "Value"}) for name in fields},
        "_type": "List",
    }


def language_array(column: str, rows: Sequence[Sequence[Row]]) -> pa.Array:
    """Build the column of one episode.

    Args:
        column: Its name.
        rows: Rows of each frame.
    """
    stored = [
        [
            {**row, "tool_calls": None if (c := row["tool_calls"]) is None else [json.dumps(x) for x in c]}
            for row in frame
        ]
        for frame in rows
    ]
    return pa.array(stored, language_type(column))


def read_cell(cell: Any) -> Any:
    """Return one cell of a text or language column as Python values, tool calls as objects.

    Args:
        cell: The Arrow scalar.
    """
    value = cell.as_py()
    return read_language(value) if value is None or isinstance(value, list) else value


def read_language(value: Any) -> list[Row]:
    """Return the rows that a cell of a table holds, tool calls as objects.

    Args:
        value: The cell as Python values.
    """
    rows: list[Row] = value or []
    for row in rows:
        calls = row.get("tool_calls")
        if calls:
            row["tool_calls"] = [json.loads(call) if isinstance(call, str) else call for call in calls]
    return rows
