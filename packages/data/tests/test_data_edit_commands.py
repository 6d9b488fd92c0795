# SPDX-License-Identifier: Apache-2.0
"""`ulna dataset edit`: folders on stdout, everything else on stderr; the original stays unless asked otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ulna.data import LeRobotDataset
from ulna.data.commands import app
from ulna.data.editing.marks import Marks, read_marks, write_marks

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN / "state_only" / "dataset", tmp_path / "set")
    return tmp_path / "set"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["edit", *map(str, arguments)])


def lengths(root: Path) -> list[int]:
    found: list[int] = LeRobotDataset("a/b", root).meta.episodes["length"]
    return found


def test_delete_writes_beside_by_default(root: Path) -> None:
    before = lengths(root)
    result = run("delete", root, "0-1")
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == f"{root}_modified"
    assert "deletes 2 of 3 episodes" in result.stderr
    assert lengths(root) == before
    assert lengths(Path(result.stdout.strip())) == before[2:]


def test_delete_in_place_and_elsewhere(root: Path, tmp_path: Path) -> None:
    before = lengths(root)
    assert run("delete", root, "1", "--output", tmp_path / "out").exit_code == 0
    assert lengths(tmp_path / "out") == [before[0], before[2]]
    assert run("delete", root, "0,2", "--in-place").exit_code == 0
    assert lengths(root) == [before[1]]
    refused = run("delete", root, "0", "--in-place", "--output", tmp_path / "x")
    assert refused.exit_code == 1
    assert "exclude one another" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("delete", "14"), "There is no episode 14; the dataset has the episodes 0 to 2"),
        (("delete", "2-1"), "'2-1' names no episodes"),
        (("delete", "0-99999999999"), "names no episodes"),
        (("delete", "first"), "'first' names no episodes"),
        (("split", "--part", "train"), "--part train: expected was"),
        (("split", "--part", "a=0", "--part", "a=1"), "two parts of the name 'a'"),
        (("split", "--part", "a=0.x"), "'0.x' is no fraction"),
        (("remove-feature", "acton"), "Did you mean 'action'?"),
        (("rename-task", "pick up a cube", "x"), "Did you mean 'pick up the cube'?"),
        (("set-task", " "), "must be a text"),
        (("apply",), "has no marks"),
    ],
)
def test_what_is_wrong_is_said(root: Path, arguments: tuple[str, ...], said: str) -> None:
    command, *rest = arguments
    result = run(command, root, *rest)
    assert result.exit_code == 1
    assert said in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert [path.name for path in root.parent.iterdir()] == ["set"]


def test_dry_runs_write_nothing(root: Path, tmp_path: Path) -> None:
    write_marks(root, Marks((1,), {"pick up the cube": "x"}))
    for arguments, said in (
        (("delete", root, "1"), "deletes 1 of 3 episodes"),
        (("split", root, "--part", "a=0.5", "--part", "b=0.5"), "b: 2 episodes"),
        (("merge", root, root, "-o", tmp_path / "out"), "out: 6 episodes"),
        (("remove-feature", root, "action"), "removes action"),
        (("rename-task", root, "pick up the cube", "x"), "renames the task 'pick up the cube' to 'x'"),
        (("set-task", root, "x", "--episodes", "0-1"), "gives 2 of 3 episodes the task 'x'"),
        (("apply", root), "deletes 1 of 3 episodes 1; renames the task 'pick up the cube' to 'x'"),
    ):
        result = run(*arguments, "--dry-run")
        assert result.exit_code == 0, result.stderr
        assert said in result.stderr
        assert result.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("delete {root} 0 -o {taken}", "exists already"),
        ("split {root} --part taken=0.5", "exists already"),
        ("split {root} --part a=1.0 -o {root}/meta/info.json", "info.json is not a folder"),
        ("merge {root} {root} -o {taken}", "exists already"),
        ("merge {root} {broken} -o {root}_both", "Episode 0 cannot be read"),
        ("remove-feature {broken} action", "Episode 0 cannot be read"),
        ("rename-task {broken} x y", "There is no task 'x'"),
        ("set-task {broken} y --in-place", "Episode 0 cannot be read"),
        ("apply {root} -o {taken}", "exists already"),
    ],
)
def test_dry_runs_refuse_what_the_real_runs_refuse(root: Path, command: str, said: str) -> None:
    broken, taken = Path(shutil.copytree(root, root.parent / "broken")), root.parent / "set_taken"
    next((broken / "data").rglob("*.parquet")).unlink()
    (taken / "mine").mkdir(parents=True)
    write_marks(root, Marks((1,), {}))
    before = sorted(root.parent.rglob("*"))
    words = command.format(root=root, broken=broken, taken=taken).split()
    rehearsed, real = run(*words, "--dry-run"), run(*words)
    assert said in " ".join(rehearsed.stderr.split())
    assert (rehearsed.exit_code, rehearsed.stderr) == (real.exit_code, real.stderr)
    assert rehearsed.exit_code == 1
    assert sorted(root.parent.rglob("*")) == before


def test_split_and_merge(root: Path, tmp_path: Path) -> None:
    before = lengths(root)
    result = run("split", root, "--part", "train=0-1", "--part", "val=2")
    train, val = (Path(line) for line in result.stdout.split())
    assert (train, val) == (tmp_path / "set_train", tmp_path / "set_val")
    merged = run("merge", val, train, "-o", tmp_path / "out", "--keep-data-files")
    assert merged.stdout.strip() == str(tmp_path / "out")
    assert lengths(tmp_path / "out") == [before[2], *before[:2]]


def test_features_and_tasks(root: Path) -> None:
    assert run("remove-feature", root, "action", "--in-place").exit_code == 0
    assert "action" not in LeRobotDataset("a/b", root).features
    assert run("rename-task", root, "pick up the cube", "lift it", "--in-place").exit_code == 0
    assert run("set-task", root, "wait", "--episodes", "2", "--in-place").exit_code == 0
    assert LeRobotDataset("a/b", root).meta.episodes["tasks"] == [["lift it"], ["put the cube in the box"], ["wait"]]


def test_apply_carries_out_the_marks_in_place(root: Path) -> None:
    write_marks(root, Marks((0,), {"pick up the cube": "lift it"}))
    result = run("apply", root)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip() == str(root)
    assert LeRobotDataset("a/b", root).meta.episodes["tasks"] == [["put the cube in the box"], ["lift it"]]
    assert not read_marks(root)
