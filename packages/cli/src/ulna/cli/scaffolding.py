# SPDX-License-Identifier: Apache-2.0
"""Writing a new plugin from the templates beside this module: one folder a kind, rendered by plain substitution."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from ulna.core.errors import ConfigError, ConfigProblem, nearest
from ulna.core.files import write_text
from ulna.core.plugins import KINDS

__all__ = ["Created", "create"]

_SUFFIX = ".tmpl"
_SHARED = "shared"
_INSIDE = """
There is no `__init__.py` in `src/ulna/` or `src/ulna/{kind}/`: other distributions share them.
"""
_EXTRA = {"policies": "[torch]", "algorithms": "[torch]", "commands": "[cli]"}
_NEEDS = {
    "algorithms": ("pydantic>=2.7,<3", "torch>=2.4"),
    "cameras": ("numpy>=1.26,<3", "pydantic>=2.7,<3"),
    "commands": ("pydantic>=2.7,<3",),
    "envs": ("gymnasium>=1.0", "numpy>=1.26,<3", "pydantic>=2.7,<3"),
    "motors": ("pydantic>=2.7,<3",),
    "optimizers": ("pydantic>=2.7,<3", "torch>=2.4"),
    "policies": ("pydantic>=2.7,<3", "torch>=2.4", "ulna-processing>=0.1,<0.2"),
    "rewards": ("numpy>=1.26,<3", "pydantic>=2.7,<3"),
    "robots": ("pydantic>=2.7,<3",),
    "schedulers": ("pydantic>=2.7,<3", "torch>=2.4"),
    "teleoperators": ("pydantic>=2.7,<3",),
    "trackers": ("pydantic>=2.7,<3",),
}


@dataclass(frozen=True)
class Created:
    """A distribution that was written.

    Attributes:
        folder: Where.
        distribution: Its name.
        files: All its files.
    """

    folder: Path
    distribution: str
    files: tuple[Path, ...]


def create(kind: str, name: str, *, folder: Path | None = None, distribution: str | None = None) -> Created:
    """Write a distribution with one plugin.

    Args:
        kind: A plugin kind.
        name: Its type string; letters, digits and `_`.
        folder: Where to write; must be empty or missing. Default: a folder named like the distribution.
        distribution: Its name; default `ulna-<kind>-<name>`, whose module is `ulna.<kind>.<name>`. Another name gets a
            module of its own outside the `ulna` namespace.

    Returns:
        What was written.

    Raises:
        ConfigError: The kind is unknown, the name is no name, or the folder is not empty.
    """
    own = f"ulna-{kind}-{name.replace('_', '-')}"
    folder = Path(distribution or own) if folder is None else folder
    problems = []
    if kind not in KINDS:
        problems.append(ConfigProblem("kind", kind, f"one of {', '.join(KINDS)}", nearest(kind, list(KINDS))))
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        problems.append(ConfigProblem("name", name, "lower-case letters, digits and `_`, a letter first"))
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]", distribution or own):
        problems.append(ConfigProblem("distribution", distribution, "a letter, then letters, digits, `-`, `_`, `.`"))
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        problems.append(ConfigProblem("folder", str(folder), "a folder that is empty or does not exist yet"))
    if problems:
        raise ConfigError(problems, title="new plugin")
    words = _words(kind, name, distribution or own)
    root = files("ulna.cli") / "templates"
    written = [*_render(root / _SHARED, folder, words), *_render(root / kind, folder, words)]
    typed = folder / "src" / words["package_path"] / "py.typed"
    typed.touch()
    return Created(folder, words["distribution"], tuple(sorted([*written, typed])))


def _words(kind: str, name: str, distribution: str) -> dict[str, str]:
    """Return what the templates may name."""
    info = KINDS[kind]
    class_name = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    inside = distribution == f"ulna-{kind}-{name.replace('_', '-')}"
    module = f"ulna.{kind}.{name}" if inside else re.sub(r"[^a-z0-9]+", "_", distribution.lower())
    values = {
        "commands": f"{module}.commands:app",
        "hooks": f"{module}.hooks",
        "processors": f"{module}.steps:{class_name}Step",
    }
    title = name.replace("_", " ")
    needs = [f'"ulna-core{_EXTRA.get(kind, "")}>=0.1,<0.2"', *(f'"{line}"' for line in _NEEDS.get(kind, ()))]
    return {
        "kind": kind,
        "kind_title": info.title,
        "group": info.group,
        "api_level": str(info.api_level),
        "name": name,
        "title": title[:1].upper() + title[1:],
        "class_name": class_name,
        "module": module,
        "package_path": module.replace(".", "/"),
        "package_root": module.partition(".")[0],
        "layout": _INSIDE.format(kind=kind) if inside else "",
        "value": values.get(kind, f"{module}.config:{class_name}Config"),
        "distribution": distribution,
        "dependencies": "\n".join(f"  {need}," for need in needs),
    }


def _render(source: Traversable, target: Path, words: dict[str, str]) -> list[Path]:
    written: list[Path] = []
    for item in source.iterdir():
        name = Template(item.name.removesuffix(_SUFFIX)).substitute(words)
        if item.is_dir():
            inner = target / "src" / words["package_path"] if name == "package" else target / name
            written += _render(item, inner, words)
        elif item.name.endswith(_SUFFIX):
            write_text(target / name, Template(item.read_text(encoding="utf-8")).substitute(words))
            written.append(target / name)
    return written
