# SPDX-License-Identifier: Apache-2.0
"""Which distribution brings which command, and which are planned. Installed ones are known by their entry points."""

from __future__ import annotations

__all__ = ["BROUGHT_BY", "PLANNED", "install_hint"]

_COMMANDS = {
    "ulna-control[serial]": ("calibrate", "cameras", "detect", "motors", "record", "replay", "rollout", "teleoperate"),
    "ulna-data[cli]": ("dataset",),
    "ulna-sim[cli,draw]": ("sim",),
    "ulna-training": ("train",),
    "ulna[demo]": ("demo",),
}
BROUGHT_BY: dict[str, str] = {command: name for name, commands in _COMMANDS.items() for command in commands}
"""Command to what `pip install` needs to be given."""

PLANNED = ("can", "checkpoint", "eval", "lekiwi", "rl", "serve", "tokenizer")
"""Commands that no distribution brings yet."""


def install_hint(command: str) -> str | None:
    """Return how to get a command that is not installed, or None when nobody is known to bring it.

    Args:
        command: Name of the command.
    """
    distribution = BROUGHT_BY.get(command)
    return None if distribution is None else f"Install it with: pip install {distribution!r}".replace("'", '"')
