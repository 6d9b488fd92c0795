# SPDX-License-Identifier: Apache-2.0
"""What a configuration class accepts: the class a `type` chooses, and text understood by the type of its field."""

from __future__ import annotations

import types
from collections.abc import Mapping, MutableMapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ulna.core.config import Config, PluginConfig
from ulna.core.errors import PluginConflictError, PluginNotFoundError
from ulna.core.options.sources import Given, Tree, parse_yaml, plant

__all__ = ["NULLS", "Typing", "alternatives", "chosen_class", "default_of", "is_choice", "mapping_value", "model_of"]

NULLS = ("null", "Null", "NULL", "None", "~")
"""Texts that mean null where a field may be null."""


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the one type.

    Args:
        annotation: A type annotation.
    """
    if get_origin(annotation) is Annotated:
        return alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(inner for member in get_args(annotation) for inner in alternatives(member))
    return (annotation,)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the configuration class in an annotation, if there is one.

    Args:
        annotation: A type annotation.
    """
    return next((a for a in alternatives(annotation) if isinstance(a, type) and issubclass(a, BaseModel)), None)


def is_choice(cls: type[BaseModel]) -> bool:
    """Return whether the class stands for whatever its `type` chooses.

    Args:
        cls: A configuration class.
    """
    return issubclass(cls, PluginConfig) and bool(cls.__dict__.get("plugin_base", False))


def mapping_value(annotation: Any) -> Any | None:
    """Return the value type of a mapping annotation, or None.

    Args:
        annotation: A type annotation.
    """
    for member in alternatives(annotation):
        origin = get_origin(member)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return get_args(member)[1]
    return None


def default_of(info: FieldInfo) -> Any:
    """Return the default of a field; `PydanticUndefined` when it is required.

    Args:
        info: The field.
    """
    return info.get_default(call_default_factory=True, validated_data={})


def chosen_class(cls: type[BaseModel], node: Tree) -> type[BaseModel]:
    """Return the class that validates a section: the plugin's, where a `type` chooses one.

    Args:
        cls: Class of the field.
        node: The section.

    Returns:
        The chosen class, or `cls` when nothing that exists is chosen.

    Raises:
        PluginError: The chosen plugin exists but cannot be used.
    """
    chosen = node.get("type")
    if not is_choice(cls) or not isinstance(chosen, Given) or not chosen.value:
        return cls
    from ulna.core.plugins import registry

    try:
        return registry().config_class(cls.plugin_kind, str(chosen.value))  # type: ignore[attr-defined]
    except (PluginNotFoundError, PluginConflictError):
        return cls  # validation reports it together with everything else


class Typing:
    """Turns a tree into plain data, understanding text by the type of its field, and notes origins.

    Args:
        origins: Filled with dotted path to origin.
    """

    def __init__(self, origins: MutableMapping[str, str]) -> None:
        self.origins = origins

    def section(self, cls: type[BaseModel], node: Tree, path: str = "", default: Any = None) -> dict[str, Any]:
        """Convert a section.

        Args:
            cls: Class of the field.
            node: The section.
            path: Its dotted path.
            default: The field's default, whose settings hold where the section says nothing.

        Returns:
            Plain data to validate.
        """
        node = with_default(cls, node, default)
        cls = chosen_class(cls, node)
        data: dict[str, Any] = {}
        for key, below in node.items():
            name = key if key in cls.model_fields else key.replace("-", "_")
            info = cls.model_fields.get(name)
            leaf = key if info is None else name
            where = f"{path}.{leaf}" if path else leaf
            if info is None:
                data[key] = self.value(Any, below, where)
            else:
                data[name] = self.value(info.annotation, below, where, default_of(info))
        return data

    def value(self, annotation: Any, node: Tree | Given, path: str, default: Any = None) -> Any:
        """Convert one value.

        Args:
            annotation: Type of the field.
            node: What was given.
            path: Its dotted path.
            default: The field's default.

        Returns:
            Plain data to validate.
        """
        if isinstance(node, Given):
            self.origins[path] = node.origin
            value = _understood(annotation, node) if node.text else node.value
            if not isinstance(value, Mapping):
                return value
            node = plant(value, node.origin)
        model = model_of(annotation)
        if model is not None:
            return self.section(model, node, path, default)
        inner = mapping_value(annotation)
        return {key: self.value(Any if inner is None else inner, below, f"{path}.{key}") for key, below in node.items()}


def with_default(cls: type[BaseModel], node: Tree, default: Any) -> Tree:
    """Lay a section over what the field's default sets, unless it chooses another type.

    Args:
        cls: Class of the field.
        node: The section.
        default: The field's default.
    """
    if not isinstance(default, Config):
        return node
    own = {name: getattr(default, name) for name in default.model_fields_set}
    if is_choice(cls) and isinstance(default, PluginConfig):
        chosen = node.get("type")
        if isinstance(chosen, Given) and chosen.value != default.type:
            return node
        own["type"] = default.type
    return {**{name: Given(value, "default") for name, value in own.items()}, **node}


def _understood(annotation: Any, given: Given) -> Any:
    """Understand the text of a flag by the type of its field."""
    text, members = str(given.value), alternatives(annotation)
    if type(None) in members and text in NULLS:
        return None
    if text[:1] in ("{", "[") and any(_structured(m) for m in members):
        return parse_yaml(text, given.origin)
    if annotation is Any or (Any in members and str not in members):
        return parse_yaml(text, given.origin)
    return text


def _structured(member: Any) -> bool:
    if member in (Any, object):
        return True
    kind = get_origin(member) or member
    if not isinstance(kind, type) or kind is type(None):
        return False
    return issubclass(kind, (BaseModel, Mapping, list, tuple, set, frozenset)) or hasattr(kind, "__dataclass_fields__")
