# SPDX-License-Identifier: Apache-2.0
"""Importing one plugin's object. Every failure becomes one `PluginLoadError`, and what was half done is undone."""

from __future__ import annotations

import importlib
import platform
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ulna.core.errors import PluginLoadError, UlnaError

__all__ = ["Origin", "import_object"]


@dataclass(frozen=True)
class Origin:
    """Whose object is being imported, for messages.

    Attributes:
        kind: Plugin kind.
        type: Type string, or the class that names the implementation.
        distribution: Who ships it, if known.
        version: Version of the distribution, if known.
        entry_point: The entry point as written, `type = module:attribute`.
    """

    kind: str
    type: str
    distribution: str = ""
    version: str = ""
    entry_point: str = ""

    def __str__(self) -> str:
        shipped = f" of {self.distribution} {self.version}".rstrip() if self.distribution else ""
        return f"{self.kind}/{self.type}{shipped}" if self.kind else f"{self.type}{shipped}"


def import_object(path: str, origin: Origin, *, undo: Callable[[], AbstractContextManager[None]] = nullcontext) -> Any:
    """Import `module:attribute`.

    `KeyboardInterrupt` passes through, after undoing.

    Args:
        path: What to import; without `:attribute` the module itself.
        origin: Whose it is, for messages.
        undo: Context that takes back in-process registrations when its body fails.

    Returns:
        The object.

    Raises:
        PluginLoadError: The import failed, whatever the plugin raised, `SystemExit` included.
    """
    module_name, _, attribute = path.partition(":")
    before = set(sys.modules)
    try:
        with undo():
            module = importlib.import_module(module_name)
            return reduce(getattr, attribute.split("."), module) if attribute else module
    except BaseException as error:
        told = load_error(origin, path, error)
        _forget(module_name, before)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise told from error


def _forget(module_name: str, before: set[str]) -> None:
    """Drop the modules that the failed import left behind, but no third-party library and no namespace package."""
    root = _root(module_name)
    for name in [n for n in sys.modules if n not in before and (n == root or n.startswith(f"{root}."))]:
        module = sys.modules.pop(name, None)
        parent, _, leaf = name.rpartition(".")
        holder = sys.modules.get(parent)
        if holder is not None and vars(holder).get(leaf) is module:
            delattr(holder, leaf)


def _root(module_name: str) -> str:
    """Return the outermost package of a module that is no namespace shared with others."""
    parts = module_name.split(".")
    for count in range(1, len(parts)):
        name = ".".join(parts[:count])
        module = sys.modules.get(name)
        if module is None or getattr(module, "__file__", None) is not None:
            return name
    return module_name


def load_error(origin: Origin, path: str, error: BaseException) -> PluginLoadError:
    """Build the one error for a failed load.

    Args:
        origin: Whose object it was.
        path: What was being imported.
        error: What it raised.
    """
    lines = [
        f"{origin} could not be loaded: {_cause(error)}",
        f"  entry point: {origin.entry_point or path}",
        f"  interpreter: {sys.prefix} (Python {platform.python_version()})",
    ]
    return PluginLoadError(
        "\n".join(lines),
        kind=origin.kind,
        type=origin.type,
        distribution=origin.distribution or None,
        hint=_remedy(origin, path, error),
    )


def _cause(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r}) while it was imported"
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
    text = error.message if isinstance(error, UlnaError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _remedy(origin: Origin, path: str, error: BaseException) -> str:
    if isinstance(error, UlnaError) and error.hint:
        return error.hint
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    own = path.partition(":")[0].split(".")[0]
    if missing and missing.split(".")[0] != own:
        target = origin.distribution or missing
        return f"{missing!r} is not installed. Install what it needs: {sys.executable} -m pip install -U {target}"
    holder = sys.modules.get((missing or "").rpartition(".")[0])
    if missing and holder is not None and getattr(holder, "__file__", None) and holder.__name__.count(".") < 2:
        return f"{holder.__file__} may hide the folder it is in. Look with: ulna plugins doctor"
    if origin.distribution:
        return (
            f"See more with: ulna plugins verify {origin.distribution}; "
            f"leave it out with: ULNA_DISABLE={origin.distribution}"
        )
    return "Other plugins are not affected."
