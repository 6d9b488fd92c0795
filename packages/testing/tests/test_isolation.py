# SPDX-License-Identifier: Apache-2.0
"""What a block leaves open is told, whatever else ends in the process meanwhile."""

from __future__ import annotations

import gc
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from ulna.testing import isolation, leftovers, open_files


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "PATIENCE_S", 0.05)


def test_nothing_is_left(tmp_path: Path) -> None:
    with leftovers(patience_s=60) as left, (tmp_path / "file").open("w"):
        threading.Thread(target=lambda: None).start()
    assert not left
    assert str(left) == "nothing"


def test_a_file_left_open_is_named(tmp_path: Path) -> None:
    with leftovers() as left:
        kept = (tmp_path / "port").open("w")
    kept.close()
    assert left
    assert str(left) == f"1 open file(s) or port(s): {tmp_path / 'port'}"


def test_a_thread_left_is_named() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="reader of the camera")
    with leftovers() as left:
        thread.start()
    end.set()
    thread.join()
    assert str(left) == "1 thread(s): reader of the camera"


def test_what_was_forgotten_earlier_hides_nothing(tmp_path: Path) -> None:
    """A socket in a cycle of references is closed while the block runs, as its number in the process is free again."""

    class Forgotten:
        def __init__(self) -> None:
            self.itself, self.socket = self, socket.socket()

        def __del__(self) -> None:
            self.socket.close()

    gc.collect()
    gc.disable()
    try:
        Forgotten()
        before = open_files()
        kept: list[Any] = []
        with leftovers() as left:
            gc.collect()
            kept.append((tmp_path / "port").open("w"))
    finally:
        gc.enable()
    assert len(open_files()) == len(before)
    kept.pop().close()
    assert str(left) == f"1 open file(s) or port(s): {tmp_path / 'port'}"
