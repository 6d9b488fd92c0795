# SPDX-License-Identifier: Apache-2.0
"""What the comparisons with LeRobot share: a dataset that `ulna record` made of a simulated arm."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tooling.workshop import Workshop
from ulna.testing.isolation import isolated_home

CAMERAS = "--robot.cameras={{front: {{{0}, view: front}}, top: {{{0}, view: top}}}}".format(
    "type: sim, width: 64, height: 48, fps: 30"
)
EPISODES = ["--dataset.num_episodes=2", "--dataset.episode_time_s=1", "--dataset.reset_time_s=0"]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path) -> Iterator[None]:
    """Keep the home folders of both projects out of it."""
    with isolated_home(tmp_path / "homes"):
        yield


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """The environment of this checkout, with a home of its own."""
    return Workshop(Path(sys.executable), tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="session")
def recorded(shop: Workshop) -> Path:
    """The folder of a dataset: two episodes with two cameras in h264, made by `ulna record`."""
    root = shop.folder / "reach"
    with shop.simulated_arms() as (follower, leader):
        words = ["--dataset.repo_id=me/reach", f"--dataset.root={root}", "--dataset.single_task=Reach", *EPISODES]
        shop.do("record", *follower, CAMERAS, *leader, *words)
    return root


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the figures that the comparisons noted: how many values were equal, how far actions lie apart."""
    rows = [
        f"{report.nodeid.rpartition('/')[2]}: {name.replace('_', ' ')} {value}"
        for report in terminalreporter.getreports("passed")
        if report.when == "call"
        for name, value in report.user_properties
    ]
    if rows:
        terminalreporter.section("figures of the comparison")
        terminalreporter.write_line("\n".join(rows))
