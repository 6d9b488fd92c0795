# SPDX-License-Identifier: Apache-2.0
"""Pages of the documentation that are computed from the tree: the API reference, the catalog, the plugins' own pages.

Source is read, never imported. Run as `python -m tooling.pages` to write docs/catalog.md.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections import defaultdict
from pathlib import Path

from tooling import files, imports, tree

CATALOG = tree.ROOT / "docs" / "catalog.md"
VERIFIED = tree.ROOT / "docs" / "config" / "verified.toml"


def public_names(distribution: tree.Distribution) -> dict[str, list[str]]:
    """Return what the `__init__.py` of a distribution offers, by the module that defines it.

    Args:
        distribution: One that ships a module.

    Returns:
        Public names by dotted module, both sorted.
    """
    return _offered(distribution.package / "__init__.py", distribution)


def names_of_parts(distribution: tree.Distribution) -> dict[str, list[str]]:
    """Return what packages inside a distribution offer and the distribution itself does not, by defining module.

    Args:
        distribution: One that ships a module.

    Returns:
        Public names by dotted module, both sorted.
    """
    above = public_names(distribution)
    found: dict[str, list[str]] = {}
    for init in sorted(distribution.package.glob("[a-z]*/__init__.py")):
        for module, names in _offered(init, distribution).items():
            found[module] = sorted({*found.get(module, []), *names} - {*above.get(module, [])})
    return {module: names for module, names in sorted(found.items()) if names}


def _offered(init: Path, distribution: tree.Distribution) -> dict[str, list[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    if not init.exists():
        return {}
    package = ".".join([distribution.module, *init.parent.relative_to(distribution.package).parts])
    for item in imports.imports_of(init, package):
        inside = f"{item.module}.".startswith(f"{distribution.module}.")
        if inside and item.name and not item.name.startswith("_"):
            found[item.module].add(item.name)
    for node in files.syntax(init).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            found[package].add(node.name)
    return {module: sorted(names) for module, names in sorted(found.items())}


def api_page(distribution: tree.Distribution) -> str:
    """Return the API page of one distribution, with a mkdocstrings directive for every public name.

    Args:
        distribution: One that ships a module.

    Returns:
        Markdown.
    """
    lines = [f"# {distribution.module}", "", distribution.project["description"], ""]
    lines += ["```bash", f"pip install {distribution.name}", "```", ""]
    for group in (public_names(distribution), names_of_parts(distribution)):
        lines += [line for module, names in group.items() for name in names for line in (f"::: {module}.{name}", "")]
    return "\n".join(lines)


def api_index() -> str:
    """Return the page that lists all API pages."""
    lines = ["# API reference", "", "| import | distribution | what it is |", "|---|---|---|"]
    for item in tree.distributions():
        if item.has_module:
            page = f"{item.module.removeprefix('ulna.')}.md"
            lines.append(f"| [`{item.module}`]({page}) | {item.name} | {item.project['description']} |")
    return "\n".join(lines) + "\n"


def generated() -> dict[str, str]:
    """Return all pages that exist in the site only, by path below the documentation folder."""
    pages = {"api/index.md": api_index()}
    for item in tree.distributions():
        if item.has_module:
            pages[f"api/{item.module.removeprefix('ulna.')}.md"] = api_page(item)
        own = item.folder / "docs" / "index.md"
        if item.is_plugin and own.exists():
            pages[f"plugins/{'/'.join(item.parts)}.md"] = own.read_text(encoding="utf-8")
    return pages


def catalog_rows(distribution: tree.Distribution) -> list[tuple[str, str, str]]:
    """Return kind, type and title of every plugin that a distribution announces.

    Args:
        distribution: A plugin distribution.

    Returns:
        One row per type string.
    """
    manifest = json.loads((distribution.folder / "ulna-plugin.json").read_text(encoding="utf-8"))
    rows = [(entry["kind"], entry["type"], entry.get("title", "")) for entry in manifest.get("plugins", [])]
    return sorted(rows)


def catalog() -> str:
    """Return docs/catalog.md for the tree as it is."""
    verified: dict[str, str] = tomllib.loads(VERIFIED.read_text(encoding="utf-8")) if VERIFIED.exists() else {}
    lines = [
        "# Catalog",
        "",
        "Every plugin of the Ulna repository. `ulna plugins list` shows what your machine has, whoever wrote it.",
        "*Verified* says what a plugin has been compared with, beyond its own tests.",
        "",
        "| kind | type | what it is | distribution | verified |",
        "|---|---|---|---|---|",
    ]
    rows: list[tuple[str, ...]] = []
    for item in tree.distributions():
        if item.is_plugin and (item.folder / "ulna-plugin.json").exists():
            proof = verified.get(item.name, "—")
            rows += [(kind, type_, title, item.name, proof) for kind, type_, title in catalog_rows(item)]
    lines += [
        f"| {kind} | `{type_}` | {title} | {name} | {proof} |" for kind, type_, title, name, proof in sorted(rows)
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write docs/catalog.md.

    Returns:
        0.
    """
    CATALOG.write_text(catalog(), encoding="utf-8")
    print(Path(CATALOG).relative_to(tree.ROOT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
