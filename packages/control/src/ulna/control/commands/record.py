# SPDX-License-Identifier: Apache-2.0
"""`ulna record`: demonstrations become a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.commands import config_command, message

if TYPE_CHECKING:
    from ulna.control.recording import RecordConfig

__all__ = ["app", "run"]

_KEYS = "Right or n: end the episode or the reset. Left or r: record it again. Esc or q: save and stop."


def run(config: RecordConfig) -> int:
    """Run the command.

    Args:
        config: Settings.

    Returns:
        Exit code: 0 when every episode asked for is there or the stop key was pressed, 130 after a signal.
    """
    from ulna.control.commands.console import console, exit_code
    from ulna.control.recording import record

    try:
        with console(keys=_KEYS, show_values=config.display_data) as runtime:
            result = record(config, runtime)
    except KeyboardInterrupt as interrupt:
        for note in getattr(interrupt, "__notes__", ()):
            message(note)
        raise
    message(result.summary())
    if not result.complete:
        message("Continue with the same command and --resume=true")
    return 0 if result.complete else exit_code(result.stop_reason)


app = config_command(
    "ulna.control.recording:RecordConfig",
    run,
    name="record",
    help="""Record demonstrations into a dataset.

    Every finished episode is safe at once, whatever happens later. `dataset.num_episodes` is the number of episodes
    the dataset shall have in all: with --resume=true only the missing ones are recorded. Esc saves the running
    episode and stops; Ctrl-C throws it away.
    """,
    examples=(
        "ulna record --robot.type=so101_follower --robot.port=/dev/ttyACM0 --robot.id=left \\",
        "    --teleop.type=so101_leader --teleop.port=/dev/ttyACM1 --teleop.id=left \\",
        "    --dataset.repo_id=lab/cube --dataset.single_task='Put the cube in the box' --dataset.num_episodes=20",
    ),
)
