# SPDX-License-Identifier: Apache-2.0
"""Modules that import too much: the checks of lean configurations and of running without torch see it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from ulna.testing import CameraSuite, RobotSuite, TeleoperatorSuite, assert_not_imported, run_suite

_MODULE = """
from typing import ClassVar
from ulna.testing.fakes.configs import {base}Config
from ulna.testing.fakes.{module} import {base}


class WrongConfig({base}Config):
    implementation: ClassVar[str] = "{name}:Wrong"


class Wrong({base}):
    pass
"""
CASES: dict[str, tuple[Any, str, list[str]]] = {
    "FakeRobot": (RobotSuite, "robot", ["R19", "R20", "R21", "R22"]),
    "FakeTeleoperator": (TeleoperatorSuite, "teleoperator", ["T16", "T17", "T18", "T19"]),
    "FakeCamera": (CameraSuite, "camera", ["C18", "C19", "C20", "C21"]),
}


def make(base: str, what: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a plugin, load it here, and let its file import `what` from now on: seen by fresh interpreters alone."""
    name = f"module_with_{what}_{base.lower()}"
    file = folder / f"{name}.py"
    file.write_text(_MODULE.format(base=base, module=CASES[base][1], name=name), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    module = importlib.import_module(name)
    file.write_text(f"import {what}\n" + file.read_text(encoding="utf-8"), encoding="utf-8")
    return lambda: module.Wrong(module.WrongConfig())


@pytest.mark.parametrize("base", CASES)
@pytest.mark.parametrize(("what", "index"), [("serial", 2), ("torch", 3)])
def test_heavy_library_is_seen(
    base: str, what: str, index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that imports a serial library is not lean; one that imports torch does not run without it."""
    suite, _, every = CASES[base]
    checks = [i for i in every if what != "torch" or i != every[2]]  # to see that torch comes along would take seconds
    report = run_suite(suite, make(base, what, tmp_path, monkeypatch), only=checks)
    assert [i.partition("-")[0] for i in report.failed] == [every[index]], str(report)


def test_vendor_library_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that the author names as the vendor's must not come with the configuration."""
    made = make("FakeRobot", "colorsys", tmp_path, monkeypatch)

    class Own(RobotSuite):
        vendor_modules = ("colorsys",)

    assert run_suite(Own, made, only=["R21", "R22"]).failed == ["R21-lean-config"]
    assert run_suite(RobotSuite, made, only=["R21", "R22"]).ok


def test_guard_for_lean_imports() -> None:
    """assert_not_imported tells which module came in, and passes on the error of the code."""
    assert_not_imported(["torch", "cv2"], "import ulna.testing; ulna.testing.RobotSuite, ulna.testing.run_suite")
    with pytest.raises(AssertionError, match="colorsys"):
        assert_not_imported(["colorsys"], "import colorsys")
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        assert_not_imported(["colorsys"], "1 / 0")
