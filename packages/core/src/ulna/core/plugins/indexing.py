# SPDX-License-Identifier: Apache-2.0
"""The registry: one object for the process (tests build their own) that indexes plugins and loads them on request."""

from __future__ import annotations

import builtins
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ulna.core.errors import (
    PluginConflictError,
    PluginError,
    PluginLoadError,
    PluginNotFoundError,
    PluginUnusableError,
    nearest,
)
from ulna.core.plugins.judging import Settings, judge, read_settings
from ulna.core.plugins.kinds import KINDS
from ulna.core.plugins.loading import Origin, import_object, load_error
from ulna.core.plugins.records import FoundEntryPoint, PluginRecord, normalize

if TYPE_CHECKING:
    from ulna.core.config import PluginConfig

__all__ = ["IN_PROCESS", "Registry", "load_object", "registry", "use_registry"]

IN_PROCESS = "(in process)"
_log = logging.getLogger(__name__)


class Registry:
    """Every plugin that can be found, judged; loads one when asked. Thread-safe.

    Args:
        entry_points: What finds entry points; None scans the installed distributions, on first use.
        environ: Environment variables with the switches; None means those of this process.
    """

    def __init__(
        self,
        entry_points: Callable[[], Iterable[FoundEntryPoint]] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._find_entry_points = entry_points
        self._environ = os.environ if environ is None else environ
        self._lock = threading.RLock()
        self._settings: Settings | None = None
        self._found: list[FoundEntryPoint] | None = None
        self._records: list[PluginRecord] | None = None
        self._own: dict[tuple[str, str, str], tuple[PluginRecord, Any]] = {}
        self._loaded: dict[tuple[str, str, str], Any] = {}

    @property
    def settings(self) -> Settings:
        """The user's switches and preferences, read once."""
        if self._settings is None:
            self._settings = read_settings(self._environ)
        return self._settings

    def records(self, kind: str | None = None) -> list[PluginRecord]:
        """Return all plugins, judged. Imports none of them and never raises because of one.

        Args:
            kind: Only this kind.
        """
        with self._lock:
            if self._records is None:
                if self._found is None:
                    self._found = list(self._scan())
                self._records = judge(self._found, self.settings, [record for record, _ in self._own.values()])
            return [r for r in self._records if kind is None or r.kind == kind]

    def refresh(self) -> None:
        """Forget what was scanned, so that newly installed plugins and changed switches are seen."""
        with self._lock:
            self._found = self._records = self._settings = None

    def _scan(self) -> Iterable[FoundEntryPoint]:
        if self._find_entry_points is not None:
            return self._find_entry_points()
        from ulna.core.plugins.scanning import scan

        return scan()

    def types(self, kind: str) -> list[str]:
        """Return the type strings that can be used, sorted. Imports nothing.

        A type in conflict appears as its qualified names.

        Args:
            kind: Plugin kind.

        Raises:
            PluginUnusableError: A plugin is broken and `ULNA_STRICT=1`.
        """
        self._check_strict(kind)
        return sorted(r.type if r.default else r.qualified for r in self.records(kind) if r.usable)

    def _check_strict(self, kind: str) -> None:
        if not self.settings.strict:
            return
        bad = [r for r in self.records(kind) if r.status not in ("ok", "disabled")]
        if bad:
            lines = "; ".join(f"{r.qualified} is {r.status}: {r.reason}" for r in bad)
            raise PluginUnusableError(f"ULNA_STRICT is set and {lines}.", kind=kind, hint=bad[0].remedy)

    def find(self, kind: str, type: str) -> PluginRecord:
        """Return the one usable plugin of a type. Imports nothing.

        Args:
            kind: Plugin kind.
            type: Type string, or `distribution/type`.

        Raises:
            PluginNotFoundError: Nothing installed offers it; names what comes nearest.
            PluginConflictError: Several distributions offer it and none is preferred.
            PluginUnusableError: It is disabled, incompatible or invalid.
        """
        self._check_strict(kind)
        distribution, _, bare = type.rpartition("/")
        hits = [
            r
            for r in self.records(kind)
            if r.type == bare and (not distribution or normalize(r.distribution) == normalize(distribution))
        ]
        if not hits:
            raise self._not_found(kind, type, bare)
        chosen = [r for r in hits if r.usable and (r.default or distribution)]
        if len(chosen) == 1:
            return chosen[0]
        first = next((r for r in hits if r.status == "conflict"), hits[0])
        if first.status == "conflict":
            message = f"{type!r} is ambiguous: {first.reason}."
            raise PluginConflictError(message, kind=kind, type=type, hint=first.remedy)
        raise PluginUnusableError(
            f"{first.label} of {first.distribution} {first.version} is {first.status}: {first.reason}.",
            kind=kind,
            type=type,
            distribution=first.distribution,
            hint=first.remedy,
        )

    def _not_found(self, kind: str, type: str, bare: str) -> PluginNotFoundError:
        if kind not in KINDS:
            near = nearest(kind, list(KINDS))
            return PluginNotFoundError(
                f"There is no plugin kind {kind!r}{f'; did you mean {near!r}?' if near else ''}",
                kind=kind,
                type=type,
                hint=f"Kinds are {', '.join(KINDS)}.",
            )
        known = sorted(r.type if r.default else r.qualified for r in self.records(kind) if r.usable)
        near = nearest(bare, known)
        elsewhere = sorted({r.kind for r in self.records() if r.type == bare and r.usable})
        message = f"No installed plugin offers the {KINDS[kind].title} type {type!r}"
        message += f"; did you mean {near!r}?" if near else "."
        if elsewhere:
            message += f" It exists as {' and '.join(KINDS[k].title for k in elsewhere)}."
        hint = f"Installed {kind}: {', '.join(known) or 'none'}. See them with: ulna plugins list --kind {kind}"
        return PluginNotFoundError(message, kind=kind, type=type, hint=hint)

    def load(self, kind: str, type: str) -> Any:
        """Import a plugin, once.

        Args:
            kind: Plugin kind.
            type: Type string, or `distribution/type`.

        Returns:
            The object of its entry point: a config class, a step class, a Typer app, a hook object.

        Raises:
            PluginLoadError: Importing it failed; says everything there is to know.
            PluginNotFoundError: Nothing installed offers it.
            PluginConflictError: Several distributions offer it and none is preferred.
            PluginUnusableError: It is disabled, incompatible or invalid.
        """
        return self.load_record(self.find(kind, type))

    def load_record(self, record: PluginRecord) -> Any:
        """Import the plugin of a record, once.

        Args:
            record: One of `records()`.

        Returns:
            The object of its entry point.

        Raises:
            PluginLoadError: Importing it failed.
        """
        key = (record.kind, record.type, normalize(record.distribution))
        with self._lock:
            if key in self._own:
                return self._own[key][1]
            if key not in self._loaded:
                begin = time.perf_counter()
                self._loaded[key] = import_object(record.value, _origin(record), undo=self._rolling_back)
                level = logging.WARNING if self.settings.trace else logging.DEBUG
                took_ms = (time.perf_counter() - begin) * 1e3
                _log.log(level, "loaded %s of %s in %.1f ms", record.label, record.distribution, took_ms)
            return self._loaded[key]

    def config_class(self, kind: str, type: str) -> type[PluginConfig]:
        """Load a plugin that is a configuration class, and check that it is one of this kind.

        Args:
            kind: Plugin kind.
            type: Type string, or `distribution/type`.

        Returns:
            The class.

        Raises:
            PluginLoadError: It is not a configuration class of the kind, or importing it failed.
            PluginNotFoundError: Nothing installed offers it.
            PluginConflictError: Several distributions offer it and none is preferred.
            PluginUnusableError: It is disabled, incompatible or invalid.
        """
        from ulna.core.config import PluginConfig

        record = self.find(kind, type)
        found = self.load_record(record)
        if not (isinstance(found, builtins.type) and issubclass(found, PluginConfig)):
            problem = f"it gives {found!r}, expected a class that derives from PluginConfig"
        elif found.plugin_kind != kind:
            own = found.plugin_kind or "no kind"
            problem = f"{found.__name__} is a configuration of {own}, not of {kind}: derive it from {KINDS[kind].base}"
        else:
            return cast(Any, found)  # type: ignore[no-any-return]
        error = load_error(_origin(record), record.value, TypeError(problem))
        raise PluginLoadError(error.message, kind=kind, type=type, distribution=record.distribution, hint=error.hint)

    def register(self, kind: str, type: str, obj: Any, *, distribution: str = IN_PROCESS) -> Callable[[], None]:
        """Add a plugin of this process: a test's, or a notebook's.

        Registering a class again under its own name (a re-run notebook cell) replaces it.

        Args:
            kind: Plugin kind.
            type: Type string.
            obj: What `load` shall return.
            distribution: Who to say ships it.

        Returns:
            A function that takes it away again.

        Raises:
            PluginNotFoundError: There is no such kind.
            PluginConflictError: Something else is registered in this process under this name.
        """
        if kind not in KINDS:
            raise self._not_found(kind, type, type)
        value = f"{getattr(obj, '__module__', '?')}:{getattr(obj, '__qualname__', repr(obj))}"
        record = PluginRecord(kind, type, value, distribution, "", api_level=KINDS[kind].api_level)
        key = (kind, type, normalize(distribution))
        with self._lock:
            old = self._own.get(key)
            if old is not None and old[1] is not obj and old[0].value != value:
                raise PluginConflictError(
                    f"{record.label} is registered already in this process, as {old[0].value}; {value} was refused.",
                    kind=kind,
                    type=type,
                    hint="Choose another type, or undo the first registration.",
                )
            self._own[key] = (record, obj)
            self._records = None
        return lambda: self._unregister(key, obj)

    def _unregister(self, key: tuple[str, str, str], obj: Any) -> None:
        with self._lock:
            if key in self._own and self._own[key][1] is obj:
                del self._own[key]
                self._records = None

    @contextmanager
    def _rolling_back(self) -> Iterator[None]:
        """Take back the registrations made in the body when it fails."""
        with self._lock:
            before = dict(self._own)
            try:
                yield
            except BaseException:
                self._own, self._records = before, None
                raise

    def record_of(self, owner: type) -> PluginRecord | None:
        """Return the record through which a class came in, if it did.

        Args:
            owner: A loaded plugin class.
        """
        with self._lock:
            for record in self.records():
                key = (record.kind, record.type, normalize(record.distribution))
                if self._loaded.get(key) is owner or (key in self._own and self._own[key][1] is owner):
                    return record
        return None


def _origin(record: PluginRecord) -> Origin:
    return Origin(record.kind, record.type, record.distribution, record.version, f"{record.type} = {record.value}")


_current: Registry | None = None
_current_lock = threading.Lock()


def registry() -> Registry:
    """Return the registry of this process, made on first use."""
    global _current
    with _current_lock:
        if _current is None:
            _current = Registry()
        return _current


@contextmanager
def use_registry(reg: Registry) -> Iterator[Registry]:
    """Make `reg` the registry of this process inside the context. For tests.

    Args:
        reg: The registry to use.

    Yields:
        The same registry.
    """
    global _current
    with _current_lock:
        before, _current = _current, reg
    try:
        yield reg
    finally:
        with _current_lock:
            _current = before


def load_object(path: str, *, kind: str, owner: Any) -> Any:
    """Import the implementation that a plugin's configuration names.

    Args:
        path: `module:Class`.
        kind: Plugin kind.
        owner: The configuration class that names it.

    Returns:
        The class.

    Raises:
        PluginLoadError: Importing it failed, or the configuration names none.
    """
    reg = registry()
    record = reg.record_of(owner)
    name = getattr(owner, "__qualname__", str(owner))
    origin = Origin(kind, name, entry_point=f"implementation of {name}") if record is None else _origin(record)
    if ":" not in path:
        raise load_error(origin, path, PluginError(f"{name}.implementation is {path!r}, expected 'module:Class'"))
    origin = replace(origin, entry_point=f"{origin.entry_point} (implementation {path})")
    return import_object(path, origin, undo=reg._rolling_back)
