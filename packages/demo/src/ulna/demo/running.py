# SPDX-License-Identifier: Apache-2.0
"""The whole demo: every stage in order, timed, with its results written beside the dataset and the checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ulna.control import Phase, RolloutResult, Tick
from ulna.core.errors import ConfigError, ConfigProblem
from ulna.core.files import write_json
from ulna.demo.config import DemoConfig
from ulna.demo.film import write_film
from ulna.demo.stages import (
    Trial,
    judge_expert,
    judge_policy,
    record_demonstrations,
    train_policy,
    untrained_policy,
)
from ulna.demo.world import DemoWorld, demo_world
from ulna.training import TrainingObserver, plot_metrics
from ulna.training.metrics import METRICS_FILE

__all__ = ["DemoResult", "run_demo"]

_FILM_EPISODES = 3
_FILM_SIZE = 480


@dataclass
class DemoResult:
    """What the demo made.

    Attributes:
        folder: Where everything is.
        dataset: Folder of the dataset.
        checkpoint: Folder of the trained policy.
        plot: The loss plot.
        film: The film of the first judged episodes.
        outcomes: `untrained`, `expert`, `trained` to how they did.
        seconds: Stage to how long it took.
    """

    folder: Path
    dataset: Path
    checkpoint: Path
    plot: Path
    film: Path
    outcomes: dict[str, RolloutResult] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Measure a stage.

        Args:
            stage: Its name.

        Yields:
            Nothing.
        """
        began = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - began

    def rows(self) -> list[list[str]]:
        """Return the result as rows: who, success rate, 95 % interval, successes of episodes."""
        rows = []
        for who, outcome in self.outcomes.items():
            low, high = outcome.interval()
            score = f"{outcome.successes} of {outcome.judged}"
            rows.append([who, f"{outcome.success_rate:.0%}", f"{low:.0%} to {high:.0%}", score])
        return rows


class _Camera:
    """Takes a frame of the scene at every tick of the first episodes."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world
        self._episodes = 0
        self.frames: list[npt.NDArray[np.uint8]] = []

    def __call__(self, tick: Tick) -> None:
        self._episodes += tick.index == 0
        if self._episodes <= _FILM_EPISODES:
            self.frames.append(self._world.sim.render("front", _FILM_SIZE, _FILM_SIZE))


def run_demo(
    config: DemoConfig, say: Callable[[str], object] = lambda text: None, observers: tuple[TrainingObserver, ...] = ()
) -> DemoResult:
    """Record, train and roll out on the simulated arm.

    Args:
        config: Settings.
        say: Told what is going on, a line at a time.
        observers: Told about the training.

    Returns:
        The outcomes and where everything is.

    Raises:
        ConfigError: The output folder exists already.
        ControlError: A stage was interrupted.
    """
    folder = config.output_dir or Path("outputs/demo") / datetime.now().astimezone().strftime("%Y-%m-%d_%H-%M-%S")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError([ConfigProblem("output_dir", str(folder), "a folder that is new or empty")], title="demo")
    run_dir = folder / "training"
    result = DemoResult(folder, folder / "dataset", run_dir, folder / "loss.png", folder / "rollout.mp4")
    with demo_world(config, folder / "calibration") as world:
        _record(world, config, result, say)
        say(f"Judging the untrained policy and the expert on {config.rollouts} fresh scenes each ...")
        with result.timed("judge untrained and expert"):
            result.outcomes["untrained"] = judge_policy(world, config, untrained_policy(result.dataset, config.seed))
            result.outcomes["expert"] = judge_expert(world, config)
        with result.timed("train"):
            trained = train_policy(config, result.dataset, run_dir, observers)
        result.checkpoint = (trained.checkpoint or run_dir) / "pretrained_model"
        say(f"Judging the trained policy on the same {config.rollouts} scenes ...")
        camera = _Camera(world)
        trial = Trial(trained.policy.eval(), trained.preprocessor, trained.postprocessor)
        with result.timed("judge trained"):
            result.outcomes["trained"] = judge_policy(world, config, trial, camera)
    with result.timed("film and plot"):
        write_film(result.film, camera.frames, config.fps)
        plot_metrics(run_dir / METRICS_FILE, result.plot, title="Training of the demo policy")
    _write_results(result)
    return result


def _record(world: DemoWorld, config: DemoConfig, result: DemoResult, say: Callable[[str], object]) -> None:
    every = max(1, config.episodes // 6)

    def told(phase: Phase) -> None:
        if phase.name == "record" and phase.episode is not None and phase.episode % every == 0:
            say(f"  demonstration {phase.episode + 1} of {config.episodes}")

    say(f"Recording {config.episodes} demonstrations with two cameras ...")
    with result.timed("record"):
        record_demonstrations(world, config, result.dataset, told)


def _write_results(result: DemoResult) -> None:
    outcomes = {
        who: {"successes": o.successes, "episodes": o.judged, "rate": o.success_rate, "interval_95": o.interval()}
        for who, o in result.outcomes.items()
    }
    write_json(result.folder / "results.json", {"outcomes": outcomes, "seconds": result.seconds})
