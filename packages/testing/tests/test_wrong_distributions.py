# SPDX-License-Identifier: Apache-2.0
"""Deliberately wrong distributions, as installers leave them: each fails the check of its fault, and no other."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ulna.core.plugins import Registry, scan
from ulna.core.plugins.manifest import generate
from ulna.testing import PackagingSuite, isolation, run_suite
from ulna.testing.sources import talking

METADATA = """Metadata-Version: 2.4
Name: acme-arm
Version: 1.0
Summary: An arm.
License-Expression: Apache-2.0
Requires-Python: >=3.11
Requires-Dist: ulna-core<0.2,>=0.1
Description-Content-Type: text/markdown

# acme-arm
"""
CONFIG = '''"""Settings of the arm."""
from ulna.core.robots import RobotConfig


class AcmeConfig(RobotConfig):
    """An arm."""

    type: str = "acme_arm"
'''
Files = dict[str, str]


def wheel(module: str = "PACKAGE") -> Files:
    """Return the files of a right distribution; PACKAGE stands for a name that no other test used."""
    return {
        f"{module}/__init__.py": '"""An arm."""\n',
        f"{module}/config.py": CONFIG,
        f"{module}/py.typed": "",
        "acme_arm-1.0.dist-info/METADATA": METADATA,
        "acme_arm-1.0.dist-info/entry_points.txt": f"[ulna.robots]\nacme_arm = {module}.config:AcmeConfig\n",
    }


_count = iter(range(1000))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Files], None]:
    """Return what puts files where Python finds them, with the RECORD that installers write."""

    def put(files: Files) -> None:
        package = f"acme_{next(_count)}"
        named = {k.replace("PACKAGE", package): v.replace("PACKAGE", package) for k, v in files.items()}
        named["acme_arm-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in named)
        for name, text in named.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()

    return put


INFO = "acme_arm-1.0.dist-info"
BASE = wheel()
OWN = {
    **wheel("ulna/robots/PACKAGE"),
    f"{INFO}/entry_points.txt": "[ulna.robots]\nacme_arm = ulna.robots.PACKAGE.config:AcmeConfig\n",
}
ENTRY = f"{INFO}/entry_points.txt"
META = f"{INFO}/METADATA"
MODULE = "PACKAGE/driver.py"


def changed(name: str, old: str, new: str) -> Files:
    assert old in BASE[name]
    return {**BASE, name: BASE[name].replace(old, new)}


WRONG: dict[str, tuple[Files, list[str]]] = {
    "no entry point": ({**BASE, ENTRY: ""}, ["K01"]),
    "module that is not there": ({**BASE, ENTRY: "[ulna.robots]\nacme_arm = PACKAGE.gone:AcmeConfig\n"}, ["K02"]),
    "wrong base class": ({**BASE, ENTRY: "[ulna.cameras]\nacme_arm = PACKAGE.config:AcmeConfig\n"}, ["K02"]),
    "sys.exit on import": (changed("PACKAGE/config.py", "class", "raise SystemExit(3)\n\n\nclass"), ["K02"]),
    "unknown kind": ({**BASE, ENTRY: BASE[ENTRY].replace("ulna.robots", "ulna.robot")}, ["K02"]),
    "core of the future": (changed(META, "ulna-core<0.2,>=0.1", "ulna-core<10,>=9"), ["K02"]),
    "another type": (changed("PACKAGE/config.py", '"acme_arm"', '"acme"'), ["K03"]),
    "name that is not its module's": (OWN, ["K04"]),
    "manifest that lies": ({**BASE, f"{INFO}/ulna-plugin.json": "LIES"}, ["K05"]),
    "manifest of another": (
        {**BASE, f"{INFO}/ulna-plugin.json": '{"manifest": 1, "distribution": "x"}'},
        ["K02", "K05"],
    ),
    "namespace that is closed": ({**BASE, "ulna/robots/__init__.py": ""}, ["K06", "K07"]),
    "no py.typed": ({k: v for k, v in BASE.items() if not k.endswith("py.typed")}, ["K07"]),
    "pickle": ({**BASE, MODULE: "import pickle\n\nDATA = pickle.dumps(1)\n"}, ["K10"]),
    "torch.load": ({**BASE, MODULE: "import torch\n\n\ndef load(p):\n    return torch.load(p)\n"}, ["K10"]),
    "numpy pickle": (
        {**BASE, MODULE: "import numpy as np\n\n\ndef f(p):\n    return np.load(p, allow_pickle=True)\n"},
        ["K10"],
    ),
    "test code": ({**BASE, MODULE: "from ulna.testing import RobotSuite\n"}, ["K11"]),
    "tests folder": ({**BASE, "tests/test_arm.py": "", "tests/py.typed": ""}, ["K11"]),
    "print": ({**BASE, MODULE: "def f():\n    print(1)\n"}, ["K12"]),
    "input": ({**BASE, MODULE: "def f():\n    return input()\n"}, ["K12"]),
    "sys.argv": ({**BASE, MODULE: "import sys\n\n\ndef f():\n    return sys.argv\n"}, ["K12"]),
    "no licence": (changed(META, "License-Expression: Apache-2.0\n", ""), ["K13"]),
    "no readme": (changed(META, "# acme-arm\n", ""), ["K13"]),
    "no summary": (changed(META, "Summary: An arm.\n", ""), ["K13"]),
    "pinned core": (changed(META, "ulna-core<0.2,>=0.1", "ulna-core==0.1.0"), ["K14"]),
    "core without upper bound": (changed(META, "ulna-core<0.2,>=0.1", "ulna-core>=0.1"), ["K14"]),
    "no core": (changed(META, "Requires-Dist: ulna-core<0.2,>=0.1\n", ""), ["K14"]),
}
IN_PROCESS = [
    i for i, c in PackagingSuite.checks().items() if c.short not in ("K08", "K09")
]  # these start interpreters


def manifest() -> str:
    """Return the true manifest of the installed distribution."""
    found = [e for e in scan() if e.distribution == "acme-arm"]
    reg = Registry(lambda: found, environ={})
    return json.dumps(generate("acme-arm", [(r, reg.load_record(r)) for r in reg.records()]))


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_distribution_fails_its_check(fault: str, install: Any, tmp_path: Path) -> None:
    """A distribution with one fault fails the check of that fault, and only what follows from it."""
    files, wanted = WRONG[fault]
    lies = files.get(f"{INFO}/ulna-plugin.json") == "LIES"
    install({k: v for k, v in files.items() if not lies or not k.endswith("ulna-plugin.json")})
    if lies:
        (tmp_path / INFO / "ulna-plugin.json").write_text(
            manifest().replace(":AcmeConfig", ":OtherConfig"), encoding="utf-8"
        )
    report = run_suite(PackagingSuite, lambda: "acme-arm", only=IN_PROCESS)
    assert [i.partition("-")[0] for i in report.failed] == wanted, str(report)


def test_right_distribution_passes(install: Any, tmp_path: Path) -> None:
    """A right one passes, also what starts interpreters; a manifest that tells the truth passes too."""
    install(BASE)
    (tmp_path / INFO / "ulna-plugin.json").write_text(manifest(), encoding="utf-8")
    report = run_suite(PackagingSuite, lambda: "Acme_Arm")
    assert report.ok, str(report)
    assert list(report.not_exercised) == ["K04-four-spellings", "K15-changelog"]


def test_heavy_and_rude_imports_are_seen(install: Any) -> None:
    """A configuration that imports a serial library, and a module that sets up logging, are told by name."""
    install(
        {
            **BASE,
            "PACKAGE/config.py": "import serial\n" + CONFIG,
            MODULE: "import logging\nimport os\n\nlogging.basicConfig()\nos.environ['ACME'] = '1'\n",
        }
    )
    report = run_suite(PackagingSuite, lambda: "acme-arm", only=["K08", "K09"])
    assert report.failed == ["K08-lean-imports", "K09-import-changes-nothing"]
    assert "also imports serial" in str(report)
    assert "logging (root level, handlers) by acme_" in str(report)
    assert "environment variables by acme_" in str(report)


def test_module_that_cannot_be_imported_is_told(install: Any) -> None:
    """A module that fails to import is named with its error."""
    install({**BASE, MODULE: "import no_such_library\n"})
    package = next(e.value.partition(".")[0] for e in scan() if e.distribution == "acme-arm")
    effects, broken = isolation.side_effects((f"{package}.driver",))
    assert not effects
    assert "no_such_library" in broken[0]


def test_own_distributions_are_checked() -> None:
    """The suite works on an editable install: this distribution's own, which offers no plugin."""
    report = run_suite(PackagingSuite, lambda: "ulna-testing", only=[i for i in IN_PROCESS if i[:3] != "K01"])
    assert report.ok, str(report)
    if "site-packages" not in (find_spec("ulna.testing").origin or ""):  # a wheel has no changelog
        assert "K15-changelog" in report.passed


def test_command_modules_may_print(tmp_path: Path) -> None:
    """What a command says is not library code talking; printing to a file is not either."""
    for name in ("commands.py", "commands_show.py", "__main__.py"):
        (tmp_path / name).write_text("print(1)\n", encoding="utf-8")
        assert not list(talking(tmp_path / name))
    (tmp_path / "report.py").write_text("def f(out):\n    print(1, file=out)\n", encoding="utf-8")
    assert not list(talking(tmp_path / "report.py"))
