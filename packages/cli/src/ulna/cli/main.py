# SPDX-License-Identifier: Apache-2.0
"""The console script: a group whose commands are found by entry point, and imported only when called."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer

from ulna.cli.__about__ import __version__
from ulna.cli.catalogue import BROUGHT_BY, PLANNED, install_hint
from ulna.core.commands.configured import QuickGroup
from ulna.core.commands.terminal import output, reporting
from ulna.core.errors import PluginError, PluginLoadError, PluginNotFoundError, nearest
from ulna.core.plugins import registry
from ulna.core.plugins.records import PluginRecord

__all__ = ["main"]

_COMPLETION_OPTIONS = ("install_completion", "show_completion")


@dataclass(frozen=True)
class _Completion:
    value: str
    help: str = ""
    type: str = "plain"


class _Commands(QuickGroup):
    """Knows its commands from the registry; `ulna --help` imports none of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return registry().types("commands")

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        try:
            return _load(cmd_name)
        except PluginNotFoundError:
            return None
        except PluginError:
            if ctx.resilient_parsing:
                return None
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, *rest = args
        command = self.get_command(ctx, name)
        if command is None and not ctx.resilient_parsing:
            raise _unknown(name, self.list_commands(ctx))
        return (None if command is None else name), command, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(r.type if r.default else r.qualified, r.summary) for r in _usable()]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(sorted(rows))
        known = set(registry().types("commands"))
        missing = [(command, f'pip install "{BROUGHT_BY[command]}"') for command in sorted(BROUGHT_BY.keys() - known)]
        if missing:
            with formatter.section("Not installed"):
                formatter.write_dl(missing)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = [_Completion(r.type if r.default else r.qualified, r.summary) for r in _usable()]
        return [item for item in names if item.value.startswith(incomplete)]


def _usable() -> list[PluginRecord]:
    return [record for record in registry().records("commands") if record.usable]


def _load(name: str) -> Any:
    """Load a command and make it fit in: plain help, which is quick, and no completion options of its own."""
    app = registry().load("commands", name)
    command = typer.main.get_command(app) if isinstance(app, typer.Typer) else app
    if not hasattr(command, "make_context"):
        record = registry().find("commands", name)
        raise PluginLoadError(
            f"commands/{name} of {record.distribution} {record.version} gives {app!r}, expected a typer.Typer.",
            kind="commands",
            type=name,
            distribution=record.distribution,
        )
    command.params = [p for p in command.params if p.name not in _COMPLETION_OPTIONS]
    _plain(command)
    return command


def _plain(command: Any) -> None:
    command.rich_markup_mode = None
    for child in (getattr(command, "commands", None) or {}).values():
        _plain(child)


def _unknown(name: str, known: Sequence[str]) -> PluginNotFoundError:
    hint = install_hint(name)
    if hint is not None:
        return PluginNotFoundError(f"The command {name!r} is not installed.", kind="commands", type=name, hint=hint)
    if name in PLANNED:
        text = f"The command {name!r} is planned, and no distribution brings it yet."
        return PluginNotFoundError(text, kind="commands", type=name, hint="See all commands with: ulna --help")
    near = nearest(name, [*known, *BROUGHT_BY])
    words = f"; did you mean {near!r}?" if near else "."
    return PluginNotFoundError(
        f"There is no command {name!r}{words}", kind="commands", type=name, hint="See all commands with: ulna --help"
    )


def _show_version(value: bool) -> None:
    if value:
        output(f"ulna {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    """Robot learning as an ecosystem of plugins."""


def build() -> Any:
    """Return the command group."""
    app = typer.Typer(
        cls=_Commands,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 110},
    )
    app.callback()(_root)
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; always ends the process.

    Args:
        arguments: The words after `ulna`; None takes those of the process.

    Raises:
        SystemExit: 0 when all went well, 1 when it failed, 2 when what was asked for is wrong, 130 after Ctrl-C.
    """
    if os.environ.get("ULNA_TRACE", "") not in ("", "0"):
        import logging

        logging.basicConfig(level=logging.WARNING)
    with reporting():
        build().main(args=arguments, prog_name="ulna")
