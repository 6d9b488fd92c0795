# SPDX-License-Identifier: Apache-2.0
"""What suites ask of a configuration class: it survives JSON, imports little and names what it configures."""

from __future__ import annotations

import json
from typing import Any

from ulna.core.config import PluginConfig
from ulna.testing.checks import NotExercised, expect
from ulna.testing.isolation import HEAVY_MODULES, importing

__all__ = ["as_read_again", "implementation_fits", "module_is_lean", "runs_without", "survives_json"]


def survives_json(config: PluginConfig) -> None:
    """Expect that settings written as JSON and read again are the same.

    Args:
        config: Settings of a concrete plugin.
    """
    text = json.dumps(config.to_dict())
    again = type(config).build(json.loads(text))
    lost = [
        f"{name}: {getattr(config, name)!r} became {getattr(again, name)!r}"
        for name in type(config).model_fields
        if getattr(config, name) != getattr(again, name)
    ]
    expect(not lost, f"{type(config).__name__} came back from JSON changed: {'; '.join(lost)}")
    expect(again.to_dict() == config.to_dict(), f"{type(config).__name__} writes other JSON after one round trip")


def as_read_again(config: PluginConfig) -> dict[str, Any]:
    """Return settings as they are after JSON, so that a fault of the settings is not blamed on what saves them.

    Args:
        config: Settings of a concrete plugin.
    """
    known = {k: v for k, v in json.loads(json.dumps(config.to_dict())).items() if k in type(config).model_fields}
    return type(config).build(known).to_dict()


def _module_of(cls: type, watched: tuple[str, ...], blocked: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Import the module of a class afresh; return what of `watched` came with it."""
    loaded, problem, missing = importing((cls.__module__,), watched=watched, blocked=blocked)
    root = cls.__module__.partition(".")[0]
    if problem and missing in (cls.__module__, root):
        raise NotExercised(f"{cls.__module__} cannot be imported by a fresh interpreter")
    expect(problem is None, f"importing {cls.__module__} afresh failed: {problem}")
    return loaded


def module_is_lean(config: type[PluginConfig], vendor_modules: tuple[str, ...]) -> None:
    """Expect that the module of a configuration class imports no heavy library.

    Args:
        config: The class.
        vendor_modules: Libraries of this plugin's vendor, besides `HEAVY_MODULES`.
    """
    loaded = _module_of(config, tuple(sorted({*HEAVY_MODULES, *vendor_modules})))
    expect(not loaded, f"importing {config.__module__} also imports {', '.join(loaded)}")


def runs_without(implementation: type, blocked: tuple[str, ...]) -> None:
    """Expect that an implementation's module can be imported where some libraries are not installed.

    Args:
        implementation: The class.
        blocked: Modules made as if they were missing.
    """
    _module_of(implementation, (), blocked)


def implementation_fits(config: PluginConfig, made: Any) -> None:
    """Expect that the settings name the class of the object they configure.

    Args:
        config: Settings.
        made: The object.
    """
    loaded = type(config).load_implementation()
    named = f"{type(config).__name__}.implementation"
    expect(isinstance(loaded, type), f"{named} is {type(config).implementation!r}, which is {loaded!r} and no class")
    expect(isinstance(made, loaded), f"{named} names {loaded.__name__}, the fixture gave a {type(made).__name__}")
