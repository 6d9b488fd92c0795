# SPDX-License-Identifier: Apache-2.0
"""Recording episodes with devices and a dataset at hand. Making those from settings is in `recording`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ulna.control.camera_watch import CameraLostError
from ulna.control.compatibility import check_pair
from ulna.control.driving import Command, CommandReader, Driver, Processors, Step
from ulna.control.frames import FrameBuilder
from ulna.control.interrupts import StopRequest
from ulna.control.logbook import EpisodeReport, append_report, ranges
from ulna.control.loop import RateLoop
from ulna.control.record_plan import EpisodePlan, EpisodeWriter, RecordingInterruptedError, RecordResult
from ulna.control.runtime import Runtime, Tick
from ulna.control.session import Session, bus_counters
from ulna.core.errors import UlnaError
from ulna.core.plugins import call_hook
from ulna.core.robots import Robot
from ulna.core.teleoperators import Teleoperator

__all__ = ["run_recording"]

_THEN = "\nAfter that: "
_CONTINUE = "Continue with the same command and --resume=true"
_ENDS_EPISODE = (Command.END, Command.RERECORD, Command.STOP)

logger = logging.getLogger(__name__)


def run_recording(
    robot: Robot,
    teleop: Teleoperator,
    dataset: EpisodeWriter | Callable[[], EpisodeWriter],
    plan: EpisodePlan,
    runtime: Runtime | None = None,
    processors: Processors | None = None,
) -> RecordResult:
    """Record episodes until the dataset has as many as planned, and finalize it.

    Devices that are not connected are connected, and released at the end.

    Phases of each episode: `approach` (until the robot is where the leader is; not recorded), `record`, `save`, and
    `reset` unless it was the last. The same for a new and for a resumed dataset, and for an episode recorded again.
    The stop key ends the running episode and saves it; Ctrl-C throws it away. Either way the dataset is finalized.

    Args:
        robot: The robot.
        teleop: The teleoperator.
        dataset: Open for writing, or a function that opens it, called once the devices are connected. Finalized here.
        plan: What to record.
        runtime: Time, keys, stop and observers.
        processors: Changes between the devices. Actions are stored as the robot says it sent them.

    Returns:
        What was recorded.

    Raises:
        IncompatibleError: The devices do not fit together; nothing was connected.
        RecordingInterruptedError: The hardware, the guard or the dataset failed; `result` says what is safe.
        KeyboardInterrupt: Ctrl-C was pressed twice.
    """
    change = processors or Processors()
    if change.teleop_action is None and change.robot_action is None:
        check_pair(teleop, robot)
    with (runtime or Runtime()).stoppable() as (runtime, stop):
        return _Recording(robot, teleop, dataset, plan, runtime, stop, change).run()


@dataclass
class _Recording:
    """One recording session; made by `run_recording` and used once."""

    robot: Robot
    teleop: Teleoperator
    source: EpisodeWriter | Callable[[], EpisodeWriter]
    plan: EpisodePlan
    runtime: Runtime
    stop: StopRequest
    processors: Processors
    reports: list[EpisodeReport] = field(default_factory=list)
    rerecorded: int = 0
    discarded: int = 0
    settled: int = 0
    pending: int = 0
    before: int = 0
    started: bool = False
    stale: dict[str, list[int]] = field(default_factory=dict)

    def run(self) -> RecordResult:
        error: BaseException | None = None
        advice: str | None = None
        dataset: EpisodeWriter | None = None if callable(self.source) else self.source
        try:
            with Session(self.robot, self.teleop, self.plan.rest, self.runtime):
                dataset = self.source() if callable(self.source) else self.source
                self.before = dataset.num_episodes
                self.started = True
                self._record_all(dataset)
        except BaseException as failed:
            error = failed
            if dataset is None:
                raise
        try:
            with self.stop.shielded():  # episodes are still being stored: an impatient Ctrl-C must not lose them
                self._finish(dataset)
        except BaseException as failed:  # noqa: BLE001 - raised by _conclude, with what is safe
            advice = failed.hint if isinstance(failed, UlnaError) else None
            if error is None:
                error = failed
            elif isinstance(failed, Exception):
                error.add_note(f"While finalizing the dataset: {_said(failed, advice)}")
        return self._conclude(dataset, error, advice)

    def _finish(self, dataset: EpisodeWriter) -> None:
        self.discarded += self.pending
        try:
            dataset.clear_episode_buffer()
        finally:
            self.runtime.phase("finalize", text="Finishing the dataset")
            dataset.finalize()
            self._settle(dataset)

    def _conclude(self, dataset: EpisodeWriter, error: BaseException | None, advice: str | None) -> RecordResult:
        """Return the result, or raise what stopped the recording with what is safe and what to do."""
        total = dataset.num_episodes
        reason = "complete" if total >= self.plan.num_episodes else (self.stop.reason or "stopped")
        result = RecordResult(
            repo_id=dataset.repo_id,
            root=Path(dataset.root),
            asked=self.plan.num_episodes,
            before=self.before,
            total=total,
            episodes=tuple(r for r in self.reports if r.episode_index < total),
            rerecorded=self.rerecorded,
            discarded_frames=self.discarded,
            stop_reason=f"{type(error).__name__}: {_said(error, advice)}" if isinstance(error, Exception) else reason,
            robot_bus=bus_counters(self.robot),
            teleop_bus=bus_counters(self.teleop),
        )
        if error is None:
            return result
        if not self.started:
            raise error
        if not isinstance(error, Exception):
            error.add_note(result.summary())
            raise error
        raise RecordingInterruptedError(
            f"Recording stopped in episode {total}: {_said(error, advice)}\n{result.summary()}",
            result=result,
            hint=f"Episodes safe on disk: {total}. {advice + _THEN if advice else ''}{_CONTINUE}",
        ) from error

    def _record_all(self, dataset: EpisodeWriter) -> None:
        fps, plan = float(dataset.fps), self.plan
        number = self.before
        driver = Driver(self.robot, self.teleop, fps, plan.guard, plan.camera_loss, self.processors)
        frames = FrameBuilder(dataset.features, plan.single_task)
        commands = CommandReader(self.runtime.keys, self.teleop)
        while number < plan.num_episodes and not self.stop:
            kept = self._episode(driver, dataset, frames, commands, number)
            number += kept
            if number < plan.num_episodes and not self.stop:
                self._reset(driver, dataset, commands, number)

    def _episode(
        self, driver: Driver, dataset: EpisodeWriter, frames: FrameBuilder, commands: CommandReader, number: int
    ) -> bool:
        """Record one episode; return whether it was saved."""
        driver.guard.arm()
        loop = RateLoop(dataset.fps, self.runtime.clock)
        self.stale, self.pending, lost = {}, 0, None
        try:
            if not self._approach(driver, commands, number):
                return False
            told = f"Recording episode {number} ({number + 1} of {self.plan.num_episodes})"
            self.runtime.phase("record", number, told)
            ended_by = self._frames(driver, dataset, frames, commands, loop)
        except CameraLostError as error:
            ended_by, lost = "camera lost", error
            logger.warning("Episode %d ends: %s", number, error)
        kept = self._keep(dataset, loop, ended_by, number)
        if lost is not None and driver.watch.reconnect():
            raise lost
        return kept

    def _approach(self, driver: Driver, commands: CommandReader, number: int) -> bool:
        """Bring the robot to the leader; return whether the episode may begin."""
        loop = RateLoop(driver.fps, self.runtime.clock)
        while driver.guard.active:
            index = loop.tick()
            if self.stop:
                return False
            if commands.read() is Command.STOP:
                self.stop.request("stop key")
                return False
            step = driver.step()
            if index == 0 and driver.guard.ramping:
                self.runtime.phase("approach", number, "The robot moves to where the leader is")
            self._tell("approach", index, loop, step)
        return True

    def _frames(
        self, driver: Driver, dataset: EpisodeWriter, frames: FrameBuilder, commands: CommandReader, loop: RateLoop
    ) -> str:
        """Record frames until something ends the episode; return what did."""
        most = max(1, round(self.plan.episode_time_s * dataset.fps))
        while self.pending < most:
            index = loop.tick()
            if self.stop:
                return "interrupted"
            command = commands.read()
            if command in _ENDS_EPISODE:
                if command is Command.STOP:
                    self.stop.request("stop key")
                return f"{command.value} key"
            if loop.tick_time_s >= self.plan.episode_time_s:
                return "time"
            step = driver.step()
            for camera in step.stale:
                self.stale.setdefault(camera, []).append(self.pending)
            dataset.add_frame(frames.build(step.observation, step.sent), loop.tick_time_s)
            self.pending += 1
            self._tell("record", index, loop, step)
        return "time"

    def _keep(self, dataset: EpisodeWriter, loop: RateLoop, ended_by: str, number: int) -> bool:
        """Save the episode or throw it away; return whether it was saved."""
        again = ended_by == f"{Command.RERECORD.value} key"
        if again or ended_by == "interrupted" or self.pending == 0:
            dataset.clear_episode_buffer()
            self.rerecorded += again
            self.discarded += 0 if again else self.pending
            self.pending = 0
            return False
        with self.stop.shielded():
            self._save(dataset, loop, ended_by, number)
        self._settle(dataset)
        return True

    def _save(self, dataset: EpisodeWriter, loop: RateLoop, ended_by: str, number: int) -> None:
        self.runtime.phase("save", number, f"Saving episode {number}: {self.pending} frames")
        began = time.perf_counter()
        dataset.save_episode(wait=False)
        stats = loop.stats()
        report = EpisodeReport(
            episode_index=number,
            frames=self.pending,
            fps=float(dataset.fps),
            measured_fps=stats.rate_hz,
            duration_s=stats.duration_s,
            overruns=stats.overruns,
            skipped=stats.skipped,
            ended_by=ended_by,
            save_s=time.perf_counter() - began,
            stale_frames={camera: ranges(numbers) for camera, numbers in self.stale.items()},
        )
        self.pending = 0
        self.reports.append(report)

    def _settle(self, dataset: EpisodeWriter) -> None:
        """Log episodes that have become durable, and tell the hooks. It may wait: never called among frames."""
        while self.settled < len(self.reports) and self.reports[self.settled].episode_index < dataset.num_episodes:
            report, self.settled = self.reports[self.settled], self.settled + 1
            append_report(Path(dataset.root), report)
            call_hook(
                "episode_saved",
                root=Path(dataset.root),
                repo_id=dataset.repo_id,
                episode_index=report.episode_index,
                length=report.frames,
            )

    def _reset(self, driver: Driver, dataset: EpisodeWriter, commands: CommandReader, number: int) -> None:
        """Let the operator reset the scene; the robot goes on following and nothing is recorded."""
        limit_s = self.plan.reset_time_s
        words = f"Reset the scene: up to {limit_s:g} s, or the end key" if limit_s else "No time to reset the scene"
        self.runtime.phase("reset", number, words)
        if self.plan.reset_time_s == 0:
            return
        driver.guard.arm()
        loop = RateLoop(driver.fps, self.runtime.clock)
        while loop.tick_time_s < self.plan.reset_time_s:
            index = loop.tick()
            if self.stop:
                return
            command = commands.read()
            if command is Command.END:
                return
            if command is Command.STOP:
                self.stop.request("stop key")
                return
            if command is Command.RERECORD:
                logger.warning("Episode %d is saved already; delete it later with the dataset tools.", number - 1)
            self._tell("reset", index, loop, driver.step(look=False))
            self._settle(dataset)

    def _tell(self, phase: str, index: int, loop: RateLoop, step: Step) -> None:
        if self.runtime.on_tick is not None:
            self.runtime.on_tick(
                Tick(phase, index, loop.tick_time_s, step.observation, step.action, step.sent, step.stale)
            )


def _said(error: BaseException, advice: str | None) -> str:
    """Return what an error says; where finalizing gives the advice, without what a program could have done before."""
    return error.message if advice and isinstance(error, UlnaError) else str(error)
