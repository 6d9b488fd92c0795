# SPDX-License-Identifier: Apache-2.0
"""Which modules a file imports, read from its syntax tree without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tooling import tree


@dataclass(frozen=True)
class Import:
    """One imported module or name.

    Attributes:
        module: Dotted module after `import` or `from`, absolute.
        name: Name after `from ... import`, empty for a plain import.
        line: Line number of the statement.
    """

    module: str
    name: str
    line: int

    @property
    def dotted(self) -> str:
        """Module and name joined, which is the module itself where the name is a submodule."""
        return f"{self.module}.{self.name}" if self.name else self.module


def imports_of(file: Path, package: str = "") -> Iterator[Import]:
    """Yield every import of a file, also those inside functions and `TYPE_CHECKING` blocks.

    Args:
        file: A Python file.
        package: Dotted package that relative imports start from.

    Yields:
        The imports, in no promised order.
    """
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, "", node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)


def package_of(file: Path, source: Path) -> str:
    """Return the dotted package that a file's relative imports start from.

    Args:
        file: A Python file below `source`.
        source: The `src` folder.

    Returns:
        Such as `ulna.robots.so`.
    """
    return ".".join(file.relative_to(source).parent.parts)


def portion_of(module: str, portions: dict[str, tree.Distribution]) -> tree.Distribution | None:
    """Return the distribution that ships a module.

    Args:
        module: Dotted name.
        portions: Distributions by import name.

    Returns:
        The owner, or None for a module that is not ours.
    """
    words = module.split(".")
    for length in range(len(words), 1, -1):
        owner = portions.get(".".join(words[:length]))
        if owner is not None:
            return owner
    return None


def portions() -> dict[str, tree.Distribution]:
    """Return the distributions that ship a module by their import name."""
    return {item.module: item for item in tree.distributions() if item.has_module}


def portions_imported_by(distribution: tree.Distribution) -> set[str]:
    """Return the names of our other distributions that the shipped code of one imports.

    Args:
        distribution: The importer.

    Returns:
        Normalized distribution names.
    """
    known = portions()
    found = {
        portion_of(item.dotted, known)
        for file in distribution.modules
        for item in imports_of(file, package_of(file, distribution.source))
    }
    return {owner.name for owner in found if owner is not None and owner.name != distribution.name}
