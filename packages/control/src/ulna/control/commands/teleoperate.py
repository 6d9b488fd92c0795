# SPDX-License-Identifier: Apache-2.0
"""`ulna teleoperate`: a person moves the leader, the robot follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.commands import config_command, message

if TYPE_CHECKING:
    from ulna.control.teleoperation import TeleoperateConfig

__all__ = ["app", "run"]


def run(config: TeleoperateConfig) -> int:
    """Run the command.

    Args:
        config: Settings.

    Returns:
        Exit code.
    """
    from ulna.control.commands.console import console
    from ulna.control.teleoperation import teleoperate

    with console(keys="Esc or q stops.", show_values=config.display_data) as runtime:
        result = teleoperate(config, runtime)
    message(f"Stopped: {result.stop_reason}. {result.stats}")
    for name, counters in (("robot", result.robot_bus), ("teleop", result.teleop_bus)):
        if counters:
            message(f"Bus of the {name}: " + ", ".join(f"{count} {what}" for what, count in counters.items()))
    for camera, count in result.stale_frames.items():
        message(f"Camera {camera}: {count} stale pictures")
    return 0


app = config_command(
    "ulna.control.teleoperation:TeleoperateConfig",
    run,
    name="teleoperate",
    help="""Move a robot with a teleoperator.

    The robot first moves smoothly to where the leader is. Ctrl-C stops and releases torque; a second Ctrl-C stops at
    once.
    """,
    examples=(
        "ulna teleoperate --robot.type=so101_follower --robot.port=/dev/ttyACM0 --robot.id=left \\",
        "    --teleop.type=so101_leader --teleop.port=/dev/ttyACM1 --teleop.id=left",
    ),
)
