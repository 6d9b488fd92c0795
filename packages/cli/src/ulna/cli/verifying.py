# SPDX-License-Identifier: Apache-2.0
"""Importing a plugin and holding it against its contract, as far as that needs no hardware."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from ulna.core.errors import PluginError
from ulna.core.plugins import KINDS, PluginRecord, registry
from ulna.core.plugins.manifest import describe_plugin

__all__ = ["Report", "verify", "verify_packaging"]

_TIMEOUT_S = 600.0
_SUITE = """
import json, sys
from ulna.testing import PackagingSuite, run_suite
print("\\n" + json.dumps(run_suite(PackagingSuite, lambda: sys.argv[1]).to_dict()))
"""


@dataclass
class Report:
    """The outcome for one plugin, or for the packaging of one distribution.

    Attributes:
        name: `kind/distribution/type`, or the distribution.
        problems: What is wrong.
        notes: What could not be checked.
    """

    name: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return the public JSON form."""
        return {"name": self.name, "passed": self.passed, "problems": self.problems, "notes": self.notes}


def verify(record: PluginRecord) -> Report:
    """Check one plugin: status, import, implementation, manifest.

    Args:
        record: Which.

    Returns:
        What was found; never raises because of the plugin.
    """
    report = Report(f"{record.kind}/{record.qualified}")
    if record.status == "disabled":
        report.notes.append(f"not checked: {record.reason}")
        return report
    if record.status != "ok":
        report.problems.append(f"{record.status}: {record.reason}. {record.remedy}".strip())
        if not record.usable:
            return report
    try:
        loaded = _load(record)
    except PluginError as error:
        report.problems.append(str(error))
        return report
    _compare_manifest(record, loaded, report)
    return report


def _load(record: PluginRecord) -> Any:
    """Import what the entry point names, check its kind, and import its implementation."""
    reg = registry()
    if not KINDS[record.kind].config:
        return reg.load_record(record)
    cls = reg.config_class(record.kind, record.qualified)
    if cls.implementation:
        cls.load_implementation()
    return cls


def _compare_manifest(record: PluginRecord, loaded: Any, report: Report) -> None:
    if record.manifest is None:
        report.notes.append("it has no manifest, so no summary is shown; write one with: ulna plugins manifest --write")
        return
    for key, value in describe_plugin(record, loaded, record.manifest).items():
        said = record.manifest.get(key, value)
        if said != value:
            report.problems.append(
                f"the manifest says {key} = {said!r}, the code {value!r}; write it with: ulna plugins manifest --write"
            )


def verify_packaging(distribution: str) -> Report:
    """Run the packaging checks of ulna-testing on a distribution, in a process of their own.

    Args:
        distribution: Its name.

    Returns:
        What was found; without ulna-testing a note.
    """
    report = Report(distribution)
    if importlib.util.find_spec("ulna.testing") is None:
        report.notes.append("its packaging was not checked; for that: pip install ulna-testing")
        return report
    command = [sys.executable, "-c", _SUITE, distribution]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL, check=True
        )
        checks = json.loads(done.stdout.splitlines()[-1])["checks"]
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", None) or "").strip().splitlines()
        report.problems.append(f"the packaging checks did not end well: {said[-1] if said else error}")
        return report
    for check in checks:
        line = f"{check['id']}: {check['contract']}\n  {check['detail']}\n  {check['fix']}"
        if check["status"] == "failed":
            report.problems.append(line)
    return report
