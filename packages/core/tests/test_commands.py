# SPDX-License-Identifier: Apache-2.0
"""A command made from a configuration: help, options, completion, output, errors and exit codes."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner, Result

from ulna.core.commands import command_group, config_command, message, output, output_json, output_table, reporting
from ulna.core.config import Config, PluginConfig
from ulna.core.errors import ConfigError, ConfigProblem, DeviceError, PluginNotFoundError
from ulna.core.plugins import FoundEntryPoint, Registry, use_registry


class Policy(PluginConfig):
    """Base of policies."""

    plugin_kind: ClassVar[str] = "policies"
    plugin_base: ClassVar[bool] = True


class Act(Policy):
    """A policy."""

    type: Literal["act"] = "act"
    chunk_size: int = Field(100, description="Actions at once.")


class Settings(Config):
    """Settings of the command."""

    policy: Policy | None = None
    steps: int = Field(description="How long.")
    mode: Literal["fast", "slow"] = "fast"
    camera: str = "front"


def run(config: Settings, origins: Mapping[str, str]) -> int:
    if config.camera == "none":
        raise DeviceError("No camera.", hint="Plug one in.")
    if config.camera == "ctrl-c":
        raise KeyboardInterrupt
    if config.camera in errno.errorcode.values():
        number = getattr(errno, config.camera)
        raise OSError(number, os.strerror(number), "/some/where")
    output(f"{config.steps} steps, from {origins['steps']}")
    message("done")
    return 7 if config.camera == "seven" else 0


app = config_command(
    f"{__name__}:Settings", run, name="train", help="Train a policy.\n\nMore words.", examples=["ulna train --steps=1"]
)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, _this_module()))
    with use_registry(Registry(list, environ={})) as reg:
        reg.register("policies", "act", Act)
        yield reg


def _this_module() -> object:
    import types

    module = types.ModuleType(__name__)
    module.__dict__.update(globals())
    return module


def invoke(*arguments: str, command: typer.Typer = app, **environ: str) -> Result:
    return CliRunner().invoke(command, list(arguments), env={"COLUMNS": "100", **environ}, prog_name="ulna train")


def test_it_runs_with_config_and_origins() -> None:
    """Data goes to stdout, messages to stderr, and the function's number is the exit code."""
    result = invoke("--steps=3")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "3 steps, from --steps\n", "done\n")
    assert invoke("--steps=3", "--camera=seven").exit_code == 7


def test_help_lists_fields_of_the_chosen_plugin() -> None:
    """Without a choice the installed types are named; with one its fields are there too."""
    bare = invoke("--help").stdout
    assert "Usage: ulna train" in bare
    assert "Train a policy.\n\nMore words." in bare
    assert "  ulna train --steps=1" in bare
    assert "--policy.type=<act>" in bare
    assert "chunk_size" not in bare
    assert "--steps=<int>" in bare
    assert "How long. [required]" in bare
    chosen = invoke("--policy.type=act", "-h").stdout
    assert "Settings of policy (act):" in chosen
    assert "Actions at once. [default: 100]" in chosen


def test_help_is_wrapped_to_the_terminal() -> None:
    """Also the words of the author, which are broken where their source is."""
    command = config_command(Settings, run, name="long", help="Do it.\n\n" + "Many words\n" * 20)
    shown = invoke("--help", command=command, COLUMNS="60").stdout
    assert max(map(len, shown.splitlines())) <= 60
    assert "Many words Many words" in shown


def test_help_survives_wrong_settings() -> None:
    """Somebody who asks for help gets it, whatever else is wrong on the line."""
    result = invoke("--policy.type=actt", "--config=/nowhere/c.yaml", "--help")
    assert result.exit_code == 0
    assert "--steps=<int>" in result.stdout
    assert "/nowhere/c.yaml" in result.stderr


def test_print_config_stops_before_running() -> None:
    """The resulting settings with their origins, and nothing else."""
    result = invoke("--steps=3", "--print-config", "--policy.type=act")
    assert result.exit_code == 0
    rows = [line.split("#") for line in result.stdout.splitlines() if "#" in line]
    assert {left.strip(): right.strip() for left, right in rows} == {
        'type: "act"': "--policy.type",
        "chunk_size: 100": "default",
        "steps: 3": "--steps",
        'mode: "fast"': "default",
        'camera: "front"': "default",
    }


def test_wrong_settings_exit_with_2() -> None:
    """All problems, the nearest name, and where to see more; no traceback."""
    result = invoke("--stepps=3")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "did you mean 'steps'?" in result.stderr
    assert "steps: is required" in result.stderr
    assert result.stderr.endswith("ulna train --help\n")


def test_failure_exits_with_1_and_interrupt_with_130() -> None:
    """An error of Ulna is a message with what to do next."""
    failed = invoke("--steps=1", "--camera=none")
    assert (failed.exit_code, failed.stderr) == (1, "Error: No camera.\nPlug one in.\n")
    stopped = invoke("--steps=1", "--camera=ctrl-c")
    assert (stopped.exit_code, stopped.stderr) == (130, "Interrupted.\n")


def test_trace_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """ULNA_TRACE=1 is for developers."""
    result = invoke("--steps=1", "--camera=none", ULNA_TRACE="1")
    assert "Traceback" in result.stderr
    assert result.exit_code == 1


def test_broken_function_is_a_load_error() -> None:
    """What the command runs is imported late; when that fails the message says what."""
    broken = config_command(Settings, "no_such_module:run", name="train", help="x")
    result = invoke("--steps=1", command=broken)
    assert result.exit_code == 1
    assert "commands/train could not be loaded" in result.stderr
    assert "no_such_module" in result.stderr


def test_broken_plugin_in_help_is_a_clean_error() -> None:
    """The plugin asked for cannot be imported: said by name, without a traceback."""
    entries = [FoundEntryPoint("ulna.policies", "rude", "no_such_module:X", "acme")]
    with use_registry(Registry(lambda: entries, environ={})):
        result = invoke("--policy.type=rude", "--help")
        assert result.exit_code == 1
        assert "policies/rude of acme" in result.stderr
        assert invoke("--help").exit_code == 0


def complete(line: str, shell: str) -> list[str]:
    """What a shell is offered at the end of a line."""
    root = typer.Typer(rich_markup_mode=None)
    root.add_typer(command_group("other", "Other."), name="other")
    root.registered_commands += app.registered_commands
    words = line.split(" ")
    environ = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    if shell == "fish":
        environ = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    result = CliRunner().invoke(root, [], env={"_ULNA_COMPLETE": f"complete_{shell}", **environ}, prog_name="ulna")
    return [text.partition("\t")[0] for text in result.stdout.splitlines() if text]


@pytest.mark.parametrize(
    ("line", "shell", "offered"),
    [
        ("ulna train --st", "bash", ["--steps"]),
        ("ulna train --policy.", "bash", ["--policy.type"]),
        ("ulna train --policy.type=act --policy.ch", "bash", ["--policy.chunk_size"]),
        ("ulna train --policy.type = act --policy.ch", "bash", ["--policy.chunk_size"]),
        ("ulna train --policy.type a", "bash", ["act"]),
        ("ulna train --policy.type = a", "bash", ["act"]),
        ("ulna train --policy.type =", "bash", ["act"]),
        ("ulna train --mode ", "bash", ["fast", "slow"]),
        ("ulna train --mode=s", "fish", ["--mode=slow"]),
        ("ulna train --policy.type=a", "fish", ["--policy.type=act"]),
        ("ulna train --pri", "fish", ["--print-config"]),
        ("ulna train --config=/nowhere --st", "bash", ["--steps"]),
        ("ulna train --steps=", "fish", []),
    ],
)
def test_completion(line: str, shell: str, offered: list[str]) -> None:
    """Names of settings, fields of the chosen plugin, types and other choices; in the form that each shell wants."""
    assert complete(line, shell) == offered


def test_reporting_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for wrongly is 2, everything else of Ulna's is 1; bugs pass."""
    for error, code in (
        (ConfigError([ConfigProblem("x", 1, "no")]), 2),
        (PluginNotFoundError("no"), 2),
        (DeviceError("no"), 1),
    ):
        with pytest.raises(SystemExit) as caught, reporting():
            raise error
        assert caught.value.code == code
    with pytest.raises(ZeroDivisionError), reporting():
        raise ZeroDivisionError
    assert "Traceback" not in capsys.readouterr().err


def test_missing_library_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A library that is not there is a message with a way to mend it; a missing module of ours is a bug."""
    with pytest.raises(SystemExit) as caught, reporting():
        importlib.import_module("surely_not_installed.deeper")
    assert caught.value.code == 1
    said = capsys.readouterr().err
    assert "'surely_not_installed'" in said
    assert "ulna plugins doctor" in said
    with pytest.raises(ModuleNotFoundError), reporting():
        importlib.import_module("ulna.surely_not_there")


def test_output_forms(capsys: pytest.CaptureFixture[str]) -> None:
    """Tables are aligned and carry no trailing blanks; JSON keeps non-ASCII."""
    output_table(("A", "LONG"), [("xyz", ""), ("x", "y")])
    output_json({"name": "ä"})
    assert capsys.readouterr().out == 'A    LONG\nxyz\nx    y\n{\n  "name": "ä"\n}\n'


class Point(Config):
    """A place."""

    x: float = 1.5


class Missing(PluginConfig):
    """A kind of which nothing is installed."""

    plugin_kind: ClassVar[str] = "envs"
    plugin_base: ClassVar[bool] = True


class Tables(Config):
    """Settings with defaults that are maps."""

    places: dict[str, Point] = Field(default_factory=lambda: {"home": Point()}, description="Where.")
    none_yet: Missing | None = None


def test_help_writes_defaults_as_they_can_be_given() -> None:
    """A map reads as YAML, not as Python; where nothing is installed, no choice is pretended."""
    command = config_command(Tables, run, name="tables", help="Show tables.")
    shown = invoke("--help", command=command).stdout
    assert "Where. [default: {home: {x: 1.5}}]" in shown
    assert "Which environment; none is installed." in shown


@pytest.mark.parametrize(
    ("name", "said", "advice"),
    [
        ("ENOSPC", "No space left on device: /some/where", "Free some space"),
        ("EROFS", "Read-only file system: /some/where", "Choose another folder"),
        ("EACCES", "Permission denied: /some/where", "Choose another folder"),
        ("ENOTDIR", "Not a directory: /some/where", "Check the path"),
        ("EIO", "Input/output error: /some/where", "ULNA_TRACE=1"),
    ],
)
def test_what_the_system_refuses_is_a_message_and_no_traceback(name: str, said: str, advice: str) -> None:
    result = invoke("--steps=1", f"--camera={name}")
    assert result.exit_code == 1
    assert said in result.stderr
    assert advice in result.stderr
    assert "Traceback" not in result.output


class _Gone:
    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def flush(self) -> None:
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("stderr", [None, _Gone()])
def test_a_message_that_nobody_can_read_stops_nothing(
    stderr: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    message("unread")
    with pytest.raises(SystemExit) as caught, reporting():
        raise DeviceError("Gone.")
    assert caught.value.code == 1
    assert capsys.readouterr().out == ""
