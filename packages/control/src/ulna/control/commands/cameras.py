# SPDX-License-Identifier: Apache-2.0
"""`ulna cameras find`: which cameras there are, and what to write in the settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ulna.core.commands import command_group, config_command, message, output_table

if TYPE_CHECKING:
    from ulna.control.discovery import FindCamerasConfig

__all__ = ["app", "find"]


def find(config: FindCamerasConfig) -> int:
    """Run `ulna cameras find`.

    Args:
        config: Settings.

    Returns:
        Exit code: 1 when there is no camera, or none of the pictures asked for.
    """
    from ulna.control.discovery import find_cameras, save_pictures

    found = find_cameras([config.type] if config.type else None)
    for kind, problem in found.problems.items():
        message(f"{kind}: {problem}")
    if not found.cameras:
        message("No camera was found. Is it plugged in, and not in use by another program?")
        return 1
    rows = [[c["type"], str(c.get("id", "")), str(c.get("name", "")), _profile(c)] for c in found.cameras]
    output_table(["type", "id", "name", "default picture"], rows)
    if config.output_dir is not None:
        saved = save_pictures(found, config.output_dir)
        for name, result in saved.items():
            message(f"{name}: {result}")
        return 0 if any(Path(result).is_file() for result in saved.values()) else 1
    return 0


def _profile(camera: dict[str, Any]) -> str:
    profile = camera.get("default_stream_profile") or {}
    size = f"{profile.get('width', '?')}x{profile.get('height', '?')}" if profile else ""
    return f"{size} {profile['fps']:g} Hz" if profile.get("fps") else size


app = command_group("cameras", "Find cameras.")
app.registered_commands += config_command(
    "ulna.control.discovery:FindCamerasConfig",
    find,
    name="find",
    help="List the cameras that the installed plugins see. --output_dir saves a picture of each.",
    examples=("ulna cameras find", "ulna cameras find --type=opencv --output_dir=pictures"),
).registered_commands
