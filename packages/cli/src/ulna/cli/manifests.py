# SPDX-License-Identifier: Apache-2.0
"""Generating the manifest of a distribution from its source folder, and finding where the two differ."""

from __future__ import annotations

import difflib
import json
import tomllib
from pathlib import Path
from typing import Any

from ulna.core.errors import ConfigError, ConfigProblem
from ulna.core.files import write_json
from ulna.core.plugins import KINDS, PluginRecord, registry
from ulna.core.plugins.manifest import MANIFEST_FILE, generate

__all__ = ["drift", "from_source", "write_manifest"]


def from_source(folder: Path) -> dict[str, Any]:
    """Build the manifest of the distribution in a folder; its code must be installed.

    Args:
        folder: Holds `pyproject.toml`.

    Returns:
        The manifest.

    Raises:
        ConfigError: There is no readable `pyproject.toml` with a project and entry points of ours.
        PluginLoadError: A plugin cannot be imported.
    """
    file = folder / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        groups = project.get("entry-points", {})
        name = str(project["name"])
    except (OSError, ValueError, KeyError) as error:
        problem = ConfigProblem("folder", str(folder), f"has no readable pyproject.toml with a [project]: {error}")
        raise ConfigError([problem], title="manifest") from error
    records = [
        PluginRecord(kind, type_, value, name, "")
        for kind, info in KINDS.items()
        for type_, value in groups.get(info.group, {}).items()
    ]
    if not records:
        problem = ConfigProblem("folder", str(folder), 'declares no plugin: no [project.entry-points."ulna..."]')
        raise ConfigError([problem], title="manifest")
    reg = registry()
    return generate(name, [(record, reg.load_record(record)) for record in records], _existing(folder))


def _existing(folder: Path) -> dict[str, Any]:
    try:
        data = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def write_manifest(folder: Path, document: dict[str, Any]) -> Path:
    """Write a manifest into its folder.

    Args:
        folder: Source folder of the distribution.
        document: The manifest.

    Returns:
        The file.
    """
    write_json(folder / MANIFEST_FILE, document)
    return folder / MANIFEST_FILE


def drift(folder: Path, document: dict[str, Any]) -> list[str]:
    """Compare the manifest in a folder with the one its code gives.

    Args:
        folder: Source folder of the distribution.
        document: The manifest that the code gives.

    Returns:
        Lines of a unified diff; empty when they are equal.
    """
    old, new = (json.dumps(data, indent=4, ensure_ascii=False).splitlines() for data in (_existing(folder), document))
    return list(difflib.unified_diff(old, new, f"{folder / MANIFEST_FILE}", "code", lineterm=""))
