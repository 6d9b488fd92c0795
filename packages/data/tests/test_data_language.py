# SPDX-License-Identifier: Apache-2.0
"""Language columns: what frames may say, how it is stored and read, and styles of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ulna.core.errors import DatasetFormatError, FeatureError
from ulna.data import LeRobotDataset, language, language_feature_info, language_styles, register_language_style

GOLDEN = Path(__file__).parent / "golden" / "language"
CAMERA = "observation.images.cam"
SAY = {"type": "function", "function": {"name": "say", "arguments": {"text": "on it", "times": 2}}}


def features() -> dict[str, dict[str, Any]]:
    return {
        "observation.state": {"dtype": "float32", "shape": (2,), "names": None},
        CAMERA: {"dtype": "image", "shape": (16, 16, 3), "names": ["height", "width", "channels"]},
        **language_feature_info(),
    }


def frame(**columns: Any) -> dict[str, Any]:
    return {"observation.state": [0.0, 1.0], CAMERA: np.zeros((16, 16, 3), np.uint8), "task": "tidy up", **columns}


def row(content: str | None, style: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "style": style, **fields}


def record(root: Path, frames: list[dict[str, Any]]) -> LeRobotDataset:
    with LeRobotDataset.create("lab/words", 10, features(), root) as dataset:
        for values in frames:
            dataset.add_frame(frame(**values))
        dataset.save_episode()
    return LeRobotDataset("lab/words", root)


def test_what_is_said_is_read_back_by_frame_and_by_episode(tmp_path: Path) -> None:
    """Events stand on their frame; what is in force stands on every frame, in the order of its times."""
    read = record(
        tmp_path / "set",
        [
            {"language_persistent": [row("reach", "subtask")]},
            {"language_events": [row(None, None, tool_calls=[SAY]), row("no, that one", "interjection")]},
            {"language_persistent": [row("grasp", "subtask", timestamp=0.15), row("1. reach", "plan", timestamp=0.0)]},
            {"language_events": [row("where is it?", "vqa", camera=CAMERA)]},
        ],
    )
    nothing = {"camera": None, "tool_calls": None}
    for position in range(4):
        persistent = read.numpy_item(position)["language_persistent"]
        assert [(r["content"], r["style"]) for r in persistent] == [
            ("reach", "subtask"),
            ("1. reach", "plan"),
            ("grasp", "subtask"),
        ]
        np.testing.assert_allclose([r["timestamp"] for r in persistent], [0.0, 0.0, 0.15], atol=1e-7)
    events = [read[position]["language_events"] for position in range(4)]
    assert events[0] == events[2] == []
    assert events[1] == [
        {"role": "assistant", "content": None, "style": None, "camera": None, "tool_calls": [SAY]},
        {"role": "assistant", "content": "no, that one", "style": "interjection", **nothing},
    ]
    assert events[3][0]["camera"] == CAMERA


def test_rows_without_a_time_hold_from_the_frame_that_brought_them(tmp_path: Path) -> None:
    said = [{"language_persistent": row("reach", "subtask")}] * 3 + [
        {"language_persistent": row("lift", "subtask")}
    ] * 2
    rows = record(tmp_path / "set", said)[4]["language_persistent"]
    assert [(r["content"], round(r["timestamp"], 6)) for r in rows] == [("reach", 0.0), ("lift", 0.3)]


@pytest.mark.parametrize("nothing", [{}, {"language_persistent": None}, {"language_events": []}, None])
def test_saying_nothing_is_fine(tmp_path: Path, nothing: dict[str, Any] | None) -> None:
    """The columns may be left out, be None or be empty, in a whole episode or beside frames that say something."""
    spoken = {"language_persistent": [row("reach", "subtask")], "language_events": []}
    frames = [spoken, {}] if nothing is None else [nothing, nothing]
    read = record(tmp_path / "set", frames)
    item = read[1]
    assert item["language_events"] == []
    assert len(item["language_persistent"]) == (nothing is None)


def test_a_dataset_with_language_is_copied_item_by_item(tmp_path: Path) -> None:
    source = LeRobotDataset("a/b", GOLDEN / "dataset")
    with LeRobotDataset.create("lab/copy", source.fps, source.features, tmp_path / "set") as copy:
        for episode in range(source.num_episodes):
            for position in source.reader.index.positions(episode):
                copy.add_frame(source[position])
            copy.save_episode()
    again = LeRobotDataset("lab/copy", tmp_path / "set")
    assert len(again) == len(source)
    for position in range(len(source)):
        for column in language.LANGUAGE_COLUMNS:
            assert again.numpy_item(position)[column] == source.numpy_item(position)[column]


def test_the_table_is_typed_the_same_whatever_is_said(tmp_path: Path) -> None:
    """Other software reads several files together only when their columns have one type, also where nothing is said."""
    record(tmp_path / "quiet", [{}])
    record(tmp_path / "loud", [{"language_events": [row(None, None, tool_calls=[SAY])]}])
    schemas = [pq.read_schema(tmp_path / name / "data/chunk-000/file-000.parquet") for name in ("quiet", "loud")]
    assert schemas[0].equals(schemas[1], check_metadata=True)
    described = json.loads(schemas[0].metadata[b"huggingface"])["info"]["features"]
    assert list(described["language_persistent"]["feature"]) == [
        "role",
        "content",
        "style",
        "timestamp",
        "camera",
        "tool_calls",
    ]
    assert "timestamp" not in described["language_events"]["feature"]
    assert pa.types.is_float32(schemas[0].field("language_persistent").type.value_type.field("timestamp").type)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("language_events", "hello", "expected a list of rows, got str 'hello'"),
        ("language_events", ["hello"], "row 0 must be a mapping"),
        ("language_events", [{"content": "hi"}], "row 0 needs a role"),
        ("language_events", [row(None, None)], "row 0 says nothing"),
        ("language_events", [row(3, None)], "content must be a text, got 3"),  # type: ignore[arg-type]
        ("language_events", [row("x", "subtask")], "is of style 'subtask', and such rows belong to 'language_persist"),
        ("language_persistent", [row("x", "vqa", camera=CAMERA)], "such rows belong to 'language_events'"),
        ("language_persistent", [row("x", None)], "without a style, and such rows belong to 'language_events'"),
        ("language_persistent", [row("x", "subtaks")], r"unknown style 'subtaks'(?s:.*)Did you mean 'subtask'"),
        ("language_persistent", [row("x", "plan", camera=CAMERA)], "but rows of style 'plan' name none"),
        ("language_events", [row("x", "vqa")], "must name a camera of the dataset, got None"),
        ("language_events", [row("x", "trace", camera="observation.state")], f"Cameras are {CAMERA}"),
        ("language_events", [row("x", "interjection", timestamp=1.0)], "unknown field 'timestamp'"),
        (
            "language_persistent",
            [row("x", "plan", timestamp=-1)],
            "seconds since the episode began, got -1",
        ),
        ("language_persistent", [row("x", "plan", timestamp="now")], "got 'now'"),
        ("language_events", [row("x", None, tool_calls={"name": "say"})], "must be a list of JSON objects"),
        ("language_events", [row("x", None, tool_calls=[{1, 2}])], "tool_calls must be JSON objects"),
    ],
)
def test_rows_that_break_a_rule_are_refused_at_once(tmp_path: Path, column: str, value: Any, message: str) -> None:
    """Neither dropped with a warning nor found out when the episode is saved; the recording goes on."""
    with LeRobotDataset.create("lab/words", 10, features(), tmp_path / "set") as dataset:
        with pytest.raises(FeatureError, match=message):
            dataset.add_frame(frame(**{column: value}))
        dataset.add_frame(frame())
        dataset.save_episode()
    assert LeRobotDataset("lab/words", tmp_path / "set").num_frames == 1


def test_styles_of_ones_own_count_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "_STYLES", dict(language._STYLES))
    assert "mood" not in language_styles()
    style = register_language_style("mood", persistent=True)
    assert register_language_style("mood", persistent=True) == style == language_styles()["mood"]
    assert language.column_for_style("mood") == "language_persistent"
    assert language.column_for_style(None) == language.column_for_style("vqa") == "language_events"
    read = record(tmp_path / "set", [{"language_persistent": [row("calm", "mood")]}])
    assert read[0]["language_persistent"][0]["style"] == "mood"
    with pytest.raises(FeatureError, match="known already"):
        register_language_style("mood", persistent=False)
    with pytest.raises(FeatureError, match="needs a name"):
        register_language_style(" ", persistent=False)


def test_language_in_a_table_must_be_declared(tmp_path: Path) -> None:
    """A table with a column that info.json does not declare is refused, and the message says what to add."""
    record(tmp_path / "set", [{"language_events": [row("hi", None)]}])
    path = tmp_path / "set/meta/info.json"
    info = json.loads(path.read_text())
    del info["features"]["language_events"]
    path.write_text(json.dumps(info))
    with pytest.raises(DatasetFormatError, match=r"'language_events', but info.json does not declare it(?s:.*)Add to"):
        LeRobotDataset("lab/words", tmp_path / "set").numpy_item(0)


def test_language_columns_have_fixed_names(tmp_path: Path) -> None:
    declared = {"words": {"dtype": "language", "shape": (1,), "names": None}}
    with pytest.raises(FeatureError, match="'words': language columns are called language_persistent and"):
        LeRobotDataset.create("lab/words", 10, declared, tmp_path / "set")


def test_tools_are_kept_and_saved(tmp_path: Path) -> None:
    dataset = record(tmp_path / "set", [{}])
    assert dataset.meta.tools is None
    dataset.meta.tools = [language.SAY_TOOL_SCHEMA]
    assert LeRobotDataset("lab/words", tmp_path / "set").meta.tools == [language.SAY_TOOL_SCHEMA]
    dataset.meta.tools = None
    assert "tools" not in json.loads((tmp_path / "set/meta/info.json").read_text())
