# SPDX-License-Identifier: Apache-2.0
"""The plugin system: scan, judge, index and load. Names resolve on first use; importing this loads no plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.core.plugins.events import Hooks, HookSpecs, call_hook, hookimpl, hooks
    from ulna.core.plugins.indexing import IN_PROCESS, Registry, load_object, registry, use_registry
    from ulna.core.plugins.judging import Settings, judge, read_settings, settings_path
    from ulna.core.plugins.kinds import KINDS, KindInfo
    from ulna.core.plugins.loading import Origin, import_object
    from ulna.core.plugins.records import STATUSES, FoundEntryPoint, PluginRecord, normalize
    from ulna.core.plugins.scanning import copies, installed, scan

_HOME = {
    "events": ("HookSpecs", "Hooks", "call_hook", "hookimpl", "hooks"),
    "judging": ("Settings", "judge", "read_settings", "settings_path"),
    "kinds": ("KINDS", "KindInfo"),
    "loading": ("Origin", "import_object"),
    "records": ("STATUSES", "FoundEntryPoint", "PluginRecord", "normalize"),
    "indexing": ("IN_PROCESS", "Registry", "load_object", "registry", "use_registry"),
    "scanning": ("copies", "installed", "scan"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "IN_PROCESS",
    "KINDS",
    "STATUSES",
    "FoundEntryPoint",
    "HookSpecs",
    "Hooks",
    "KindInfo",
    "Origin",
    "PluginRecord",
    "Registry",
    "Settings",
    "call_hook",
    "copies",
    "hookimpl",
    "hooks",
    "import_object",
    "installed",
    "judge",
    "load_object",
    "normalize",
    "read_settings",
    "registry",
    "scan",
    "settings_path",
    "use_registry",
]

__getattr__, __dir__ = lazy_names(globals(), _MODULE_OF)
