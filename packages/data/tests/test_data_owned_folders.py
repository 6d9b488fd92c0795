# SPDX-License-Identifier: Apache-2.0
"""Temporary folders of killed programs are told from those of living ones, and removed by the next."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ulna.data import StreamingLeRobotDataset, delete_episodes
from ulna.data.checks.validation import validate
from ulna.data.editing.replacement import building_folder
from ulna.data.owned_folders import OwnedFolder, orphans, remove_orphans
from ulna.data.remote import RemoteFiles

KILLED = """
import os, sys
from pathlib import Path
from ulna.data.owned_folders import OwnedFolder
print(OwnedFolder("mine-", Path(sys.argv[1])).path, flush=True)
os.kill(os.getpid(), 9)
"""


def test_only_folders_of_the_dead_are_removed(tmp_path: Path) -> None:
    """A lock dies with its process, whatever ended that."""
    alive = OwnedFolder("mine-", tmp_path)
    (alive.path / "file").write_text("x")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=False)
    dead = Path(done.stdout.strip())
    (tmp_path / "mine-link").symlink_to(alive.path)
    (tmp_path / "mine-file").touch()
    assert orphans(tmp_path, "mine-") == [dead]
    remove_orphans(tmp_path, "mine-")
    assert not dead.exists()
    assert (alive.path / "file").exists()
    alive.remove()
    alive.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine-file", "mine-link"]


def test_an_edit_removes_what_killed_edits_left(scene: Any, tmp_path: Path) -> None:
    """Also of edits that wrote into a new folder, which nobody may ask for again. Running edits are left alone."""
    root = tmp_path / "set"
    scene().record(root, [2, 3])
    killed, running = building_folder(tmp_path / "never"), building_folder(tmp_path / "other")
    killed.release()
    named = [p for p in validate("a/b", root).problems if p.code == "edit-leftover"]
    assert [str(p.remedy) for p in named] == [f"rm -r {killed.path}"]
    delete_episodes(root, [0], tmp_path / "new")
    assert not killed.path.exists()
    assert running.path.exists()
    running.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "set"]


def test_a_stream_removes_what_killed_streams_left(scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    scene().record(tmp_path / "set", [2])
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp/ulna-stream-killed/meta").mkdir(parents=True)
    files = RemoteFiles(fsspec.filesystem("file"), str(tmp_path / "set"), "lab/scene")
    first = StreamingLeRobotDataset("lab/scene", files=files)
    second = StreamingLeRobotDataset("lab/scene", files=files)
    assert sorted((tmp_path / "tmp").iterdir()) == sorted([first.root, second.root])
    assert len(list(first)) == len(list(second)) == 2
    del first, second
    assert list((tmp_path / "tmp").iterdir()) == []
