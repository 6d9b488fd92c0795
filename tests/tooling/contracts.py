# SPDX-License-Identifier: Apache-2.0
"""The import contracts between distributions, generated from the tree and checked by import-linter.

The layers of the house plan are the table below; a plugin may import the core, the packages and the plugins that its
pyproject.toml declares. Run as `python -m tooling.contracts`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tooling import tree

LAYERS: dict[str, frozenset[str]] = {
    "ulna-core": frozenset(),
    "ulna-cli": frozenset({"ulna-core"}),
    "ulna-data": frozenset({"ulna-core"}),
    "ulna-processing": frozenset({"ulna-core"}),
    "ulna-sim": frozenset({"ulna-core"}),
    "ulna-testing": frozenset({"ulna-core"}),
    "ulna-control": frozenset({"ulna-core", "ulna-data", "ulna-processing"}),
    "ulna-training": frozenset({"ulna-core", "ulna-data", "ulna-processing"}),
    "ulna-rl": frozenset({"ulna-core", "ulna-data", "ulna-processing"}),
}
"""What each library may import. A new package gets its line here or below, with a decision record."""

APPLICATIONS = frozenset({"ulna-demo"})
"""Packages on top of everything: no other distribution imports them, and they may import what they declare."""

NEVER_SHIPPED = frozenset({"ulna-testing"})
"""Only tests may import these."""


def allowed(distribution: tree.Distribution) -> set[str]:
    """Return our distributions that the code of one may import.

    Args:
        distribution: The importer.

    Returns:
        Normalized distribution names.

    Raises:
        ValueError: If a package has no line in `LAYERS`, or declares a dependency that the layers forbid.
    """
    own = set(tree.by_name())
    declared = distribution.depends_on() & own - {distribution.name}
    if distribution.is_plugin or distribution.name in APPLICATIONS:
        permitted = own - NEVER_SHIPPED - APPLICATIONS - {tree.META}
    elif distribution.name in LAYERS:
        permitted = set(LAYERS[distribution.name])
    else:
        raise ValueError(f"{distribution.path}: {distribution.name} is in no layer; add it to LAYERS in {__file__}")
    if declared - permitted:
        raise ValueError(
            f"{distribution.path}: pyproject.toml declares {sorted(declared - permitted)}, "
            f"but {distribution.name} may depend on {sorted(permitted)} only; go through the registry instead"
        )
    return declared


def configuration() -> str:
    """Return the import-linter configuration for the tree as it is."""
    members = [item for item in tree.distributions() if item.has_module]
    lines = ["[importlinter]", "root_packages ="]
    lines += [f"    {item.module}" for item in members]
    for item in members:
        permitted = allowed(item)
        forbidden = [other.module for other in members if other != item and other.name not in permitted]
        if forbidden:
            lines += [
                f"[importlinter:contract:{item.name}]",
                f"name = {item.name} imports {', '.join(sorted(permitted)) or 'no other distribution'}",
                "type = forbidden",
                "allow_indirect_imports = True",
                "source_modules =",
                f"    {item.module}",
                "forbidden_modules =",
                *(f"    {module}" for module in forbidden),
            ]
    return "\n".join(lines) + "\n"


def check() -> subprocess.CompletedProcess[str]:
    """Check all contracts.

    Returns:
        The finished import-linter process: 0 when every contract is kept, its report as output.
    """
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "contracts.ini")
        file.write_text(configuration(), encoding="utf-8")
        command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache", str(file)]
        # Every source folder is on the path, so that a distribution is checked before it is installed, too.
        path = os.pathsep.join(str(folder) for folder in tree.source_folders())
        variables = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, cwd=tree.ROOT, env=variables, capture_output=True, text=True)


def main() -> int:
    """Check the contracts and print the report of a failure.

    Returns:
        0 when every contract is kept.
    """
    if not any(item.has_module for item in tree.distributions()):
        print("no distribution, no contract", file=sys.stderr)
        return 1
    try:
        result = check()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print((result.stdout + result.stderr).strip() if result.returncode else result.stdout.strip().splitlines()[-1])
    return result.returncode


if __name__ == "__main__":
    raise SystemExit(main())
