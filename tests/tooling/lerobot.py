# SPDX-License-Identifier: Apache-2.0
"""The LeRobot that the comparisons run against, in an environment of its own.

It needs a newer Python and other releases of shared libraries than we do, so it is never installed beside ours.
Standard library only.
"""

from __future__ import annotations

from pathlib import Path

from tooling import bootstrap, tree

RELEASE = "0.6.1"
"""The release whose formats and behaviour the golden cases of this repository were made with."""

REQUIREMENT = f"lerobot[training,feetech]=={RELEASE}"
PYTHONS = ("3.12", "3.13")
"""The Python releases that it runs on."""


def folder() -> Path:
    """Return where its environment lies."""
    return tree.ROOT / ".nox" / f"lerobot-{RELEASE}"


def prepare(base: str) -> Path:
    """Create the environment, unless a call before has finished it.

    Args:
        base: Interpreter to create it with, one of `PYTHONS`.

    Returns:
        The interpreter inside the environment.

    Raises:
        SetupError: If a step fails; the next call begins anew.
    """
    python = bootstrap.environment_python(folder())
    stamp = folder() / "complete.txt"
    if not stamp.exists():
        bootstrap.run(base, "-m", "venv", "--clear", folder())
        bootstrap.run(*bootstrap.pip_install(python), REQUIREMENT)
        stamp.write_text(f"{REQUIREMENT}\n", encoding="utf-8")
    return python
