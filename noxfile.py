# SPDX-License-Identifier: Apache-2.0
"""Every check and job of the repository, as nox sessions.

`python3 noxfile.py SESSION` needs nothing installed: it builds `.venv/` first and runs the session there.
`python3 noxfile.py check` runs everything that has to pass. With nox at hand, `nox -s SESSION` does the same in the
environment that nox itself lives in.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tests"))

# A job in the background of a shell starts with Ctrl-C ignored, and so would every process below, tests of Ctrl-C too.
signal.signal(signal.SIGINT, signal.default_int_handler)

if __name__ == "__main__":
    from tooling import bootstrap

    raise SystemExit(bootstrap.main(sys.argv[1:]))

import nox  # noqa: E402 - a fresh machine has no nox until the lines above have run
from nox.command import CommandFailed  # noqa: E402

from tooling import bootstrap, lerobot, tree  # noqa: E402

PYTHONS = ["3.11", "3.12", "3.13"]
HERE = "{}.{}".format(*sys.version_info[:2])
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Several test processes share the cores: each keeps to one of them."""

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "docs", f"tests-{HERE}"]
nox.options.error_on_missing_interpreters = False


def python(session: nox.Session, *words: str, env: dict[str, str] | None = None) -> None:
    """Run Python in the environment of the checkout.

    Args:
        session: The running session.
        *words: Arguments of the interpreter.
        env: Environment variables to add.
    """
    session.run(sys.executable, *words, external=True, env=env)


def interpreter(version: str) -> str | None:
    """Find a Python release that starts, on the path or among those of pyenv.

    Args:
        version: Such as `3.12`.

    Returns:
        Its path, or None where this machine has none (a version manager's stand-in that refuses counts as none).
    """
    on_path = shutil.which(f"python{version}")
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for found in [*([on_path] if on_path else []), *map(str, sorted(root.glob(f"versions/{version}.*/bin/python")))]:
        if subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    return None


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting, docstrings, import contracts and declared dependencies."""
    sources = [str(folder.relative_to(ROOT)) for folder in tree.source_folders()]
    checks = [
        ["ruff", "check", "--output-format", "concise", "."],
        ["ruff", "format", "--check", "--quiet", "."],
        ["interrogate", "--config", "pyproject.toml", "--quiet", "tests/tooling", *sources],
        ["tooling.contracts"],
        ["tooling.dependencies"],
    ]
    failed = []
    for check in checks:
        try:
            python(session, "-m", *check, env={"PYTHONPATH": "tests"})
        except CommandFailed:
            failed.append(check[0])  # the others are worth knowing in the same run
    if failed:
        session.error(f"not clean: {', '.join(failed)}")


@nox.session
def types(session: nox.Session) -> None:
    """Check every distribution and the tooling with mypy in strict mode."""
    folders = [str(folder.relative_to(ROOT)) for folder in tree.source_folders()]
    targets = session.posargs or [*folders, "tests/tooling", "noxfile.py"]
    python(session, "-m", "mypy", *targets, env={"MYPYPATH": os.pathsep.join([*folders, "tests"])})


def tests(session: nox.Session, version: str) -> None:
    """Run the test suite, on the Python of `.venv/` or, in an environment of its own, on another release."""
    chosen = sys.executable
    if version != HERE:
        base = interpreter(version)
        if base is None:
            session.skip(f"no Python {version} on this machine")
        chosen = str(bootstrap.prepare(ROOT / ".nox" / f"python-{version}", base))
    # The profile draws the same examples each time: a check must not fail by chance.
    arguments = session.posargs or ["-n", "2", "--dist", "loadgroup", "--durations", "15", "--hypothesis-profile", "ci"]
    session.run(chosen, "-m", "pytest", *arguments, external=True, env=ONE_THREAD)


for release in PYTHONS:
    nox.session(name=f"tests-{release}")(functools.update_wrapper(functools.partial(tests, version=release), tests))


@nox.session
def isolated(session: nox.Session) -> None:
    """Test each named distribution (all without a name) beside nothing but what it declares."""
    python(session, "-m", "tooling.isolation", *session.posargs, env={"PYTHONPATH": "tests", **ONE_THREAD})


@nox.session
def lean(session: nox.Session) -> None:
    """Record, teleoperate and talk to motors in an environment without torch."""
    python(session, "-m", "pytest", "tests/e2e", "-k", "lean", *session.posargs, env=ONE_THREAD)


@nox.session
def e2e(session: nox.Session) -> None:
    """Build the wheels, install them into a fresh environment and go from `plugins list` to a rollout."""
    python(session, "-m", "pytest", "tests/e2e", *session.posargs, env=ONE_THREAD)


@nox.session
def interop(session: nox.Session) -> None:
    """Exchange files with LeRobot: the one that ULNA_LEROBOT_PYTHON names, else one installed for this (gigabytes)."""
    peer = os.environ.get("ULNA_LEROBOT_PYTHON")
    if not peer:
        base = next(filter(None, map(interpreter, lerobot.PYTHONS)), None)
        if base is None:
            session.error(
                f"LeRobot needs Python {' or '.join(lerobot.PYTHONS)}; name one that has it: ULNA_LEROBOT_PYTHON"
            )
        peer = str(lerobot.prepare(base))
    arguments = session.posargs or ["--durations", "10"]
    python(session, "-m", "pytest", "-m", "interop", *arguments, env={**ONE_THREAD, "ULNA_LEROBOT_PYTHON": peer})


@nox.session
def bench(session: nox.Session) -> None:
    """Measure start-up and datasets, with LeRobot where ULNA_LEROBOT_PYTHON names it; one script: -- data --runs 3."""
    parts = ("_scene", "data_cases")
    scripts = sorted(p.stem for p in (ROOT / "tests" / "bench").glob("*.py") if p.stem not in parts)
    name, *arguments = session.posargs or [""]
    if name and name not in scripts:
        session.error(f"There is no measurement {name!r}; there are: {', '.join(scripts)}")
    for script in [name] if name else ["startup", "data"]:
        python(session, f"tests/bench/{script}.py", *arguments)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site; every warning is an error."""
    quiet = {"NO_MKDOCS_2_WARNING": "1"}
    verb = session.posargs or ["build", "--strict", "--site-dir", str(ROOT / "build" / "site")]
    python(session, "-m", "mkdocs", verb[0], "--config-file", "docs/config/mkdocs.yml", *verb[1:], env=quiet)


@nox.session
def build(session: nox.Session) -> None:
    """Build wheel and source archive of the named distributions (all without a name) into dist/."""
    python(session, "-m", "tooling.wheels", *session.posargs, env={"PYTHONPATH": "tests"})


@nox.session
def demo(session: nox.Session) -> None:
    """Run `ulna demo`: simulate, record, train, roll out."""
    command = str(Path(sys.executable).with_name("ulna"))
    # The command saves its work on Ctrl-C; nox must not cut that short.
    session.run(command, "demo", *session.posargs, external=True, interrupt_timeout=None, terminate_timeout=None)
