# SPDX-License-Identifier: Apache-2.0
"""Code is written once: the share of shipped lines that occur in the same run of lines in another file stays small."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tooling import files

WINDOW = 8
CEILING = 0.02


def code_of(path: Path) -> list[tuple[int, str]]:
    """Return line number and text of the lines that hold code: no docstring, comment, blank line or import."""
    dropped: set[int] = set()
    for node in ast.walk(files.syntax(path)):
        is_text = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    kept = [(number, line.strip()) for number, line in lines if number not in dropped]
    return [(number, line) for number, line in kept if line and not line.startswith("#") and line not in "()[]{},"]


def test_duplicated_code() -> None:
    """Less than two lines in a hundred belong to a run of eight equal lines that another file has too."""
    places: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    code = {path: code_of(path) for path in files.shipped()}
    for path, lines in code.items():
        for start in range(len(lines) - WINDOW + 1):
            places[tuple(text for _, text in lines[start : start + WINDOW])].append((path, start))
    repeated = {
        (path, start + step)
        for found in places.values()
        if len({path for path, _ in found}) > 1
        for path, start in found
        for step in range(WINDOW)
    }
    total = sum(len(lines) for lines in code.values())
    worst = sorted({f"{files.name_of(path)}:{code[path][index][0]}" for path, index in repeated})
    assert len(repeated) <= CEILING * total, "\n".join(worst)
