# SPDX-License-Identifier: Apache-2.0
"""`ulna replay`: a robot repeats a recorded episode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.commands import config_command, message

if TYPE_CHECKING:
    from ulna.control.replaying import ReplayConfig

__all__ = ["app", "run"]


def run(config: ReplayConfig) -> int:
    """Run the command.

    Args:
        config: Settings.

    Returns:
        Exit code: 130 when a signal ended it early.
    """
    from ulna.control.commands.console import console, exit_code
    from ulna.control.replaying import replay

    with console(keys="Esc or q stops.") as runtime:
        result = replay(config, runtime)
    message(f"{result.sent} of {result.total} actions replayed ({result.stop_reason}). {result.stats}")
    return exit_code(result.stop_reason)


app = config_command(
    "ulna.control.replaying:ReplayConfig",
    run,
    name="replay",
    help="""Replay a recorded episode on a robot.

    The robot first moves smoothly to the first pose, then repeats the actions at the rate of the dataset.
    """,
    examples=(
        "ulna replay --robot.type=so101_follower --robot.port=/dev/ttyACM0 --robot.id=left \\",
        "    --dataset.repo_id=lab/cube --dataset.episode=0",
    ),
)
