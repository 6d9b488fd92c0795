# SPDX-License-Identifier: Apache-2.0
"""Hooks of the documentation build: they add the pages that `tooling.pages` computes from the tree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from tooling import pages, tree

DATASETS = (
    "recording",
    "viewing",
    "checking",
    "editing",
    "converting",
    "reading",
    "streaming",
    "transforms",
    "statistics",
    "depth-and-language",
    "hub",
)
"""Guides about datasets, in the order in which somebody needs them; all other guides are listed after them."""


def navigation() -> list[Any]:
    """Return the part of the navigation that is computed: guides, plugin pages, API pages and decision records."""
    guides = sorted((tree.ROOT / "docs" / "guides").glob("*.md"))
    found = pages.generated()
    plugins = sorted(path for path in found if path.startswith("plugins/"))
    api = sorted(path for path in found if path.startswith("api/") and path != "api/index.md")
    records = sorted((tree.ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    others = [f"guides/{guide.name}" for guide in guides if guide.stem not in DATASETS]
    parts: list[Any] = [{"Datasets": [f"guides/{name}.md" for name in DATASETS]}, {"Guides": others}]
    parts.append({"Plugins": plugins})
    parts.append({"API": ["api/index.md", *({f"ulna.{Path(path).stem}": path} for path in api)]})
    parts.append({"Decisions": [f"decisions/{record.name}" for record in records]})
    return parts


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation and tell mkdocstrings where the sources of every distribution lie.

    Args:
        config: The settings read from mkdocs.yml.

    Returns:
        The same settings, completed.
    """
    config.nav = [*(config.nav or []), *navigation()]
    handler = config.plugins["mkdocstrings"].config.handlers.setdefault("python", {})
    handler["paths"] = [str(folder) for folder in tree.source_folders()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the computed pages.

    Args:
        files: The files of the documentation folder.
        config: The settings.

    Returns:
        The files with the computed pages among them.
    """
    for path, text in pages.generated().items():
        files.append(File.generated(config, path, content=text))
    return files
