# SPDX-License-Identifier: Apache-2.0
"""Commands whose options are a configuration: help with the chosen plugins' fields, completion, `--print-config`."""

from __future__ import annotations

import inspect
import os
import shlex
import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from ulna.core.commands.terminal import message, output, reporting
from ulna.core.errors import ConfigError, UlnaError

if TYPE_CHECKING:
    from ulna.core.config import Config
    from ulna.core.options import FieldHelp

__all__ = ["QuickGroup", "command_group", "config_command"]

_HELP_FLAGS = ("--help", "-h")
_PRINT_FLAG = "--print-config"
_STANDARD = (
    ("--config=FILE", "Read settings from a YAML or JSON file; flags go over it."),
    (_PRINT_FLAG, "Show the resulting settings and where each came from, and stop."),
    ("--help", "Show this; name a type (--policy.type=act --help) to see its settings too."),
)


@dataclass(frozen=True)
class _Spec:
    config: str | type[Config]
    run: str | Callable[..., Any]
    name: str
    help: str
    examples: Sequence[str]

    def config_class(self) -> type[Config]:
        found: type[Config] = self._load(self.config)
        return found

    def function(self) -> Callable[..., Any]:
        found: Callable[..., Any] = self._load(self.run)
        return found

    def _load(self, what: Any) -> Any:
        if not isinstance(what, str):
            return what
        from ulna.core.plugins import Origin, import_object

        return import_object(what, Origin("commands", self.name))


def config_command(
    config: str | type[Config],
    run: str | Callable[..., Any],
    *,
    name: str,
    help: str,
    examples: Sequence[str] = (),
) -> typer.Typer:
    """Make a command whose options are the fields of a configuration.

    Neither the configuration class nor the function is imported before it is used.

    Args:
        config: `module:Class`, or the class.
        run: `module:function`, or the function. Called with the configuration, and with `origins=` (dotted path to
            where the value came from) when it takes that; may return an exit code.
        name: Name of the command.
        help: What it does; the first line is its summary.
        examples: Command lines to show in its help.

    Returns:
        A Typer app with this one command.
    """
    spec = _Spec(config, run, name, inspect.cleandoc(help), tuple(examples))
    app = typer.Typer(name=name, help=help, rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    app.command(name, cls=type("ConfigCommand", (_ConfigCommand,), {"spec": spec}), help=help)(lambda: None)
    return app


def command_group(name: str, help: str) -> typer.Typer:
    """Make a Typer app for several sub-commands with the house's manners: plain help, no completion options of its own.

    Args:
        name: Name of the group.
        help: What its commands are about.

    Returns:
        The app; add to it with `@app.command()`.
    """
    app = typer.Typer(
        name=name,
        cls=QuickGroup,
        help=help,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": list(_HELP_FLAGS)},
    )
    app.callback()(lambda: None)
    return app


class QuickGroup(TyperGroup):
    """A group that leaves its own options alone when a sub-command comes first.

    Typer would import pydantic to find that none was given, which is half the time that a quick command takes.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Split the sub-command off.

        Args:
            ctx: Context of the group.
            args: Words after the group's name.
        """
        if not args or args[0].startswith("-"):
            return super().parse_args(ctx, args)
        ctx._protected_args, ctx.args = args[:1], args[1:]
        return args[1:]


@dataclass(frozen=True)
class _Completion:
    value: str
    help: str = ""
    type: str = "plain"


class _ConfigCommand(TyperCommand):
    """A command that hands its arguments to the options reader instead of parsing them by declared parameters."""

    spec: ClassVar[_Spec]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.args = list(args)
        if any(flag in args for flag in _HELP_FLAGS) and not ctx.resilient_parsing:
            with reporting():
                output(self.get_help(ctx).rstrip())
            ctx.exit()
        return list(ctx.args)

    def invoke(self, ctx: Any) -> Any:
        with reporting():
            code = _run(self.spec, ctx.args)
        if code:
            raise SystemExit(code)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(_help_text(self.spec, ctx.command_path, [a for a in ctx.args if a not in _HELP_FLAGS]))

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        try:
            return _complete(self.spec, ctx.args, incomplete)
        except UlnaError:
            return []


def _run(spec: _Spec, arguments: Sequence[str]) -> int:
    from ulna.core.options import read_options, render

    rest = [a for a in arguments if a != _PRINT_FLAG]
    try:
        resolved = read_options(spec.config_class(), rest, title=f"{spec.name} settings")
    except ConfigError as error:
        hint = error.hint or f"See what is accepted with: ulna {spec.name} --help"
        raise ConfigError(error.problems, title=f"{spec.name} settings", hint=hint) from error
    if len(rest) < len(arguments):
        output(render(resolved).rstrip())
        return 0
    function = spec.function()
    extra = {"origins": resolved.origins} if "origins" in inspect.signature(function).parameters else {}
    return function(resolved.config, **extra) or 0


def _fields(spec: _Spec, arguments: Sequence[str]) -> list[FieldHelp]:
    from ulna.core.options import collect, describe

    cls = spec.config_class()
    try:
        return describe(cls, collect(cls, [a for a in arguments if a != _PRINT_FLAG]))
    except ConfigError as error:
        message(f"Error: {error}")
        return describe(cls)


def _help_text(spec: _Spec, path: str, arguments: Sequence[str]) -> str:
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)
    parts = [f"Usage: {path} [--config=FILE] [--name=value ...]", *_paragraphs(spec.help, width)]
    if spec.examples:
        parts.append("Examples:\n" + "\n".join(f"  {line}" for line in spec.examples))
    sections: dict[str, list[FieldHelp]] = {}
    for item in _fields(spec, arguments):
        sections.setdefault(item.section, []).append(item)
    for section, items in sorted(sections.items(), key=lambda pair: pair[0] != ""):
        rows = [(f"--{item.path}=<{item.type}>", _words(item)) for item in items]
        parts.append(_definitions(f"Settings of {section}:" if section else "Settings:", rows, width))
    parts.append(_definitions("Always:", _STANDARD, width))
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str, width: int) -> list[str]:
    return [textwrap.fill(" ".join(part.split()), width) for part in text.split("\n\n") if part.strip()]


def _words(item: FieldHelp) -> str:
    default = f"[default: {item.default}]" if item.default else ("" if item.path.endswith("type") else "[required]")
    return f"{item.description} {default}".strip()


def _definitions(title: str, rows: Sequence[tuple[str, str]], width: int) -> str:
    indent = min(max(len(flag) for flag, _ in rows), 38) + 4
    lines = [title]
    for flag, words in rows:
        wrapped = textwrap.wrap(words, max(width - indent, 30)) or [""]
        if len(flag) + 4 > indent:
            lines.append(f"  {flag}")
        else:
            wrapped[0] = f"  {flag}".ljust(indent) + wrapped[0]
            lines.append(wrapped.pop(0))
        lines += [" " * indent + line for line in wrapped]
    return "\n".join(line.rstrip() for line in lines)


def _complete(spec: _Spec, arguments: Sequence[str], incomplete: str) -> list[_Completion]:
    """Complete names of settings, and values where they can be listed.

    Bash hands over `--policy.type`, `=` and `a` as three words, zsh and fish `--policy.type=a` as one, of which only
    the value arrives here: the whole word is in their variable, and they want the whole word back.
    """
    words = [word for word in arguments if word != "="]
    whole = (shlex.split(os.environ.get("_TYPER_COMPLETE_ARGS", "")) or [""])[-1]
    name, sign, _ = whole.partition("=")
    prefix = f"{name}=" if sign and name.startswith("--") else ""
    setting = name if prefix else (words[-1] if words and words[-1].startswith("--") and "=" not in words[-1] else "")
    if not setting or (incomplete.startswith("-") and not prefix):
        found = [_Completion(f"--{f.path}", f.description) for f in _fields(spec, _whole(words)) if "<" not in f.path]
        found += [_Completion(flag.partition("=")[0], words_) for flag, words_ in _STANDARD]
    else:
        choices = next((f.choices for f in _fields(spec, ()) if f"--{f.path}" == setting), ())
        before = words if prefix else words[:-1]
        choices = choices or next((f.choices for f in _fields(spec, _whole(before)) if f"--{f.path}" == setting), ())
        return [_Completion(prefix + choice) for choice in choices if choice.startswith(incomplete)]
    return [item for item in found if item.value.startswith(incomplete)]


def _whole(words: Sequence[str]) -> list[str]:
    """Drop what cannot be read yet: words that belong to no flag."""
    return [w for i, w in enumerate(words) if w.startswith("--") or (i and words[i - 1].startswith("--"))]
