# SPDX-License-Identifier: Apache-2.0
"""Changes of datasets that are killed at any instant leave the old dataset or the new one, and can be made again."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ulna.data import LeRobotDataset

GOLDEN = Path(__file__).parent / "golden"
CHILD = Path(__file__).parent / "converting_child.py"
LENGTHS = [2, 1, 3]
RECORDED = {"pictures": "image", "videos": "video", "regions": "image", "numbers": None}


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def change(folder: Path, names: list[str], instant: str = "never") -> dict[str, int]:
    """Change datasets in processes of their own.

    Returns:
        Dataset to the signal that ended its change, 0 when that was finished.
    """
    command = [sys.executable, str(CHILD), str(folder), instant, *names]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: int(code) for name, code in (line.split() for line in lines)}


@pytest.mark.parametrize(
    ("instant", "killed"),
    [
        ("while pictures are encoded", ["pictures", "videos"]),
        ("before files are flushed", ["old"]),
        ("before the new takes the place of the old", [*RECORDED]),
    ],
)
def test_a_kill_leaves_the_old_dataset(tmp_path: Path, scene: Any, instant: str, killed: list[str]) -> None:
    shutil.copytree(GOLDEN / "v21_videos/v21", tmp_path / "old")
    for name in RECORDED.keys() & set(killed):
        scene(RECORDED[name]).record(tmp_path / name, LENGTHS)
    before = contents(tmp_path / "old")
    assert change(tmp_path, killed, instant) == dict.fromkeys(killed, signal.SIGKILL)
    assert contents(tmp_path / "old") == before
    assert not (tmp_path / "old_v30").exists()
    for name in RECORDED.keys() & set(killed):
        scene(RECORDED[name]).check(tmp_path / name, LENGTHS)
    again = killed[-1]
    assert change(tmp_path, [again]) == {again: 0}
    result = LeRobotDataset("a/b", tmp_path / ("old_v30" if again == "old" else again))
    assert result.meta.findings == []
    if again != "old":
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(f".{again}")] == []
