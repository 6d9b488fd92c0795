# SPDX-License-Identifier: Apache-2.0
"""Hooks are isolated: a failing one is warned about once, counted, and the others hear the event all the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ulna.core.errors import PluginUnusableError
from ulna.core.plugins import FoundEntryPoint, HookSpecs, Registry, call_hook, hookimpl, hooks, use_registry


class Hearing:
    """A good hook."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, float]] = []

    @hookimpl
    def training_step(self, step: int, metrics: dict[str, float]) -> None:
        self.heard.append((step, metrics["loss"]))


class Failing:
    """A hook that raises what it is told to."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    @hookimpl
    def training_step(self) -> None:
        raise self.error


@pytest.fixture
def reg() -> Iterator[Registry]:
    with use_registry(Registry(list, environ={})) as registry:
        yield registry


def step(number: int) -> list[Any]:
    return call_hook("training_step", step=number, metrics={"loss": 0.5})


@pytest.mark.parametrize(
    "error", [ValueError("bad"), SystemExit(1), BaseException("odd")], ids=lambda e: type(e).__name__
)
def test_failing_hook_stops_nothing(reg: Registry, caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    """Whatever a hook raises: the good one hears every event, one warning names the bad one, failures are counted."""
    good = Hearing()
    reg.register("hooks", "aaa", Failing(error), distribution="rude")
    reg.register("hooks", "bbb", good)
    for number in range(3):
        step(number)
    assert good.heard == [(0, 0.5), (1, 0.5), (2, 0.5)]
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "rude/aaa" in warnings[0]
    assert hooks().failures == {"rude/aaa": 3}


def test_interrupt_passes(reg: Registry) -> None:
    """Ctrl-C in a hook stops what runs, as everywhere."""
    reg.register("hooks", "aaa", Failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        step(0)


def test_hook_that_cannot_be_imported_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """It is warned about once and never tried again; strict raises."""
    entry = FoundEntryPoint("ulna.hooks", "gone", "no_such_module_anywhere", "rude")
    with use_registry(Registry(lambda: [entry], environ={})):
        assert step(0) == []
        assert step(1) == []
        assert hooks().failures == {"rude/gone": 1}
    assert "rude/gone could not be set up" in caplog.text
    with (
        use_registry(Registry(lambda: [entry], environ={"ULNA_STRICT": "1"})),
        pytest.raises(PluginUnusableError, match="no_such_module_anywhere"),
    ):
        step(0)


def test_misspelt_event_is_told(reg: Registry, caplog: pytest.LogCaptureFixture) -> None:
    """A hook for an event that does not exist would never be called: that is a failure of the plugin."""

    class Misspelt:
        @hookimpl
        def episode_safed(self) -> None:
            raise AssertionError

    reg.register("hooks", "typo", Misspelt)
    step(0)
    assert "episode_safed" in caplog.text


def test_results_are_gathered(reg: Registry, tmp_path: Path) -> None:
    """What hooks return comes back; every event of the specification can be called."""

    class Checks:
        @hookimpl
        def doctor_checks(self) -> list[dict[str, str]]:
            return [{"level": "warning", "title": "dusty"}]

    reg.register("hooks", "checks", Checks)
    assert call_hook("doctor_checks") == [[{"level": "warning", "title": "dusty"}]]
    assert call_hook("episode_saved", root=tmp_path, repo_id="a/b", episode_index=0, length=1) == []
    assert call_hook("checkpoint_written", path=tmp_path, step=1) == []
    assert call_hook("metrics", source="eval", values={"success": 1.0}, step=1) == []
    events = {name for name in vars(HookSpecs) if not name.startswith("_")}
    assert events == {"episode_saved", "training_step", "checkpoint_written", "doctor_checks", "metrics"}


def test_unknown_event_is_refused(reg: Registry) -> None:
    """A caller's typing error is the caller's error."""
    with pytest.raises(PluginUnusableError, match="no hook 'episode_save'"):
        call_hook("episode_save")
