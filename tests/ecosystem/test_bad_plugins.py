# SPDX-License-Identifier: Apache-2.0
"""Deliberately bad plugins are installed beside a good one: every command survives them, and says whose fault it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

CONFIG = """
from typing import Literal
from ulna.core.robots import RobotConfig

class Config(RobotConfig):
    \"\"\"A robot.\"\"\"
    type: Literal[{name!r}] = {name!r}
    speed: float = 1.0
    implementation = {module!r} + ":Config"
"""
HALF = """
from ulna.core.plugins import registry
import bad_half.inner
registry().register("robots", "ghost", object)
raise ValueError("after registering")
"""
WRONG_BASE = """
from ulna.core.cameras import CameraConfig

class Config(CameraConfig):
    \"\"\"A camera among the robots.\"\"\"
    type: str = "wrong_base"
"""
BROKEN_IMPORT = {
    "import_error": ("import library_that_is_not_there", "No module named 'library_that_is_not_there'"),
    "syntax_error": ("def broken(:\n", "SyntaxError"),
    "system_exit": ("raise SystemExit('no licence')", "it called sys.exit('no licence')"),
    "base_exception": ("class Odd(BaseException): pass\nraise Odd('very')", "Odd: very"),
    "half": (HALF, "after registering"),
    "wrong_base": (WRONG_BASE, "is a configuration of cameras, not of robots"),
    "no_attribute": ("", "has no attribute 'Config'"),
}


def distribution(
    folder: Path, name: str, entry_points: str, *, requires: str = "ulna-core>=0.1,<0.2", manifest: str | None = None
) -> None:
    """Write the metadata of an installed distribution."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nRequires-Dist: {requires}\n\n")
    (info / "entry_points.txt").write_text(entry_points)
    if manifest is not None:
        (info / "extra_metadata").mkdir()
        (info / "extra_metadata" / "ulna-plugin.json").write_text(manifest)


def robot(folder: Path, name: str, source: str | None, **metadata: str) -> None:
    """Write a distribution with one robot; without a source its module is missing."""
    distribution(folder, f"bad-{name.replace('_', '-')}", f"[ulna.robots]\n{name} = bad_{name}:Config\n", **metadata)
    if source is not None:
        package = folder / f"bad_{name}"
        package.mkdir()
        (package / "__init__.py").write_text(source)
        (package / "inner.py").write_text("")


def manifest_of(name: str, level: int) -> str:
    plugin = {"kind": "robots", "type": name, "value": f"bad_{name}:Config", "api_level": level}
    return json.dumps({"manifest": 1, "distribution": f"bad-{name.replace('_', '-')}", "plugins": [plugin]})


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the import path that holds every bad plugin and two good ones."""
    folder = tmp_path_factory.mktemp("zoo")
    for name, (source, _) in BROKEN_IMPORT.items():
        robot(folder, name, source)
    robot(folder, "missing_file", None)
    robot(folder, "bad_manifest", "", manifest="{")
    robot(folder, "future_level", "", manifest=manifest_of("future_level", 99))
    robot(folder, "old_core", "", requires="ulna-core>=9")
    slow = f"import pathlib, time\npathlib.Path({str(folder / 'slow_was_imported')!r}).touch()\ntime.sleep(60)\n"
    robot(folder, "slow", slow)
    for owner in ("one", "two"):
        distribution(folder, f"twins-{owner}", f"[ulna.robots]\ntwin = twin_{owner}:Config\n")
        (folder / f"twin_{owner}.py").write_text(CONFIG.format(name="twin", module=f"twin_{owner}"))
    hook = (
        "from ulna.core.plugins import hookimpl\n@hookimpl\ndef doctor_checks():\n    raise SystemExit('rude hook')\n"
    )
    distribution(folder, "bad-hook", "[ulna.hooks]\nrude = bad_hook\n")
    (folder / "bad_hook.py").write_text(hook)
    distribution(folder, "bad-command", "[ulna.commands]\nrude = bad_import_error:app\n")
    distribution(folder, "bad-group", "[ulna.robot]\nx = m:X\n[ulna.cameras]\nodd type = m X\n")
    distribution(folder, "namespace-breaker", "[ulna.robots]\nbreaker = ulna.robots.breaker:Config\n")
    (folder / "ulna" / "robots" / "breaker").mkdir(parents=True)
    (folder / "ulna" / "robots" / "__init__.py").touch()
    (folder / "ulna" / "robots" / "breaker" / "__init__.py").write_text(CONFIG.format(name="breaker", module="x"))
    distribution(folder, "good-arm", "[ulna.robots]\ngood = good_arm:Config\n")
    (folder / "good_arm.py").write_text(CONFIG.format(name="good", module="good_arm"))
    return folder


@dataclass(frozen=True)
class Said:
    """What one command said."""

    code: int
    out: str
    err: str


DRIVER = """
import contextlib, io, json, sys
from ulna.cli import environment
from ulna.cli.main import main
environment._PROBES = ({"json": "import json as m"},)
said = []
for line in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(line)
        except SystemExit as stop:
            code = stop.code or 0
    said.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(said))
"""
COMMANDS = "import json\nfrom ulna.core.plugins import registry\nprint(json.dumps(registry().types('commands')))"


def python(code: str, zoo: Path, given: object = None, **environ: str) -> str:
    """Run code in a fresh interpreter that has the zoo on its path."""
    variables = {**os.environ, "PYTHONPATH": str(zoo), "ULNA_HOME": str(zoo / "home"), "COLUMNS": "120", **environ}
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        env=variables,
        timeout=540,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def ulna(zoo: Path, *lines: list[str], **environ: str) -> list[Said]:
    """Run several commands, one after the other, in one process."""
    return [Said(*said) for said in json.loads(python(DRIVER, zoo, lines, **environ))]


def test_help_of_every_command_survives(zoo: Path) -> None:
    """`ulna --help` and the help of every installed command work; only the broken command itself fails."""
    names = json.loads(python(COMMANDS, zoo))
    assert {"info", "plugins", "rude"} <= set(names)
    top, *others = ulna(zoo, ["--help"], *([name, "--help"] for name in names))
    assert top.code == 0
    for name, said in zip(names, others, strict=True):
        assert said.code == (1 if name == "rude" else 0), f"ulna {name} --help: {said}"
        assert "Traceback" not in said.err
    rude = others[names.index("rude")]
    assert "commands/rude of bad-command 1.0" in rude.err


def test_list_imports_nothing_and_tells_all(zoo: Path) -> None:
    """Exit code 0, every plugin with its status, and nothing of the zoo imported."""
    (listed,) = ulna(zoo, ["plugins", "list", "--json"])
    assert listed.code == 0
    status = {f"{p['distribution']}/{p['type']}": p["status"] for p in json.loads(listed.out)["plugins"]}
    for name in (*BROKEN_IMPORT, "missing_file", "slow"):
        assert status[f"bad-{name.replace('_', '-')}/{name}"] == "ok"
    assert status["good-arm/good"] == "ok"
    assert status["bad-bad-manifest/bad_manifest"] == "invalid"
    assert status["bad-future-level/future_level"] == "incompatible"
    assert status["bad-old-core/old_core"] == "incompatible"
    assert status["twins-one/twin"] == status["twins-two/twin"] == "conflict"
    assert status["bad-group/x"] == status["bad-group/odd type"] == "invalid"
    assert not (zoo / "slow_was_imported").exists()


def test_info_and_show_survive(zoo: Path) -> None:
    """Neither imports a plugin."""
    info, shown = ulna(zoo, ["info", "--json"], ["plugins", "show", "import_error", "twin", "bad_manifest"])
    assert info.code == 0
    assert json.loads(info.out)["distributions"]["good-arm"] == "1.0"
    assert shown.code == 0
    assert "not JSON" in shown.out
    assert not (zoo / "slow_was_imported").exists()


def test_doctor_names_what_is_wrong(zoo: Path) -> None:
    """Stray namespace files, conflicts, versions, levels, manifests, and a hook that exits."""
    (said,) = ulna(zoo, ["plugins", "doctor"])
    assert said.code == 1
    for words in (
        f"{zoo / 'ulna' / 'robots' / '__init__.py'} hides the other distributions",
        "robots/twin of twins-one 1.0 is conflict",
        "robots/old_core of bad-old-core 1.0 is incompatible",
        "API level 99 of robots",
        "robots/bad_manifest of bad-bad-manifest 1.0 is invalid",
        "there is no plugin kind 'robot' (nearest: ulna.robots)",
        "the hook plugin bad-hook/rude fails",
        "bad-old-core needs ulna-core>=9",
    ):
        assert words in said.out
    assert "Traceback" not in said.err


def test_verify_reports_each_by_name(zoo: Path) -> None:
    """Each import failure is one report with distribution, entry point and cause; the good plugin passes."""
    names = [*BROKEN_IMPORT, "missing_file", "good"]
    (said,) = ulna(zoo, ["plugins", "verify", "--kind=robots", "--no-packaging", "--json", *names])
    reports = {r["name"]: r for r in json.loads(said.out)["reports"]}
    for name, words in {**{n: w for n, (_, w) in BROKEN_IMPORT.items()}, "missing_file": "No module named"}.items():
        distribution = f"bad-{name.replace('_', '-')}"
        (problem, *_) = reports[f"robots/{distribution}/{name}"]["problems"]
        for part in (f"robots/{name} of {distribution} 1.0", f"{name} = bad_{name}:Config", words, sys.prefix):
            assert part in problem
    assert reports["robots/good-arm/good"]["problems"] == []


USE = """
import json, logging, sys
from ulna.core.errors import PluginError
from ulna.core.plugins import call_hook, registry
from ulna.core.robots import RobotConfig
names = json.load(sys.stdin)
failed = {}
for name in names:
    before = set(sys.modules)
    try:
        RobotConfig.choose({"type": name})
    except PluginError as error:
        failed[name] = [type(error).__name__, error.distribution, error.hint]
        left = [m for m in set(sys.modules) - before if m.startswith("bad_") and name != "wrong_base"]
        assert not left, left
good = RobotConfig.choose({"type": "good", "speed": 2})
twin = RobotConfig.choose({"type": "twins-two/twin"})
call_hook("doctor_checks")
assert "ghost" not in registry().types("robots")
print(json.dumps({"failed": failed, "good": good.to_dict(), "twin": type(twin).__module__}))
"""


def test_library_survives_and_the_good_plugin_works(zoo: Path) -> None:
    """In one process: every bad plugin fails with one error of ours, is undone, and the good one is used after them."""
    names = [*BROKEN_IMPORT, "missing_file", "bad_manifest", "future_level", "old_core", "twin"]
    result = json.loads(python(USE, zoo, names))
    assert set(result["failed"]) == set(names)
    kinds = {name: kind for name, (kind, _, _) in result["failed"].items()}
    assert {kinds[name] for name in (*BROKEN_IMPORT, "missing_file")} == {"PluginLoadError"}
    assert {kinds[name] for name in ("bad_manifest", "future_level", "old_core")} == {"PluginUnusableError"}
    assert kinds["twin"] == "PluginConflictError"
    assert all(hint for _, _, hint in result["failed"].values())
    assert result["good"]["speed"] == 2.0
    assert result["twin"] == "twin_two"


@pytest.fixture
def own_robots(zoo: Path) -> list[str]:
    """Types of robots of this tree."""
    code = "import json\nfrom ulna.core.plugins import registry\n"
    code += "print(json.dumps([r.type for r in registry().records('robots') if r.distribution.startswith('ulna-')]))"
    found: list[str] = json.loads(python(code, zoo))
    return found


def test_namespace_breaker_is_named(zoo: Path, own_robots: list[str]) -> None:
    """A stray `ulna/robots/__init__.py` hides our own robots; the error leads to the file."""
    if not own_robots:
        pytest.skip("no robot of this tree is installed")
    code = "import json\nfrom ulna.core.plugins import registry\nfrom ulna.core.errors import PluginLoadError\n"
    code += f"try:\n    registry().load('robots', {own_robots[0]!r})\n"
    code += "except PluginLoadError as error:\n    print(json.dumps(str(error)))"
    text = json.loads(python(code, zoo))
    assert f"{zoo / 'ulna' / 'robots' / '__init__.py'} may hide" in text
    assert "ulna plugins doctor" in text


def test_switches(zoo: Path) -> None:
    """ULNA_PLUGINS and ULNA_DISABLE leave plugins out; ULNA_STRICT raises for the first that is broken."""
    code = "import json\nfrom ulna.core.plugins import registry\nprint(json.dumps(registry().types('robots')))"
    assert json.loads(python(code, zoo, ULNA_PLUGINS="good-arm")) == ["good"]
    left = json.loads(python(code, zoo, ULNA_DISABLE="twins-one,bad-slow,bad-half"))
    assert "twin" in left
    assert not {"slow", "half"} & set(left)
    strict = (
        "from ulna.core.errors import PluginUnusableError\n"
        + code.replace("print", "try:\n    print", 1)
        + "\nexcept PluginUnusableError as error:\n    print(json.dumps(str(error)))"
    )
    assert "ULNA_STRICT is set" in json.loads(python(strict, zoo, ULNA_STRICT="1"))
