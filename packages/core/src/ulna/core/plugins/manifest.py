# SPDX-License-Identifier: Apache-2.0
"""The static manifest `ulna-plugin.json`: reading, checking, and generating it from what the code declares."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from ulna.core.plugins.kinds import KINDS
from ulna.core.plugins.records import PluginRecord, normalize

__all__ = ["MANIFEST_FILE", "MANIFEST_VERSION", "Manifest", "describe_plugin", "generate", "parse"]

MANIFEST_FILE = "ulna-plugin.json"
MANIFEST_VERSION = 1
_TEXTS = ("title", "summary")
_LISTS = ("capabilities", "hardware_ids")


class Manifest:
    """A parsed manifest.

    Args:
        data: The whole document; empty when it could not be read.
        problem: What is wrong with it, or None.
    """

    def __init__(self, data: Mapping[str, Any], problem: str | None = None) -> None:
        self.data, self.problem = dict(data), problem
        self._entries = {(e["kind"], e["type"]): e for e in self.data.get("plugins", ())} if problem is None else {}

    def entry(self, kind: str, type: str) -> dict[str, Any] | None:
        """Return what it says about one plugin, with the distribution's links.

        Args:
            kind: Plugin kind.
            type: Type string.
        """
        hit = self._entries.get((kind, type))
        return None if hit is None else {**hit, "links": self.data.get("links", {})}

    def keys(self) -> set[tuple[str, str]]:
        """Return kind and type of every plugin it lists."""
        return set(self._entries)


@lru_cache(maxsize=512)
def parse(text: str, distribution: str) -> Manifest:
    """Parse and check a manifest; never raises.

    Args:
        text: Content of `ulna-plugin.json`.
        distribution: Name of the distribution it came with.

    Returns:
        The manifest, whose `problem` tells what is wrong.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        return Manifest({}, f"{MANIFEST_FILE} is not JSON: {error}")
    problem = _problem(data, distribution)
    return Manifest(data if problem is None else {}, problem)


def _problem(data: Any, distribution: str) -> str | None:
    if not isinstance(data, dict):
        return f"{MANIFEST_FILE} holds {type(data).__name__}, expected an object"
    if data.get("manifest") != MANIFEST_VERSION:
        return f"{MANIFEST_FILE} has format {data.get('manifest')!r}, this Ulna reads {MANIFEST_VERSION}"
    if normalize(str(data.get("distribution", ""))) != normalize(distribution):
        return f"{MANIFEST_FILE} is about {data.get('distribution')!r}, not about {distribution!r}"
    if not isinstance(data.get("links", {}), dict) or not isinstance(data.get("plugins"), list):
        return f"{MANIFEST_FILE} needs `links` as an object and `plugins` as a list"
    return next((text for text in (_entry_problem(e) for e in data["plugins"]) if text), None)


def _entry_problem(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return f"{MANIFEST_FILE}: a plugin is an object, not {entry!r}"
    where = f"{MANIFEST_FILE}: plugin {entry.get('kind')}/{entry.get('type')}"
    for key in ("kind", "type", "value"):
        if not isinstance(entry.get(key), str):
            return f"{where} needs text at `{key}`, not {entry.get(key)!r}"
    level = entry.get("api_level", 1)
    if isinstance(level, bool) or not isinstance(level, int):
        return f"{where} needs an integer at `api_level`, not {level!r}"
    for key in _TEXTS:
        if not isinstance(entry.get(key, ""), str):
            return f"{where} needs text at `{key}`, not {entry[key]!r}"
    for key in _LISTS:
        if not isinstance(entry.get(key, []), list):
            return f"{where} needs a list at `{key}`, not {entry[key]!r}"
    return None


def describe_plugin(record: PluginRecord, obj: Any, previous: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the manifest entry of a loaded plugin.

    What the object declares counts: `plugin_title`, `plugin_summary`, `plugin_capabilities`, `plugin_hardware_ids` and
    `plugin_api_level`. Else what was written by hand is kept. Else the summary is the first line of the docstring.

    Args:
        record: Its record.
        obj: What its entry point loaded to.
        previous: Its manifest entry so far.
    """
    old = previous or {}

    def said(name: str, otherwise: Any) -> Any:
        return getattr(obj, f"plugin_{name}", None) or old.get(name) or otherwise

    return {
        "kind": record.kind,
        "type": record.type,
        "value": record.value,
        "api_level": int(getattr(obj, "plugin_api_level", None) or KINDS[record.kind].api_level),
        "title": str(said("title", record.type.replace("_", " "))),
        "summary": str(said("summary", _first_line(obj))),
        "capabilities": list(said("capabilities", ())),
        "hardware_ids": list(said("hardware_ids", ())),
    }


def _first_line(obj: Any) -> str:
    """Return the first line of what an object says about itself; a Typer app says it in its help or its one command."""
    commands = getattr(obj, "registered_commands", None) or ()
    texts = [getattr(getattr(obj, "info", None), "help", None)]
    texts += [text for command in commands[:1] for text in (command.help, getattr(command.callback, "__doc__", None))]
    texts += [] if commands else [getattr(obj, "__doc__", None)]
    text = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    return next(iter(text.strip().splitlines()), "").strip()


def generate(
    distribution: str, plugins: Iterable[tuple[PluginRecord, Any]], previous: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Build a distribution's manifest from its loaded plugins.

    Args:
        distribution: Its name.
        plugins: Records with the objects they loaded to.
        previous: The manifest so far; what was written by hand and no code declares is kept.

    Returns:
        The document to write as `ulna-plugin.json`.
    """
    old = previous or {}
    hand = {(entry.get("kind"), entry.get("type")): entry for entry in old.get("plugins", ())}
    described = (describe_plugin(record, obj, hand.get((record.kind, record.type))) for record, obj in plugins)
    entries = sorted(described, key=lambda entry: (entry["kind"], entry["type"]))
    return {
        "manifest": MANIFEST_VERSION,
        "distribution": distribution,
        "title": old.get("title") or distribution,
        "summary": old.get("summary") or (entries[0]["summary"] if entries else ""),
        "links": dict(old.get("links") or {}),
        "plugins": entries,
    }
