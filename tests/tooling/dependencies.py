# SPDX-License-Identifier: Apache-2.0
"""Declared against imported dependencies: deptry for third-party libraries, our own check for this tree.

A dependency that is found at run time only (a processor step through the registry, say) is named in the distribution's
pyproject.toml under `[tool.ulna] found-at-run-time`, so that everything else has to be imported. Run as
`python -m tooling.dependencies`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tooling import imports, tree


def found_at_run_time(distribution: tree.Distribution) -> set[str]:
    """Return the declared dependencies that no import statement names.

    Args:
        distribution: The one to ask.

    Returns:
        Distribution names from `[tool.ulna] found-at-run-time`, as written.
    """
    return set(distribution.pyproject.get("tool", {}).get("ulna", {}).get("found-at-run-time", []))


def own_problems(distribution: tree.Distribution) -> list[str]:
    """Compare the declared distributions of this tree with those imported.

    Args:
        distribution: The one to check.

    Returns:
        One sentence per difference.
    """
    own = set(tree.by_name())
    declared = distribution.depends_on() & own - {distribution.name}
    imported = imports.portions_imported_by(distribution)
    late = found_at_run_time(distribution) & own
    problems = [f"imports {name} but does not declare it" for name in sorted(imported - declared)]
    problems += [
        f"declares {name} but does not import it (remove it, or list it under [tool.ulna] found-at-run-time)"
        for name in sorted(declared - imported - late)
    ]
    problems += [f"lists {name} under found-at-run-time but does not declare it" for name in sorted(late - declared)]
    return [f"{distribution.path}: {problem}" for problem in problems]


def deptry_command(distribution: tree.Distribution) -> list[str]:
    """Return the deptry command for one distribution: the settings of the root, and its own exceptions by rule.

    Args:
        distribution: The one to check.

    Returns:
        The command; it has to run in the distribution's folder.
    """
    settings = tomllib.loads((tree.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["deptry"]
    mapping = ",".join(f"{package}={module}" for package, module in settings["package_module_name_map"].items())
    excused = {item.name for item in tree.distributions()} | found_at_run_time(distribution)
    excused |= {tree.requirement_name(text) for text in distribution.extras.get(tree.TEST_EXTRA, [])}
    own_rules: dict[str, list[str]] = (
        distribution.pyproject.get("tool", {}).get("deptry", {}).get("per_rule_ignores", {})
    )
    rules = {**own_rules, "DEP002": sorted(excused | set(own_rules.get("DEP002", [])))}
    return [
        *(str(Path(sys.executable).with_name("deptry")), "src"),
        *("--known-first-party", "ulna"),
        *("--package-module-name-map", mapping),
        *("--per-rule-ignores", ",".join(f"{rule}={'|'.join(names)}" for rule, names in rules.items())),
    ]


def deptry_problems(distribution: tree.Distribution) -> list[str]:
    """Run deptry over one distribution.

    Args:
        distribution: The one to check.

    Returns:
        One sentence per finding.
    """
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        command = [*deptry_command(distribution), "--json-output", str(report)]
        environment = {**os.environ, "NO_COLOR": "1"}
        subprocess.run(command, cwd=distribution.folder, env=environment, capture_output=True, stdin=subprocess.DEVNULL)
        findings = json.loads(report.read_text(encoding="utf-8"))
    found = []
    for item in findings:
        error, place = item["error"], item["location"]
        found.append(f"{distribution.path}: {error['code']} {error['message']} ({place['file']}:{place['line']})")
    return found


def problems() -> list[str]:
    """Return every difference between declared and imported dependencies of the tree."""
    found = []
    for distribution in tree.distributions():
        if distribution.has_module:
            found += own_problems(distribution) + deptry_problems(distribution)
    return found


def main() -> int:
    """Print every problem.

    Returns:
        0 when there is none.
    """
    found = problems()
    print("\n".join(found) or f"the dependencies of {len(tree.distributions())} distributions match their imports")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
