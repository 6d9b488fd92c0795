# SPDX-License-Identifier: Apache-2.0
"""The distributions of this repository, read from the folders and their pyproject.toml files.

Every matrix, contract and generated page is computed from here, so a new plugin folder needs no entry anywhere else.
Standard library only.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

META = "ulna"
"""Folder and distribution name of the meta-distribution, the only one without a module."""

TEST_EXTRA = "test"
"""The extra that names what only the tests of a distribution need."""


def normalize(name: str) -> str:
    """Return a distribution name in the form that PyPI compares.

    Args:
        name: A distribution name as somebody wrote it.

    Returns:
        The name in lower case with single dashes.
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(requirement: str) -> str:
    """Return the normalized distribution name at the head of a requirement.

    Args:
        requirement: A PEP 508 requirement such as `ulna-core[torch]>=0.1,<0.2`.

    Returns:
        The name alone, such as `ulna-core`.

    Raises:
        ValueError: If the text does not start with a distribution name.
    """
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", requirement)
    if match is None:
        raise ValueError(f"{requirement!r} is not a requirement: a distribution name was expected at its start")
    return normalize(match.group(1))


@dataclass(frozen=True)
class Distribution:
    """One folder under packages/ or plugins/ that holds a pyproject.toml.

    Attributes:
        folder: Absolute path of the folder.
    """

    folder: Path

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        """The parsed pyproject.toml."""
        return tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))

    @property
    def project(self) -> dict[str, Any]:
        """The `[project]` table."""
        table: dict[str, Any] = self.pyproject["project"]
        return table

    @property
    def name(self) -> str:
        """The normalized distribution name that pyproject.toml declares."""
        return normalize(self.project["name"])

    @property
    def path(self) -> str:
        """The folder relative to the repository root, with forward slashes."""
        return self.folder.relative_to(ROOT).as_posix()

    @property
    def parts(self) -> tuple[str, ...]:
        """The names below `ulna`: `("core",)`, `("robots", "so")`, and none for the meta-distribution."""
        parts = self.folder.relative_to(ROOT).parts[1:]
        return () if parts == (META,) else parts

    @property
    def is_plugin(self) -> bool:
        """Whether the folder lies under plugins/."""
        return self.folder.relative_to(ROOT).parts[0] == "plugins"

    @property
    def has_module(self) -> bool:
        """Whether the distribution ships an import package (all but the meta-distribution do)."""
        return bool(self.parts)

    @property
    def module(self) -> str:
        """The import name that the folder asks for, such as `ulna.robots.so`."""
        return ".".join(("ulna", *self.parts))

    @property
    def source(self) -> Path:
        """The `src` folder."""
        return self.folder / "src"

    @property
    def package(self) -> Path:
        """The folder of the import package itself."""
        return self.source.joinpath("ulna", *self.parts)

    @property
    def modules(self) -> list[Path]:
        """Every Python file of the import package, sorted."""
        return sorted(self.package.rglob("*.py")) if self.has_module else []

    @property
    def requirements(self) -> list[str]:
        """The required dependencies as written."""
        found: list[str] = self.project.get("dependencies", [])
        return found

    @property
    def extras(self) -> dict[str, list[str]]:
        """The optional dependencies as written, by extra."""
        found: dict[str, list[str]] = self.project.get("optional-dependencies", {})
        return found

    def depends_on(self, *, optional: bool = True) -> set[str]:
        """Return the normalized names of what the shipped code may need.

        Args:
            optional: Whether the extras count too (the extra `test` never does: it serves the tests).

        Returns:
            Distribution names, ours and third-party ones.
        """
        texts = list(self.requirements)
        if optional:
            texts += [text for extra, wanted in self.extras.items() if extra != TEST_EXTRA for text in wanted]
        return {requirement_name(text) for text in texts}


def distributions() -> list[Distribution]:
    """Return every distribution of the tree, packages first, sorted by folder."""
    found = [*ROOT.glob("packages/*/pyproject.toml"), *ROOT.glob("plugins/*/*/pyproject.toml")]
    return [Distribution(path.parent) for path in sorted(found)]


def by_name() -> dict[str, Distribution]:
    """Return the distributions by their normalized name."""
    return {distribution.name: distribution for distribution in distributions()}


def source_folders() -> list[Path]:
    """Return the `src` folder of every distribution that ships a module."""
    return [distribution.source for distribution in distributions() if distribution.has_module]


def dependency_groups() -> dict[str, list[str]]:
    """Return the dependency groups of the root pyproject.toml with their includes resolved."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]

    def resolve(name: str) -> Iterator[str]:
        for entry in groups[name]:
            if isinstance(entry, str):
                yield entry
            else:
                yield from resolve(entry["include-group"])

    return {name: list(resolve(name)) for name in groups}
