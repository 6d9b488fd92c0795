# SPDX-License-Identifier: Apache-2.0
"""Building blocks of commands: options from a configuration, output, errors. Needs the extra `cli`."""

from __future__ import annotations

from ulna.core.commands.configured import command_group, config_command
from ulna.core.commands.terminal import message, output, output_json, output_table, reporting, table

__all__ = [
    "command_group",
    "config_command",
    "message",
    "output",
    "output_json",
    "output_table",
    "reporting",
    "table",
]
