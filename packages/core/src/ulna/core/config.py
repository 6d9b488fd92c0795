# SPDX-License-Identifier: Apache-2.0
"""The base of every configuration, and of those chosen by `type`. Flags and files are read in `ulna.core.options`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic._internal._model_construction import ModelMetaclass

from ulna.core.errors import ConfigError, ConfigProblem, PluginNotFoundError, nearest

__all__ = ["Config", "PluginConfig", "problems_from"]

_BOOLEANS = "needs a boolean: true, yes, on, 1, t, y or false, no, off, 0, f, n, in any case"


class _RaisesConfigError(ModelMetaclass):
    """Makes `SomeConfig(...)` report its problems as one `ConfigError`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - the instance of a metaclass is a class
        try:
            return super().__call__(*args, **kwargs)
        except ValidationError as error:
            model = cast("type[BaseModel]", cls)
            raise ConfigError(list(problems_from(error, model)), title=cls.__name__) from error


class Config(BaseModel, metaclass=_RaisesConfigError):
    """Settings of anything: typed, validated on assignment, unknown names refused, written as JSON."""

    model_config = ConfigDict(
        extra="forbid",
        validate_assignment=True,
        arbitrary_types_allowed=True,
        protected_namespaces=(),
        use_enum_values=False,
    )

    @classmethod
    def build(
        cls, data: Mapping[str, Any], *, title: str | None = None, origins: Mapping[str, str] | None = None
    ) -> Self:
        """Validate a nested mapping.

        Args:
            data: Names to values, nested; values may be text.
            title: What is being configured, for messages.
            origins: Dotted path to where its value came from, for messages.

        Returns:
            The configuration.

        Raises:
            ConfigError: Everything that is wrong, at once.
        """
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            found = list(problems_from(error, cls, origins=origins or {}))
            raise ConfigError(found, title=title or cls.__name__) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values, chosen plugins with all their fields."""
        return self.model_dump(mode="json", serialize_as_any=True)


class PluginConfig(Config):
    """Settings of something chosen by `type`: a robot, a camera, a policy, an optimizer.

    A class with `plugin_base = True` in its own body is the base of a kind: validating a mapping against it finds the
    plugin of that `type` in the registry and validates with the plugin's own class. A concrete class gives `type` a
    default, and names its implementation, which is imported only when one is made.
    """

    plugin_kind: ClassVar[str] = ""
    plugin_base: ClassVar[bool] = False
    implementation: ClassVar[str] = ""

    type: str = ""

    @model_validator(mode="wrap")
    @classmethod
    def _choose(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, cls) or not cls.__dict__.get("plugin_base", False):
            return handler(data)
        if not isinstance(data, Mapping):
            raise ValueError(
                f"a mapping with a `type`, one of {', '.join(_types(cls.plugin_kind)) or '(nothing installed)'}"
            )
        return cls.choose(data)

    @classmethod
    def choose(cls, data: Mapping[str, Any]) -> Self:
        """Validate a mapping with the class its `type` names.

        Args:
            data: Settings, `type` among them.

        Returns:
            An instance of the plugin's configuration class.

        Raises:
            ConfigError: The type is missing or unknown, or other settings are wrong.
            PluginError: The plugin exists but cannot be used.
        """
        from ulna.core.plugins import registry

        chosen = data.get("type")
        known = _types(cls.plugin_kind)
        nothing = f"a type that is installed; there is none (distributions are called ulna-{cls.plugin_kind}-NAME)"
        accepted = f"one of {', '.join(known)}" if known else nothing
        if not chosen:
            raise ConfigError([ConfigProblem("type", None, f"needs a type: {accepted}")], title=cls.__name__)
        try:
            target = registry().config_class(cls.plugin_kind, str(chosen))
        except PluginNotFoundError as error:
            problem = ConfigProblem("type", chosen, accepted, nearest(str(chosen), known))
            raise ConfigError([problem], title=cls.__name__, hint=error.hint) from error
        if not issubclass(target, cls):
            raise ConfigError([ConfigProblem("type", chosen, f"a plugin whose class derives from {cls.__name__}")])
        bare = str(chosen).rsplit("/", 1)[-1]
        return target.build({**data, "type": bare}, title=f"{chosen} settings")

    @classmethod
    def load_implementation(cls) -> Any:
        """Import and return the class these settings configure.

        Returns:
            The implementation class.

        Raises:
            PluginLoadError: Importing it failed.
        """
        from ulna.core.plugins import load_object

        return load_object(cls.implementation, kind=cls.plugin_kind, owner=cls)


def _types(kind: str) -> list[str]:
    from ulna.core.plugins import registry

    return registry().types(kind)


def problems_from(
    error: ValidationError, cls: type[BaseModel], prefix: str = "", origins: Mapping[str, str] | None = None
) -> Iterator[ConfigProblem]:
    """Turn a pydantic error into problems with dotted paths.

    Args:
        error: What pydantic raised.
        cls: The class validated, for the nearest field name.
        prefix: Dotted path of the class inside a larger configuration.
        origins: Dotted path to the origin of its value.

    Yields:
        One problem for each error.
    """
    origins = origins or {}
    for item in error.errors(include_url=False):
        path = ".".join([prefix, *map(str, item["loc"])] if prefix else map(str, item["loc"]))
        inner = item.get("ctx", {}).get("error")
        if isinstance(inner, ConfigError):
            for problem in inner.problems:
                full = ".".join(p for p in (path, problem.path) if p)
                yield ConfigProblem(
                    full, problem.value, problem.expected, problem.suggestion, origins.get(full, problem.origin)
                )
            continue
        yield _problem(item, path, cls, origins)


def _problem(item: Any, path: str, cls: type[BaseModel], origins: Mapping[str, str]) -> ConfigProblem:
    name = str(item["loc"][-1]) if item["loc"] else ""
    if item["type"] == "extra_forbidden":
        owner = _class_at(cls, item["loc"][:-1])
        known = list(owner.model_fields)
        near = nearest(name, known)
        text = "unknown name" if near else f"unknown name; known are {', '.join(known)}"
        return ConfigProblem(path, item["input"], text, near, origins.get(path))
    if item["type"] == "missing":
        return ConfigProblem(path, None, "is required and was not given", None, origins.get(path))
    if item["type"] in ("bool_parsing", "bool_type"):
        return ConfigProblem(path, item["input"], _BOOLEANS, None, origins.get(path))
    text = item["msg"].removeprefix("Value error, ")
    return ConfigProblem(path, item["input"], text[:1].lower() + text[1:], None, origins.get(path))


def _class_at(cls: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel]:
    """Return the model class at `loc` below `cls`, or the deepest one that can be told."""
    for part in loc:
        info = cls.model_fields.get(str(part))
        annotation = None if info is None else info.annotation
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        models = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if not models:
            return cls
        cls = models[0]
    return cls
