# SPDX-License-Identifier: Apache-2.0
"""One simulated Feetech servo: what its registers make the motor do and report. It knows no wire and no other servo.

Choices where data sheets are silent, always the less convenient one for a driver:

- A write to EEPROM while `Lock` is 1 acts at once but is lost at the next power cycle, as STS servos do.
- `Lock` is 1 after power-up.
- Enabling torque keeps the old `Goal_Position`: a driver that does not set a goal first makes the arm jump.
- With the multi-turn bit of `Phase` clear a goal lies in the turn in which torque came on: the motor goes the long way
  round rather than across the seam.
- A full-turn count does not survive a power cycle, the angle does.
"""

from __future__ import annotations

import math
from typing import Final

from ulna.core.errors import ConfigError, ConfigProblem, nearest
from ulna.sim.feetech.dynamics import MODE_POSITION, MODE_STEP, Drive, Motion
from ulna.sim.feetech.registers import RegisterFile
from ulna.sim.feetech.tables import BAUD_CODES, MODELS, ModelSpec

__all__ = [
    "ERROR_ANGLE",
    "ERROR_CURRENT",
    "ERROR_HEAT",
    "ERROR_OVERLOAD",
    "ERROR_VOLTAGE",
    "MULTI_TURN_BIT",
    "SimFeetechServo",
]

ERROR_VOLTAGE: Final = 1
ERROR_ANGLE: Final = 2
ERROR_HEAT: Final = 4
ERROR_CURRENT: Final = 8
ERROR_OVERLOAD: Final = 32
MULTI_TURN_BIT: Final = 0x10

_CENTRE_COMMAND: Final = 128
_TICKS_PER_ACCELERATION: Final = 100.0
_TICKS_PER_SPEED_LIMIT: Final = 50.0
_NO_ACCELERATION_LIMIT: Final = 1e6
_CODE_BAUDS: Final = {code: baud for baud, code in BAUD_CODES.items()}


class SimFeetechServo:
    """A servo with its whole register file. Its bus or arm owns it and serializes access; it has no lock and no thread.

    Args:
        id: Bus id, 0..252.
        model: `sts3215`, `sts3250`, `sm8512bl` or `scs0009`.
        position: Angle of the encoder in ticks, not affected by `Homing_Offset`; the middle when None.
        baud: Baud rate it listens at.
        multi_turn: Deliver it with the multi-turn bit of `Phase` set.
        stops: Mechanical end stops in encoder ticks; without them the shaft can go round.
        supply_v: Supply voltage; the model's usual one when None.
        firmware: Major and minor version.

    Attributes:
        registers: The register file; use `get` and `set` unless the simulation itself changes something.
        motion: The joint's mechanical state.
        supply_v: Supply voltage; change it to provoke a voltage error.
        forced_errors: Error bits added to every status packet.

    Raises:
        ConfigError: The model is unknown, or the id or baud rate is out of range.

    Example:
        >>> servo = SimFeetechServo(1, "sts3215")
        >>> servo.get("Present_Position")
        2048
    """

    def __init__(
        self,
        id: int,
        model: str = "sts3215",
        *,
        position: float | None = None,
        baud: int = 1_000_000,
        multi_turn: bool = False,
        stops: tuple[float, float] | None = None,
        supply_v: float | None = None,
        firmware: tuple[int, int] = (3, 10),
    ) -> None:
        self.spec = _spec(id, model, baud)
        self.supply_v = self.spec.supply_v if supply_v is None else supply_v
        self.forced_errors = 0
        self.registers = RegisterFile(self.spec)
        start = self.spec.resolution / 2 if position is None else float(position)
        self.motion = Motion(start, self.spec.max_speed, stops)
        self._drive_cache: Drive | None = None
        self._pending: tuple[int, bytes] | None = None
        self._step_goal = start
        self._latched = 0
        self._overload_s = self._over_current_s = 0.0
        self.registers.preset_all(_factory(self.spec, id, baud, multi_turn, firmware))
        self._boot()

    @property
    def id(self) -> int:
        """Bus id it answers to."""
        return self.registers.memory[5]

    @property
    def baud(self) -> int:
        """Baud rate it listens at."""
        return _CODE_BAUDS.get(self.registers.memory[6], 1_000_000)

    @property
    def model(self) -> str:
        """Model name."""
        return self.spec.name

    @property
    def answers_writes(self) -> bool:
        """Whether it acknowledges writes (`Response_Status_Level`)."""
        return self.registers.memory[8] != 0

    @property
    def return_delay_s(self) -> float:
        """Seconds it waits before a reply (`Return_Delay_Time`)."""
        return self.registers.memory[7] * 2e-6

    def get(self, name: str) -> int:
        """Return a register's present value, sign decoded.

        Args:
            name: Register name, `Present_Position`.

        Raises:
            ConfigError: The model has no such register.
        """
        self._refresh()
        return self.registers.load(name)

    def set(self, name: str, value: int) -> None:
        """Write a register as a driver would, sign encoded; `Lock` decides whether it lasts.

        Args:
            name: Register name.
            value: Signed value.

        Raises:
            ConfigError: The model has no such register, or the value does not fit it.
        """
        address, _ = self.registers.where(name)
        self.write(address, self.registers.encode(name, value))

    def preset(self, name: str, value: int) -> None:
        """Set a register for good, as in the factory: no lock applies and it survives power cycles.

        Args:
            name: Register name.
            value: Signed value.

        Raises:
            ConfigError: The model has no such register, or the value does not fit it.
        """
        self.registers.preset(name, value)
        self._drive_cache = None

    def read(self, address: int, count: int) -> bytes:
        """Return `count` bytes of the register file from `address` on; addresses beyond it read as zero.

        Args:
            address: First register.
            count: Number of bytes.
        """
        if address == 56 and count == 2:  # by far the commonest read
            self.registers.store("Present_Position", self._reading())
        elif address + count > 56 and address < 73:
            self._refresh()
        return self.registers.read(address, count)

    def write(self, address: int, data: bytes) -> None:
        """Store `data` from `address` on and act on it. Read-only registers keep their value.

        Args:
            address: First register.
            data: The bytes.
        """
        changed = self.registers.write(address, data)
        self._drive_cache = None
        if 40 in changed:
            self._torque_written()
        if 42 in changed or 43 in changed:
            self._goal_written()

    def hold_write(self, address: int, data: bytes) -> None:
        """Keep a write for the next `act` (the REG WRITE instruction).

        Args:
            address: First register.
            data: The bytes.
        """
        self._pending = (address, data)

    def act(self) -> None:
        """Carry out the write that `hold_write` kept, if any (the ACTION instruction)."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self.write(*pending)

    def power_cycle(self) -> None:
        """Switch off and on: EEPROM comes back as last stored, RAM starts anew, faults and full turns are forgotten."""
        self.registers.power_cycle()
        self._boot()

    @property
    def position(self) -> float:
        """Angle of the encoder in ticks, counting on through turns; assigning puts the joint there at rest."""
        return self.motion.position

    @position.setter
    def position(self, ticks: float) -> None:
        self.motion.place(ticks)

    @property
    def torque_enabled(self) -> bool:
        """Whether the motor is powered."""
        return self.registers.memory[40] == 1

    @property
    def errors(self) -> int:
        """Error bits of the next status packet."""
        bits = self._latched | self.forced_errors
        memory = self.registers.memory
        if not memory[15] <= round(self._volts() * 10) <= memory[14]:
            bits |= ERROR_VOLTAGE
        if self.motion.temperature > memory[13]:
            bits |= ERROR_HEAT
        return bits

    def hold(self, ticks: float | None, *, rate: float = math.inf) -> None:
        """Put a hand on the joint: it moves to `ticks` at `rate` and stays there, whatever the motor does.

        Args:
            ticks: Encoder ticks, or None to let go.
            rate: Ticks per second.
        """
        self.motion.hand = ticks
        self.motion.hand_rate = rate

    def park_goal(self) -> None:
        """Make the goal register equal the present position, as after power-up."""
        self.registers.store("Goal_Position", self._reading())
        self._step_goal = self.motion.position
        self._drive_cache = None

    def advance(self, seconds: float) -> None:
        """Let time pass: the joint moves, heat and protections develop.

        Args:
            seconds: Length of the interval.
        """
        if seconds <= 0.0:
            return
        if self._drive_cache is None:
            self._drive_cache = self._drive()
        drive = self._drive_cache
        self.motion.advance(seconds, drive)
        if drive.torque:
            self._protect(seconds, drive)

    def _boot(self) -> None:
        self._pending = None
        self._latched = 0
        self._overload_s = self._over_current_s = 0.0
        position = self.motion.position
        self.motion.place(position % self.spec.resolution if self.motion.stops is None else position)
        self.registers.store("Lock", 1)
        if self.registers.has("Torque_Limit"):
            self.registers.store("Torque_Limit", self.registers.load("Max_Torque_Limit"))
        self.park_goal()

    @property
    def _wrap(self) -> int:
        return 0 if self.registers.memory[18] & MULTI_TURN_BIT else self.spec.resolution

    @property
    def _mode(self) -> int:
        return self.registers.memory[33] if self.spec.protocol == 0 else MODE_POSITION

    def _offset(self) -> int:
        return self.registers.load("Homing_Offset") if self.spec.protocol == 0 else 0

    def _reading(self) -> int:
        """Return the position as reported: rounded, minus the offset, wrapped unless multi-turn is on."""
        value = round(self.motion.position) - self._offset()
        wrap = self._wrap
        return value % wrap if wrap else max(-32767, min(32767, value))

    def _volts(self) -> float:
        return self.supply_v - 0.4 * abs(self.motion.effort)

    def _duty_limit(self) -> float:
        load = self.registers.load
        limit = min(1000, load("Max_Torque_Limit"))
        if self.registers.has("Torque_Limit"):
            limit = min(limit, load("Torque_Limit"))
        if self._latched & ERROR_OVERLOAD:
            limit = min(limit, load("Protective_Torque") * 10)
        return limit / 1000.0

    def _drive(self) -> Drive:
        load, memory = self.registers.load, self.registers.memory
        mode = self._mode
        drive = Drive(mode=mode, torque=self.torque_enabled, p=memory[21], d=memory[22], limit=self._duty_limit())
        drive.offset, drive.wrap = self._offset(), self._wrap
        if drive.torque:
            drive.max_speed, drive.max_acceleration = self._caps(mode)
            drive.goal = self._step_goal if mode == MODE_STEP else self._limited(load("Goal_Position"))
            drive.velocity = load("Goal_Velocity")
            drive.overload_s = load("Protection_Time") * 0.01
            if self.spec.protocol == 0:
                drive.duty = load("Goal_Time") / 1000.0
                drive.overload = load("Overload_Torque") / 100.0
                drive.current = load("Protection_Current")
                drive.current_s = load("Over_Current_Protection_Time") * 0.01
        return drive

    def _caps(self, mode: int) -> tuple[float, float]:
        load = self.registers.load
        speed, acceleration = self.spec.max_speed, load("Acceleration") * _TICKS_PER_ACCELERATION
        asked = abs(load("Goal_Velocity"))
        if mode in (MODE_POSITION, MODE_STEP) and asked:
            speed = min(speed, asked)
        if self.spec.protocol == 0:
            ceiling = load("Maximum_Acceleration") * _TICKS_PER_ACCELERATION
            acceleration = min(acceleration or ceiling, ceiling or acceleration)
            speed = min(speed, load("Maximum_Velocity_Limit") * _TICKS_PER_SPEED_LIMIT or speed)
        return speed, acceleration or _NO_ACCELERATION_LIMIT

    def _limited(self, goal: int) -> int:
        low, high = self.registers.load("Min_Position_Limit"), self.registers.load("Max_Position_Limit")
        return max(low, min(high, goal)) if low < high else goal  # both zero means multi-turn: no limits

    def _goal_written(self) -> None:
        goal = self.registers.load("Goal_Position")
        if self._mode == MODE_STEP:
            self._step_goal = self.motion.position + goal
        elif self._latched & ERROR_OVERLOAD and (goal - self._reading()) * self.motion.effort < 0:
            self._clear_overload()  # backing off from the obstacle ends the protection

    def _torque_written(self) -> None:
        memory = self.registers.memory
        if memory[40] == _CENTRE_COMMAND and self.spec.protocol == 0:
            offset = round(self.motion.position) % self.spec.resolution - self.spec.resolution // 2
            self.registers.preset("Homing_Offset", max(-2047, offset))
            memory[40] = 0
            self.park_goal()
        elif self._mode == MODE_STEP and memory[40] == 1:
            self._step_goal = self.motion.position
        self._latched &= ~ERROR_CURRENT
        self._clear_overload()

    def _clear_overload(self) -> None:
        self._latched &= ~ERROR_OVERLOAD
        self._overload_s = 0.0
        self._drive_cache = None

    def _protect(self, seconds: float, drive: Drive) -> None:
        self._overload_s = self._overload_s + seconds if abs(self.motion.effort) > drive.overload else 0.0
        if self._overload_s > drive.overload_s:
            self._latched |= ERROR_OVERLOAD
            self._drive_cache = None
        self._over_current_s = self._over_current_s + seconds if self._current() > drive.current else 0.0
        if self._over_current_s > drive.current_s:
            self._latched |= ERROR_CURRENT
        errors = self.errors & ~ERROR_OVERLOAD  # an overload weakens the motor, other errors release it
        if errors and errors & self.registers.load("Unloading_Condition"):
            self.registers.memory[40] = 0
            self._drive_cache = None

    def _current(self) -> float:
        """Return the motor current in units of 6.5 mA: stall current less what the turning motor induces."""
        motion = self.motion
        return abs(motion.effort - motion.velocity / self.spec.max_speed) * self.spec.stall_current

    def _refresh(self) -> None:
        motion, store = self.motion, self.registers.store
        store("Present_Position", self._reading())
        store("Present_Velocity", motion.velocity)
        store("Present_Load", motion.effort * 1000.0)
        store("Present_Voltage", self._volts() * 10.0)
        store("Present_Temperature", motion.temperature)
        store("Present_Current", self._current())
        store("Status", self.errors)
        store("Moving", 1 if abs(motion.velocity) > 5.0 else 0)
        store("Goal_Position_2", self.registers.load("Goal_Position"))


def _factory(spec: ModelSpec, id: int, baud: int, multi_turn: bool, firmware: tuple[int, int]) -> dict[str, int]:
    values = {
        "Firmware_Major_Version": firmware[0],
        "Firmware_Minor_Version": firmware[1],
        "Model_Number": spec.number,
        "ID": id,
        "Baud_Rate": BAUD_CODES[baud],
        "Max_Position_Limit": spec.resolution - 1,
        "Maximum_Velocity_Limit": round(spec.max_speed / _TICKS_PER_SPEED_LIMIT),
        **spec.factory,
    }
    values["Phase"] |= MULTI_TURN_BIT if multi_turn else 0
    return values


def _spec(id: int, model: str, baud: int) -> ModelSpec:
    problems = []
    if model not in MODELS:
        problems.append(ConfigProblem("model", model, f"one of {', '.join(MODELS)}", nearest(model, list(MODELS))))
    if not 0 <= id <= 252:
        problems.append(ConfigProblem("id", id, "a bus id in 0..252"))
    if baud not in BAUD_CODES:
        problems.append(ConfigProblem("baud", baud, f"one of {', '.join(map(str, BAUD_CODES))}"))
    if problems:
        raise ConfigError(problems, title="simulated servo")
    return MODELS[model]
