# SPDX-License-Identifier: Apache-2.0
"""What users get when they install the wheels: commands that answer, plugins that are found, and nothing unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tooling import environments, tree
from tooling.workshop import Workshop

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e")]


@pytest.fixture(scope="module")
def wheel_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hold the wheels that the environments of this module share."""
    return tmp_path_factory.mktemp("wheels")


def workshop(folder: Path, wheel_folder: Path, *requirements: str) -> Workshop:
    """Make a fresh environment with its own home."""
    return Workshop(environments.create(folder / "env", requirements, wheel_folder), folder)


def test_the_core_alone(tmp_path: Path, wheel_folder: Path) -> None:
    """`pip install ulna` brings the command and the core, and the command answers without any plugin."""
    shop = workshop(tmp_path, wheel_folder, "ulna")
    assert "Usage" in shop.do("--help")
    shop.do("plugins", "list")
    shop.do("info")
    for module in ("torch", "cv2", "serial", "pyarrow"):
        assert shop.run_code(f"import {module}").status != 0, f"{module} came along"


def test_everything_is_found(tmp_path: Path, wheel_folder: Path) -> None:
    """With `ulna[all]` every entry point of the tree is listed, and removing one plugin removes only its own."""
    shop = workshop(tmp_path, wheel_folder, "ulna[all]")
    listed = shop.do("plugins", "list")
    for item in tree.distributions():
        if item.is_plugin:
            for group, entries in item.project.get("entry-points", {}).items():
                for name in entries if group.startswith("ulna.") else ():
                    assert name in listed, f"{name} of {item.name} is not listed"
    environments.uninstall(shop.python, "ulna-robots-so")
    shorter = shop.do("plugins", "list")
    assert "so101_follower" not in shorter
    assert "act" in shorter
    refused = shop.ask("calibrate", "--robot.type=so101_follower", "--robot.port=none", "--robot.id=mine")
    assert refused.status != 0
    assert "robot.type" in refused.err
