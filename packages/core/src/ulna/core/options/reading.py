# SPDX-License-Identifier: Apache-2.0
"""The one reader: defaults < files and checkpoints < flags, validated once, with the origin of every value."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from ulna.core.config import Config
from ulna.core.constants import CONFIG_NAME
from ulna.core.errors import CheckpointError, ConfigError, ConfigProblem
from ulna.core.hub import local_folder
from ulna.core.options.describing import describe
from ulna.core.options.schema import Typing, chosen_class, is_choice, model_of
from ulna.core.options.sources import CONFIG_FLAGS, Assignment, Given, Tree, assign, merge, plant, read_file, read_flags

__all__ = ["Resolved", "collect", "read_options", "render"]

_log = logging.getLogger(__name__)
ConfigT = TypeVar("ConfigT", bound=Config)


@dataclass(frozen=True)
class Resolved(Generic[ConfigT]):
    """A configuration and where it came from.

    Attributes:
        config: The validated configuration.
        origins: Dotted path to origin, of every value that was given.
    """

    config: ConfigT
    origins: Mapping[str, str]


def read_options(
    cls: type[ConfigT], arguments: Sequence[str] = (), *, title: str, data: Mapping[str, Any] | None = None
) -> Resolved[ConfigT]:
    """Read a configuration from the command line, the files and checkpoints it names, and Python.

    Args:
        cls: Class of the configuration.
        arguments: Flags: `--a.b=value`, `--a.b value`, bare `--resume`, `--config FILE`, `--policy.path=FOLDER`.
        title: What is being configured, for messages.
        data: Settings given by Python; files and flags go over them.

    Returns:
        The configuration with the origin of each value.

    Raises:
        ConfigError: Everything that is wrong, at once.
        PluginError: A chosen plugin exists but cannot be used.
        MissingDependencyError: PyYAML is needed and not installed.
    """
    tree = collect(cls, arguments, data=data)
    origins: dict[str, str] = {}
    values = Typing(origins).section(cls, tree)
    try:
        return Resolved(cls.build(values, title=title, origins=origins), origins)
    except ConfigError as error:
        raise ConfigError([_pointed(p, cls, tree) for p in error.problems], title=title, hint=error.hint) from error


def collect(cls: type[BaseModel], arguments: Sequence[str], *, data: Mapping[str, Any] | None = None) -> Tree:
    """Gather all that was given into one tree, without validating it.

    Args:
        cls: Class of the configuration.
        arguments: Flags.
        data: Settings given by Python.

    Returns:
        The tree.

    Raises:
        ConfigError: A flag, file or checkpoint cannot be read.
        MissingDependencyError: PyYAML is needed and not installed.
    """
    tree = plant(data or {}, "Python")
    flags = read_flags(arguments)
    files = [a for a in flags if a.path in {(name,) for name in CONFIG_FLAGS} and a.path[0] not in cls.model_fields]
    for file in files:
        path = Path(file.given.value).expanduser()
        tree = merge(tree, plant(_settings_in(cls, path, file.path[0]), str(path)))
    _open_checkpoints(cls, tree)
    ordinary = [flag for flag in flags if flag not in files]
    for flag in sorted(ordinary, key=lambda flag: not _names_checkpoint(cls, flag)):
        assign(tree, flag)
        if _names_checkpoint(cls, flag):
            _open_checkpoints(cls, tree, over_files=True)
    return tree


def _settings_in(cls: type[BaseModel], path: Path, wanted_by: str) -> dict[str, Any]:
    """Read a settings file; a class with `read_settings(path, wanted_by)` says itself what it accepts: folders, say."""
    own = getattr(cls, "read_settings", None)
    found: dict[str, Any] = read_file(path, wanted_by=wanted_by) if own is None else own(path, wanted_by)
    return found


def _section(cls: type[BaseModel], path: Sequence[str]) -> type[BaseModel] | None:
    """Return the class of the section at a path of fields that are known before any plugin is chosen."""
    found: type[BaseModel] | None = cls
    for name in path:
        info = None if found is None else found.model_fields.get(name)
        found = None if info is None else model_of(info.annotation)
    return found


def _takes_checkpoint(section: type[BaseModel] | None) -> bool:
    return section is not None and is_choice(section) and "pretrained_path" in section.model_fields


def _names_checkpoint(cls: type[BaseModel], flag: Assignment) -> bool:
    return flag.path[-1] == "path" and len(flag.path) > 1 and _takes_checkpoint(_section(cls, flag.path[:-1]))


def _open_checkpoints(cls: type[BaseModel], tree: Tree, *, over_files: bool = False) -> None:
    """Replace each `path` of a section that takes checkpoints by the settings in there.

    Args:
        cls: Class of the tree.
        tree: Changed in place.
        over_files: Whether the checkpoint goes over what the section says already.
    """
    for name, node in tree.items():
        section = _section(cls, [name])
        if section is None or not isinstance(node, dict):
            continue
        path = node.get("path")
        if not (_takes_checkpoint(section) and isinstance(path, Given)):
            _open_checkpoints(section, node, over_files=over_files)
            continue
        rest: Tree = {key: below for key, below in node.items() if key != "path"}
        saved = _checkpoint(section, str(path.value), f"{name}.path", rest)
        tree[name] = merge(rest, saved) if over_files else merge(saved, rest)


def _checkpoint(section: type[BaseModel], path: str, setting: str, rest: Tree) -> Tree:
    try:
        folder = local_folder(path, needs=CONFIG_NAME)
    except CheckpointError as error:
        raise ConfigError([ConfigProblem(setting, path, error.message)], hint=error.hint) from error
    inner = folder / "pretrained_model"
    if not (folder / CONFIG_NAME).is_file() and (inner / CONFIG_NAME).is_file():
        folder = inner
    file = folder / CONFIG_NAME
    tree = plant(read_file(file, wanted_by=setting), f"checkpoint {file}")
    cls = chosen_class(section, {**rest, **tree})
    unknown = [] if cls is section else [name for name in tree if name not in cls.model_fields]
    if unknown:
        _log.warning("%s: unknown to %s and left out: %s", file, cls.__name__, ", ".join(unknown))
    known: Tree = {name: node for name, node in tree.items() if name not in unknown}
    return {
        **known,
        "pretrained_path": Given(str(folder) if Path(path).expanduser().exists() else path, f"--{setting}"),
    }


def _pointed(problem: ConfigProblem, cls: type[BaseModel], tree: Tree) -> ConfigProblem:
    """Point an unknown name to the section that has it: `chunk_size` to `policy.chunk_size`."""
    if problem.suggestion or not problem.expected.startswith("unknown name"):
        return problem
    leaf = problem.path.rpartition(".")[2]
    return replace(problem, suggestion=next((f.path for f in describe(cls, tree) if f.path.endswith(f".{leaf}")), None))


def render(resolved: Resolved[Any]) -> str:
    """Write a configuration as YAML with the origin of each value as a comment; `--config` reads it back.

    Args:
        resolved: The configuration.

    Returns:
        The document.
    """
    rows = list(_rows(resolved.config.to_dict(), resolved.origins, ""))
    width = max((len(text) for text, _ in rows), default=0)
    return "".join(f"{text:<{width}}  # {origin}\n" if origin else f"{text}\n" for text, origin in rows)


def _rows(data: Mapping[str, Any], origins: Mapping[str, str], prefix: str) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    indent = "  " * (prefix.count(".") if prefix else 0)
    for key, value in data.items():
        path = f"{prefix}{key}"
        name = key if key.isidentifier() else json.dumps(key)
        if isinstance(value, dict) and value:
            rows += [(f"{indent}{name}:", ""), *_rows(value, origins, f"{path}.")]
        else:
            rows.append((f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}", _origin(path, origins)))
    return rows


def _origin(path: str, origins: Mapping[str, str]) -> str:
    while path:
        if path in origins:
            return origins[path]
        path = path.rpartition(".")[0]
    return "default"
