# SPDX-License-Identifier: Apache-2.0
"""The command group: shows commands without importing them, says what to install, and survives what is broken."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import typer

from ulna.cli.catalogue import BROUGHT_BY, PLANNED
from ulna.cli.main import main
from ulna.core.errors import DeviceError
from ulna.core.plugins import FoundEntryPoint, Registry, use_registry


def command(name: str, value: str, distribution: str = "acme") -> FoundEntryPoint:
    return FoundEntryPoint("ulna.commands", name, value, distribution)


def good() -> typer.Typer:
    app = typer.Typer(help="Good.")

    @app.command()
    def greet(name: str = "you") -> None:
        """Greet."""
        typer.echo(f"Hello, {name}")

    @app.command()
    def fail() -> None:
        """Fail."""
        raise DeviceError("The arm does not answer.", hint="Switch it on.")

    @app.command()
    def stop() -> None:
        """Be interrupted."""
        raise KeyboardInterrupt

    return app


OWN = [
    command("info", "ulna.cli.commands:info_app", "ulna-cli"),
    command("plugins", "ulna.cli.commands:plugins_app", "ulna-cli"),
]


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    module = ModuleType("good_commands")
    module.app, module.text = good(), "no app"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "good_commands", module)
    monkeypatch.setenv("COLUMNS", "100")
    entries = [
        *OWN,
        command("good", "good_commands:app"),
        command("odd", "good_commands:text"),
        command("rude", "no_such_commands:app", "rude-dist"),
    ]
    with use_registry(Registry(lambda: entries, environ={"ULNA_HOME": "/nonexistent"})) as reg:
        yield reg


class Ran:
    """What a run of `ulna` said."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        self.code = caught.value.code or 0
        self.out, self.err = capsys.readouterr()


def test_help_shows_commands_without_importing(capsys: pytest.CaptureFixture[str]) -> None:
    """Broken ones are there too: only calling them imports them. What is not installed is listed with how to get it."""
    ran = Ran(capsys, "--help")
    assert ran.code == 0
    for name in ("good", "info", "odd", "plugins", "rude"):
        assert f"\n  {name}" in ran.out
    assert re.search(r'\n  train +pip install "ulna-training"\n', ran.out)
    assert "no_such_commands" not in sys.modules


def test_commands_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A Typer app of somebody else is mounted with its sub-commands and options."""
    ran = Ran(capsys, "good", "greet", "--name=Ulna")
    assert (ran.code, ran.out) == (0, "Hello, Ulna\n")
    assert "Greet." in Ran(capsys, "good", "--help").out
    assert "--install-completion" not in Ran(capsys, "good", "--help").out


def test_errors_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Ulna's errors are messages with exit code 1; Ctrl-C is 130; wrong use is 2."""
    failed = Ran(capsys, "good", "fail")
    assert (failed.code, failed.err) == (1, "Error: The arm does not answer.\nSwitch it on.\n")
    assert Ran(capsys, "good", "stop").code == 130
    assert Ran(capsys, "good", "greet", "--nam=x").code == 2


def test_broken_command_names_its_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    """One message, no traceback; also when the entry point is no app."""
    rude = Ran(capsys, "rude")
    assert rude.code == 1
    assert "commands/rude of rude-dist" in rude.err
    assert "Traceback" not in rude.err
    odd = Ran(capsys, "odd")
    assert odd.code == 1
    assert "acme" in odd.err
    assert "expected a typer.Typer" in odd.err


@pytest.mark.parametrize("name", sorted(BROUGHT_BY))
def test_missing_command_says_what_to_install(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Every command of ours is known, installed or not."""
    ran = Ran(capsys, name)
    assert ran.code == 2
    assert f"The command {name!r} is not installed." in ran.err
    assert f'pip install "{BROUGHT_BY[name]}"' in ran.err


@pytest.mark.parametrize("name", PLANNED)
def test_planned_command_is_not_offered_for_installation(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Nobody is sent to a distribution that does not bring it."""
    ran = Ran(capsys, name)
    assert ran.code == 2
    assert f"The command {name!r} is planned" in ran.err
    assert "pip install" not in ran.err


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """Of what is installed and of what could be."""
    assert "did you mean 'plugins'?" in Ran(capsys, "plugin").err
    assert "did you mean 'train'?" in Ran(capsys, "trian").err
    assert Ran(capsys, "xyzzy").err == "Error: There is no command 'xyzzy'.\nSee all commands with: ulna --help\n"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """On stdout, alone."""
    ran = Ran(capsys, "--version")
    assert (ran.code, ran.out) == (0, "ulna 0.1.0\n")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ulna p", ["plugins"]),
        ("ulna r", ["rude"]),
        ("ulna good ", ["greet", "fail", "stop"]),
        ("ulna good greet --n", ["--name"]),
        ("ulna rude --x", []),
        ("ulna plugins list --kind ro", ["robots"]),
        ("ulna plugins new cam", ["cameras"]),
        ("ulna --vers", ["--version"]),
    ],
)
def test_completion(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, offered: list[str]
) -> None:
    """Names of commands come from the registry; a broken command offers nothing and breaks nothing."""
    words = line.split(" ")
    for key, value in (("COMP_WORDS", "\n".join(words)), ("COMP_CWORD", str(len(words) - 1))):
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("_ULNA_COMPLETE", "complete_bash")
    assert Ran(capsys).out.split() == offered


def test_conflicting_commands_are_shown_qualified(capsys: pytest.CaptureFixture[str]) -> None:
    """Two distributions with one command: neither wins silently."""
    pair = [*OWN, command("good", "good_commands:app"), command("good", "good_commands:app", "zoo")]
    with use_registry(Registry(lambda: pair, environ={})):
        text = Ran(capsys, "--help").out
        assert "acme/good" in text
        assert "zoo/good" in text
        assert Ran(capsys, "good", "greet").code == 2
        assert Ran(capsys, "zoo/good", "greet").out == "Hello, you\n"


def test_quick_commands_load_little() -> None:
    """Listing plugins and showing help load neither pydantic nor packaging: that is most of the time they take."""
    code = "import sys\nfrom ulna.cli.main import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
    code += "sys.stderr.write(' '.join({'pydantic', 'packaging', 'pluggy', 'numpy', 'rich'} & set(sys.modules)))"
    for line in (["--help"], ["plugins", "list", "--json"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *line], capture_output=True, text=True, check=True, timeout=540
        )
        assert done.stderr == ""
