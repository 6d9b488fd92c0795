# SPDX-License-Identifier: Apache-2.0
"""The MotorsBus contract, motors, and the exact arithmetic between register ticks and user units."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import ClassVar, Self

from ulna.core.calibration import CalibrationStep, MotorCalibration
from ulna.core.config import PluginConfig
from ulna.core.errors import CalibrationError, ConfigError, ConfigProblem, DeviceNotConnectedError, nearest

__all__ = [
    "BusCapabilities",
    "BusCounters",
    "Motor",
    "MotorCalibration",
    "MotorNormMode",
    "MotorsBus",
    "MotorsBusConfig",
    "normalize",
    "unnormalize",
]


class MotorNormMode(str, Enum):
    """The user unit of a motor's position."""

    RANGE_0_100 = "range_0_100"
    RANGE_M100_100 = "range_m100_100"
    DEGREES = "degrees"


@dataclass(frozen=True)
class Motor:
    """One motor on a bus.

    Attributes:
        id: Its id on the bus.
        model: Its model name.
        norm_mode: User unit of its position.
        motor_type_str: Vendor type, CAN buses only.
        recv_id: Id it answers with, CAN buses only.
    """

    id: int
    model: str
    norm_mode: MotorNormMode
    motor_type_str: str | None = None
    recv_id: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm_mode", MotorNormMode(self.norm_mode))


def normalize(
    ticks: float, calibration: MotorCalibration, mode: MotorNormMode, resolution: int, *, inverted: bool = False
) -> float:
    """Turn register ticks into the user unit.

    Args:
        ticks: Raw position.
        calibration: Range of the joint.
        mode: User unit. The two ranges clamp to the calibrated range; degrees do not, and ignore `inverted`.
        resolution: Ticks of one turn.
        inverted: Whether the motor is mounted mirrored.

    Returns:
        Position in [-100, 100], [0, 100], or degrees about the middle of the range.

    Raises:
        CalibrationError: The range is empty.
    """
    low, high = calibration.range_min, calibration.range_max
    if high == low:
        raise CalibrationError(
            f"Motor {calibration.id}: range_min equals range_max ({low}).", hint="Calibrate it again."
        )
    if mode is MotorNormMode.DEGREES:
        return (ticks - (low + high) / 2) * 360 / (resolution - 1)
    inside = min(high, max(low, ticks))
    if mode is MotorNormMode.RANGE_M100_100:
        value = 200 * (inside - low) / (high - low) - 100
        return -value if inverted else value
    value = 100 * (inside - low) / (high - low)
    return 100 - value if inverted else value


def unnormalize(
    value: float, calibration: MotorCalibration, mode: MotorNormMode, resolution: int, *, inverted: bool = False
) -> int:
    """Turn the user unit into register ticks; the fraction is cut off, as on every LeRobot bus.

    Args:
        value: Position in the user unit, finite.
        calibration: Range of the joint.
        mode: User unit. The two ranges clamp; degrees do not, and ignore `inverted`.
        resolution: Ticks of one turn.
        inverted: Whether the motor is mounted mirrored.

    Returns:
        Raw position.

    Raises:
        CalibrationError: The range is empty.
        ValueError: `value` is NaN.
        OverflowError: `value` is infinite.
    """
    low, high = calibration.range_min, calibration.range_max
    if high == low:
        raise CalibrationError(
            f"Motor {calibration.id}: range_min equals range_max ({low}).", hint="Calibrate it again."
        )
    if mode is MotorNormMode.DEGREES:
        return int(value * (resolution - 1) / 360 + (low + high) / 2)
    int(value)
    if mode is MotorNormMode.RANGE_M100_100:
        value = -value if inverted else value
        return int((min(100.0, max(-100.0, value)) + 100) / 200 * (high - low) + low)
    value = 100 - value if inverted else value
    return int(min(100.0, max(0.0, value)) / 100 * (high - low) + low)


@dataclass(frozen=True)
class BusCapabilities:
    """What a bus can do. Asked instead of the vendor's name.

    Attributes:
        sync_read: Reads several motors in one exchange.
        broadcast_ping: Finds all motors in one exchange.
        homing_offset: Motors store a homing offset.
        acknowledged_write: Writes to one motor are answered.
        setup: Ids and baud rates can be changed.
    """

    sync_read: bool = True
    broadcast_ping: bool = True
    homing_offset: bool = True
    acknowledged_write: bool = True
    setup: bool = True


@dataclass
class BusCounters:
    """What happened on the wire since the bus was made.

    Attributes:
        exchanges: Requests that expect an answer.
        retries: Exchanges repeated.
        lost: Answers that never came, by motor name.
        corrupt: Answers with a wrong checksum or length.
        faults: Status errors reported, by motor name.
    """

    exchanges: int = 0
    retries: int = 0
    corrupt: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)


class MotorsBusConfig(PluginConfig):
    """Settings of a bus opened by itself (scan, setup); robots make their bus directly."""

    plugin_kind: ClassVar[str] = "motors"
    plugin_base: ClassVar[bool] = True


class MotorsBus(ABC):
    """A serial or CAN bus of motors. Values are mapped by motor name, never by order. Not thread-safe.

    Life cycle: constructed without I/O by a robot or teleoperator, which connects and disconnects it.

    Args:
        port: Serial device or CAN interface.
        motors: Name to motor; ids are unique.
        calibration: Name to calibration, if known.
        num_retry: How often a lost or corrupt exchange is repeated before it is an error.

    Raises:
        ConfigError: Two motors share an id, or a model is unknown.
    """

    capabilities: BusCapabilities = BusCapabilities()
    model_resolution: ClassVar[Mapping[str, int]] = {}
    apply_drive_mode: ClassVar[bool] = True
    normalized_data: ClassVar[frozenset[str]] = frozenset({"Goal_Position", "Present_Position"})

    def __init__(
        self,
        port: str,
        motors: Mapping[str, Motor],
        calibration: Mapping[str, MotorCalibration] | None = None,
        *,
        num_retry: int = 2,
    ) -> None:
        self.port, self.motors, self.num_retry = port, dict(motors), num_retry
        self.calibration: dict[str, MotorCalibration] = dict(calibration or {})
        self.counters = BusCounters()
        self._check_motors()

    def _check_motors(self) -> None:
        problems = []
        by_id: dict[int, list[str]] = {}
        for name, motor in self.motors.items():
            by_id.setdefault(motor.id, []).append(name)
            if motor.model not in self.model_resolution:
                known = list(self.model_resolution)
                text = f"a known model: one of {', '.join(known)}"
                problems.append(ConfigProblem(f"motors.{name}.model", motor.model, text, nearest(motor.model, known)))
        for number, names in by_id.items():
            if len(names) > 1:
                problems.append(
                    ConfigProblem(f"motors.{names[1]}.id", number, f"an id of its own; {names[0]} has it too")
                )
        if problems:
            raise ConfigError(problems, title=f"{type(self).__name__} motors")

    def __len__(self) -> int:
        return len(self.motors)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(port={self.port!r}, motors={list(self.motors)})"

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    @property
    def ids(self) -> list[int]:
        """Ids of the motors, in the order of their names."""
        return [motor.id for motor in self.motors.values()]

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """Whether the port is open."""

    @property
    def is_calibrated(self) -> bool:
        """Whether the motors hold the calibration in use; reads their registers."""
        return bool(self.calibration) and self._same_calibration(self.read_calibration())

    def _same_calibration(self, found: Mapping[str, MotorCalibration]) -> bool:
        """Compare what the motors hold with `calibration`; overridden where registers hold less."""
        return found == self.calibration

    @abstractmethod
    def connect(self, handshake: bool = True) -> None:
        """Open the port; on any failure it is closed again.

        Args:
            handshake: Whether to check that every motor answers with its model number.

        Raises:
            DeviceAlreadyConnectedError: It is open.
            DeviceConnectError: The port cannot be opened.
            MissingMotorsError: A motor does not answer or is another model.
        """

    @abstractmethod
    def disconnect(self, disable_torque: bool = True) -> None:
        """Release torque of every motor, each tried, then close the port whatever happened; idempotent.

        Args:
            disable_torque: Whether to release torque.

        Raises:
            DeviceDisconnectError: A motor could not be told; the port is closed all the same.
        """

    @abstractmethod
    def read(self, data_name: str, motor: str, *, normalize: bool = True, num_retry: int | None = None) -> float:
        """Read one register of one motor.

        Args:
            data_name: Register name.
            motor: Motor name.
            normalize: Whether positions come in the user unit.
            num_retry: Repetitions allowed; default: the bus's.

        Returns:
            The value: user unit for positions when `normalize`, else an int.

        Raises:
            DeviceNotConnectedError: Not connected.
            MotorCommunicationError: No good answer within the retries; the motor is named.
            MotorStatusError: The motor reports a fault.
        """

    @abstractmethod
    def write(
        self, data_name: str, motor: str, value: float, *, normalize: bool = True, num_retry: int | None = None
    ) -> None:
        """Write one register of one motor and wait for its acknowledgement.

        Args:
            data_name: Register name.
            motor: Motor name.
            value: User unit for positions when `normalize`, else ticks.
            normalize: Whether positions are in the user unit.
            num_retry: Repetitions allowed; default: the bus's.

        Raises:
            DeviceNotConnectedError: Not connected.
            MotorCommunicationError: No acknowledgement within the retries; the motor is named.
            MotorStatusError: The motor reports a fault.
            ValueError: The value does not fit the register, or is not finite.
        """

    @abstractmethod
    def sync_read(
        self,
        data_name: str,
        motors: str | Sequence[str] | None = None,
        *,
        normalize: bool = True,
        num_retry: int | None = None,
    ) -> dict[str, float]:
        """Read one register of several motors.

        Args:
            data_name: Register name.
            motors: Motor names; default all.
            normalize: Whether positions come in the user unit.
            num_retry: Repetitions allowed; default: the bus's.

        Returns:
            Motor name to value.

        Raises:
            DeviceNotConnectedError: Not connected.
            MotorCommunicationError: A motor gave no good answer within the retries; all such are named.
            MotorStatusError: A motor reports a fault.
        """

    @abstractmethod
    def sync_write(
        self,
        data_name: str,
        values: float | Mapping[str, float],
        *,
        normalize: bool = True,
        num_retry: int | None = None,
    ) -> None:
        """Write one register of several motors at once; not acknowledged. An empty mapping is a no-op.

        Args:
            data_name: Register name.
            values: One value for all motors, or motor name to value.
            normalize: Whether positions are in the user unit.
            num_retry: Repetitions of the sending allowed; default: the bus's.

        Raises:
            DeviceNotConnectedError: Not connected.
            ValueError: A value does not fit the register, or is not finite; nothing was sent.
        """

    @abstractmethod
    def enable_torque(self, motors: str | Sequence[str] | None = None, num_retry: int | None = None) -> None:
        """Make motors hold position.

        Args:
            motors: Motor names; default all.
            num_retry: Repetitions allowed; default: the bus's.
        """

    @abstractmethod
    def disable_torque(self, motors: str | Sequence[str] | None = None, num_retry: int | None = None) -> None:
        """Let motors go limp; every motor is tried before an error is raised.

        Args:
            motors: Motor names; default all.
            num_retry: Repetitions allowed; default: the bus's.
        """

    @abstractmethod
    def read_calibration(self) -> dict[str, MotorCalibration]:
        """Read what the motors hold.

        Returns:
            Motor name to calibration.
        """

    @abstractmethod
    def write_calibration(self, calibration: Mapping[str, MotorCalibration], cache: bool = True) -> None:
        """Write a calibration to the motors.

        Args:
            calibration: Motor name to calibration.
            cache: Whether it becomes the calibration in use.

        Raises:
            CalibrationError: It is degenerate or names other motors; nothing was written.
        """

    @abstractmethod
    def configure_motors(self) -> None:
        """Write the vendor's recommended defaults (reply delay, acceleration)."""

    @abstractmethod
    def set_half_turn_homings(self, motors: str | Sequence[str] | None = None) -> dict[str, int]:
        """Make the present pose read half a turn, right at the seam too.

        Args:
            motors: Motor names; default all.

        Returns:
            Motor name to the offset written.
        """

    @abstractmethod
    def record_ranges_of_motion(
        self, motors: Sequence[str] | None = None
    ) -> Generator[CalibrationStep, str, dict[str, tuple[int, int]]]:
        """Record the lowest and highest position of each motor while the operator moves it, as a dialogue.

        Args:
            motors: Motor names; default all.

        Yields:
            `progress` steps with the ranges so far; answer "done" to end.

        Returns:
            Motor name to (lowest, highest), surviving a wrap at the seam.
        """

    @abstractmethod
    def torque_state(self) -> dict[str, bool]:
        """Read which motors hold torque.

        Returns:
            Motor name to whether it does.
        """

    @contextmanager
    def torque_disabled(self, motors: str | Sequence[str] | None = None) -> Iterator[None]:
        """Release torque for the block, then restore what was on before.

        Args:
            motors: Motor names; default all.

        Yields:
            Nothing.
        """
        names = self._names(motors)
        before = self.torque_state()
        self.disable_torque(names)
        try:
            yield
        finally:
            self.enable_torque([n for n in names if before[n]])

    def _names(self, motors: str | Sequence[str] | None) -> list[str]:
        if motors is None:
            return list(self.motors)
        names = [motors] if isinstance(motors, str) else list(motors)
        for name in names:
            if name not in self.motors:
                near = nearest(name, list(self.motors))
                raise ValueError(
                    f"No motor {name!r} on {self.port}; motors are {', '.join(self.motors)}"
                    + (f"; did you mean {near!r}?" if near else ".")
                )
        return names

    def _require_connected(self) -> None:
        if not self.is_connected:
            raise DeviceNotConnectedError(f"{self!r} is not connected.", device=self.port, hint="Call connect() first.")

    def _calibration_of(self, motor: str) -> MotorCalibration:
        if motor not in self.calibration:
            raise CalibrationError(
                f"Motor {motor!r} on {self.port} has no calibration.",
                motors=(motor,),
                hint="Calibrate the device: ulna calibrate --robot.type=... --robot.port=... --robot.id=...",
            )
        return self.calibration[motor]
