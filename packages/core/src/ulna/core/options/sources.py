# SPDX-License-Identifier: Apache-2.0
"""Where settings come from: flags, YAML and JSON files. Each becomes a tree of values that know their origin."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from ulna.core.errors import ConfigError, ConfigProblem, MissingDependencyError

__all__ = [
    "CONFIG_FLAGS",
    "Assignment",
    "Given",
    "Tree",
    "assign",
    "merge",
    "parse_yaml",
    "plant",
    "read_file",
    "read_flags",
]

NUMBER = re.compile(r"^[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+][0-9]+$")
"""`1e-4`, a number in YAML 1.2 but not in 1.1. Without a sign, as in the commit `12e4567`, it stays text."""

CONFIG_FLAGS = ("config", "config_path")
"""Flags that name a settings file; the second is LeRobot's spelling."""


@dataclass(frozen=True)
class Given:
    """A value and where it came from.

    Attributes:
        value: The value.
        origin: `--policy.type`, or a file.
        text: Whether it is text from the command line, to be understood by the type of its field.
    """

    value: Any
    origin: str
    text: bool = False


Tree: TypeAlias = "dict[str, Tree | Given]"


@dataclass(frozen=True)
class Assignment:
    """One flag: `--a.b=value`.

    Attributes:
        path: Dotted path, split.
        given: The text, with the flag as origin.
    """

    path: tuple[str, ...]
    given: Given


def read_flags(arguments: Sequence[str]) -> list[Assignment]:
    """Split a command line into assignments: `--a.b=value`, `--a.b value`, and bare `--resume`, which means true.

    Args:
        arguments: The command line without the command.

    Returns:
        One assignment for each flag, in order.

    Raises:
        ConfigError: An argument is no flag.
    """
    found: list[Assignment] = []
    stray: list[ConfigProblem] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, sign, value = argument.partition("=")
        if not re.fullmatch(r"--[A-Za-z_].*", name):
            stray.append(ConfigProblem(argument, None, "is no flag; write --name=value"))
            continue
        if not sign:
            value = rest.pop(0) if rest and not re.match(r"--[A-Za-z_]", rest[0]) else "true"
        found.append(Assignment(tuple(name[2:].split(".")), Given(value, name, text=True)))
    if stray:
        raise ConfigError(stray, title="command line")
    return found


def plant(data: Mapping[Any, Any], origin: str) -> Tree:
    """Turn a nested mapping into a tree.

    Args:
        data: The mapping; parts may be trees already.
        origin: Where all the rest of it came from.
    """

    def planted(value: Any) -> Tree | Given:
        if isinstance(value, Given):
            return value
        return plant(value, origin) if isinstance(value, Mapping) and value else Given(value, origin)

    return {str(key): planted(value) for key, value in data.items()}


def merge(base: Tree, over: Tree) -> Tree:
    """Lay one tree over another; maps are merged, everything else replaced.

    Args:
        base: The lower one.
        over: The upper one.
    """
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return merged


def assign(tree: Tree, assignment: Assignment) -> None:
    """Set one value of a tree in place; maps on the way are made, an inline map on the way is opened.

    Args:
        tree: The tree.
        assignment: What to set.

    Raises:
        ConfigError: A value on the way is not a map.
    """
    for count, name in enumerate(assignment.path[:-1], 1):
        below = tree.get(name)
        if isinstance(below, Given):
            value = parse_yaml(below.value, below.origin) if below.text else below.value
            if value is not None and not isinstance(value, Mapping):
                path = ".".join(assignment.path[:count])
                raise ConfigError(
                    [ConfigProblem(path, value, "is not a map, so nothing can be set in it", None, below.origin)]
                )
            below = plant(value or {}, below.origin)
        tree[name] = tree = {} if below is None else below
    tree[assignment.path[-1]] = assignment.given


def parse_yaml(text: str, origin: str) -> Any:
    """Parse JSON or YAML, with the booleans of YAML 1.2 (`true`, `false`) and floats such as `1e-4`.

    Args:
        text: The document.
        origin: Where it came from, for messages.

    Returns:
        The value.

    Raises:
        ConfigError: It is neither.
        MissingDependencyError: PyYAML is not installed.
    """
    if text[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return json.loads(text)  # YAML reads nearly all of JSON, but not its surrogate pairs
    loader = _loader()
    import yaml

    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - the loader derives from SafeLoader
    except (yaml.YAMLError, RecursionError) as error:
        expected = f"is not valid YAML: {' '.join(str(error).split())}"
        raise ConfigError([ConfigProblem(origin.lstrip("-"), text, expected, None, origin)]) from error


@cache
def _loader() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise MissingDependencyError("PyYAML", "reading settings", "pip install 'ulna-core[cli]'") from error

    class Loader(yaml.SafeLoader):
        """Reads `no` and `on` as the text they are: fields that want a boolean understand them anyway."""

    boolean, number = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if tag != boolean]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(boolean, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
    Loader.add_implicit_resolver(number, NUMBER, list("-+0123456789"))
    return Loader


def read_file(path: Path, *, wanted_by: str) -> dict[str, Any]:
    """Read a YAML or JSON file that holds a map.

    Args:
        path: The file; `.json` is JSON, everything else YAML.
        wanted_by: The setting that names it, for messages.

    Returns:
        Its content.

    Raises:
        ConfigError: It is missing, unreadable or holds no map.
        MissingDependencyError: PyYAML is not installed.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else parse_yaml(text, str(path))
    except OSError as error:
        raise ConfigError([ConfigProblem(wanted_by, str(path), f"cannot be read: {error.strerror}")]) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError([ConfigProblem(wanted_by, str(path), f"is not a valid file: {error}")]) from error
    if not isinstance(data or {}, dict):
        raise ConfigError([ConfigProblem(wanted_by, str(path), f"holds {type(data).__name__}, expected a map")])
    return data or {}
