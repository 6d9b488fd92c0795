# SPDX-License-Identifier: Apache-2.0
"""`ulna plugins new` for every kind: what it writes builds, installs, and passes its conformance suite at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ulna.core.plugins import KINDS

pytest.importorskip("ulna.testing")
pytest.importorskip("hatchling")

NEEDS = {
    "policies": ("torch", "ulna.processing"),
    "algorithms": ("torch",),
    "optimizers": ("torch",),
    "schedulers": ("torch",),
    "envs": ("gymnasium",),
}
NEW = """
import json, sys
from pathlib import Path
from ulna.cli.scaffolding import create
for kind in json.loads(sys.argv[2]):
    create(kind, "my_" + kind, folder=Path(sys.argv[1]) / kind)
"""


def run(*command: str, **environ: str) -> str:
    """Run a command to its good end."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def kinds() -> list[str]:
    """Kinds whose libraries are installed here."""
    from importlib.util import find_spec

    return [kind for kind in KINDS if all(find_spec(name) for name in NEEDS.get(kind, ()))]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, kinds: list[str]) -> Path:
    """Source folders of one new plugin of each kind."""
    folder = tmp_path_factory.mktemp("new")
    run(sys.executable, "-c", NEW, str(folder), json.dumps(kinds))
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, sources: Path, kinds: list[str]) -> Path:
    """A folder for the import path with the wheels of all of them, as an installer unpacks them."""
    folder = tmp_path_factory.mktemp("site")
    build = "import json, os, sys\nfrom hatchling.build import build_wheel\nfor source in json.loads(sys.argv[2]):\n"
    build += "    os.chdir(source)\n    build_wheel(sys.argv[1])\n"
    wheels = tmp_path_factory.mktemp("wheels")
    run(sys.executable, "-c", build, str(wheels), json.dumps([str(sources / kind) for kind in kinds]))
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


@pytest.mark.slow
def test_they_are_found(site: Path, kinds: list[str]) -> None:
    """All are `ok`, with the summary of their manifest."""
    code = "from ulna.cli.main import main\nmain(['plugins', 'list', '--json'])"
    listed = json.loads(run(sys.executable, "-c", code, PYTHONPATH=str(site)))["plugins"]
    found = {p["type"]: p for p in listed if p["type"].startswith("my_")}
    assert set(found) == {f"my_{kind}" for kind in kinds}
    assert {p["status"] for p in found.values()} == {"ok"}
    assert all(p["summary"] for p in found.values())


@pytest.mark.slow
@pytest.mark.timeout(1800)  # half a minute to a minute and a half on a machine that does nothing else
def test_they_pass_their_suites(site: Path, sources: Path, kinds: list[str]) -> None:
    """Their own tests, conformance and packaging checks included, pass without a change."""
    tests = [str(sources / kind / "tests") for kind in kinds]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--import-mode=importlib", "-W", "error"]
    config = ["-c", os.devnull, "--rootdir", str(sources)]
    said = run(sys.executable, "-m", "pytest", *options, *config, *tests, PYTHONPATH=str(site))
    assert " passed" in said


@pytest.mark.slow
def test_the_command_runs(site: Path) -> None:
    """A new command is mounted, helps, and runs."""
    code = "import sys\nfrom ulna.cli.main import main\nmain(sys.argv[1:])"
    said = run(sys.executable, "-c", code, "my_commands", "--who=Ulna", PYTHONPATH=str(site))
    assert said == "Hello, Ulna!\n"
    helped = run(sys.executable, "-c", code, "my_commands", "--help", PYTHONPATH=str(site))
    assert "--who=<text>" in helped
