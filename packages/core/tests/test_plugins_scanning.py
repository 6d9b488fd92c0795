# SPDX-License-Identifier: Apache-2.0
"""The scan reads metadata of installed distributions: any name, any kind of installation, each once."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ulna.core.plugins import Registry, copies, installed, scan


def install(
    folder: Path,
    name: str,
    entry_points: str = "[ulna.robots]\nx = pkg.mod:X\n",
    *,
    version: str = "1.0",
    requires: str = "",
    manifest: object = None,
) -> Path:
    """Write the metadata of a distribution, and nothing to import."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    head = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(f"{head}{requires}\nRequires-Dist: not-a-header>=1\n")
    (info / "entry_points.txt").write_text(entry_points)
    if manifest is not None:
        (info / "extra_metadata").mkdir()
        (info / "extra_metadata" / "ulna-plugin.json").write_text(json.dumps(manifest))
    return info


def test_metadata_is_enough(tmp_path: Path) -> None:
    """Field problem 90: no module is listed, as in an editable installation; the entry point counts."""
    info = install(tmp_path, "some-robot", requires="Requires-Dist: ulna-core>=0.1\n", manifest={"manifest": 1})
    (entry,) = scan([str(tmp_path)])
    assert (entry.group, entry.name, entry.value) == ("ulna.robots", "x", "pkg.mod:X")
    assert (entry.distribution, entry.version, entry.requires) == ("some-robot", "1.0", ("ulna-core>=0.1",))
    assert entry.manifest == '{"manifest": 1}'
    assert entry.location == str(info)


@pytest.mark.parametrize("name", ["ulna-robot-x", "ulna_robot_x", "Ulna.Robot.X", "nothing-in-common"])
def test_spelling_of_the_distribution_does_not_matter(tmp_path: Path, name: str) -> None:
    """Field problem 91: dashes, underscores and other names are found alike."""
    install(tmp_path, name)
    assert [entry.distribution for entry in scan([str(tmp_path)])] == [name]


def test_installed_twice_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field problem 90: of two installations the first on the path counts, whatever the spelling."""
    install(tmp_path / "a", "my-arm", "[ulna.robots]\nfirst = m:X\n", version="2.0")
    install(tmp_path / "b", "My_Arm", "[ulna.robots]\nsecond = m:X\n")
    path = [str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "a")]
    assert [entry.name for entry in scan(path)] == ["first"]
    monkeypatch.setattr(sys, "path", [*path, *sys.path])
    assert len(copies("my-arm")) == 2
    assert installed("my.arm") == ("2.0", ())
    assert installed("no-such-distribution") is None


def test_hidden_copy_does_not_come_back(tmp_path: Path) -> None:
    """When the copy in use has no plugins, those of a hidden older copy are not there either."""
    install(tmp_path / "a", "my-arm", "[console_scripts]\nx = m:x\n", version="2.0")
    install(tmp_path / "b", "my-arm")
    assert scan([str(tmp_path / "a"), str(tmp_path / "b")]) == []


def test_other_groups_and_odd_lines(tmp_path: Path) -> None:
    """Other people's groups are left alone; a line that is none becomes an invalid record."""
    text = "[console_scripts]\na = b:c\n\n[ulna.robots]\n# a comment\nodd line\ngood=m:X\n[ulna.cameras]\neye = m:Y\n"
    install(tmp_path, "mixed", text)
    reg = Registry(lambda: scan([str(tmp_path)]), environ={})
    assert [(r.kind, r.type, r.status) for r in reg.records()] == [
        ("cameras", "eye", "ok"),
        ("robots", "good", "ok"),
        ("robots", "odd line", "invalid"),
    ]


def test_broken_metadata_is_passed_over(tmp_path: Path) -> None:
    """Leftovers without a name, or that are no text, break nothing."""
    empty = install(tmp_path, "empty")
    (empty / "METADATA").write_text("")
    binary = install(tmp_path, "binary")
    (binary / "entry_points.txt").write_bytes(b"[ulna.robots]\xff\xfe")
    install(tmp_path, "good")
    assert [entry.distribution for entry in scan([str(tmp_path), str(tmp_path / "missing")])] == ["good"]


def test_this_very_environment() -> None:
    """A registry without arguments scans what is installed here."""
    assert Registry(environ={}).records() == Registry(environ={}).records()
