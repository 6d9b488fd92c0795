# SPDX-License-Identifier: Apache-2.0
"""Run the tests of one distribution in an environment that holds nothing but what it declares.

Beside the distribution with its extras, the environment has the test tools and those distributions of this tree that
its tests import. Run as `python -m tooling.isolation [NAME ...]`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tooling import environments, imports, tree


def requirements(distribution: tree.Distribution) -> list[str]:
    """Return what the environment for one distribution has to hold.

    Args:
        distribution: The one under test.

    Returns:
        Requirements.
    """
    known = imports.portions()
    extras = f"[{','.join(sorted(distribution.extras))}]" if distribution.extras else ""
    beside: set[str] = set()
    for file in (distribution.folder / "tests").rglob("*.py"):
        owners = (imports.portion_of(item.dotted, known) for item in imports.imports_of(file))
        beside.update(owner.name for owner in owners if owner is not None)
    return [distribution.name + extras, *sorted(beside - {distribution.name}), *tree.dependency_groups()["test"]]


def test(distribution: tree.Distribution, scratch: Path) -> int:
    """Run the tests of one distribution on its own.

    Args:
        distribution: The one under test.
        scratch: Folder for environments and wheels.

    Returns:
        The exit status of pytest.
    """
    print(f"== {distribution.name}", flush=True)
    python = environments.create(scratch / distribution.name, requirements(distribution), scratch / "wheels")
    settings = ["-c", str(tree.ROOT / "pyproject.toml"), "--rootdir", str(tree.ROOT)]
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *settings,
        str(distribution.folder / "tests"),
    ]
    return subprocess.run(command, env=environments.clean_variables(), stdin=subprocess.DEVNULL).returncode


def main(names: Sequence[str]) -> int:
    """Test the named distributions, or all, each on its own.

    Args:
        names: Distribution names.

    Returns:
        0 when every one passed.
    """
    known = {item.name: item for item in tree.distributions() if item.has_module}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no distribution is called {', '.join(unknown)}; there are {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        failed = [name for name in names or known if test(known[name], Path(scratch)) != 0]
    print(f"failed alone: {', '.join(failed)}" if failed else "every distribution passes alone")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
