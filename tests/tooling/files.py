# SPDX-License-Identifier: Apache-2.0
"""The files of the checkout as git sees them, and measures of Python source."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from tooling import tree

Function = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=1)
def tracked() -> tuple[Path, ...]:
    """Return every file that git tracks or would add, sorted."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    answer = subprocess.run(command, cwd=tree.ROOT, capture_output=True, check=True).stdout.decode()
    paths = (tree.ROOT / name for name in set(answer.split("\0")) if name)
    return tuple(sorted(path for path in paths if path.is_file()))


def is_golden(path: Path) -> bool:
    """Tell whether a file is recorded data for tests.

    Args:
        path: Any path.

    Returns:
        True below a folder named `golden`.
    """
    return "golden" in path.relative_to(tree.ROOT).parts


def text_of(path: Path) -> str | None:
    """Read a text file.

    Args:
        path: Any file.

    Returns:
        Its text, or None for a binary file.
    """
    data = path.read_bytes()
    if b"\0" in data[:8192]:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


@lru_cache(maxsize=4096)
def syntax(path: Path) -> ast.Module:
    """Parse a Python file, once.

    Args:
        path: The file.

    Returns:
        Its syntax tree.
    """
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def line_count(path: Path) -> int:
    """Count the lines of a file.

    Args:
        path: The file.

    Returns:
        All lines, blank ones too.
    """
    return len(path.read_text(encoding="utf-8").splitlines())


def code_line_count(path: Path) -> int:
    """Count the lines of code of a file.

    Args:
        path: A Python file.

    Returns:
        Lines that are neither blank nor a comment nor part of a docstring.
    """
    texts: set[int] = set()
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return sum(1 for number, line in lines if number not in texts and line.strip() and not line.strip().startswith("#"))


def functions(path: Path) -> Iterator[Function]:
    """Yield every function and method of a file.

    Args:
        path: A Python file.

    Yields:
        The definitions, nested ones too.
    """
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def code_lines(function: Function) -> int:
    """Count the lines of a function without its docstring.

    Args:
        function: The definition.

    Returns:
        Lines from `def` to the end, less those of the docstring.
    """
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def is_command_module(path: Path) -> bool:
    """Tell whether a file may talk to the user: a command module, or anything in the `ulna` command itself.

    Args:
        path: A shipped Python file.

    Returns:
        True for `commands.py`, `commands_*.py`, anything below `commands/` and packages/cli.
    """
    parts = path.relative_to(tree.ROOT).parts
    return path.stem.split("_")[0] == "commands" or "commands" in parts or parts[:2] == ("packages", "cli")


def shipped() -> list[Path]:
    """Return every Python file that a wheel carries."""
    return [path for item in tree.distributions() for path in item.modules]


def name_of(path: Path) -> str:
    """Return a path relative to the repository root, for messages and test ids.

    Args:
        path: A path in the checkout.

    Returns:
        With forward slashes.
    """
    return path.relative_to(tree.ROOT).as_posix()
