# SPDX-License-Identifier: Apache-2.0
"""`ulna plugins` and `ulna info`: tables for people, JSON of a fixed shape for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from typer.testing import CliRunner, Result

from ulna.cli import doctor, environment
from ulna.cli.commands import info_app, plugins_app
from ulna.core.plugins import KINDS, FoundEntryPoint, Registry, hookimpl, use_registry
from ulna.core.robots import RobotConfig

MANIFEST = {
    "manifest": 1,
    "distribution": "acme",
    "links": {"docs": "https://acme.example"},
    "plugins": [
        {
            "kind": "robots",
            "type": "arm",
            "value": "acme_robots:ArmConfig",
            "title": "Arm",
            "summary": "An arm.",
            "capabilities": ["torque"],
            "hardware_ids": ["usb:1a86:55d3"],
        }
    ],
}


class ArmConfig(RobotConfig):
    """An arm."""

    type: Literal["arm"] = "arm"
    implementation: ClassVar[str] = ""


def found(name: str, value: str, kind: str = "robots", distribution: str = "acme", **more: Any) -> FoundEntryPoint:
    return FoundEntryPoint(f"ulna.{kind}", name, value, distribution, "1.0", **more)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setitem(sys.modules, "acme_robots", sys.modules[ArmConfig.__module__])
    entries = [
        found("arm", "acme_robots:ArmConfig", manifest=json.dumps(MANIFEST)),
        found("rude", "no_such_module:X", "cameras", "rude-dist"),
        found("old", "m:X", "policies", "old-dist", requires=("ulna-core>=9",)),
    ]
    with use_registry(Registry(lambda: entries, environ={"ULNA_HOME": "/nonexistent"})) as reg:
        yield reg


def run(*arguments: str) -> Result:
    return CliRunner().invoke(plugins_app, list(arguments), env={"COLUMNS": "120"})


def test_list_json_is_a_public_format() -> None:
    """Programs rely on these keys: adding one is fine, changing one needs a new format number."""
    result = run("list", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "format": 1,
        "plugins": [
            {
                "kind": "cameras",
                "type": "rude",
                "value": "no_such_module:X",
                "distribution": "rude-dist",
                "version": "1.0",
                "status": "ok",
                "reason": "",
                "remedy": "",
                "api_level": 1,
                "default": True,
                "summary": "",
            },
            {
                "kind": "policies",
                "type": "old",
                "value": "m:X",
                "distribution": "old-dist",
                "version": "1.0",
                "status": "incompatible",
                "reason": "it needs ulna-core >=9, installed is 0.1.0",
                "remedy": "Install versions that fit: pip install --upgrade old-dist ulna-core",
                "api_level": 1,
                "default": True,
                "summary": "",
            },
            {
                "kind": "robots",
                "type": "arm",
                "value": "acme_robots:ArmConfig",
                "distribution": "acme",
                "version": "1.0",
                "status": "ok",
                "reason": "",
                "remedy": "",
                "api_level": 1,
                "default": True,
                "summary": "An arm.",
            },
        ],
    }


def test_list_table() -> None:
    """Data on stdout; what is wrong, with its remedy, on stderr; exit code 0 all the same."""
    result = run("list")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["KIND", "TYPE", "DISTRIBUTION", "VERSION", "STATUS", "SUMMARY"]
    assert rows[1][:5] == ["cameras", "rude", "rude-dist", "1.0", "ok"]
    assert rows[3] == ["robots", "arm", "acme", "1.0", "ok", "An", "arm."]
    assert "policies/old-dist/old is incompatible: it needs ulna-core >=9" in result.stderr
    assert [line.split()[1] for line in run("list", "--kind=robots").stdout.splitlines()] == ["TYPE", "arm"]
    wrong = run("list", "--kind=robot")
    assert wrong.exit_code == 2
    assert "did you mean 'robots'?" in wrong.stderr


def test_show() -> None:
    """By type, kind/type, distribution/type or distribution."""
    for name in ("arm", "robots/arm", "acme/arm", "ACME"):
        text = run("show", name).stdout
        assert "robots/arm\n" in text
        for line in ("capabilities: torque", "hardware ids: usb:1a86:55d3", "docs", "summary: An arm."):
            assert line in text
    (entry,) = json.loads(run("show", "arm", "--json").stdout)["plugins"]
    extra = {"title", "capabilities", "hardware_ids", "links", "supported_api_levels", "location"}
    assert extra <= set(entry)
    missing = run("show", "amr")
    assert missing.exit_code == 2
    assert "did you mean 'arm'?" in missing.stderr


def test_verify() -> None:
    """Each plugin is imported on its own; a broken one fails with its message, the good one passes."""
    result = run("verify", "--no-packaging", "--json")
    assert result.exit_code == 1
    reports = {report["name"]: report for report in json.loads(result.stdout)["reports"]}
    assert reports["robots/acme/arm"]["passed"]
    assert "No module named 'no_such_module'" in reports["cameras/rude-dist/rude"]["problems"][0]
    assert "needs ulna-core >=9" in reports["policies/old-dist/old"]["problems"][0]
    assert "FAILED   cameras/rude-dist/rude" in run("verify", "rude", "--no-packaging").stdout


def test_doctor_finds_what_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry) -> None:
    """Namespace breakers, bad statuses, bad settings, missing requirements, and what hooks find."""
    for folder in ("ulna", "ulna/robots"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))

    class Checks:
        @hookimpl
        def doctor_checks(self) -> list[dict[str, str]]:
            return [
                {"level": "warning", "title": "The fan is dusty", "remedy": "Clean it."},
                {"level": "ok", "title": "x"},
            ]

    registry.register("hooks", "fan", Checks)
    result = run("doctor", "--json")
    assert result.exit_code == 1
    findings = json.loads(result.stdout)["findings"]
    assert all(set(finding) == {"level", "title", "detail", "remedy"} for finding in findings)
    titles = [finding["title"] for finding in findings]
    assert f"{tmp_path / 'ulna' / '__init__.py'} hides the other distributions of Ulna" in titles
    assert f"{tmp_path / 'ulna' / 'robots' / '__init__.py'} hides the other distributions of Ulna" in titles
    assert "policies/old of old-dist 1.0 is incompatible" in titles
    assert titles[-1] == "The fan is dusty"


def test_doctor_is_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing wrong: says so, exit code 0."""
    monkeypatch.setattr(doctor, "_namespace_breakers", lambda: iter(()))
    monkeypatch.setattr(doctor, "_missing_requirements", lambda records: iter(()))
    with use_registry(Registry(list, environ={"ULNA_HOME": "/nonexistent"})):
        result = run("doctor")
    assert (result.exit_code, result.stdout) == (0, "Everything is well.\n")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("ulna-core", None),
        ("ulna-core>=0.1", None),
        ("ulna-core[cli]>=0.1", None),
        ("ulna-core>=9", "ulna-core 0.1.0 is installed"),
        ("no-such-distribution>=1", "no-such-distribution is not installed"),
        ("no-such-distribution; extra == 'x'", None),
        ("no-such-distribution; python_version < '3'", None),
        ("a b c", "it cannot be understood"),
    ],
)
def test_requirements_are_checked(line: str, problem: str | None) -> None:
    """Versions, markers and extras of what is installed here."""
    said = doctor._requirement_problem(line, frozenset({""}))
    assert (said is None) if problem is None else (said or "").startswith(problem)


def test_doctor_on_copies_and_moved_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editable duplicate, and an editable installation whose folder is gone."""
    for place in ("a", "b"):
        info = tmp_path / place / "twice-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Name: twice\nVersion: 1.0\nRequires-Dist: no-such-distribution\n\n")
        (info / "entry_points.txt").write_text("[ulna.robots]\nx = m:X\n")
        url = {"url": (tmp_path / "gone").as_uri(), "dir_info": {"editable": True}}
        (info / "direct_url.json").write_text(json.dumps(url))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "b"), *sys.path])
    with use_registry(Registry(environ={"ULNA_HOME": "/nonexistent", "ULNA_DISABLE": "hooks"})):
        findings = {finding.title: finding for finding in doctor.examine()}
    assert "In use: " + str(tmp_path / "a") in findings["twice is installed 2 times"].detail
    assert findings["twice is installed from a folder that is gone"].level == "error"
    assert findings["twice needs no-such-distribution"].remedy == "pip install 'no-such-distribution'"


def test_info_reports_broken_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A library that raises, exits or kills Python becomes a line; the command goes on."""
    for name, text in (("broken", "raise OSError('no libfoo')"), ("exits", "raise SystemExit(1)")):
        (tmp_path / f"{name}_library.py").write_text(text)
    (tmp_path / "killed_library.py").write_text("import os\nos._exit(7)")
    (tmp_path / "good_library.py").write_text("__version__ = '1.2'")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    names = ("good", "broken", "exits", "killed", "missing")
    probes = tuple({f"{name}_library": f"import {name}_library as m"} for name in names)
    monkeypatch.setattr(environment, "_PROBES", probes)
    report = json.loads(CliRunner().invoke(info_app, ["--json"]).stdout)
    assert set(report) == {"format", "python", "platform", "distributions", "plugins", "libraries"}
    libraries = report["libraries"]
    assert libraries["good_library"] == {"status": "ok", "version": "1.2", "detail": ""}
    assert libraries["broken_library"]["detail"] == "OSError: no libfoo"
    assert libraries["exits_library"]["detail"] == "SystemExit: 1"
    assert libraries["killed_library"]["detail"] == "importing it ends Python with 7"
    assert libraries["missing_library"]["status"] == "not installed"
    assert libraries["ffmpeg"]["status"] == "not installed"
    assert report["plugins"] == {"incompatible": 1, "ok": 2}
    text = CliRunner().invoke(info_app, []).stdout
    assert "broken_library broken (OSError: no libfoo)" in text
    assert "ulna-core 0.1.0" in text


def test_manifest_is_generated_kept_and_checked(tmp_path: Path) -> None:
    """Written from code, keeping what people wrote; drift is shown and exits with 1."""
    project = '[project]\nname = "acme"\n[project.entry-points."ulna.robots"]\narm = "acme_robots:ArmConfig"\n'
    (tmp_path / "pyproject.toml").write_text(project)
    assert run("manifest", str(tmp_path), "--check").exit_code == 1
    assert run("manifest", str(tmp_path), "--write").exit_code == 0
    written = json.loads((tmp_path / "ulna-plugin.json").read_text())
    assert written["plugins"][0] == {
        "kind": "robots",
        "type": "arm",
        "value": "acme_robots:ArmConfig",
        "api_level": 1,
        "title": "arm",
        "summary": "An arm.",
        "capabilities": [],
        "hardware_ids": [],
    }
    assert run("manifest", str(tmp_path), "--check").exit_code == 0
    written["plugins"][0].update(summary="By hand.", hardware_ids=["usb:1"])
    written["links"] = {"docs": "x"}
    (tmp_path / "ulna-plugin.json").write_text(json.dumps(written))
    assert json.loads(run("manifest", str(tmp_path)).stdout) == written
    written["plugins"][0]["value"] = "elsewhere:X"
    (tmp_path / "ulna-plugin.json").write_text(json.dumps(written))
    drifted = run("manifest", str(tmp_path), "--check")
    assert drifted.exit_code == 1
    assert '-            "value": "elsewhere:X",' in drifted.stdout


def test_manifest_of_what_is_no_plugin(tmp_path: Path) -> None:
    """Told by what is missing."""
    assert "no readable pyproject.toml" in run("manifest", str(tmp_path)).stderr
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "acme"\n')
    assert "declares no plugin" in run("manifest", str(tmp_path)).stderr


def test_own_manifest_is_up_to_date() -> None:
    """The manifest of this distribution says what its code says."""
    folder = Path(__file__).resolve().parents[1]
    with use_registry(Registry(environ={})):
        assert run("manifest", str(folder), "--check").stdout == ""


@pytest.mark.parametrize("kind", KINDS)
def test_new_plugin_is_complete(kind: str, tmp_path: Path) -> None:
    """Every kind has a template whose code compiles, with a manifest, tests, and nothing in the shared namespace."""
    folder = tmp_path / "plugin"
    result = run("new", kind, "my_thing", "--folder", str(folder))
    assert result.exit_code == 0, result.stderr
    assert sorted(map(str, (p for p in folder.rglob("*") if p.is_file()))) == result.stdout.splitlines()
    assert f"ulna plugins verify ulna-{kind}-my-thing" in result.stderr
    for file in folder.rglob("*.py"):
        compile(file.read_text(), str(file), "exec")
    package = folder / "src" / "ulna" / kind / "my_thing"
    assert (package / "py.typed").is_file()
    assert not (package.parent / "__init__.py").exists()
    assert not (package.parent.parent / "__init__.py").exists()
    assert "$" not in "".join(file.read_text() for file in folder.rglob("*.*") if file.is_file())


def test_new_with_a_name_of_its_own(tmp_path: Path) -> None:
    """A third party's distribution gets its own module, outside the namespace."""
    folder = tmp_path / "plugin"
    assert run("new", "robots", "arm", "--folder", str(folder), "--distribution", "Acme-Arms").exit_code == 0
    assert (folder / "src" / "acme_arms" / "config.py").is_file()
    assert 'arm = "acme_arms.config:ArmConfig"' in (folder / "pyproject.toml").read_text()
    assert not (folder / "src" / "ulna").exists()


def test_new_refuses_what_cannot_be(tmp_path: Path) -> None:
    """All problems at once, and nothing is written."""
    (tmp_path / "file").touch()
    result = run("new", "robot", "My Arm", "--folder", str(tmp_path), "--distribution", "-x")
    assert result.exit_code == 2
    assert "4 problems in the new plugin" in result.stderr
    assert "did you mean 'robots'?" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_verify_runs_the_packaging_checks() -> None:
    """With ulna-testing installed, a distribution that is not really there fails its first check, by id and fix."""
    pytest.importorskip("ulna.testing")
    result = run("verify", "arm", "--json")
    assert result.exit_code == 1
    packaging = {report["name"]: report for report in json.loads(result.stdout)["reports"]}["acme"]
    assert "K01-is-a-plugin" in packaging["problems"][0]
    assert "acme is not installed" in packaging["problems"][0]
