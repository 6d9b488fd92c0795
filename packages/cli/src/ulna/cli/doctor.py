# SPDX-License-Identifier: Apache-2.0
"""What `ulna plugins doctor` looks for. Imports no plugin but hooks, which may add checks of their own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from ulna.core.plugins import KINDS, PluginRecord, call_hook, copies, installed, registry, settings_path
from ulna.core.plugins.events import hooks

__all__ = ["Finding", "examine"]


@dataclass(frozen=True)
class Finding:
    """One thing to know.

    Attributes:
        level: `error` keeps something from working, `warning` may.
        title: What it is.
        detail: Where, or why.
        remedy: What to do.
    """

    level: str
    title: str
    detail: str = ""
    remedy: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the public JSON form."""
        return asdict(self)


def examine() -> list[Finding]:
    """Make all checks.

    Returns:
        What was found, errors first.
    """
    records = registry().records()
    findings = [
        *_namespace_breakers(),
        *_statuses(records),
        *_copies(records),
        *_moved_sources(records),
        *_missing_requirements(records),
        *_manifest_drift(records),
        *_settings(),
        *_from_hooks(),
    ]
    return sorted(findings, key=lambda finding: finding.level != "error")


def _namespace_breakers() -> Iterator[Finding]:
    for entry in dict.fromkeys(sys.path):
        root = Path(entry or ".") / "ulna"
        for folder in (root, *(root / kind for kind in KINDS)):
            file = folder / "__init__.py"
            if file.is_file():
                yield Finding(
                    "error",
                    f"{file} hides the other distributions of Ulna",
                    "`ulna` and its folders for kinds are namespaces of all distributions; they hold no __init__.py.",
                    f"Delete {file}, and report it to whoever installed it.",
                )


def _statuses(records: list[PluginRecord]) -> Iterator[Finding]:
    for record in records:
        if record.status not in ("ok", "disabled"):
            title = f"{record.kind}/{record.type} of {record.distribution} {record.version} is {record.status}"
            yield Finding("error", title, record.reason, record.remedy)


def _copies(records: list[PluginRecord]) -> Iterator[Finding]:
    for name in sorted({r.distribution for r in records}):
        found = copies(name)
        if len(found) > 1:
            yield Finding(
                "warning",
                f"{name} is installed {len(found)} times",
                f"In use: {found[0]}; hidden: {', '.join(found[1:])}.",
                f"Remove all and install one: pip uninstall {name} (repeat until nothing is left)",
            )


def _moved_sources(records: list[PluginRecord]) -> Iterator[Finding]:
    for name, location in sorted({(r.distribution, r.location) for r in records}):
        try:
            url = json.loads((Path(location) / "direct_url.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        source = Path(str(url.get("url", "")).removeprefix("file://"))
        if url.get("dir_info", {}).get("editable") and not source.is_dir():
            remedy = f"Install it from where it is now: pip install -e FOLDER, or remove it: pip uninstall {name}"
            yield Finding("error", f"{name} is installed from a folder that is gone", str(source), remedy)


def _missing_requirements(records: list[PluginRecord]) -> Iterator[Finding]:
    for name in sorted({r.distribution for r in records} | {"ulna-core", "ulna-cli"}):
        hit = installed(name)
        for line in () if hit is None else hit[1]:
            problem = _requirement_problem(line, frozenset({""}))
            if problem is not None:
                yield Finding(
                    "error", f"{name} needs {line}", problem, f"pip install '{line.partition(';')[0].strip()}'"
                )


def _requirement_problem(line: str, extras: frozenset[str], depth: int = 0) -> str | None:
    """Say why a requirement is not met, with the extras it asks for; None when it is."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement as error:
        return f"it cannot be understood: {error}"
    if requirement.marker is not None and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
        return None
    hit = installed(requirement.name)
    if hit is None:
        return f"{requirement.name} is not installed"
    version, requires = hit
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} {version} is installed"
    if not requirement.extras or depth > 2:
        return None
    wanted = [r for r in requires if "extra" in r.partition(";")[2]]
    problems = (_requirement_problem(r, frozenset(requirement.extras), depth + 1) for r in wanted)
    return next((problem for problem in problems if problem), None)


def _manifest_drift(records: list[PluginRecord]) -> Iterator[Finding]:
    for record in records:
        said = (record.manifest or {}).get("value", record.value)
        if said != record.value:
            yield Finding(
                "warning",
                f"the manifest of {record.distribution} is out of date",
                f"{record.label}: it says {said}, the entry point is {record.value}.",
                "Its authors write it anew with: ulna plugins manifest --write",
            )


def _settings() -> Iterator[Finding]:
    problem = registry().settings.problem
    if problem is not None:
        yield Finding(
            "error", "the settings file is ignored", problem, f"Correct or delete {settings_path(os.environ)}."
        )


def _from_hooks() -> Iterator[Finding]:
    for result in call_hook("doctor_checks"):
        for item in result:
            level = str(item.get("level", "warning"))
            if level != "ok":
                yield Finding(level, *(str(item.get(key, "")) for key in ("title", "detail", "remedy")))
    for name, count in hooks().failures.items():
        yield Finding("error", f"the hook plugin {name} fails", f"{count} time(s)", f"See: ulna plugins verify {name}")
