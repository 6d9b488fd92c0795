# SPDX-License-Identifier: Apache-2.0
"""What start-up may load. Modules are counted, not milliseconds: the answer is the same on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tooling import crowds, processes, tree

NEVER_IN_CORE = {"torch", "numpy", "pydantic", "typer", "cv2", "serial"}
HEAVY = {"torch", "torchvision", "cv2", "av", "pyarrow", "matplotlib", "transformers", "diffusers", "datasets", "wandb"}
WITH_HARDWARE = {"serial", "can", "scservo_sdk", "dynamixel_sdk", "pyrealsense2"}
NOT_A_CONFIG = {"ulna.commands", "ulna.hooks", "ulna.processors"}
"""Groups whose entry points name no configuration; a processor step is the implementation itself and may need torch."""


def entry_points(of_configurations: bool) -> list[tuple[str, str]]:
    """Return `group/name` and module of the entry points of this tree: of configurations, or of commands."""
    found = []
    for distribution in tree.distributions():
        for group, entries in distribution.project.get("entry-points", {}).items():
            wanted = group not in NOT_A_CONFIG if of_configurations else group == "ulna.commands"
            if group.startswith("ulna.") and wanted:
                found += [(f"{group}/{name}", target.partition(":")[0]) for name, target in entries.items()]
    return found


def heavy(modules: set[str], names: set[str]) -> set[str]:
    """Return those of `names` that are among the loaded modules."""
    return names & modules


def test_import_of_core() -> None:
    """`import ulna.core` is cheap enough for a tool that only wants a name from it."""
    assert heavy(processes.modules_loaded_by("import ulna.core"), NEVER_IN_CORE) == set()


def test_every_name_of_core_resolves() -> None:
    """Laziness hides no missing name: each entry of `__all__` can be had, and `dir` shows it."""
    every = "import ulna.core as core\nfor name in core.__all__:\n    getattr(core, name)\n"
    processes.modules_loaded_by(f"{every}assert set(core.__all__) <= set(dir(core))")


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), ("plugins", "list"), ("plugins", "list", "--json"), ("info",)], ids=" ".join
)
def test_light_commands(words: tuple[str, ...]) -> None:
    """Asking what there is loads neither torch nor a driver, and no plugin."""
    assert heavy(processes.modules_loaded_by_command(*words), HEAVY | WITH_HARDWARE) == set()


@pytest.mark.parametrize(
    "words",
    [
        ("record", "--help"),
        ("teleoperate", "--help"),
        ("calibrate", "--help"),
        ("replay", "--help"),
        ("rollout", "--help"),
        ("train", "--help"),
        ("train", "--policy.type=act", "--help"),
        ("record", "--robot.type=so101_follower", "--help"),
    ],
    ids=" ".join,
)
def test_help_loads_no_torch(words: tuple[str, ...]) -> None:
    """Help comes from configurations, which need no torch, no OpenCV and no serial library."""
    assert heavy(processes.modules_loaded_by_command(*words), HEAVY | WITH_HARDWARE) == set()


@pytest.mark.parametrize(("name", "module"), entry_points(True), ids=lambda value: value)
def test_configuration_is_light(name: str, module: str) -> None:
    """The module that an entry point names holds the configuration and imports no torch, vision library or driver."""
    assert heavy(processes.modules_loaded_by(f"import {module}"), HEAVY | WITH_HARDWARE) == set(), name


@pytest.mark.parametrize(("name", "module"), entry_points(False), ids=lambda value: value)
def test_command_module_is_light(name: str, module: str) -> None:
    """A command is imported to show its help, so its module leaves the heavy work to the moment of use."""
    assert heavy(processes.modules_loaded_by(f"import {module}"), HEAVY | WITH_HARDWARE) == set(), name


def test_forty_plugins_are_listed_without_importing_one(tmp_path: Path) -> None:
    """`plugins list` reads metadata only: the crowd's modules would raise when imported."""
    crowds.install(tmp_path, 40)
    loaded = processes.modules_loaded_by_command("plugins", "list", env={"PYTHONPATH": str(tmp_path)})
    assert not [name for name in loaded if name.startswith("crowd_")]
    assert heavy(loaded, HEAVY | WITH_HARDWARE) == set()
