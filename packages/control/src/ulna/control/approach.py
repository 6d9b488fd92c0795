# SPDX-License-Identifier: Apache-2.0
"""Moving to where somebody else already is: the guard against a jump at the first command, and smooth moves to a pose.

A leader and its follower disagree when a session or an episode begins. The guard compares them by name, and either
brings the robot over at a limited speed or refuses. Speeds and distances are in the unit of the joints (degrees or
percent of range).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field

from ulna.control.interrupts import StopRequest
from ulna.control.loop import RateLoop
from ulna.core.clock import Clock
from ulna.core.config import Config
from ulna.core.errors import ControlError

__all__ = ["JumpError", "JumpGuard", "JumpGuardConfig", "move_to", "shared_joints"]

logger = logging.getLogger(__name__)


class JumpGuardConfig(Config):
    """What happens when the first command of an episode is far from where the robot is."""

    mode: Literal["ramp", "abort", "off"] = Field(
        "ramp", description="Approach at limited speed, refuse to start, or send it as it is."
    )
    threshold: float = Field(
        5.0, gt=0, allow_inf_nan=False, description="Distance of a joint, in its unit, that counts as a jump."
    )
    speed: float = Field(60.0, gt=0, allow_inf_nan=False, description="Speed of the approach, joint units a second.")


class JumpError(ControlError):
    """The first command is too far from where the robot is; it was not sent.

    Args:
        message: What differs.
        gaps: Joint key to distance, of the joints beyond the threshold.
        hint: What to do next.
    """

    def __init__(self, message: str, *, gaps: Mapping[str, float], hint: str | None = None) -> None:
        self.gaps = dict(gaps)
        super().__init__(message, hint=hint)


def shared_joints(robot: Any) -> tuple[str, ...]:
    """Return the keys that are both observed and commanded as numbers: the joints whose jumps can be seen.

    Args:
        robot: The robot.
    """
    observed = robot.observation_features
    return tuple(key for key in robot.action_features if _is_number(observed.get(key)))


def _is_number(feature: Any) -> bool:
    return getattr(feature, "plain", feature) is float


class JumpGuard:
    """Limits commands until the robot has caught up with whoever commands it. Armed when made, and again by `arm`.

    Args:
        joints: Keys to compare; others pass.
        config: What to do.
        period_s: Time between two commands, seconds.
    """

    def __init__(self, joints: tuple[str, ...], config: JumpGuardConfig, period_s: float) -> None:
        self.config = config
        self._joints = joints
        self._step = config.speed * period_s
        self._at: dict[str, float] = {}
        self._armed = self._ramping = False
        self.arm()

    @property
    def active(self) -> bool:
        """Whether it still needs to see observations and commands."""
        return self._armed or self._ramping

    @property
    def ramping(self) -> bool:
        """Whether it is limiting commands right now."""
        return self._ramping

    def arm(self) -> None:
        """Compare again at the next command."""
        self._armed = self.config.mode != "off" and bool(self._joints)
        self._ramping = False

    def limit(self, action: Mapping[str, Any], observation: Mapping[str, Any]) -> dict[str, Any]:
        """Return what may be sent instead of `action`.

        Args:
            action: What is asked.
            observation: What the robot reports; looked at by the first call after `arm` only.

        Returns:
            `action` itself as a dict when the robot is near, else a step towards it.

        Raises:
            JumpError: The mode is `abort` and a joint is too far away.
        """
        if not all(math.isfinite(float(action[key])) for key in self._joints if key in action):
            return dict(action)  # the robot refuses it by name; limiting it would turn it into a number
        if self._armed:
            self._begin(action, observation)
        if not self._ramping:
            return dict(action)
        limited = dict(action)
        arrived = True
        for key in self._at:
            gap = float(action[key]) - self._at[key]
            step = max(-self._step, min(self._step, gap))
            arrived = arrived and abs(gap) <= self._step
            self._at[key] += step
            limited[key] = self._at[key]
        self._ramping = not arrived
        return limited

    def _begin(self, action: Mapping[str, Any], observation: Mapping[str, Any]) -> None:
        self._armed = False
        self._at = {key: float(observation[key]) for key in self._joints if key in action and key in observation}
        gaps = {key: abs(float(action[key]) - at) for key, at in self._at.items()}
        far = {key: gap for key, gap in gaps.items() if not gap <= self.config.threshold}
        if far and self.config.mode == "abort":
            lines = ", ".join(f"{key}: {gap:.1f}" for key, gap in far.items())
            raise JumpError(
                f"The first command is over {self.config.threshold:g} away from the robot: {lines}. It was not sent.",
                gaps=far,
                hint="Bring the leader to the pose of the robot, or let it approach slowly: --guard.mode=ramp",
            )
        self._ramping = bool(far)
        if far:
            logger.info(
                "Approaching the commanded pose at %g units/s; furthest: %s.",
                self.config.speed,
                max(far, key=far.__getitem__),
            )


def move_to(
    robot: Any,
    target: Mapping[str, float],
    *,
    speed: float,
    fps: float,
    clock: Clock,
    timeout_s: float = 10.0,
    stop: StopRequest | None = None,
    on_step: Callable[[dict[str, Any], dict[str, Any]], object] | None = None,
) -> bool:
    """Move a connected robot to a pose in a straight line through joint space, at a limited speed.

    Args:
        robot: The robot.
        target: Action key to goal; keys that are not observed are commanded at once.
        speed: Largest speed of a joint, units a second.
        fps: Commands a second.
        clock: Time.
        timeout_s: Give up after so long, seconds.
        stop: Ends the move early.
        on_step: Called with each observation and what was sent.

    Returns:
        Whether the last command was the target.

    Raises:
        DeviceError: The hardware does not answer.
        ActionError: The target does not fit the robot.
    """
    guard = JumpGuard(shared_joints(robot), JumpGuardConfig(mode="ramp", threshold=1e-9, speed=speed), 1.0 / fps)
    loop = RateLoop(fps, clock)
    observation: dict[str, Any] = {}
    while not stop:
        loop.tick()
        if loop.tick_time_s > timeout_s:
            return False
        if loop.ticks == 1 or on_step is not None:
            observation = robot.get_observation()
        sent = robot.send_action(guard.limit(target, observation))
        if on_step is not None:
            on_step(observation, sent)
        if not guard.active:
            return True
    return False
