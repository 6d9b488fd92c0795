# SPDX-License-Identifier: Apache-2.0
"""The tooling finds what it is there to find: each check is shown a small tree that breaks its rule."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tooling import bootstrap, contracts, dependencies, environments, files, imports, lerobot, tree

PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.26"]
[project]
name = "{name}"
dependencies = [{dependencies}]
"""


@pytest.fixture
def small_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository root without distributions and let the tooling look at it."""
    monkeypatch.setattr(tree, "ROOT", tmp_path)
    return tmp_path


def add(root: Path, folder: str, code: str, *dependencies: str) -> tree.Distribution:
    """Add a distribution with one module to a tree."""
    parts = folder.split("/")[1:]
    package = root.joinpath(folder, "src", "ulna", *parts)
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code, encoding="utf-8")
    listed = ", ".join(f'"{text}"' for text in dependencies)
    text = PYPROJECT.format(name="-".join(("ulna", *parts)), dependencies=listed)
    (root / folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return tree.Distribution(root / folder)


def test_contract_violation_is_found(small_tree: Path) -> None:
    """A core that imports the command line breaks its contract, and the report names both."""
    add(small_tree, "packages/core", "import ulna.cli\n")
    add(small_tree, "packages/cli", "import ulna.core\n", "ulna-core>=0.1")
    result = contracts.check()
    assert result.returncode != 0
    assert "ulna.core is not allowed to import ulna.cli" in result.stdout


def test_contracts_that_are_kept(small_tree: Path) -> None:
    """A plugin may import the core and a declared library plugin."""
    add(small_tree, "packages/core", "")
    add(small_tree, "plugins/motors/feetech", "import ulna.core\n", "ulna-core>=0.1")
    add(small_tree, "plugins/robots/so", "import ulna.motors.feetech\n", "ulna-core>=0.1", "ulna-motors-feetech>=0.1")
    result = contracts.check()
    assert result.returncode == 0, result.stdout


def test_dependency_against_the_layers_is_refused(small_tree: Path) -> None:
    """A package cannot declare its way out of its layer."""
    add(small_tree, "packages/core", "")
    data = add(small_tree, "packages/data", "", "ulna-core>=0.1", "ulna-robots-so>=0.1")
    add(small_tree, "plugins/robots/so", "", "ulna-core>=0.1")
    with pytest.raises(ValueError, match="ulna-robots-so"):
        contracts.allowed(data)


def test_package_without_a_layer_is_refused(small_tree: Path) -> None:
    """A new package needs a place in the layers first."""
    stranger = add(small_tree, "packages/stranger", "")
    with pytest.raises(ValueError, match="in no layer"):
        contracts.allowed(stranger)


def test_undeclared_and_unused_dependencies_are_found(small_tree: Path) -> None:
    """What is imported has to be declared and the other way round, relative imports and late ones included."""
    add(small_tree, "packages/core", "")
    add(small_tree, "packages/data", "", "ulna-core>=0.1")
    so = add(small_tree, "plugins/robots/so", "def late():\n    from ulna import core\n", "ulna-data>=0.1")
    assert [problem.split(": ")[1].split(" (")[0] for problem in dependencies.own_problems(so)] == [
        "imports ulna-core but does not declare it",
        "declares ulna-data but does not import it",
    ]


def test_relative_imports_become_absolute(tmp_path: Path) -> None:
    """`from . import x` counts as an import from the package of the file."""
    file = tmp_path / "module.py"
    file.write_text("from . import a\nfrom .b import c\nfrom ..d import e\nimport f.g\n", encoding="utf-8")
    found = {item.dotted for item in imports.imports_of(file, "ulna.robots.so")}
    assert found == {"ulna.robots.so.a", "ulna.robots.so.b.c", "ulna.robots.d.e", "f.g"}


def test_lines_of_code_leave_out_the_docstring() -> None:
    """A long contract does not make a function long."""
    text = 'def f():\n    """One.\n\n    Two.\n    """\n    return 1\n'
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert files.code_lines(function) == 2


@pytest.mark.parametrize(
    ("text", "name"), [("ulna-core[torch]>=0.1,<0.2", "ulna-core"), ("PyYAML>=6", "pyyaml"), ("a_b.c ; x", "a-b-c")]
)
def test_name_of_a_requirement(text: str, name: str) -> None:
    """Extras, ranges and markers are not part of the name, and spellings are normalized."""
    assert tree.requirement_name(text) == name


def test_third_party_list_leaves_torch_to_pip() -> None:
    """The resolver never sees torch or a distribution of this tree, and it does see the libraries that they need."""
    names = {tree.requirement_name(text) for text in bootstrap.third_party()}
    assert not names & (bootstrap.TORCH_NAMES | set(tree.by_name()))
    assert {"numpy", "pydantic", "pytest", "hatchling"} <= names


def test_closure_follows_extras() -> None:
    """A fresh environment gets what an extra brings and not what was left out."""
    without, with_torch = environments.closure(["ulna-core"]), environments.closure(["ulna-core[torch]"])
    assert "pydantic-core" in without
    assert "torch" not in without
    assert {"torch", "safetensors"} <= with_torch


def test_closure_of_something_missing() -> None:
    """A requirement that is not there is named, with the way to mend it."""
    with pytest.raises(environments.FreshEnvironmentError, match="surely-not-installed"):
        environments.closure(["surely-not-installed"])


def test_environment_of_lerobot_is_made_once(small_tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unfinished environment is made anew, a finished one is used as it is, and the release is pinned."""
    commands: list[list[str]] = []

    def run(*words: str | Path) -> None:
        commands.append([str(word) for word in words])
        if "pip" in commands[-1] and len(commands) < 4:
            raise bootstrap.SetupError("no network")
        lerobot.folder().mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(bootstrap, "run", run)
    with pytest.raises(bootstrap.SetupError):
        lerobot.prepare("python3.12")
    assert lerobot.prepare("python3.12") == lerobot.prepare("python3.12")
    assert [words[2] for words in commands] == ["venv", "pip", "venv", "pip"]
    assert commands[-1][-1] == f"lerobot[training,feetech]=={lerobot.RELEASE}"
