# SPDX-License-Identifier: Apache-2.0
"""Every public name of every distribution has a docstring, and `__all__` says what is public."""

from __future__ import annotations

import ast

import pytest
from interrogate import coverage
from interrogate.config import InterrogateConfig

from tooling import files, tree

with_module = [item for item in tree.distributions() if item.has_module]
every_distribution = pytest.mark.parametrize("distribution", with_module, ids=lambda item: item.path)


@every_distribution
def test_public_names_are_documented(distribution: tree.Distribution) -> None:
    """interrogate finds a docstring on every public module, class, function and method."""
    rules = InterrogateConfig(
        fail_under=100,
        ignore_init_method=True,
        ignore_magic=True,
        ignore_private=True,
        ignore_semiprivate=True,
        ignore_nested_functions=True,
        ignore_nested_classes=True,
        ignore_overloaded_functions=True,
        ignore_property_setters=True,
    )
    result = coverage.InterrogateCoverage(paths=[str(distribution.package)], conf=rules).get_coverage()
    silent = [
        f"{entry.filename}: {node.name} (line {node.lineno})"
        for entry in result.file_results
        for node in entry.nodes
        if not node.covered
    ]
    assert result.total > 0
    assert not silent, "\n".join(silent)


@every_distribution
def test_exported_names_are_declared(distribution: tree.Distribution) -> None:
    """The `__init__.py` of each distribution lists its public names in `__all__`, each once."""
    names: list[str] = []
    declared = False
    for node in files.syntax(distribution.package / "__init__.py").body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            declared = True
            value = node.value  # type: ignore[union-attr]
            if isinstance(value, ast.List | ast.Tuple):
                names = [ast.literal_eval(item) for item in value.elts if isinstance(item, ast.Constant)]
    assert declared, f"{distribution.module} has no __all__"
    assert len(names) == len(set(names))
