# SPDX-License-Identifier: Apache-2.0
"""The command `ulna demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.commands import config_command, message, output, output_table

if TYPE_CHECKING:
    from ulna.demo.config import DemoConfig
    from ulna.demo.running import DemoResult

__all__ = ["app", "run"]


def run(config: DemoConfig) -> int:
    """Run the demo and print its results.

    Args:
        config: Settings.

    Returns:
        0 when the trained policy does better than the untrained one, else 1.
    """
    from ulna.demo.running import run_demo
    from ulna.training import ProgressObserver

    result = run_demo(config, message, (ProgressObserver(message),))
    _show(result)
    trained, untrained = result.outcomes["trained"], result.outcomes["untrained"]
    if trained.success_rate > untrained.success_rate:
        return 0
    message("The trained policy does not beat the untrained one. Try more steps: ulna demo --steps=2000")
    return 1


def _show(result: DemoResult) -> None:
    output()
    output_table(["policy", "success", "95 % interval", "episodes"], result.rows())
    output()
    times = [[stage, f"{seconds:.0f} s"] for stage, seconds in result.seconds.items()]
    output_table(["stage", "time"], [*times, ["total", f"{sum(result.seconds.values()):.0f} s"]])
    output()
    for name in ("dataset", "checkpoint", "plot", "film"):
        output(f"{name:<10}  {getattr(result, name)}")
    message()
    message("What to try next:")
    message(f"  ulna dataset info {result.dataset}")
    message("  ulna sim start --operator    keeps a simulated pair running for the other commands")
    message("  ulna record --help           records your own demonstrations, simulated or real")


app = config_command(
    "ulna.demo.config:DemoConfig",
    run,
    name="demo",
    help="""Record, train and roll out on a simulated SO-101, without hardware.

    A scripted expert moves the leader, the follower follows through the real driver, two cameras are recorded, ACT
    learns from them, and the policy is judged on fresh scenes.""",
    examples=("ulna demo", "ulna demo --fast", "ulna demo --steps=1500 --output_dir=outputs/longer"),
)
