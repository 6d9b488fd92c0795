# SPDX-License-Identifier: Apache-2.0
"""Fresh environments that hold exactly what some distributions declare, made in seconds and without network.

Our distributions are installed from built wheels. Third-party libraries are linked from the environment that runs this
code: only the closure of the declared requirements becomes visible, so an undeclared import fails there as it would on
a user's machine.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import venv
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

from tooling import bootstrap, tree, wheels


class FreshEnvironmentError(RuntimeError):
    """A fresh environment could not be made; the message says what is missing where."""


@lru_cache(maxsize=1)
def installed() -> dict[str, importlib.metadata.Distribution]:
    """Return the distributions of the running environment by normalized name."""
    site = sysconfig.get_path("purelib")
    return {tree.normalize(item.metadata["Name"]): item for item in importlib.metadata.distributions(path=[site])}


def requirements_of(name: str) -> list[Requirement]:
    """Return what a distribution asks for, extras included under their markers.

    Args:
        name: Normalized name of one of our distributions or of an installed one.

    Returns:
        The requirements; our own ones are read from pyproject.toml, which is never stale.

    Raises:
        FreshEnvironmentError: If the distribution is neither ours nor installed.
    """
    own = tree.by_name().get(name)
    if own is not None:
        texts = list(own.requirements)
        for extra, wanted in own.extras.items():
            for text in wanted:
                head, _, marker = text.partition(";")
                condition = f'({marker.strip()}) and extra == "{extra}"' if marker else f'extra == "{extra}"'
                texts.append(f"{head.strip()} ; {condition}")
        return [Requirement(text) for text in texts]
    if name not in installed():
        raise FreshEnvironmentError(f"{name} is not installed here; run `python3 noxfile.py` to bring .venv up to date")
    return [Requirement(text) for text in installed()[name].requires or []]


def closure(requirements: Iterable[str]) -> set[str]:
    """Return the names of everything that some requirements bring in.

    Args:
        requirements: Such as `ulna-core[torch]`.

    Returns:
        Normalized names, ours and third-party ones.

    Raises:
        FreshEnvironmentError: If something is not installed in the running environment.
    """
    waiting = [Requirement(text) for text in requirements]
    done: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = tree.normalize(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in done:
                continue
            done.add((name, extra))
            context = {"extra": extra}
            waiting += [item for item in requirements_of(name) if item.marker is None or item.marker.evaluate(context)]
    return {name for name, _ in done}


def files_of(item: importlib.metadata.Distribution) -> list[PurePosixPath]:
    """Return the files that a distribution has inside site-packages."""
    files = [PurePosixPath(file) for file in item.files or []]
    return [file for file in files if file.parts[0] != ".." and "__pycache__" not in file.parts]


@lru_cache(maxsize=1)
def owners() -> dict[PurePosixPath, set[str]]:
    """Return which distributions have files at or below each path of site-packages."""
    found: dict[PurePosixPath, set[str]] = defaultdict(set)
    for name, item in installed().items():
        for file in files_of(item):
            found[file].add(name)
            for parent in file.parents[:-1]:
                found[parent].add(name)
    return found


def link(name: str, target: Path) -> None:
    """Make one installed distribution visible in another site-packages folder.

    Args:
        name: Normalized name of an installed third-party distribution.
        target: The other site-packages folder.
    """
    site = Path(sysconfig.get_path("purelib"))
    highest: set[PurePosixPath] = set()
    for file in files_of(installed()[name]):
        # The highest folder that belongs to this distribution alone: a namespace such as nvidia/ is shared.
        chain = [*reversed(file.parents[:-1]), file]
        highest.add(next((part for part in chain if owners()[part] == {name}), file))
    for path in highest:
        place = target / path
        if (site / path).exists() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(site / path)


def create(folder: Path, requirements: Iterable[str], wheel_folder: Path) -> Path:
    """Make an environment.

    Args:
        folder: Where it goes; must not exist.
        requirements: What to install, our distributions among it.
        wheel_folder: Where built wheels are kept between calls.

    Returns:
        Its interpreter.

    Raises:
        FreshEnvironmentError: If a third-party requirement is not installed in the running environment.
    """
    names = closure(requirements)
    own = tree.by_name()
    venv.create(folder, with_pip=False)
    python = bootstrap.environment_python(folder)
    site = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    for name in sorted(names - set(own)):
        link(name, site)
    ours = [own[name] for name in sorted(names & set(own))]
    present = {path.name.split("-")[0] for path in wheel_folder.glob("*.whl")}
    wheels.build_all([item for item in ours if item.name.replace("-", "_") not in present], wheel_folder)
    files = [str(next(wheel_folder.glob(f"{item.name.replace('-', '_')}-*.whl"))) for item in ours]
    if files:
        run_uv("install", "--python", str(python), "--offline", "--no-index", "--no-deps", *files)
    return python


def uninstall(python: Path, name: str) -> None:
    """Remove a distribution from an environment that `create` made.

    Args:
        python: Its interpreter.
        name: Distribution name.
    """
    run_uv("uninstall", "--python", str(python), name)


def run_uv(*words: str) -> None:
    """Run a uv command of the running environment.

    Args:
        *words: What follows `uv pip`.

    Raises:
        FreshEnvironmentError: If it fails; the message carries its output.
    """
    command = [sys.executable, "-m", "uv", "pip", *words]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        raise FreshEnvironmentError(
            f"{' '.join(command)} exited with {result.returncode}:\n{result.stdout}{result.stderr}"
        )


def clean_variables() -> dict[str, str]:
    """Return the environment variables for a process in a fresh environment: ours without those that steer Python."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST"}
    return {name: value for name, value in os.environ.items() if name not in dropped and not name.startswith("ULNA_")}
