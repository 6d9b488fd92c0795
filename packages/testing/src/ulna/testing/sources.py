# SPDX-License-Identifier: Apache-2.0
"""Looking for what must not be in a source file, in its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["imports_of", "pickling", "talking"]

_PICKLERS = ("_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve")
_TORCH_PICKLES = ("torch.load", "torch.save", "numpy.load", "np.load")


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _where(path: Path, node: ast.AST) -> str:
    return f"{path.parent.name}/{path.name}:{getattr(node, 'lineno', 0)}"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def imports_of(path: Path, modules: tuple[str, ...]) -> Iterator[str]:
    """Find imports of some modules.

    Args:
        path: A source file.
        modules: Their names.

    Yields:
        File, line and name of each import.
    """
    for node in ast.walk(_tree(path)):
        hits = [name for name in _imported(node) if any(name == m or name.startswith(f"{m}.") for m in modules)]
        if hits:
            yield f"{_where(path, node)} ({hits[0]})"


def pickling(path: Path) -> Iterator[str]:
    """Find uses of pickle, and of `torch.load`, `torch.save` and `numpy.load(allow_pickle=True)`.

    Args:
        path: A source file.

    Yields:
        File, line and what is used.
    """
    yield from imports_of(path, _PICKLERS)
    for node in ast.walk(_tree(path)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        allows = any(k.arg == "allow_pickle" and ast.unparse(k.value) == "True" for k in node.keywords)
        if name in _TORCH_PICKLES and (allows or name.startswith("torch.")):
            yield f"{_where(path, node)} ({name})"


def talking(path: Path) -> Iterator[str]:
    """Find calls of `print` and `input` and reads of `sys.argv`, outside of command modules.

    Args:
        path: A source file.

    Yields:
        File, line and what is used.
    """
    if path.stem == "__main__" or any(part.startswith("commands") for part in (path.stem, *path.parent.parts[-2:])):
        return
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "input"):
            to_file = any(k.arg == "file" for k in node.keywords)
            if not to_file:
                yield f"{_where(path, node)} ({node.func.id})"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.argv":
            yield f"{_where(path, node)} (sys.argv)"
