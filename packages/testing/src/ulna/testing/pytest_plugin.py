# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: isolated homes and registries, and the report of what checks did not exercise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ulna.core.plugins import Registry
    from ulna.testing.peer import Peer

__all__ = ["lerobot_peer", "registry", "ulna_home"]

_PROPERTY = "ulna_check"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker that every conformance check carries."""
    config.addinivalue_line("markers", "conformance: a check of an ulna.testing suite; run them with -m conformance")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the checks of suites, so that they can be selected and counted."""
    made = getattr(getattr(item, "function", None), "ulna_check", None)
    if made is not None:
        item.add_marker("conformance")
        owner = getattr(item, "cls", None)
        item.user_properties.append((_PROPERTY, f"{made.short} {getattr(owner, '__name__', '')}".strip()))


def _checks(terminalreporter: Any, status: str) -> Iterator[tuple[str, Any]]:
    for report in terminalreporter.stats.get(status, ()):
        found = [value for key, value in getattr(report, "user_properties", ()) if key == _PROPERTY]
        if found:
            yield str(found[0]), report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write one line: how many checks passed and failed, and which could not be exercised, and why."""
    from ulna.testing.running import summary_line

    passed = [name for name, report in _checks(terminalreporter, "passed") if report.when == "call"]
    failed = [name for status in ("failed", "error") for name, _ in _checks(terminalreporter, status)]
    skipped = {name: _reason(report) for name, report in _checks(terminalreporter, "skipped")}
    if not (passed or failed or skipped):
        return
    owners = Counter(name.partition(" ")[2] for name in {*passed, *failed, *skipped})

    def label(name: str) -> str:
        return name if len(owners) > 1 else name.partition(" ")[0]

    line = summary_line(len(passed), [label(n) for n in failed], {label(n): why for n, why in skipped.items()})
    terminalreporter.write_line(f"conformance: {line}")


def _reason(report: Any) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return str(text).removeprefix("Skipped: ")


@pytest.fixture
def ulna_home(tmp_path: Path) -> Iterator[Path]:
    """Give Ulna and LeRobot empty home folders of their own for the test; yields Ulna's, which does not exist yet."""
    from ulna.testing.isolation import isolated_home

    with isolated_home(tmp_path / "home") as home:
        yield home


@pytest.fixture
def registry(ulna_home: Path) -> Iterator[Registry]:
    """Give the test a plugin registry that sees no installed plugin; register fakes or your own with it."""
    from ulna.testing.fakes.plugins import isolated_registry

    with isolated_registry() as made:
        yield made


@pytest.fixture(scope="session")
def lerobot_peer() -> Iterator[Peer]:
    """Give the LeRobot that `ULNA_LEROBOT_PYTHON` names; mark such tests with `ulna.testing.peer.needs_peer`.

    Yields:
        The peer; its process is shared by the session.
    """
    from ulna.testing.peer import Peer

    with Peer.find() as peer:
        yield peer
