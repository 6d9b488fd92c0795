# SPDX-License-Identifier: Apache-2.0
"""Names of a package that are imported when they are first used (PEP 562), as every package of Ulna offers its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    namespace: dict[str, Any], home_of: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the functions by which a package finds its names.

    Args:
        namespace: `globals()` of the package's `__init__`; a name that was found is kept there.
        home_of: Name to the submodule that defines it.

    Returns:
        `__getattr__` and `__dir__` of the package; the latter lists `__all__`.

    Example:
        >>> find, names = lazy_names({"__name__": "ulna.core"}, {"MonotonicClock": "clock"})
        >>> find("MonotonicClock").__name__
        'MonotonicClock'
    """
    package: str = namespace["__name__"]

    def find(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home}"), name)
        namespace[name] = value
        return value

    def names() -> list[str]:
        return sorted(namespace.get("__all__", home_of))

    return find, names
