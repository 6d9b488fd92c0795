# SPDX-License-Identifier: Apache-2.0
"""One-to-many events through pluggy, each hook plugin in its own manager: failing ones are counted and stop nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pluggy

from ulna.core.errors import PluginError, PluginUnusableError
from ulna.core.plugins.indexing import Registry, registry
from ulna.core.plugins.records import PluginRecord

__all__ = ["HookSpecs", "Hooks", "call_hook", "hookimpl", "hooks"]

_log = logging.getLogger(__name__)
_PROJECT = "ulna"
_hookspec = pluggy.HookspecMarker(_PROJECT)
hookimpl = pluggy.HookimplMarker(_PROJECT)
"""Marks a function of a hook plugin: `@hookimpl`. It may take any subset of the arguments of the event."""


class HookSpecs:
    """The events. A hook plugin is a module or object with functions of these names, marked `@hookimpl`."""

    @_hookspec
    def episode_saved(self, root: Path, repo_id: str, episode_index: int, length: int) -> None:
        """Tell that an episode is durable on disk.

        Args:
            root: Folder of the dataset.
            repo_id: Name of the dataset.
            episode_index: Index of the episode.
            length: Number of frames.
        """

    @_hookspec
    def training_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tell that an optimizer step was logged.

        Args:
            step: Number of steps taken.
            metrics: Name to value.
        """

    @_hookspec
    def checkpoint_written(self, path: Path, step: int) -> None:
        """Tell that a checkpoint is durable on disk.

        Args:
            path: Its folder.
            step: Number of steps taken.
        """

    @_hookspec
    def doctor_checks(self) -> Iterable[Mapping[str, str]]:
        """Return findings for `ulna plugins doctor`.

        Returns:
            Mappings with `level` (`ok`, `warning`, `error`), `title`, `detail` and `remedy`.
        """
        return ()

    @_hookspec
    def metrics(self, source: str, values: Mapping[str, float], step: int) -> None:
        """Tell figures that a running part measured.

        Args:
            source: Which part: `control`, `training`, `eval`.
            values: Name to value.
            step: Running number within the source.
        """


class Hooks:
    """The hook plugins of one registry, loaded on the first call.

    Args:
        reg: Where they are found.

    Attributes:
        failures: Qualified name of a hook plugin to the number of its failed calls (1 when it could not be loaded).
    """

    def __init__(self, reg: Registry) -> None:
        self._registry = reg
        self._managers: dict[str, pluggy.PluginManager] | None = None
        self.failures: dict[str, int] = {}

    def call(self, name: str, **arguments: Any) -> list[Any]:
        """Call every hook plugin that has this event.

        Args:
            name: Event, a method of `HookSpecs`.
            arguments: All its arguments.

        Returns:
            What they returned, without those that failed or returned None.

        Raises:
            PluginUnusableError: There is no such event, or a hook failed and `ULNA_STRICT=1`.
        """
        if name.startswith("_") or not hasattr(HookSpecs, name):
            raise PluginUnusableError(f"There is no hook {name!r}.", kind="hooks", type=name)
        if self._managers is None:
            usable = [record for record in self._registry.records("hooks") if record.usable]
            managers = {record.qualified: self._manager(record) for record in usable}
            self._managers = {name: manager for name, manager in managers.items() if manager is not None}
        results: list[Any] = []
        for qualified, manager in self._managers.items():
            try:
                results += getattr(manager.hook, name)(**arguments)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - a hook may raise anything, and must never stop a robot
                self._failed(qualified, f"failed in {name}", error)
        return results

    def _manager(self, record: PluginRecord) -> pluggy.PluginManager | None:
        manager = pluggy.PluginManager(_PROJECT)
        manager.add_hookspecs(HookSpecs)
        try:
            found = self._registry.load_record(record)
            manager.register(found() if isinstance(found, type) else found, record.qualified)
            manager.check_pending()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - isolation of one hook plugin from the others
            self._failed(record.qualified, "could not be set up and is left out", error)
            return None
        return manager

    def _failed(self, qualified: str, what: str, error: BaseException) -> None:
        count = self.failures[qualified] = self.failures.get(qualified, 0) + 1
        message = f"The hook plugin {qualified} {what}: {type(error).__name__}: {error}"
        if self._registry.settings.strict:
            raise PluginUnusableError(message, kind="hooks", type=qualified) from error
        if count == 1:
            _log.warning("%s. Further failures of it are only counted.", message)
        if isinstance(error, PluginError):
            _log.debug("details", exc_info=error)


_hooks: tuple[Registry, Hooks] | None = None


def hooks() -> Hooks:
    """Return the hook plugins of the process's registry."""
    global _hooks
    current = registry()
    if _hooks is None or _hooks[0] is not current:
        _hooks = (current, Hooks(current))
    return _hooks[1]


def call_hook(name: str, **arguments: Any) -> list[Any]:
    """Call an event of every hook plugin; a failing one is warned about once and counted.

    Args:
        name: Event, a method of `HookSpecs`.
        arguments: All its arguments.

    Returns:
        What they returned, without those that failed or returned None.

    Raises:
        PluginUnusableError: There is no such event, or a hook failed and `ULNA_STRICT=1`.
    """
    return hooks().call(name, **arguments)
