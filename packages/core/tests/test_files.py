# SPDX-License-Identifier: Apache-2.0
"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from ulna.core.files import atomic_path, make_dirs, replace_dir, write_json, write_text


def test_an_error_while_writing_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_value_json_does_not_know_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_json(path, {"a": 1})
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert path.read_bytes() == before


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    with replace_dir(folder) as new:
        (new / "one").write_text("1")
    with replace_dir(folder) as new:
        (new / "two").write_text("2")
    assert [p.name for p in folder.iterdir()] == ["two"]
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


def test_a_failed_replacement_keeps_the_old_folder(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    with replace_dir(folder) as new:
        (new / "one").write_text("1")

    def fail() -> None:
        with replace_dir(folder) as new:
            (new / "half").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [p.name for p in folder.iterdir()] == ["one"]
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


def test_text_is_utf8_and_json_keeps_letters(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"task": "Würfel heben"})
    assert "Würfel" in (tmp_path / "a.json").read_text(encoding="utf-8")


def test_new_folders_are_flushed_from_the_outside_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder whose entry is not on disk loses everything in it when the power fails."""
    flushed: list[Path] = []
    monkeypatch.setattr("ulna.core.files.fsync_dir", flushed.append)
    make_dirs(tmp_path / "a" / "b")
    make_dirs(tmp_path / "a" / "b")
    assert flushed == [tmp_path, tmp_path / "a"]
    assert (tmp_path / "a" / "b").is_dir()
