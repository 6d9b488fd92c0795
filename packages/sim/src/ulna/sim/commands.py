# SPDX-License-Identifier: Apache-2.0
"""The `ulna sim` command: start a world for other processes, reset it, save a picture of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ulna.core import files, paths
from ulna.core.commands import message, output, reporting
from ulna.core.errors import DeviceConnectError

if TYPE_CHECKING:
    from ulna.sim.simulation import Simulation

__all__ = ["app"]

_PERIOD_S = 1 / 30
"""Time between two steps of the operator."""

_PAUSE_S = 0.5
"""Rest between two reaches."""

app = typer.Typer(help="Simulate arms and a table scene, no hardware needed.", no_args_is_help=True)

_LARGEST_SEED = 2**63 - 1
_MOST_PIXELS = 8192
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

Name = Annotated[str, typer.Option("--name", help="Name of the simulated world.")]


@app.command()
def start(
    name: Name = "table",
    seed: Annotated[int, typer.Option(min=0, max=_LARGEST_SEED, help="Draws the target's place.")] = 0,
    arms: Annotated[str, typer.Option(help="Which arms, separated by commas.")] = "leader,follower",
    paced: Annotated[bool, typer.Option(help="Answer only as fast as a real wire at the port's speed.")] = True,
    calibrated: Annotated[
        bool, typer.Option(help="Servos hold a calibration; without it they are as delivered.")
    ] = True,
    operator: Annotated[
        bool, typer.Option(help="A scripted operator reaches for the target with the leader, again and again.")
    ] = False,
    calibration: Annotated[
        Path | None, typer.Option(help="Folder for calibration files; default: Ulna's own when calibrated.")
    ] = None,
    id: Annotated[str, typer.Option(help="Device id of the calibration files.")] = "sim",
) -> None:
    """Run a world until Ctrl-C and print the ports of its arms."""
    from ulna.sim.simulation import Simulation

    with reporting():
        chosen = [arm.strip() for arm in arms.split(",") if arm.strip()]
        with Simulation(name, seed=seed, arms=chosen, paced=paced, calibrated=calibrated) as sim:
            folder = sim.serve()
            for arm, port in sim.ports.items():
                output(f"{arm} {folder / arm} -> {port}")
            if calibrated or calibration is not None:
                for arm, path in sim.write_calibration(calibration or paths.calibration_roots()[0], id).items():
                    output(f"{arm} calibration {path}")
            with _told_to_stop() as stop:
                message("Running. Press Ctrl-C to stop.")
                if operator:
                    _operate(sim, seed, stop)
                while not stop.wait(0.2):
                    pass
        message("Stopped.")


@app.command()
def reset(
    name: Name = "table",
    seed: Annotated[int, typer.Option(min=0, max=_LARGEST_SEED, help="Draws the new target's place.")] = 0,
) -> None:
    """Put a running world back to the beginning, with a new target."""
    from ulna.sim.sharing import WorldReader

    with reporting(), WorldReader(name) as world:
        world.reset(seed)
        x, y = world.read().target
        output(f"target {x:.3f} {y:.3f}")


@app.command()
def render(
    path: Annotated[Path, typer.Argument(help="PNG file to write.")],
    name: Name = "table",
    view: Annotated[str, typer.Option(help="front, top, side or wrist.")] = "front",
    width: Annotated[int, typer.Option(max=_MOST_PIXELS, help="Pixels.")] = 640,
    height: Annotated[int, typer.Option(max=_MOST_PIXELS, help="Pixels.")] = 480,
    seed: Annotated[
        int, typer.Option(min=0, max=_LARGEST_SEED, help="Scene to draw when no world of that name is running.")
    ] = 0,
) -> None:
    """Save a picture of a running world. When none is running, a fresh scene is drawn."""
    with reporting():
        files.write_bytes(path, _png(name, view, width, height, seed))
        output(str(path))


def _png(name: str, view: str, width: int, height: int, seed: int) -> bytes:
    from ulna.sim.drawing import draw, encode_png
    from ulna.sim.scene import SceneState, target_for_seed
    from ulna.sim.sharing import WorldReader

    try:
        with WorldReader(name) as world:
            state = world.read()
    except DeviceConnectError:
        message(f"No world {name!r} is running; drawing a fresh scene with seed {seed}.")
        state = SceneState(seed=seed, target=target_for_seed(seed))
    return encode_png(draw(state, view, width, height))


def _operate(sim: Simulation, seed: int, stop: threading.Event) -> None:
    """Reach for the target, go back, and have another target put on the table, until told to stop."""
    from ulna.sim.expert import ScriptedExpert

    expert = ScriptedExpert(sim, rate_hz=1 / _PERIOD_S)
    while not stop.is_set():
        for plan in (expert.begin, expert.retreat):
            plan()
            while not expert.done and not stop.wait(_PERIOD_S):
                expert.step()
        stop.wait(_PAUSE_S)
        seed += 1
        sim.reset(seed)


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C and SIGTERM set, so that ports and links are removed."""
    stop = threading.Event()
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in heeded}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
