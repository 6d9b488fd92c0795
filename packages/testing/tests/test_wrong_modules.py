# SPDX-License-Identifier: Apache-2.0
"""Modules that import too much: the checks of lean configurations and of running without torch see it."""

from __future__ import annotations

import importlib
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ulna.testing import CameraSuite, RobotSuite, TeleoperatorSuite, assert_not_imported, run_suite

_MODULE = """
import {what}
from typing import ClassVar
from ulna.testing.fakes.configs import {base}Config
from ulna.testing.fakes.{module} import {base}


class WrongConfig({base}Config):
    implementation: ClassVar[str] = "{name}:Wrong"


class Wrong({base}):
    pass
"""
CASES: dict[str, tuple[Any, str, str, list[str]]] = {
    "FakeRobot": (RobotSuite, "robot", "R21 R22 R20 R19", ["R21", "R22"]),
    "FakeTeleoperator": (TeleoperatorSuite, "teleoperator", "T18 T19 T17 T16", ["T18", "T19"]),
    "FakeCamera": (CameraSuite, "camera", "C20 C21 C19 C18", ["C20", "C21"]),
}


def make(base: str, what: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a plugin that imports `what`, and make its device."""
    name = f"module_with_{what}_{base.lower()}"
    text = _MODULE.format(what=what, base=base, module=CASES[base][1], name=name)
    (folder / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    module = importlib.import_module(name)
    return lambda: module.Wrong(module.WrongConfig())


@pytest.mark.parametrize("base", CASES)
def test_torch_in_the_module_is_seen(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that imports torch is neither a lean configuration nor runs without torch."""
    suite, _, only, wanted = CASES[base]
    report = run_suite(suite, make(base, "torch", tmp_path, monkeypatch), only=only.split())
    assert [i.partition("-")[0] for i in report.failed] == wanted, str(report)


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
