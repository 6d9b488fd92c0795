# SPDX-License-Identifier: Apache-2.0
"""Who imports whom: the generated contracts, declared against imported distributions, private modules.

`nox -s lint` compares third-party libraries in the same way, with deptry.
"""

from __future__ import annotations

import pytest

from tooling import contracts, dependencies, files, imports, tree

with_module = [item for item in tree.distributions() if item.has_module]
every_distribution = pytest.mark.parametrize("distribution", with_module, ids=lambda item: item.path)


def test_every_contract_is_kept() -> None:
    """import-linter finds no import that the layers forbid."""
    result = contracts.check()
    assert result.returncode == 0, result.stdout + result.stderr


@every_distribution
def test_declared_dependencies_fit_the_layers(distribution: tree.Distribution) -> None:
    """A pyproject.toml asks for nothing that its layer may not import."""
    contracts.allowed(distribution)


@every_distribution
def test_own_dependencies_are_those_imported(distribution: tree.Distribution) -> None:
    """The distributions of this tree that one declares are exactly those that its code imports."""
    assert dependencies.own_problems(distribution) == []


@every_distribution
def test_no_private_module_of_another(distribution: tree.Distribution) -> None:
    """A module whose name starts with an underscore belongs to its own distribution."""
    known = imports.portions()
    for file in distribution.modules:
        for item in imports.imports_of(file, imports.package_of(file, distribution.source)):
            owner = imports.portion_of(item.dotted, known)
            if owner is not None and owner != distribution:
                private = [
                    word for word in item.dotted.split(".") if word.startswith("_") and not word.startswith("__")
                ]
                assert not private, f"{files.name_of(file)}:{item.line} imports {item.dotted}"


@every_distribution
def test_shipped_code_imports_no_tests(distribution: tree.Distribution) -> None:
    """Neither the testing library nor a test framework is needed to run what we ship."""
    banned = {"ulna.testing", "tests", "tooling", "pytest", "unittest", "hypothesis"}
    if distribution.name == "ulna-testing":
        banned = {"tests", "tooling"}
    for file in distribution.modules:
        for item in imports.imports_of(file, imports.package_of(file, distribution.source)):
            hits = [name for name in banned if f"{item.dotted}.".startswith(f"{name}.")]
            assert not hits, f"{files.name_of(file)}:{item.line} imports {item.dotted}"
