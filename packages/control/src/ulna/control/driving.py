# SPDX-License-Identifier: Apache-2.0
"""One turn of a teleoperated robot: look, ask the operator, guard, send. Teleoperation and recording repeat it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ulna.control.approach import JumpGuard, JumpGuardConfig, shared_joints
from ulna.control.camera_watch import CameraLossConfig, CameraWatch
from ulna.control.runtime import KeySource
from ulna.core.capabilities import HasTeleopEvents
from ulna.core.teleoperators import TeleopEvents

__all__ = ["Command", "CommandReader", "Driver", "Processors", "Step"]

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Processors:
    """Changes made on the way between devices; None passes a value on as it is.

    Attributes:
        observation: Applied to what the robot reports.
        teleop_action: Applied to the operator's action, with the observation.
        robot_action: Applied to the action right before it is sent, with the observation.
    """

    observation: Callable[[Values], Values] | None = None
    teleop_action: Callable[[Values, Values], Values] | None = None
    robot_action: Callable[[Values, Values], Values] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What one turn did.

    Attributes:
        observation: What the robot reported; empty when nobody needed to look.
        action: What the operator asked for.
        sent: What the robot really sent to its motors.
        stale: Cameras whose picture was stale.
    """

    observation: Values
    action: Values
    sent: Values
    stale: tuple[str, ...] = ()


@dataclass
class Driver:
    """Moves a connected robot with a connected teleoperator, one step at a time.

    Attributes:
        robot: The robot.
        teleop: The teleoperator.
        fps: Steps a second, for the speed of the guard.
        guard_config: What happens when leader and robot disagree at first.
        cameras: How long a camera may be silent.
        processors: Changes on the way.
        feedback: Whether observations are fed back to a teleoperator that takes them.
    """

    robot: Any
    teleop: Any
    fps: float
    guard_config: JumpGuardConfig = field(default_factory=JumpGuardConfig)
    cameras: CameraLossConfig = field(default_factory=CameraLossConfig)
    processors: Processors = field(default_factory=Processors)
    feedback: bool = False
    guard: JumpGuard = field(init=False)
    watch: CameraWatch = field(init=False)

    def __post_init__(self) -> None:
        self.guard = JumpGuard(shared_joints(self.robot), self.guard_config, 1.0 / self.fps)
        self.watch = CameraWatch(self.robot, self.cameras)
        self._feedback_keys = tuple(self.teleop.feedback_features) if self.feedback else ()

    def step(self, look: bool = True) -> Step:
        """Do one turn.

        Args:
            look: Whether to read the robot even when neither guard, feedback nor processors need it.

        Returns:
            What was seen, asked and sent.

        Raises:
            CameraLostError: A camera is silent for too long.
            JumpError: The first action is too far away and the guard is set to refuse.
            DeviceError: Something else of the hardware failed.
        """
        change = self.processors
        observation: Values = {}
        stale: tuple[str, ...] = ()
        if look or self.guard.active or self._feedback_keys or change.teleop_action or change.robot_action:
            observation, stale = self.watch.observe()
            if change.observation is not None:
                observation = change.observation(observation)
        action = self.teleop.get_action()
        if change.teleop_action is not None:
            action = change.teleop_action(action, observation)
        goal = self.guard.limit(action, observation) if self.guard.active else action
        if change.robot_action is not None:
            goal = change.robot_action(goal, observation)
        sent = self.robot.send_action(goal)
        if self._feedback_keys:
            self.teleop.send_feedback({key: observation[key] for key in self._feedback_keys})
        return Step(observation, action, sent, stale)


class Command(Enum):
    """What the operator can ask for. The verdicts mean something in a rollout only."""

    END = "end"
    RERECORD = "re-record"
    STOP = "stop"
    SUCCESS = "success"
    FAILURE = "failure"


_KEYS = {
    "right": Command.END,
    "n": Command.END,
    "left": Command.RERECORD,
    "r": Command.RERECORD,
    "esc": Command.STOP,
    "q": Command.STOP,
    "s": Command.SUCCESS,
    "f": Command.FAILURE,
}
_EVENTS = {
    TeleopEvents.TERMINATE_EPISODE: Command.END,
    TeleopEvents.SUCCESS: Command.END,
    TeleopEvents.RERECORD_EPISODE: Command.RERECORD,
}


class CommandReader:
    """Collects the operator's commands from keys and from a teleoperator with buttons.

    Args:
        keys: Key presses.
        teleop: A teleoperator; asked for events if it has any.
    """

    def __init__(self, keys: KeySource, teleop: Any = None) -> None:
        self._keys = keys
        self._teleop: HasTeleopEvents | None = teleop if isinstance(teleop, HasTeleopEvents) else None

    def read(self) -> Command | None:
        """Return the next command, or None. Never blocks; keys without a meaning are passed over."""
        while (key := self._keys.poll()) is not None:
            if key in _KEYS:
                return _KEYS[key]
        if self._teleop is not None:
            events = self._teleop.get_teleop_events()
            return next((command for event, command in _EVENTS.items() if events.get(event)), None)
        return None
