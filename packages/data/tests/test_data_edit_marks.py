# SPDX-License-Identifier: Apache-2.0
"""Marks come back as they were written; a damaged file names itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from ulna.core.errors import DatasetFormatError
from ulna.data.editing.marks import MARKS_PATH, Marks, read_marks, write_marks


def test_marks_come_back(tmp_path: Path) -> None:
    (tmp_path / "meta").mkdir()
    assert not read_marks(tmp_path)
    write_marks(tmp_path, Marks((7, 3, 3), {"pick": "pick up", "same": "same"}))
    assert read_marks(tmp_path) == Marks((3, 7), {"pick": "pick up"})
    write_marks(tmp_path, Marks())
    assert not (tmp_path / MARKS_PATH).exists()
    write_marks(tmp_path, Marks())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON"),
        ("[1]", "expected an object"),
        ('{"remove": [1]}', "expected an object"),
        ('{"delete": [-1]}', "episode numbers"),
        ('{"delete": [true]}', "episode numbers"),
        ('{"delete": 3}', "episode numbers"),
        ('{"tasks": {"a": ""}}', "texts to texts"),
        ('{"tasks": ["a"]}', "texts to texts"),
    ],
)
def test_damaged_marks_name_themselves(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / MARKS_PATH
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(DatasetFormatError, match=said) as caught:
        read_marks(tmp_path)
    assert str(path) in str(caught.value)
