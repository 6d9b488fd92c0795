# SPDX-License-Identifier: Apache-2.0
"""Processes of the peer: started by name or path, answered through a file, failures told in full."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ulna.core.errors import ConfigError
from ulna.testing.peer import PEER_VARIABLE, Peer, PeerError, assert_items_equal

ECHO = """
import json, os, sys
import numpy as np
request = json.loads(sys.argv[2])
request.update(threads=os.environ["OMP_NUM_THREADS"], process=os.getpid())
np.savez(sys.argv[1], facts=np.array(json.dumps(request)), values=np.arange(3))
"""


class Items(list[dict[str, Any]]):
    def numpy_item(self, position: int) -> dict[str, Any]:
        return self[position]


def test_found_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PEER_VARIABLE, sys.executable)
    assert Peer.find().python == Path(sys.executable)
    monkeypatch.delenv(PEER_VARIABLE)
    with pytest.raises(ConfigError, match="nox -s interop"):
        Peer.find()


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer(Path(sys.executable)) as found:
        yield found


def test_answers_through_a_file(peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    processes = set()
    for number in range(2):
        answer = peer.ask(tmp_path / "echo.py", tmp_path / "answer.npz", key=[number, "two"])
        np.testing.assert_array_equal(answer["values"], [0, 1, 2])
        assert answer["facts"]["key"] == [number, "two"]
        assert answer["facts"]["threads"] == "1"
        processes.add(answer["facts"]["process"])
    assert len(processes) == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit('out of luck')", "out of luck"),
        ("import os; os._exit(3)", "its process ended"),
        ("import time; time.sleep(60)", "no answer in 0.3 s"),
    ],
)
def test_failure_is_told_and_the_next_question_answered(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "bad.py").write_text(code)
    (tmp_path / "good.py").write_text("print('not an answer')")
    with Peer(Path(sys.executable), timeout_s=0.3 if "sleep" in code else 60) as peer:
        with pytest.raises(PeerError, match=said):
            peer.run(tmp_path / "bad.py")
        peer.timeout_s = 60
        peer.run(tmp_path / "good.py")


def test_programs_beside_the_interpreter(peer: Peer) -> None:
    assert "hello" in peer.start(Path(sys.executable).name, "-c", "print('hello')")
    with pytest.raises(PeerError, match="exited with 2"):
        peer.start(Path(sys.executable).name, "-c", "raise SystemExit(2)")


def test_items_are_compared_to_the_last_key() -> None:
    ours = Items([{"x": np.float32([1, 2]), "task": "go"}])
    theirs = {"facts": {"length": 1, "texts": {"0/task": "go"}}, "0|x": np.float32([1, 2])}
    assert assert_items_equal(ours, theirs) == 2
    for change in (
        {"0|x": np.float32([1, 3])},
        {"0|x": np.float64([1, 2])},
        {"0|y": np.float32([0])},
        {"facts": {"length": 1, "texts": {"0/task": "stay"}}},
        {"facts": {"length": 2, "texts": {"0/task": "go"}}},
    ):
        with pytest.raises(AssertionError):
            assert_items_equal(ours, {**theirs, **change})
