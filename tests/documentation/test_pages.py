# SPDX-License-Identifier: Apache-2.0
"""The documentation agrees with the tree: generated pages are current, named commands exist, examples run."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tooling import files, pages, tree
from ulna.cli.scaffolding import create

prose = [path for path in files.tracked() if path.suffix == ".md" and not files.is_golden(path)]
with_examples = [path for path in files.shipped() if ">>> " in path.read_text(encoding="utf-8")]


def test_catalog_is_current() -> None:
    """docs/catalog.md is what the manifests say."""
    assert pages.CATALOG.read_text(encoding="utf-8") == pages.catalog(), "run: PYTHONPATH=tests python -m tooling.pages"


def test_decision_records_are_numbered() -> None:
    """The records count up from 1 without a gap, and their titles carry the number."""
    records = sorted((tree.ROOT / "docs" / "decisions").glob("*.md"))
    for number, record in enumerate(records, 1):
        assert record.name.startswith(f"{number:04d}-")
        assert record.read_text(encoding="utf-8").startswith(f"# {number}. ")


@pytest.mark.parametrize("page", prose, ids=files.name_of)
def test_named_commands_exist(page: Path) -> None:
    """Each `ulna COMMAND` in a page is announced by a distribution of this tree."""
    known: set[str] = set()
    for item in tree.distributions():
        known |= set(item.project.get("entry-points", {}).get("ulna.commands", {}))
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:bash|console|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    places = [*blocks, *re.findall(r"`(ulna [a-z-]+[^`]*)`", text)]
    named = {word for place in places for word in re.findall(r"^\s*(?:\$ )?ulna ([a-z][a-z-]*)", place, re.MULTILINE)}
    assert named <= known, f"no such command: {sorted(named - known)}"


@pytest.mark.parametrize("page", prose, ids=files.name_of)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    """A relative link in a Markdown file names a file of the tree, or a page that the site generates."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    generated = {tree.ROOT / "docs" / path for path in pages.generated()}
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not re.match(r"[a-z]+:", target):
            path = Path(page.parent, target).resolve()
            assert path.exists() or path in generated, f"{target} does not exist"


@pytest.mark.parametrize("path", with_examples, ids=files.name_of)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples in docstrings give what they show."""
    monkeypatch.chdir(tmp_path)
    source = next(folder for folder in tree.source_folders() if path.is_relative_to(folder))
    words = path.relative_to(source).with_suffix("").parts
    module = importlib.import_module(".".join(words[:-1] if words[-1] == "__init__" else words))
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_guide_to_plugins_passes_its_own_conformance_suite(tmp_path: Path) -> None:
    """The files it shows, put over a new plugin, make a robot that keeps the contract, as it says."""
    text = (tree.ROOT / "docs" / "guides" / "plugin.md").read_text(encoding="utf-8")
    folder = create("robots", "two_link", folder=tmp_path / "arm").folder
    shown = re.findall(r'^```python title="([^"]+)"\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
    names = [name.rpartition("/")[2] for name, _ in shown]
    assert names == ["config.py", "driver.py", "robot.py", "test_two_link_robot.py"]
    for name, code in shown:
        assert (folder / name).exists()
        (folder / name).write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", shown[-1][0]]
    search = os.pathsep.join([str(folder / "src"), *map(str, tree.source_folders())])
    ran = subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": search}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    promised = re.search(r"^conformance: .*", text, re.MULTILINE)
    assert promised is not None
    robot_alone = re.search(r"^conformance: (\d+) passed(.*)$", ran.stdout, re.MULTILINE)
    assert robot_alone is not None
    assert promised[0].replace(" TestTwoLink", "").endswith(robot_alone[2])  # the class is named where there are two
