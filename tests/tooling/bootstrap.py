# SPDX-License-Identifier: Apache-2.0
"""Build the development environment `.venv/` on a machine that has nothing but Python, then run a nox session in it.

Torch is installed first and by pip alone: its wheels are by far the largest download, and pinning the installed release
for every later step keeps the resolver from replacing it. A stamp inside the environment makes every later run a matter
of milliseconds. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tooling import tree

MINIMUM = (3, 11)
TORCH_PINNED = ("torch==2.14.1", "torchvision==0.29.1")
"""The releases that the suite runs with, on the Python release that it runs with first."""
TORCH_RANGE = ("torch>=2.4", "torchvision>=0.19")
TORCH_NAMES = frozenset({"torch", "torchvision"})
STAMP = "ulna-environment.json"


class SetupError(RuntimeError):
    """A step of the setup failed; the message names the command and what to do next."""


def environment_python(folder: Path) -> Path:
    """Return the interpreter inside an environment.

    Args:
        folder: Root of the environment.

    Returns:
        Path of its Python.
    """
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def release(python: Path) -> str:
    """Return the release of an interpreter, such as `3.11`.

    Args:
        python: Path of the interpreter.

    Returns:
        Major and minor number.
    """
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def run(*command: str | Path) -> None:
    """Run one setup command with its output shown.

    Args:
        *command: The program and its arguments.

    Raises:
        SetupError: If the command does not exit with 0.
    """
    words = [str(word) for word in command]
    code = subprocess.run(words, cwd=tree.ROOT, stdin=subprocess.DEVNULL).returncode
    if code != 0:
        raise SetupError(
            f"setting up the environment failed: {' '.join(words)!r} exited with {code}, 0 was expected. "
            "Read its message above. On Debian and Ubuntu the package python3-venv may be missing; "
            "if the environment itself is damaged, delete .venv and run this command again."
        )


def third_party(groups: Sequence[str] = ("dev",)) -> list[str]:
    """Return every third-party requirement of the tree but torch, extras included.

    Args:
        groups: Dependency groups of the root pyproject.toml to add.

    Returns:
        Requirements, sorted and without repetition.
    """
    own = set(tree.by_name())
    wanted: set[str] = set()
    for distribution in tree.distributions():
        wanted.update(distribution.requirements)
        wanted.update(text for extra in distribution.extras.values() for text in extra)
        wanted.update(distribution.pyproject["build-system"]["requires"])
    for group in groups:
        wanted.update(tree.dependency_groups()[group])
    return sorted(text for text in wanted if tree.requirement_name(text) not in own | TORCH_NAMES)


def fingerprint(version: str) -> dict[str, str]:
    """Describe what an environment was built from, so that an unchanged tree is recognized.

    Args:
        version: Python release of the environment, such as `3.11`.

    Returns:
        Values that change when the environment has to be brought up to date.
    """
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for file in [tree.ROOT / "pyproject.toml", *(item.folder / "pyproject.toml" for item in tree.distributions())]:
        digest.update(file.relative_to(tree.ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    # Entry points and the manifest are copied into the metadata when a distribution is installed.
    for manifest in sorted(tree.ROOT.glob("plugins/*/*/ulna-plugin.json")):
        digest.update(manifest.read_bytes())
    return {"python": version, "tree": digest.hexdigest(), "root": str(tree.ROOT)}


def installed(python: Path) -> dict[str, str]:
    """Return name and version of every distribution in an environment.

    Args:
        python: Interpreter of the environment.

    Returns:
        Versions by normalized name.
    """
    code = (
        "import importlib.metadata as metadata, json\n"
        "print(json.dumps({found.metadata['Name']: found.version for found in metadata.distributions()}))"
    )
    answer = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return {tree.normalize(name): version for name, version in json.loads(answer.stdout).items()}


def pip_install(python: Path) -> list[str]:
    """Return the head of a pip command: with its progress on a terminal, errors only in a log.

    Args:
        python: Interpreter of the environment.

    Returns:
        Words to put before the requirements.
    """
    quiet = [] if sys.stderr.isatty() else ["-qq"]
    return [str(python), "-m", "pip", "install", "--disable-pip-version-check", *quiet]


def install_torch(python: Path, version: str) -> None:
    """Install torch and torchvision with pip, unless the environment has both.

    Args:
        python: Interpreter of the environment.
        version: Its Python release, such as `3.11`.
    """
    if set(installed(python)) >= TORCH_NAMES:
        return
    wanted = TORCH_PINNED if version == "3.11" else TORCH_RANGE
    run(*pip_install(python), *wanted)


def install(python: Path, version: str) -> None:
    """Install everything that the tree needs, and the tree itself in editable form.

    Args:
        python: Interpreter of the environment.
        version: Its Python release, such as `3.11`.
    """
    install_torch(python, version)
    if "uv" not in installed(python):
        run(*pip_install(python), "uv")
    uv = (python, "-m", "uv", "pip")
    with tempfile.TemporaryDirectory() as scratch:
        pins = Path(scratch, "torch.txt")
        present = installed(python)
        pins.write_text("".join(f"{name}=={present[name]}\n" for name in sorted(TORCH_NAMES)), encoding="utf-8")
        wanted = Path(scratch, "requirements.txt")
        wanted.write_text("\n".join(third_party()) + "\n", encoding="utf-8")
        run(*uv, "install", "--quiet", "--python", python, "--constraint", pins, "--requirement", wanted)
    members = tree.distributions()
    stale = {name for name in installed(python) if name.split("-")[0] == "ulna"} - {item.name for item in members}
    if stale:
        run(*uv, "uninstall", "--quiet", "--python", python, *sorted(stale))
    editable = [word for item in members for word in ("--editable", str(item.folder))]
    run(*uv, "install", "--quiet", "--python", python, "--no-deps", "--no-build-isolation", *editable)


def prepare(folder: Path, base: str = sys.executable) -> Path:
    """Create an environment or bring it up to date.

    Args:
        folder: Root of the environment.
        base: Interpreter to create it with.

    Returns:
        The interpreter inside the environment.

    Raises:
        SetupError: If a step fails; a later call takes up the work.
    """
    python = environment_python(folder)
    if not python.exists():
        print(f"creating {folder.relative_to(tree.ROOT)}", file=sys.stderr)
        run(base, "-m", "venv", folder)
    version = release(python)
    stamp = folder / STAMP
    state = fingerprint(version)
    if not stamp.exists() or json.loads(stamp.read_text(encoding="utf-8")) != state:
        print(f"installing into {folder.relative_to(tree.ROOT)}: minutes the first time", file=sys.stderr)
        stamp.unlink(missing_ok=True)
        install(python, version)
        stamp.write_text(json.dumps(state), encoding="utf-8")
    return python


def main(arguments: Sequence[str]) -> int:
    """Set up `.venv/`, then run what was asked for in it.

    Args:
        arguments: Nothing (set up only), or `check` (the default sessions), or the name of a nox session followed by
            its own arguments. `tests` means the tests on the Python of `.venv/`; `tests-3.12` names another release.

    Returns:
        The exit status of nox, 1 when the setup failed, 2 when Python is too old.
    """
    if sys.version_info[:2] < MINIMUM:
        print(f"Python {sys.version.split()[0]} is too old: Ulna needs 3.11 or newer.", file=sys.stderr)
        return 2
    try:
        python = prepare(tree.ROOT / ".venv")
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    if not arguments:
        print("ready: source .venv/bin/activate", file=sys.stderr)
        return 0
    name = f"tests-{release(python)}" if arguments[0] == "tests" else arguments[0]
    chosen = [] if name == "check" else ["--sessions", name]
    command = [str(python), "-m", "nox", "--non-interactive", *chosen, "--", *arguments[1:]]
    return subprocess.run(command, cwd=tree.ROOT).returncode
