# SPDX-License-Identifier: Apache-2.0
"""The fields of a configuration in words, for help texts and completion, with those of the plugins that were chosen."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ulna.core.config import Config, PluginConfig
from ulna.core.options.schema import (
    alternatives,
    chosen_class,
    default_of,
    is_choice,
    mapping_value,
    model_of,
    with_default,
)
from ulna.core.options.sources import Given, Tree, parse_yaml, plant

__all__ = ["FieldHelp", "describe"]


@dataclass(frozen=True)
class FieldHelp:
    """One setting in words.

    Attributes:
        path: Dotted path, `policy.chunk_size`; `<name>` stands for a name of the user's choice.
        type: What it takes.
        default: Its default in words; empty when it is required.
        description: What it does.
        section: The section it stands in, `policy (act)`; empty at the top.
        choices: All values, when they can be listed.
    """

    path: str
    type: str
    default: str
    description: str
    section: str = ""
    choices: tuple[str, ...] = ()


def describe(cls: type[BaseModel], data: Mapping[str, Any] | None = None) -> list[FieldHelp]:
    """List the settings of a class; where `data` chooses a plugin, the plugin's; else the installed types.

    Args:
        cls: Configuration class.
        data: Settings given so far, plain or as a tree.

    Returns:
        One entry for each setting, in the order of the classes.

    Raises:
        PluginError: A chosen plugin exists but cannot be used.
    """
    return list(_fields(cls, plant(data or {}, ""), "", "", None))


def _fields(cls: type[BaseModel], tree: Tree, prefix: str, section: str, default: Any) -> Iterator[FieldHelp]:
    tree = with_default(cls, tree, default)
    chosen = chosen_class(cls, tree)
    if is_choice(cls):
        picked = chosen.model_fields["type"].default if chosen is not cls else ""
        section = f"{section} ({picked})" if picked else section
        yield _type_field(cls, prefix, section, picked)
        if chosen is cls:
            return
    for name, info in chosen.model_fields.items():
        if name == "type" and issubclass(chosen, PluginConfig):
            continue
        yield from _field(chosen, name, info, _below(tree.get(name)), prefix, section, default)


def _field(
    cls: type[BaseModel], name: str, info: FieldInfo, node: Tree, prefix: str, section: str, owner: Any
) -> Iterator[FieldHelp]:
    path = f"{prefix}.{name}" if prefix else name
    default = getattr(owner, name) if isinstance(owner, cls) else default_of(info)
    model, inner = model_of(info.annotation), mapping_value(info.annotation)
    if model is not None:
        yield from _fields(model, node, path, path, default)
        return
    choices = _choices(info.annotation)
    text = " | ".join(choices) if choices else type_text(info.annotation)
    yield FieldHelp(path, text, _default_text(default), _description(cls, name, info), section, choices)
    entry = None if inner is None else model_of(inner)
    if entry is None:
        return
    for key in node or {"<name>": {}}:
        below = f"{path}.{key}"
        yield from _fields(entry, _below(node.get(key)), below, below, None)


def _below(node: Tree | Given | None) -> Tree:
    if not isinstance(node, Given):
        return node or {}
    value = node.value
    if node.text and str(value).startswith("{"):
        value = parse_yaml(str(value), node.origin)
    if isinstance(value, Config):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    return plant(value, node.origin) if isinstance(value, Mapping) else {}


def _type_field(cls: type[BaseModel], prefix: str, section: str, picked: str) -> FieldHelp:
    from ulna.core.plugins import KINDS, registry

    kind = cls.plugin_kind  # type: ignore[attr-defined]
    names = tuple(registry().types(kind))
    words = f"Which {KINDS[kind].title if kind in KINDS else 'type'}; "
    if picked:
        words += f"chosen here: {picked}."
    else:
        words += "name one beside --help to see its settings." if names else "none is installed."
    path = f"{prefix}.type" if prefix else "type"
    return FieldHelp(path, " | ".join(names) or "text", "", words, section, names)


def _choices(annotation: Any) -> tuple[str, ...]:
    found: list[str] = []
    for member in alternatives(annotation):
        if member is bool:
            found += ["true", "false"]
        elif get_origin(member) is Literal:
            found += map(str, get_args(member))
        elif isinstance(member, type) and issubclass(member, Enum):
            found += [str(item.value) for item in member]
        elif member is type(None):
            found.append("null")
        else:
            return ()
    return tuple(found)


def type_text(annotation: Any) -> str:
    """Return a type in words: `int | null`, `list of float`, `map of camera`.

    Args:
        annotation: A type annotation.
    """
    return " | ".join(dict.fromkeys(_member_text(member) for member in alternatives(annotation)))


def _member_text(member: Any) -> str:
    origin, arguments = get_origin(member), get_args(member)
    if member is type(None):
        return "null"
    if member is Any:
        return "anything"
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"map of {type_text(arguments[1])}"
    if origin in (list, set, frozenset) or (origin is tuple and arguments[-1] is Ellipsis):
        return f"list of {type_text(arguments[0])}"
    if origin is tuple:
        return f"[{', '.join(type_text(a) for a in arguments)}]"
    if isinstance(member, type) and issubclass(member, BaseModel):
        return member.__name__.removesuffix("Config").lower()
    return {"str": "text", "Path": "path"}.get(
        getattr(member, "__name__", ""), getattr(member, "__name__", str(member))
    )


def _default_text(default: Any) -> str:
    if default is PydanticUndefined:
        return ""
    if default is None:
        return "null"
    if isinstance(default, Enum):
        return str(default.value)
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, BaseModel):
        default = {name: getattr(default, name) for name in type(default).model_fields}
    if isinstance(default, Mapping):
        return f"{{{', '.join(f'{_default_text(k)}: {_default_text(v)}' for k, v in default.items())}}}"
    if isinstance(default, (list, tuple)):
        return f"[{', '.join(_default_text(item) for item in default)}]"
    return str(default) if default != "" else '""'


def _description(cls: type[BaseModel], name: str, info: FieldInfo) -> str:
    if info.description:
        return info.description
    documented = (_documented(base).get(name) for base in cls.__mro__ if issubclass(base, BaseModel))
    return next((text for text in documented if text), "")


@cache
def _documented(cls: type) -> dict[str, str]:
    """Return the entries of the Attributes section of a class docstring."""
    text = inspect.cleandoc(cls.__dict__.get("__doc__") or "").partition("\nAttributes:\n")[2]
    block = re.split(r"\n(?=\S)", text, maxsplit=1)[0]
    entries = re.findall(r"^ {4}(\w+)[^:\n]*: *((?:.|\n {5,})*)", block, re.MULTILINE)
    return {name: " ".join(words.split()) for name, words in entries}
