# SPDX-License-Identifier: Apache-2.0
"""`ulna dataset info`: a summary for people, JSON for programs, a clear message and exit code 1 otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from importlib_metadata import entry_points
from typer.core import TyperGroup as Group
from typer.main import get_command
from typer.testing import CliRunner

from ulna.data.commands import app


def test_info_as_text_and_json(scene: Any, tmp_path: Path) -> None:
    scene("video").record(tmp_path / "set", [2, 5])
    text = CliRunner().invoke(app, ["info", str(tmp_path / "set")])
    assert text.exit_code == 0
    for part in (
        "2 (2 to 5 frames)",
        "7 at 30 fps, 0.2 s",
        "task 0",
        "video 48x64x3: height, width, channels",
        "in 8 files",
    ):
        assert part in text.stdout
    facts = json.loads(CliRunner().invoke(app, ["info", "lab/scene", "--root", str(tmp_path / "set"), "--json"]).stdout)
    assert (facts["episodes"], facts["frames"], facts["fps"]) == (2, 7, 30)
    assert facts["tasks"] == ["task 0", "task 1"]
    assert facts["features"]["action"]["shape"] == [6]
    assert facts["findings"] == []


def test_info_on_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["info", "lab/none"])
    assert done.exit_code == 1
    assert "'lab/none' is not on this machine" in done.stderr
    assert done.stdout == ""


def test_commands_are_listed_in_the_order_of_their_use() -> None:
    """What looks comes before what changes, and each says what it does in one short sentence."""
    dataset = get_command(app)
    assert isinstance(dataset, Group)
    edit = dataset.commands["edit"]
    assert isinstance(edit, Group)
    for group, first in ((dataset, ["info", "view", "validate", "repair"]), (edit, ["delete", "split", "merge"])):
        assert list(group.commands)[: len(first)] == first
        for command in group.commands.values():
            assert command.help is not None
            assert len(command.help.partition("\n\n")[0]) <= 80, command.name


def test_episodes_of_one_length_are_not_a_range(scene: Any, tmp_path: Path) -> None:
    scene(None).record(tmp_path / "set", [3, 3])
    assert "2 (3 frames each)" in CliRunner().invoke(app, ["info", str(tmp_path / "set")]).stdout


def test_command_is_found_by_entry_point() -> None:
    (entry,) = [e for e in entry_points(group="ulna.commands") if e.name == "dataset"]
    assert entry.load() is app
