# SPDX-License-Identifier: Apache-2.0
"""Motion of one geared servo: profile, position loop, motor, friction, heat. Knows no registers and no wire.

Positions are encoder ticks that count on through full turns; the caller translates them to what the servo reports.
The motor is a first-order velocity lag driven by a duty cycle `u` in -1..1; an external torque (gravity) is given as a
fraction of the stall torque and acts like a duty cycle that the motor has to cancel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

__all__ = ["MODE_POSITION", "MODE_PWM", "MODE_STEP", "MODE_VELOCITY", "Drive", "Motion"]

MODE_POSITION: Final = 0
MODE_VELOCITY: Final = 1
MODE_PWM: Final = 2
MODE_STEP: Final = 3

_SUBSTEP_S: Final = 1 / 400
_MAX_CATCH_UP_S: Final = 5.0
_LAG_S: Final = 0.02
_DAMPING: Final = 1e-5
_STATIC_FRICTION: Final = 0.05
_SETTLED: Final = 2e-3
_AMBIENT_C: Final = 25.0
_HEAT_C_PER_S: Final = 2.0
_COOLING_S: Final = 60.0


@dataclass
class Drive:
    """What the registers ask of the motor during one interval.

    Attributes:
        mode: One of the `MODE_*` numbers.
        torque: Whether the motor is powered.
        goal: Position goal in ticks as the servo reports them (position mode) or absolute ticks (step mode).
        velocity: Velocity goal in ticks per second (velocity mode).
        duty: Duty cycle in -1..1 (PWM mode).
        p: Proportional gain register.
        d: Derivative gain register.
        limit: Highest duty cycle, 0..1.
        max_speed: Speed cap of the profile in ticks per second.
        max_acceleration: Acceleration cap of the profile in ticks per second squared.
        offset: Homing offset in ticks, subtracted from the position.
        wrap: Range at which a reported position wraps, or 0 when it counts on.
        overload: Duty cycle, 0..1, that counts as an overload.
        overload_s: How long it may last.
        current: Current, in units of 6.5 mA, that counts as too much; infinite when the model does not measure it.
        current_s: How long it may last.
    """

    mode: int = MODE_POSITION
    torque: bool = False
    goal: float = 0.0
    velocity: float = 0.0
    duty: float = 0.0
    p: float = 32.0
    d: float = 32.0
    limit: float = 1.0
    max_speed: float = 3400.0
    max_acceleration: float = 25400.0
    offset: float = 0.0
    wrap: int = 4096
    overload: float = 0.8
    overload_s: float = 2.0
    current: float = math.inf
    current_s: float = 2.0


class Motion:
    """State of one joint. Created by its servo; not thread-safe, the owner locks.

    Args:
        position: First position in ticks.
        top_speed: Free speed at full duty, ticks per second.
        stops: Mechanical end stops in ticks, or None.

    Attributes:
        position: Ticks, counting on through turns.
        velocity: Ticks per second.
        effort: Duty cycle in -1..1 that the motor applies.
        external: Torque from outside as a fraction of the stall torque; positive pushes to higher ticks.
        hand: Position at which a hand holds or to which it moves the joint, or None when nobody touches it.
        hand_rate: Speed of the hand in ticks per second.
        temperature: Degrees Celsius.
    """

    __slots__ = (
        "_powered",
        "_setpoint",
        "_setpoint_velocity",
        "_turn",
        "effort",
        "external",
        "hand",
        "hand_rate",
        "position",
        "stops",
        "temperature",
        "top_speed",
        "velocity",
    )

    def __init__(self, position: float, top_speed: float, stops: tuple[float, float] | None = None) -> None:
        self.position = float(position)
        self.top_speed = top_speed
        self.stops = stops
        self.velocity = 0.0
        self.effort = 0.0
        self.external = 0.0
        self.hand: float | None = None
        self.hand_rate = math.inf
        self.temperature = _AMBIENT_C
        self._powered = False
        self._setpoint = 0.0
        self._setpoint_velocity = 0.0
        self._turn = 0.0

    def place(self, position: float) -> None:
        """Put the joint somewhere at rest.

        Args:
            position: Ticks.
        """
        self.position = float(position)
        self.velocity = self.effort = 0.0
        self._powered = False

    def reported(self, drive: Drive) -> float:
        """Return the position as the servo reports it under `drive`, unrounded.

        Args:
            drive: Gives offset and wrap.
        """
        value = self.position - drive.offset
        return value % drive.wrap if drive.wrap else value

    def advance(self, seconds: float, drive: Drive) -> None:
        """Let `seconds` pass under `drive`.

        Args:
            seconds: Length of the interval. Beyond 5 s the rest is taken as standing still.
            drive: What the registers ask for.
        """
        self._heat(seconds)
        seconds = min(seconds, _MAX_CATCH_UP_S)
        steps = max(1, math.ceil(seconds / _SUBSTEP_S))
        dt = seconds / steps
        if not drive.torque:
            self._powered = False
            self.effort = 0.0
        elif not self._powered:
            self._powered = True
            self._setpoint = self.position
            self._turn = self.position - drive.offset - self.reported(drive)
            self._setpoint_velocity = 0.0
        if self.at_rest(drive):
            return
        for _ in range(steps):
            self._step(dt, drive)

    def at_rest(self, drive: Drive) -> bool:
        """Return whether nothing will move until a register, a hand or gravity changes.

        Args:
            drive: What the registers ask for.
        """
        if drive.torque:
            return self._holding(drive)
        if self.velocity != 0.0:
            return False
        if self.hand is not None:
            return self.hand == self.position
        return abs(self.external) <= _STATIC_FRICTION or self._pressed(self.external)

    def _holding(self, drive: Drive) -> bool:
        """Return whether the position loop has come to rest at its goal; the joint then stands still."""
        if drive.mode not in (MODE_POSITION, MODE_STEP) or self.hand is not None or abs(self.velocity) > 1.0:
            return False
        goal = self._goal(drive)
        if self._setpoint != goal:
            return False
        effort = max(-drive.limit, min(drive.limit, drive.p * (goal - self.position) / 1000.0))
        if abs(effort + self.external) > _SETTLED:
            return False
        self.velocity, self.effort = 0.0, effort
        return True

    def _step(self, dt: float, drive: Drive) -> None:
        effort = self._effort(dt, drive) if drive.torque else 0.0
        self.effort = effort
        if self.hand is not None:
            reach = self.hand_rate * dt
            step = max(-reach, min(reach, self.hand - self.position))
            self._move(step, step / dt if dt else 0.0)
            if step == 0.0:
                self.velocity = 0.0
            return
        if drive.torque:
            drift = self.external
        else:
            # A back-driven gearbox: friction holds small loads, the rest sinks slower than the motor could run.
            drift = 0.5 * math.copysign(max(0.0, abs(self.external) - _STATIC_FRICTION), self.external)
        target = self.top_speed * (effort + drift)
        velocity = self.velocity + (target - self.velocity) * min(1.0, dt / _LAG_S)
        if not drive.torque and abs(velocity) < 0.5:
            velocity = 0.0
        self._move(velocity * dt, velocity)

    def _move(self, step: float, velocity: float) -> None:
        position = self.position + step
        if self.stops is not None:
            low, high = self.stops
            if position < low or position > high:
                position, velocity = max(low, min(high, position)), 0.0
        self.position, self.velocity = position, velocity

    def _pressed(self, push: float) -> bool:
        """Return whether an end stop already holds the joint against `push`."""
        if self.stops is None:
            return False
        return (push < 0 and self.position <= self.stops[0]) or (push > 0 and self.position >= self.stops[1])

    def _effort(self, dt: float, drive: Drive) -> float:
        if drive.mode == MODE_PWM:
            effort = drive.duty
        elif drive.mode == MODE_VELOCITY:
            wanted = max(-drive.max_speed, min(drive.max_speed, drive.velocity))
            change = drive.max_acceleration * dt
            self._setpoint_velocity += max(-change, min(change, wanted - self._setpoint_velocity))
            # Feed-forward with a proportional correction stands for the velocity loop's own PI gains.
            effort = (self._setpoint_velocity + 3.0 * (self._setpoint_velocity - self.velocity)) / self.top_speed
        else:
            effort = self._position_effort(dt, drive)
        return max(-drive.limit, min(drive.limit, effort))

    def _position_effort(self, dt: float, drive: Drive) -> float:
        goal = self._goal(drive)
        left = goal - self._setpoint
        speed = min(drive.max_speed, math.sqrt(2.0 * drive.max_acceleration * abs(left)))
        change = drive.max_acceleration * dt
        wanted = math.copysign(speed, left)
        self._setpoint_velocity += max(-change, min(change, wanted - self._setpoint_velocity))
        step = self._setpoint_velocity * dt
        if abs(step) >= abs(left) and step * left >= 0.0:
            self._setpoint, self._setpoint_velocity = goal, self._setpoint_velocity if left else 0.0
        else:
            self._setpoint += step
        error = self._setpoint - self.position
        return drive.p * error / 1000.0 - drive.d * _DAMPING * self.velocity

    def _goal(self, drive: Drive) -> float:
        """Return the goal as an absolute position: the loop stays in the turn in which the torque came on."""
        return drive.goal if drive.mode == MODE_STEP else drive.goal + drive.offset + self._turn

    def _heat(self, seconds: float) -> None:
        heat = _HEAT_C_PER_S * self.effort * self.effort
        settle = _AMBIENT_C + heat * _COOLING_S
        self.temperature = settle + (self.temperature - settle) * math.exp(-seconds / _COOLING_S)
