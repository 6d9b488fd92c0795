# SPDX-License-Identifier: Apache-2.0
"""`ulna rollout`: a trained policy drives the robot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.commands import config_command, message

if TYPE_CHECKING:
    from ulna.control.rolling_out import RolloutConfig

__all__ = ["app", "run"]

_KEYS = "Right or n: end the episode. s or f: end it as success or failure. Left or r: repeat it. Esc or q: stop."


def run(config: RolloutConfig) -> int:
    """Run the command.

    Args:
        config: Settings.

    Returns:
        Exit code: 130 when a signal ended it before the episodes or the time asked for.
    """
    from ulna.control.commands.console import console, exit_code
    from ulna.control.rolling_out import rollout

    with console(keys=_KEYS) as runtime:
        result = rollout(config, runtime)
    message(result.summary())
    limited = config.strategy == "episodic" or config.duration > 0
    return exit_code(result.stop_reason) if limited else 0


app = config_command(
    "ulna.control.rolling_out:RolloutConfig",
    run,
    name="rollout",
    help="""Let a trained policy drive a robot.

    With --strategy=episodic, episodes are judged with the keys s and f, the robot goes back to its first pose between
    them, and --dataset.repo_id records them.
    """,
    examples=(
        "ulna rollout --robot.type=so101_follower --robot.port=/dev/ttyACM0 --robot.id=left \\",
        "    --policy.path=outputs/train/checkpoints/last/pretrained_model --duration=60",
    ),
)
