# SPDX-License-Identifier: Apache-2.0
"""A folder that looks like site-packages with many plugins, to see that discovery stays quick and imports nothing."""

from __future__ import annotations

from pathlib import Path

KINDS = ("robots", "teleoperators", "cameras", "motors", "policies")


def install(folder: Path, count: int) -> None:
    """Write metadata and a module for a number of plugins.

    Args:
        folder: Becomes an entry of the import path.
        count: How many distributions to write.
    """
    for index in range(count):
        kind = KINDS[index % len(KINDS)]
        name = f"crowd_{index}"
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        head = f"Metadata-Version: 2.1\nName: crowd-{index}\nVersion: 1.0\n"
        (info / "METADATA").write_text(f"{head}Requires-Dist: ulna-core<1,>=0.1\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[ulna.{kind}]\n{name} = {name}.config:Config\n", encoding="utf-8")
        (info / "RECORD").write_text("", encoding="utf-8")
        package = folder / name
        package.mkdir()
        (package / "__init__.py").write_text("", encoding="utf-8")
        (package / "config.py").write_text("raise RuntimeError('discovery imports no plugin')\n", encoding="utf-8")
