# SPDX-License-Identifier: Apache-2.0
"""Every public name of every distribution has a docstring, and `__all__` says what is public."""

from __future__ import annotations

import ast
import re
import tomllib

import attrs
import pytest
from interrogate import coverage
from interrogate.config import InterrogateConfig

from tooling import files, pages, tree

with_module = [item for item in tree.distributions() if item.has_module]
every_distribution = pytest.mark.parametrize("distribution", with_module, ids=lambda item: item.path)


def rules() -> InterrogateConfig:
    """Return the rules of the root pyproject.toml, those that `nox -s lint` goes by."""
    settings = tomllib.loads((tree.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["interrogate"]
    options = {name.replace("-", "_"): value for name, value in settings.items()}
    fields = {name: value for name, value in options.items() if name in attrs.fields_dict(InterrogateConfig)}
    return InterrogateConfig(**{**fields, "ignore_regex": [re.compile(text) for text in settings["ignore-regex"]]})


@every_distribution
def test_public_names_are_documented(distribution: tree.Distribution) -> None:
    """interrogate finds a docstring on every public module, class, function and method."""
    result = coverage.InterrogateCoverage(paths=[str(distribution.package)], conf=rules()).get_coverage()
    silent = [
        f"{entry.filename}: {node.name} (line {node.lineno})"
        for entry in result.file_results
        for node in entry.nodes
        if not node.covered
    ]
    assert result.total > 0
    assert not silent, "\n".join(silent)


@every_distribution
def test_exported_names_are_spelled_out(distribution: tree.Distribution) -> None:
    """`__all__` of each distribution is a plain list, which type checkers can read, and has each name once."""
    nodes = [
        node
        for node in files.syntax(distribution.package / "__init__.py").body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert len(nodes) == 1, f"{distribution.module} has no __all__"
    value = nodes[0].value
    assert isinstance(value, ast.List | ast.Tuple)
    assert all(isinstance(item, ast.Constant) for item in value.elts), "write the names out"
    names = [ast.literal_eval(item) for item in value.elts]
    assert len(names) == len(set(names))
    offered = {name for group in pages.public_names(distribution).values() for name in group}
    assert not offered - set(names), f"imported but not in __all__: {sorted(offered - set(names))}"
