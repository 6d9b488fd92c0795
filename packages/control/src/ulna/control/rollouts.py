# SPDX-License-Identifier: Apache-2.0
"""Rollout: a policy drives the robot, in one run or in episodes that are judged and may be recorded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ulna.control.approach import JumpGuard, move_to, shared_joints
from ulna.control.camera_watch import CameraLostError, CameraWatch
from ulna.control.driving import Command, CommandReader
from ulna.control.frames import FrameBuilder
from ulna.control.interrupts import StopRequest
from ulna.control.logbook import EpisodeReport, append_report, ranges
from ulna.control.loop import RateLoop
from ulna.control.policy_engine import ActionSource, PolicyEngine, PolicyNames
from ulna.control.record_plan import EpisodeWriter
from ulna.control.rollout_plan import RolloutEpisode, RolloutResult, RolloutSettings
from ulna.control.runtime import Runtime, Tick
from ulna.control.session import RestConfig, Session, bus_counters
from ulna.core.plugins import call_hook
from ulna.core.robots import Robot

__all__ = ["run_engine", "run_rollout"]

logger = logging.getLogger(__name__)

_NO_RESULT = ("re-record key", "interrupted")
"""Ends of an episode that throw it away."""


def run_rollout(
    robot: Robot,
    policy: Any,
    preprocessor: Callable[[dict[str, Any]], dict[str, Any]] | None,
    postprocessor: Callable[[Any], Any] | None,
    settings: RolloutSettings | None = None,
    *,
    names: PolicyNames | None = None,
    rename_map: Mapping[str, str] | None = None,
    task: str = "",
    judge: Callable[[], bool] | None = None,
    dataset: EpisodeWriter | Callable[[], EpisodeWriter] | None = None,
    runtime: Runtime | None = None,
) -> RolloutResult:
    """Let a loaded policy drive a robot; see `run_engine`.

    Args:
        robot: The robot; connected and released here unless it is connected already.
        policy: In evaluation mode, on its device.
        preprocessor: Batch to batch; None passes the batch on.
        postprocessor: Action tensor to action tensor; None passes it on.
        settings: Strategy, rate, durations.
        names: Order of the vectors' elements in the training data; default: as the robot declares them.
        rename_map: Key of the robot's data to key of the policy.
        task: What the robot shall do, in words.
        judge: Called after every action; True ends the episode as a success.
        dataset: Open for writing, or a function that opens it; finalized here.
        runtime: Time, keys, stop and observers.

    Returns:
        How every episode went.

    Raises:
        IncompatibleError: Policy and robot do not fit together; nothing was connected.
        DeviceError: The hardware failed; torque has been released and recorded episodes are safe.
    """
    engine = PolicyEngine(policy, preprocessor, postprocessor, robot, names=names, task=task, rename_map=rename_map)
    return run_engine(robot, engine, settings, judge=judge, dataset=dataset, task=task, runtime=runtime)


def run_engine(
    robot: Robot,
    engine: ActionSource,
    settings: RolloutSettings | None = None,
    *,
    judge: Callable[[], bool] | None = None,
    dataset: EpisodeWriter | Callable[[], EpisodeWriter] | None = None,
    task: str = "",
    runtime: Runtime | None = None,
) -> RolloutResult:
    """Let anything that answers observations with actions drive a robot.

    Phases of an episode: `rollout`, then (episodic) `reset`, in which the robot goes back to its pose at the start.
    The engine is reset at the start of each episode. Keys: right ends an episode, left throws it away and repeats it,
    `s` and `f` end it with a verdict, Esc stops.

    Args:
        robot: The robot; connected and released here unless it is connected already.
        engine: Where actions come from: a `PolicyEngine`, or anything that answers observations.
        settings: Strategy, rate, durations.
        judge: Called after every action; True ends the episode as a success. An episode it never says True in is a
            failure.
        dataset: Open for writing, or a function that opens it once the robot is connected; finalized here.
        task: Stored with recorded frames.
        runtime: Time, keys, stop and observers.

    Returns:
        How every episode went.

    Raises:
        DeviceError: The hardware failed; torque has been released and recorded episodes are safe.
        CameraLostError: A camera was lost and did not come back.
        ActionError: The policy gave an action that is not finite.
        KeyboardInterrupt: Ctrl-C was pressed twice.
    """
    with (runtime or Runtime()).stoppable() as (runtime, stop):
        rollout = _Rollout(robot, engine, settings or RolloutSettings(), judge, task, runtime, stop)
        return rollout.run(dataset)


@dataclass
class _Recorder:
    """Writes the frames of a rollout, if anybody wants them."""

    dataset: EpisodeWriter | None
    task: str
    saved: int = 0
    pending: int = 0
    stale: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._frames = None if self.dataset is None else FrameBuilder(self.dataset.features, self.task)

    def add(
        self, observation: Mapping[str, Any], sent: Mapping[str, Any], stale: tuple[str, ...], time_s: float
    ) -> None:
        if self.dataset is None or self._frames is None:
            return
        for camera in stale:
            self.stale.setdefault(camera, []).append(self.pending)
        self.dataset.add_frame(self._frames.build(observation, sent), time_s)
        self.pending += 1

    def end(self, episode: RolloutEpisode | None) -> None:
        """Save the episode, or throw it away when there is none."""
        stale, self.stale = self.stale, {}
        frames, self.pending = self.pending, 0
        if self.dataset is None:
            return
        if episode is None or frames == 0:
            self.dataset.clear_episode_buffer()
            return
        number = self.dataset.num_episodes
        self.dataset.save_episode()
        self.saved += 1
        report = EpisodeReport(
            episode_index=number,
            frames=frames,
            fps=float(self.dataset.fps),
            measured_fps=episode.stats.rate_hz,
            duration_s=episode.duration_s,
            overruns=episode.stats.overruns,
            skipped=episode.stats.skipped,
            ended_by=episode.ended_by,
            stale_frames={camera: ranges(numbers) for camera, numbers in stale.items()},
            success=episode.success,
        )
        root = Path(self.dataset.root)
        append_report(root, report)
        call_hook("episode_saved", root=root, repo_id=self.dataset.repo_id, episode_index=number, length=frames)

    def close(self) -> None:
        if self.dataset is not None:
            self.dataset.clear_episode_buffer()
            self.dataset.finalize()


@dataclass
class _Rollout:
    """One rollout; made by `run_engine` and used once."""

    robot: Robot
    engine: ActionSource
    settings: RolloutSettings
    judge: Callable[[], bool] | None
    task: str
    runtime: Runtime
    stop: StopRequest
    episodes: list[RolloutEpisode] = field(default_factory=list)
    home: dict[str, float] = field(default_factory=dict)
    ends_at: float = float("inf")

    def run(self, source: EpisodeWriter | Callable[[], EpisodeWriter] | None) -> RolloutResult:
        recorder = _Recorder(None if callable(source) else source, self.task)
        settings = self.settings
        rest = RestConfig(
            enabled=settings.return_to_initial_position or settings.rest.enabled,
            duration_s=settings.rest.duration_s,
            speed=settings.rest.speed,
        )
        try:
            with Session(self.robot, None, rest, self.runtime, fps=settings.fps):
                if callable(source):
                    recorder = _Recorder(source(), self.task)
                self._run_all(recorder)
        finally:
            with self.stop.shielded():  # episodes are still being stored: an impatient Ctrl-C must not lose them
                recorder.close()
        reason = self.stop.reason or "complete"
        return RolloutResult(tuple(self.episodes), reason, bus_counters(self.robot), recorder.saved)

    def _run_all(self, recorder: _Recorder) -> None:
        settings, clock = self.settings, self.runtime.clock
        wanted = 1 if settings.strategy == "base" else settings.num_episodes
        if settings.duration:
            self.ends_at = clock.now() + settings.duration
        watch = CameraWatch(self.robot, settings.camera_loss)
        guard = JumpGuard(shared_joints(self.robot), settings.guard, 1.0 / settings.fps)
        commands = CommandReader(self.runtime.keys)
        if settings.return_to_initial_position and wanted > 1:
            observation, _ = watch.observe()
            self.home = {key: float(observation[key]) for key in shared_joints(self.robot)}
        while len(self.episodes) < wanted and not self.stop and clock.now() < self.ends_at:
            self._episode(watch, guard, commands, recorder)
            if len(self.episodes) < wanted and not self.stop:
                self._reset(commands)

    def _episode(self, watch: CameraWatch, guard: JumpGuard, commands: CommandReader, recorder: _Recorder) -> None:
        number = len(self.episodes)
        self.engine.reset()
        guard.arm()
        loop = RateLoop(self.settings.fps, self.runtime.clock)
        self.runtime.phase("rollout", number, f"Episode {number}: the policy drives")
        lost: CameraLostError | None = None
        try:
            frames, ended_by = self._drive(watch, guard, commands, recorder, loop)
        except CameraLostError as error:
            frames, ended_by, lost = loop.ticks - 1, "camera lost", error
            logger.warning("Episode %d ends: %s", number, error)
        episode = None
        if ended_by not in _NO_RESULT or (self.settings.strategy == "base" and ended_by == "interrupted"):
            stats = loop.stats()
            episode = RolloutEpisode(number, frames, stats.duration_s, self._verdict(ended_by), ended_by, stats)
            self.episodes.append(episode)
        recorder.end(episode)
        if lost is not None and watch.reconnect():
            raise lost

    def _verdict(self, ended_by: str) -> bool | None:
        if ended_by in ("success", "success key"):
            return True
        if ended_by == "failure key":
            return False
        return False if self.judge is not None and ended_by in ("time", "end key") else None

    def _drive(
        self, watch: CameraWatch, guard: JumpGuard, commands: CommandReader, recorder: _Recorder, loop: RateLoop
    ) -> tuple[int, str]:
        """Act until something ends the episode; return the actions sent and what ended it."""
        limit = self.settings.episode_time_s if self.settings.strategy == "episodic" else float("inf")
        most = limit * self.settings.fps - 1e-6
        while True:
            number = loop.tick()
            if (ended_by := self._ended(loop, number, limit, most, commands)) is not None:
                return number, ended_by
            observation, stale = watch.observe()
            action = self.engine.act(observation)
            goal = guard.limit(action, observation) if guard.active else action
            sent = self.robot.send_action(goal)
            recorder.add(observation, sent, stale, loop.tick_time_s)
            if self.runtime.on_tick is not None:
                self.runtime.on_tick(Tick("rollout", number, loop.tick_time_s, observation, action, sent, stale))
            if self.judge is not None and self.judge():
                return number + 1, "success"

    def _ended(self, loop: RateLoop, number: int, limit: float, most: float, commands: CommandReader) -> str | None:
        if self.stop:
            return "interrupted"
        command = commands.read()
        if command is not None:
            if command is Command.STOP:
                self.stop.request("stop key")
            return f"{command.value} key"
        if number >= most or loop.tick_time_s >= limit or self.runtime.clock.now() >= self.ends_at:
            return "time"
        return None

    def _reset(self, commands: CommandReader) -> None:
        """Bring the robot home and give the operator time; the end key cuts it short."""
        settings, clock = self.settings, self.runtime.clock
        began = clock.now()
        self.runtime.phase("reset", len(self.episodes), "Reset the scene")
        if self.home and set(self.home) == set(self.robot.action_features):
            rest = settings.rest
            move_to(
                self.robot,
                self.home,
                speed=rest.speed,
                fps=settings.fps,
                clock=clock,
                timeout_s=rest.duration_s,
                stop=self.stop,
            )
        loop = RateLoop(settings.fps, clock)
        while clock.now() - began < settings.reset_time_s:
            loop.tick()
            command = commands.read()
            if command is Command.STOP:
                self.stop.request("stop key")
            if self.stop or command is Command.END:
                return
